import { existsSync } from "node:fs";
import { openAccessFile } from "../core/access/access-file.ts";
import type {
  AccessRules,
  ChangeOptions,
  Plan,
  WrittenChange,
} from "../core/access/access-rules.ts";
import { holderText } from "../core/access/grant.ts";
import { changedHolder } from "../core/access/record-change.ts";
import { errorMessage } from "../core/base/client-error.ts";
import { watchClock } from "../core/base/clock.ts";
import { watchFile } from "../core/base/files/watch.ts";
import { version } from "../core/base/product.ts";
import { storesAccess, withoutPassword } from "../core/config/addresses.ts";
import type { LoadedConfiguration } from "../core/config/load.ts";
import {
  allIssuers,
  basePathOf,
  type Configuration,
  hasAssertions,
  hasLogin,
  tokenHeaders,
  withheldHeaders,
} from "../core/config/schema.ts";
import { BodyBudget } from "../core/http/body.ts";
import {
  type ChangeJournal,
  changeNotesPath,
  describeChanges,
  openChangeJournal,
} from "../core/http/change-records.ts";
import type { Exchange } from "../core/http/exchange.ts";
import type { Gateway, Shared } from "../core/http/gateway.ts";
import {
  reportReload,
  revokeOnHandEdits,
  usersUnlockedBy,
  warnOfSuspiciousRules,
} from "../core/http/reloads.ts";
import { bodyBytesLimit } from "../core/http/system-limits.ts";
import type { OpenCounts } from "../core/identity/counts.ts";
import { configuredCosts } from "../core/identity/hash.ts";
import { keyDirectoryPath, keyFilesIn } from "../core/identity/key-file.ts";
import { type LiveKeyRing, openLiveKeyRing } from "../core/identity/key-store.ts";
import type { LoginContext } from "../core/identity/login.ts";
import { openPasswordRule } from "../core/identity/password.ts";
import { type LiveRevocations, openRevocations } from "../core/identity/revocations.ts";
import { createTokenAuthority, type LiveTokenInventory } from "../core/identity/token.ts";
import { openTokenInventory, tokenFilePath } from "../core/identity/token-file.ts";
import { VerifiedPasswords } from "../core/identity/verified-passwords.ts";
import {
  type ActivityRecorder,
  activityFile,
  createActivityRecorder,
} from "../core/observe/activity.ts";
import { type Audit, createAudit } from "../core/observe/audit.ts";
import type { Log } from "../core/observe/log.ts";
import type { Metrics } from "../core/observe/metrics.ts";
import type { Tracing } from "../core/observe/tracing.ts";
import { BackendGroup, type BackendOptions } from "../core/upstream/backends.ts";
import { openUpstreamCredential, type UpstreamCredential } from "../core/upstream/credential.ts";
import { type Database, DatabaseRouting, QueryMetrics } from "../core/upstream/database.ts";
import { forwardable, type HeaderPolicy } from "../core/upstream/headers.ts";
import type { SchemaSource } from "../core/upstream/schema-source.ts";
import { parseTarget, type UpstreamTarget } from "../core/upstream/target.ts";
import {
  type Approvals,
  admitApproved,
  openApprovals,
} from "../features/approvals/open-approvals.ts";
import type { PresetServer } from "../features/databases/serve.ts";
import type { Issuers } from "../features/issuers/issuers.ts";
import type { McpEndpoint } from "../features/mcp/routes.ts";
import type { SignIns } from "../features/oauth/client/sign-ins.ts";
import { mcpResources } from "../features/oauth/server/protocol.ts";
import { openSchema } from "../features/schema/schema.ts";
import type { Store, StoreReplica } from "../features/store/open.ts";
import {
  findDataDirectory,
  hasOwnEngine,
  knownDatabases,
  openEngine,
  openGrammar,
  ownDatabaseUrl,
} from "./own-engine.ts";
import {
  type FirstPassword,
  type FirstStart,
  prepareServiceDirectory,
} from "./service-directory.ts";
import { createShared, leads, type MemberShared, type Membership } from "./shared.ts";

