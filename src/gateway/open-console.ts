import { randomBytes } from "node:crypto";
import { diffSnapshots } from "../access/diff.ts";
import { limitsText } from "../access/query-limits.ts";
import type { Change } from "../access/record-change.ts";
import type { Snapshot } from "../access/snapshot.ts";
import type { Approval } from "../approvals/approval.ts";
import {
  type NoPreview,
  type PreviewQuery,
  previewQuery,
  readShownRows,
  type ShownRows,
  whyUnseen,
} from "../approvals/preview.ts";
import { parseListenAddress, withoutPassword } from "../config/addresses.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { issuerPrefixes } from "../config/schema.ts";
import { describeVersion, type LoadedVersion, REMEMBERED } from "../console/access-history.ts";
import { openConsole } from "../console/app.ts";
import type { ApprovalDesk, GatewayState, SharedConsole, StoreState } from "../console/options.ts";
import type { StateStore } from "../oauth/server/state-store.ts";
import { version } from "../product.ts";
import { Refusal } from "../refusal.ts";
import type { StoreReplica } from "../store/open.ts";
import { fieldLines } from "../upstream/headers.ts";
import { describeChanges } from "./change-records.ts";
import { namesOffered } from "./console-names.ts";
import type { Gateway } from "./gateway.ts";
import { openState } from "./open-state.ts";
import { hasOwnEngine, ownDatabaseUrl } from "./own-engine.ts";
import { credentialOf, LIMITS_HEADER } from "./query.ts";
import { outcomeOf } from "./query-outcome.ts";
import type { Listener } from "./server.ts";

const TIMEOUT_MS = 60_000;
/** The maximum Preview size in bytes, enough for a hundred rows before and after. */
const LARGEST_PREVIEW = 4 * 1024 * 1024;

