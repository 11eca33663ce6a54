import { randomBytes } from "node:crypto";
import type { Change } from "../access/record-change.ts";
import type { Snapshot } from "../access/snapshot.ts";
import { parseListenAddress } from "../config/addresses.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { issuerPrefixes } from "../config/schema.ts";
import { openConsole } from "../console/app.ts";
import type { SharedConsole } from "../console/options.ts";
import type { StateStore } from "../oauth/server/state-store.ts";
import type { StoreReplica } from "../store/open.ts";
import { approvalDesk } from "./approval-desk.ts";
import { describeChanges } from "./change-records.ts";
import { namesOffered } from "./console-names.ts";
import { type ShownGateway, stateOf, versionsIn } from "./console-state.ts";
import type { Gateway } from "./gateway.ts";
import { openState } from "./open-state.ts";
import { outcomeOf } from "./query-outcome.ts";

/** What the embedded authorization server remembers, where there is one. */
async function openApplications(
  gateway: Gateway,
  { serviceDirectory }: LoadedConfiguration,
  opened: AsyncDisposableStack,
): Promise<StateStore | undefined> {
  const { mcp } = gateway.configuration;
  if (!mcp.enabled || mcp.authorization_servers.length > 0) return undefined;
  return (await openState(gateway, serviceDirectory, opened)).store;
}

/** What the consoles of all replicas share; undefined for one alone. */
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

/** Changes users and grants for a user of the console. */
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

/** Opens the console of a gateway. @returns how browsers reach it; undefined if none is configured */
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