interface Base {
  readonly loaded: LoadedConfiguration;
  readonly log: Log;
  readonly audit: Audit;
  readonly metrics: Metrics | undefined;
  /** Set if several processes on this machine serve the gateway. */
  readonly member: Membership | undefined;
  readonly store: StoreReplica | undefined;
  /** Closes what was opened. */
  readonly opened: AsyncDisposableStack;
}

async function openRules(
  { loaded, log, member, store }: Base,
  revocations: LiveRevocations,
): Promise<AccessRules> {
  const { auth, store: settings } = loaded.configuration;
  if (store !== undefined && settings.access === "store") return store.access;
  const file = auth.access_control_file;
  return openAccessFile(file, {
    warn: (reason) => log.warn({ file }, reason),
    checkRead: auth.check_permissions,
    // With several replicas, each would change its own copy. The file must be changed at its
    // source.
    isReadOnly: store !== undefined,
    // Programs revoke a user's tokens before they write a new password. A login in between would get
    // a token of the revoked ones.
    ...(store === undefined ? { beforeChange: () => revocations.reload() } : {}),
    ...(member === undefined ? {} : { broadcastReload: () => member.broadcastReload("access") }),
  });
}

/** Opens the access rules and reports their reloads. */
async function openAccess(base: Base, revocations: LiveRevocations): Promise<AccessRules> {
  const { loaded, log, audit, metrics, member, opened } = base;
  const { configuration } = loaded;
  const records = { log, audit, metrics, configuration, databases: knownDatabases(loaded) };
  const access = await openRules(base, revocations);
  access.subscribe((event) => reportReload(records, event));
  opened.defer(() => access.close());
  metrics?.reloaded(access.version);
  await warnOfSuspiciousRules(records, access.snapshot);
  if (storesAccess(configuration) && leads(member)) {
    const file = configuration.auth.access_control_file;
    const watch = watchFile(file, () => {
      if (existsSync(file)) {
        log.warn({ file }, "edits of this file are ignored: users and grants are in the store");
      }
    });
    opened.defer(() => watch.close());
  }
  return access;
}

function openChanges(
  { loaded, audit, log, member, opened }: Base,
  access: AccessRules,
  { throttle }: Shared,
) {
  const isFirst = leads(member);
  const unlock = (user: string) => {
    throttle.unlock(user).catch((error: unknown) => {
      log.error({ user, reason: errorMessage(error) }, "failed logins could not be cleared");
    });
  };
  const journal = openChangeJournal({
    audit,
    log,
    accessFile: loaded.configuration.auth.access_control_file,
    notes: changeNotesPath(loaded.serviceDirectory),
    isFirst,
    unlock,
  });
  access.subscribe((event) => {
    journal.onReload(event);
    if (isFirst && event.kind === "loaded") usersUnlockedBy(event).forEach(unlock);
  });
  opened.defer(() => journal.close());
  return journal;
}

/** Writes changes caused by a login, such as a hash with a higher cost, as the user's own. */
async function changeAsUser(
  access: AccessRules,
  journal: ChangeJournal,
  plan: Plan,
): Promise<WrittenChange> {
  const beforeWrite: ChangeOptions["beforeWrite"] = (_, step) => journal.noteStep(step);
  const written = await access.change(plan, { beforeWrite });
  const { version } = written.snapshot;
  const [first] = written.changes;
  if (first !== undefined) {
    const author = { kind: "api", name: holderText(changedHolder(first)) } as const;
    journal.write(author, describeChanges(written.changes), version);
  }
  return written;
}