async function askPreview(
  gateway: Gateway,
  user: string,
  { body, query, limits }: PreviewQuery,
): Promise<ShownRows | NoPreview> {
  const fields = fieldLines({
    "content-type": "application/json",
    [LIMITS_HEADER]: limitsText(limits),
    ...credentialOf(gateway),
  });
  const answer = await gateway.routing.queriesOf(query).ask({
    ...{ user, body, fields, isRead: true, largest: LARGEST_PREVIEW },
    hold: () => {},
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  if (answer.isCut) return { reason: "the rows are too long to be shown" };
  return readShownRows(answer.status, answer.body.toString("utf8"));
}

async function rowsFor(
  gateway: Gateway,
  approver: string,
  approval: Approval,
  body: Buffer,
): Promise<ShownRows | NoPreview> {
  const { queries, access, log } = gateway;
  if (!queries.isEngine) return { reason: "no gatehouse engine answers behind the gateway" };
  const preview = previewQuery(access.snapshot, queries.grammar, approval, body);
  if ("reason" in preview) return preview;
  const unseen = whyUnseen(access.snapshot, queries.grammar, approver, approval);
  if (unseen !== undefined) return { reason: unseen };
  try {
    return await askPreview(gateway, approver, preview);
  } catch (error) {
    if (error instanceof Refusal) return { reason: error.message };
    log.error({ err: error }, "the rows of an approval cannot be shown");
    return { reason: "the engine's answer cannot be read" };
  }
}

function approvalDesk(gateway: Gateway): ApprovalDesk {
  const { approvals } = gateway;
  return {
    // Viewing approvals does not create their store.
    use: async (work) =>
      (await approvals.counts()) === undefined ? undefined : approvals.use(work),
    get wait() {
      return gateway.configuration.approvals.wait * 1000;
    },
    rowsFor: (approver, approval, body) => rowsFor(gateway, approver, approval, body),
  };
}

interface ShownGateway {
  readonly gateway: Gateway;
  readonly listener: Pick<Listener, "secure" | "originOf">;
  readonly store: StoreReplica | undefined;
}

async function storeStateOf({ store, replica }: StoreReplica): Promise<StoreState> {
  const { name: own, isReached, lag } = replica;
  // Loaded on demand, because a gateway without a store does not need it.
  const { readStatus } = await import("../store/open.ts");
  try {
    return { own, isReached, lag, status: await readStatus(store.database) };
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return { own, isReached: false, lag, status: undefined };
  }
}

async function stateOf(
  { gateway, listener, store }: ShownGateway,
  loaded: LoadedConfiguration,
): Promise<GatewayState> {
  const { routing, keys } = gateway;
  const upstreams = routing.targets.map(async (target) => {
    const { busy, waiting, isLive } = target;
    const databases = routing.databasesAt(target);
    // The embedded engine listens on a private socket whose name means nothing to users.
    const isOwnEngine = databases === undefined && hasOwnEngine(loaded);
    const name = isOwnEngine ? withoutPassword(ownDatabaseUrl(loaded)) : target.name;
    return { name, databases, busy, waiting, isLive, isUp: await target.isUp() };
  });
  const { secure } = listener;
  return {
    version,
    configurationFailure: (await gateway.shared.condition()).configurationFailure,
    upstreams: await Promise.all(upstreams),
    algorithm: keys.ring.algorithm,
    keys: keys.ring.keys,
    keysFailure: keys.failure,
    certificate: secure && {
      names: secure.certificate.names,
      expires: secure.certificate.expires,
      failure: secure.failure,
    },
    store: store && (await storeStateOf(store)),
  };
}

async function readVersions({ store, replica }: StoreReplica): Promise<LoadedVersion[]> {
  const { versionsBack } = await import("../store/access-versions.ts");
  const last: LoadedVersion[] = [];
  const { snapshot, position } = replica.state;
  const versions = versionsBack(store.database.query, { snapshot, position });
  for await (const { at, version: number, author, before, after } of versions) {
    const version = { at: Math.floor(at.getTime() / 1000), version: String(number), author };
    const diff = diffSnapshots(before, after);
    if (last.push(describeVersion({ ...version, before, after, diff })) === REMEMBERED) break;
  }
  return last;
}

/** The last versions of users and grants. Undefined if only the current one is kept. */
function versionsIn({
  store,
  gateway,
}: ShownGateway): (() => Promise<LoadedVersion[]>) | undefined {
  const isKept = store !== undefined && gateway.configuration.store.access === "store";
  return isKept ? () => readVersions(store) : undefined;
}

async function openApplications(
  gateway: Gateway,
  { serviceDirectory }: LoadedConfiguration,
  opened: AsyncDisposableStack,
): Promise<StateStore | undefined> {
  const { mcp } = gateway.configuration;
  if (!mcp.enabled || mcp.authorization_servers.length > 0) return undefined;
  return (await openState(gateway, serviceDirectory, opened)).store;
}

/** State that the consoles of all replicas share. Undefined for a single gateway. */
async function openSharedConsole(
  store: StoreReplica | undefined,
): Promise<SharedConsole | undefined> {
  if (store === undefined) return undefined;
  const { sessionsInStore } = await import("../console/store-sessions.ts");
  return {
    sessions: sessionsInStore(store.store.database, store.replica),
    formSecret: await store.authorization.store.secret("console forms", randomBytes(32)),
  };
}

async function change(
  { access, changes: journal, revocations }: Gateway,
  name: string,
  plan: (current: Snapshot) => readonly Change[],
  endsTokensOf: string | undefined,
): Promise<Snapshot> {
  let changes: readonly Change[] = [];
  const author = { kind: "console", name } as const;
  const beforeWrite =
    endsTokensOf === undefined ? undefined : () => revocations.revokeUser(endsTokensOf);
  const written = await access.change(
    (current) => {
      changes = plan(current);
      return changes;
    },
    { author, beforeWrite },
  );
  journal.noteVersion(written.version);
  const ended =
    endsTokensOf === undefined || changes.length === 0
      ? []
      : [{ change: "tokens revoked", user: endsTokensOf }];
  journal.write(author, [...describeChanges(changes), ...ended], written.version);
  return written;
}

/** @returns the URL for browsers, or undefined if no console is configured */
export async function openConsoleOf(
  shown: ShownGateway,
  loaded: LoadedConfiguration,
  opened: AsyncDisposableStack,
): Promise<string | undefined> {
  const { gateway, listener } = shown;
  const { console, server, mcp } = gateway.configuration;
  const listen = console.listen === undefined ? undefined : parseListenAddress(console.listen);
  if (listen === undefined) return undefined;
  const running = await openConsole({
    listen,
    publicUrl: console.public_url,
    gatewayUrl: gateway.publicUrl,
    requestTimeout: server.request_timeout * 1000,
    shared: await openSharedConsole(shown.store),
    access: gateway.access,
    issuerPrefixes: issuerPrefixes(gateway.configuration),
    revocations: gateway.revocations,
    login: gateway.login,
    passwordRule: gateway.passwordRule,
    originOf: listener.originOf,
    state: () => stateOf(shown, loaded),
    earlierVersions: versionsIn(shown),
    explain(user, via, body) {
      const { upstream } = gateway.configuration;
      const setting = { queries: gateway.queries, form: upstream.query_form };
      return outcomeOf(gateway.access.snapshot, { user, via }, body, setting);
    },
    names: namesOffered(gateway),
    change: (username, plan, endsTokensOf) => change(gateway, username, plan, endsTokensOf),
    noteChange(name, one) {
      gateway.changes.write({ kind: "console", name }, [one]);
    },
    auditFile: gateway.configuration.audit.file,
    approvals: approvalDesk(gateway),
    applications: await openApplications(gateway, loaded, opened),
    clients: mcp.clients,
    onEvent: (name, fields, level) => gateway.audit.event(name, fields, level),
    log: gateway.log,
  });
  opened.defer(() => running.close());
  return running.url;
}