async function openKeys({ loaded, store, member, log, metrics }: Base): Promise<LiveKeyRing> {
  const { auth } = loaded.configuration;
  const keyStore =
    store?.keys ??
    keyFilesIn(keyDirectoryPath(loaded.serviceDirectory), { checkRead: auth.check_permissions });
  const keys = await openLiveKeyRing(keyStore, {
    algorithm: auth.signing_algorithm,
    // A restarted worker must not create signing keys of its own.
    mayCreate: member?.isFirst ?? true,
    onReplaced: () =>
      log.warn(
        { place: keyStore.place, algorithm: auth.signing_algorithm },
        "no signing keys of this algorithm found: new ones were created, and earlier tokens are invalid",
      ),
    onReload(isChanged) {
      metrics?.keysReloaded(true);
      if (isChanged) log.info({ signer: keys.ring.signer.kid }, "signing keys reloaded");
    },
    onFailure(error) {
      metrics?.keysReloaded(false);
      const reason = errorMessage(error);
      log.error({ reason }, "signing keys refused: the last good ones stay in force");
    },
  });
  metrics?.keysReloaded(true);
  return keys;
}

function openRevokedTokens({ loaded, member, log }: Base): Promise<LiveRevocations> {
  const { revocations_file: file, check_permissions: checkRead } = loaded.configuration.auth;
  return openRevocations(file, {
    checkRead,
    ...(member === undefined
      ? {}
      : { broadcastReload: () => member.broadcastReload("revocations") }),
    onFailure: (error) =>
      log.error(
        { reason: errorMessage(error) },
        "revocations refused: the last good state stays in force",
      ),
    onLost: (count) =>
      log.warn(
        { file, count },
        "the revocations file lacks revocations that are in force: they stay in force and are written back",
      ),
  });
}

async function openInventory({ loaded, store, log, opened }: Base): Promise<LiveTokenInventory> {
  if (store !== undefined) return store.inventory;
  const inventory = await openTokenInventory(tokenFilePath(loaded.serviceDirectory), {
    checkRead: loaded.configuration.auth.check_permissions,
    onFailure: (error) =>
      log.error(
        { reason: errorMessage(error) },
        "issued tokens refused: the last good state stays",
      ),
  });
  return opened.adopt(inventory, (one) => one.close());
}

async function openIdentity(
  base: Base,
  access: AccessRules,
  revocations: LiveRevocations,
  changes: ChangeJournal,
  { throttle, hashing }: Shared,
) {
  const { loaded, store, log, member, metrics, opened } = base;
  const { auth, store: settings } = loaded.configuration;
  const keys = await openKeys(base);
  opened.defer(() => keys.close());
  if (store === undefined || settings.access === "file") {
    const onFailure = (user: string, error: unknown) =>
      log.error({ user, reason: errorMessage(error) }, "tokens could not be revoked permanently");
    opened.defer(revokeOnHandEdits(access, revocations, member?.number ?? 1, onFailure));
  }
  const inventory = await openInventory(base);
  const tokens = createTokenAuthority(() => keys.ring, auth.issuer);
  metrics?.exportTokens(tokens.metrics);
  const login: LoginContext = {
    snapshot: () => access.snapshot,
    revocations,
    change: (plan) => changeAsUser(access, changes, plan),
    tokens,
    throttle,
    hashing,
    costs: configuredCosts(loaded.configuration),
    tokenLifetime: auth.token_expiration,
    onUpgradeFailed: (error) =>
      log.warn(
        { reason: errorMessage(error) },
        "a password hash could not be upgraded to the configured costs",
      ),
  };
  return { keys, tokens, inventory, login, passwords: new VerifiedPasswords(login) };
}

/** Loads nothing without external issuers. */
async function openIssuers(
  { loaded, log, metrics, opened }: Base,
  resource: () => readonly string[],
) {
  const settings = allIssuers(loaded.configuration);
  if (settings.length === 0) return undefined;
  const { Issuers } = await import("../features/issuers/issuers.ts");
  const issuers = new Issuers(settings, resource, log);
  opened.defer(() => issuers.close());
  metrics?.exportIssuers(() => issuers.states);
  return issuers;
}

/** Loads nothing without sign-in through a provider, or by its assertions. */
async function openSignIns(
  { loaded, store, log, opened }: Base,
  revocations: LiveRevocations,
  issuers: Issuers | undefined,
): Promise<SignIns | undefined> {
  const { configuration, serviceDirectory } = loaded;
  const isUsed = hasLogin(configuration) || hasAssertions(configuration);
  if (issuers === undefined || !isUsed) return undefined;
  const { SignIns } = await import("../features/oauth/client/sign-ins.ts");
  const { openState } = await import("../features/oauth/server/state-file.ts");
  const state = await openState(store?.authorization, serviceDirectory, opened);
  return SignIns.open({ settings: allIssuers(configuration), state, revocations, issuers, log });
}

/**
 * Opens the store that replicas share. The stack closes it. Returns undefined, and loads nothing,
 * if all state is in files.
 *
 * @throws StoreError, StoreKeyError or StoreContentError if it cannot be used
 */
async function openSharedStore(
  configuration: Configuration,
  log: Log,
  metrics: Metrics | undefined,
  opened: AsyncDisposableStack,
): Promise<StoreReplica | undefined> {
  if (configuration.store.url === undefined) return undefined;
  const { openReplica, openStore } = await import("../features/store/open.ts");
  const store = await openStore(configuration);
  opened.defer(() => store.close());
  const { max_staleness: seconds } = configuration.store;
  const shared = await openReplica(
    store,
    configuration,
    {
      onUnreachable: (reason) =>
        log.error(
          { reason },
          `the store is unreachable: changes fail now, and all requests in ${seconds} seconds`,
        ),
      onReachable: () => log.info("the store is reachable again"),
    },
    opened,
  );
  metrics?.exportStore(shared.replica);
  return shared;
}

/**
 * Opens the counters that replicas share. The stack closes them. Returns undefined if each replica
 * counts on its own.
 *
 * @param existing the store, if it is already open
 * @throws as `openSharedStore`
 */
export async function openSharedCounts(
  configuration: Configuration,
  existing: Store | undefined,
  opened: AsyncDisposableStack,
): Promise<OpenCounts | undefined> {
  if (configuration.store.url === undefined) return undefined;
  const { openStore } = await import("../features/store/open.ts");
  const { openCounts } = await import("../features/store/shared-counts.ts");
  const store = existing ?? (await openStore(configuration));
  if (existing === undefined) opened.defer(() => store.close());
  return openCounts(store, opened);
}

async function openOwnDatabase({ loaded, log, member }: Base, metrics: QueryMetrics) {
  const { connections, response_timeout: seconds } = loaded.configuration.upstream;
  const store = await openEngine(loaded, log, leads(member));
  // Loaded on demand, because gateways with a foreign upstream do not need it.
  const { EngineDatabase } = await import("../engine/database.ts");
  return new EngineDatabase(store, {
    name: withoutPassword(ownDatabaseUrl(loaded)),
    connections,
    waitTimeoutMs: seconds * 1000,
    metrics,
    log,
  });
}

/** Opens the configured upstreams, or the engine as the first one. */
async function openUpstream(
  base: Base,
  credential: UpstreamCredential | undefined,
): Promise<DatabaseRouting> {
  const { loaded, log, metrics, opened } = base;
  const { upstream } = loaded.configuration;
  const options: BackendOptions = {
    connections: upstream.connections,
    connectTimeoutMs: upstream.connect_timeout * 1000,
    responseTimeoutMs: upstream.response_timeout * 1000,
    healthPath: upstream.health_path,
    healthIntervalMs: upstream.health_interval * 1000,
    credential,
    metrics: new QueryMetrics(),
    onChange(target, isLive) {
      if (isLive) log.info({ target }, "an upstream is back and takes queries again");
      else log.warn({ target }, "an upstream failed and takes no queries until a check passes");
    },
  };
  const openGroup = (targets: readonly UpstreamTarget[]): BackendGroup =>
    opened.adopt(new BackendGroup(targets, options), (group) => group.close());
  const listUrls = ({ url, urls = [] }: Pick<typeof upstream, "url" | "urls">) =>
    (url === undefined ? urls : [url]).map(parseTarget);
  const home = hasOwnEngine(loaded)
    ? opened.adopt(await openOwnDatabase(base, options.metrics), (one) => one.close())
    : openGroup(listUrls(upstream));
  const elsewhere = new Map<string, Database>();
  for (const { databases, ...where } of upstream.databases) {
    const group = openGroup(listUrls(where));
    for (const database of databases) elsewhere.set(database, group);
  }
  const routing = new DatabaseRouting(home, elsewhere);
  metrics?.exportUpstream(options.metrics, () => routing.isUp());
  metrics?.exportTargets(routing.targets);
  return routing;
}

export interface StartOptions extends FirstStart {
  readonly log: Log;
}

export interface MemberOptions extends StartOptions {
  /** Set if several processes serve the gateway. */
  readonly member?: Membership;
}

async function openShared(base: Base): Promise<MemberShared> {
  const { loaded, member, log, metrics, store, opened } = base;
  let shared = member?.shared;
  if (shared === undefined) {
    const counts = await openSharedCounts(loaded.configuration, store?.store, opened);
    const here = createShared(loaded, log, opened, counts);
    metrics?.exportHashing(here.hashing.metrics);
    shared = here;
  }
  return store === undefined ? shared : { ...shared, sessions: store.sessions };
}

function headerPolicy(
  { auth, upstream }: Configuration,
  credential: UpstreamCredential | undefined,
): HeaderPolicy {
  return {
    forwardHeaders: forwardable(upstream.forward_headers),
    withheld: withheldHeaders({ auth, upstream }),
    forwardAuthorization: upstream.forward_authorization,
    withheldSchemes: new Set(auth.accept.filter((one) => one !== "bearer")),
    credential,
  };
}

const STRICT_TRANSPORT_AGE = 31_536_000;

/**
 * Strict-Transport-Security (RFC 6797) if the gateway terminates TLS; a reverse proxy sets its own.
 * Sent only with a configured public name, because it applies to every port of that name. And Vary:
 * a shared cache knows that responses depend on Authorization (RFC 9111, section 3.5), but not that
 * they depend on other headers with tokens.
 */
function transportHeaders({ server, auth }: Configuration): readonly string[] {
  const headers: string[] = [];
  if (server.tls.certificate !== undefined && server.public_url.startsWith("https:")) {
    headers.push("Strict-Transport-Security", `max-age=${STRICT_TRANSPORT_AGE}`);
  }
  const tokens = tokenHeaders(auth.accept);
  if (tokens.length > 0) headers.push("Vary", tokens.join(", "));
  return headers;
}

/** The global under which the OpenTelemetry API (all 1.x versions) keeps a registered SDK. */
const registered = Symbol.for("opentelemetry.js.api.1");

/** Loads nothing unless an OpenTelemetry SDK is registered in this process. */
async function openTraces(
  { log, opened }: Base,
  routing: DatabaseRouting,
): Promise<Tracing | undefined> {
  if (!(registered in globalThis)) return undefined;
  const { openTracing } = await import("../core/observe/tracing.ts");
  const targets = routing.targets.map(({ name }) => name);
  return opened.adopt(openTracing(version, targets, log), (tracing) => tracing?.flush());
}

/** The console's URL for browsers, as far as it is known before it listens. */
function knownConsoleUrl({ console: { listen, public_url: url } }: Configuration) {
  if (listen === undefined) return undefined;
  return url || (listen.endsWith(":0") ? undefined : `http://${listen}`);
}

/** The opened features. The core knows none of them. */
export interface Features {
  /** Undefined if all state is in files. */
  readonly store: StoreReplica | undefined;
  readonly shared: MemberShared;
  readonly approvals: Approvals;
  /** Undefined without external issuers. */
  readonly issuers: Issuers | undefined;
  /** Undefined without sign-in through a provider. */
  readonly signIns: SignIns | undefined;
  readonly schema: SchemaSource<Exchange>;
  /** Undefined without `upstream.preset`. */
  readonly preset: PresetServer | undefined;
  /** Pending until the gateway's URL is known. */
  readonly mcp: PromiseWithResolvers<McpEndpoint>;
  /** The console's URL for browsers. Undefined without a console, or before its port is known. */
  consoleUrl: string | undefined;
}

export interface OpenedGateway {
  readonly gateway: Gateway & {
    configuration: Configuration;
    publicUrl: string;
    upstreamVersion: Gateway["upstreamVersion"];
  };
  readonly features: Features;
  readonly firstPassword: FirstPassword | undefined;
  /** The directory of the SQLite files. Undefined for another database. */
  readonly dataDirectory: string | undefined;
}

async function openActivity(base: Base): Promise<ActivityRecorder> {
  const { loaded, log, member, store, opened } = base;
  let place = activityFile(loaded.serviceDirectory, member?.number ?? 0);
  if (store !== undefined) {
    const { activityTable } = await import("../features/store/activity-table.ts");
    place = activityTable(store.store.database);
  }
  return opened.adopt(createActivityRecorder(place, log), (activity) => activity.close());
}

/** Loads nothing without `upstream.preset`. */
async function openPreset(gateway: Gateway): Promise<PresetServer | undefined> {
  const { preset } = gateway.configuration.upstream;
  if (preset === undefined) return undefined;
  const { presets } = await import("../features/databases/presets.ts");
  const { PresetServer } = await import("../features/databases/serve.ts");
  return new PresetServer(await presets[preset](), gateway);
}

export async function openGateway(
  loaded: LoadedConfiguration,
  options: MemberOptions,
  opened: AsyncDisposableStack,
): Promise<OpenedGateway> {
  const { log, member } = options;
  const { configuration } = loaded;
  const { server } = configuration;
  let access: AccessRules | undefined;
  const audit = createAudit(configuration.audit.file, log, () => access?.version);
  opened.defer(() => audit.close());
  const isMeasured = configuration.metrics.listen !== undefined;
  const metrics = isMeasured
    ? new (await import("../core/observe/metrics.ts")).Metrics()
    : undefined;
  opened.defer(watchClock((seconds) => log.warn({ seconds }, "the system clock was changed")));
  const passwordRule = await openPasswordRule(configuration);
  const firstPassword =
    member?.isFirst === false
      ? undefined
      : await prepareServiceDirectory(loaded, options, passwordRule);
  const store = await openSharedStore(configuration, log, metrics, opened);
  const base = { loaded, log, audit, metrics, member, store, opened };
  const activity = await openActivity(base);
  const revocations = store?.revocations ?? (await openRevokedTokens(base));
  opened.defer(() => revocations.close());
  access = await openAccess(base, revocations);
  const shared = await openShared(base);
  const changes = openChanges(base, access, shared);
  const identity = await openIdentity(base, access, revocations, changes, shared);
  const issuers = await openIssuers(base, () => mcpResources(gateway.publicUrl));
  const credential = openUpstreamCredential(configuration, log, opened);
  const routing = await openUpstream(base, credential);
  const tracing = await openTraces(base, routing);
  let features: Features | undefined;
  const consoleUrl = () => features?.consoleUrl ?? knownConsoleUrl(configuration);
  const approvals = await openApprovals({ ...base, access, consoleUrl });
  metrics?.exportApprovals(() => approvals.counts());
  const basePath = basePathOf(configuration);
  const gateway: OpenedGateway["gateway"] = {
    configuration,
    basePath,
    publicUrl: server.public_url && server.public_url + basePath,
    transportHeaders: transportHeaders(configuration),
    access,
    lease: store?.replica,
    revocations,
    ...identity,
    issuers,
    routing,
    upstreamVersion: undefined,
    tracing,
    passwordRule,
    shared,
    headers: headerPolicy(configuration, credential),
    queries: openGrammar(loaded),
    admission: admitApproved(approvals, consoleUrl),
    budget: new BodyBudget(bodyBytesLimit(server)),
    log,
    audit,
    activity,
    changes,
    metrics,
  };
  const preset = await openPreset(gateway);
  gateway.upstreamVersion = preset && (() => preset.version());
  features = {
    store,
    shared,
    approvals,
    issuers,
    signIns: await openSignIns(base, revocations, issuers),
    schema: openSchema(gateway),
    preset,
    mcp: Promise.withResolvers<McpEndpoint>(),
    consoleUrl: knownConsoleUrl(configuration),
  };
  return { gateway, features, firstPassword, dataDirectory: findDataDirectory(loaded) };
}
