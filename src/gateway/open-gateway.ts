import { existsSync } from "node:fs";
import { openAccessFile } from "../access/access-file.ts";
import type { AccessRules, Plan } from "../access/access-rules.ts";
import { type Change, usernameOf } from "../access/record-change.ts";
import type { Snapshot } from "../access/snapshot.ts";
import { watchClock } from "../clock.ts";
import { storesAccess } from "../config/addresses.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import type { Configuration } from "../config/schema.ts";
import { watchFile } from "../files/watch.ts";
import type { OpenCounts } from "../identity/counts.ts";
import { makeHandEditsLast } from "../identity/hand-edits.ts";
import { configuredCosts } from "../identity/hash.ts";
import { keyFilesIn, keysDirectoryOf } from "../identity/key-file.ts";
import { type LiveKeyRing, openLiveKeyRing } from "../identity/key-ring.ts";
import type { LoginContext } from "../identity/login.ts";
import { openPasswordRule, type PasswordRule } from "../identity/password.ts";
import { type LiveRevocations, openRevocations } from "../identity/revocations.ts";
import { createTokenAuthority, type TokenAuthority } from "../identity/token.ts";
import { ActivityNotes, type ActivityPlace, activityFile } from "../observe/activity.ts";
import { type Audit, createAudit } from "../observe/audit.ts";
import type { Log } from "../observe/log.ts";
import type { Metrics } from "../observe/metrics.ts";
import type { Tracing } from "../observe/tracing.ts";
import { version } from "../product.ts";
import type { Store, StoreReplica } from "../store/open.ts";
import {
  BackendGroup,
  type BackendOptions,
  DatabaseRouting,
  QueryMetrics,
} from "../upstream/backends.ts";
import type { HeaderPolicy } from "../upstream/headers.ts";
import { parseTarget, type UpstreamTarget } from "../upstream/target.ts";
import { BodyBudget } from "./body.ts";
import {
  type ChangeJournal,
  changeNotesOf,
  describeChanges,
  openChangeJournal,
} from "./change-records.ts";
import type { Gateway, McpEndpoint } from "./gateway.ts";
import { openApprovals } from "./open-approvals.ts";
import { dataDirectoryOf, type EngineTarget, hasOwnEngine, knownDatabases } from "./own-engine.ts";
import { openGrammar } from "./query-grammar.ts";
import { reportReload, warnOfOddities } from "./reload-report.ts";
import { openSchema } from "./schema.ts";
import { type FirstPassword, prepareServiceDirectory } from "./service-directory.ts";
import { createShared, type Membership, type Shared } from "./shared.ts";
import { bodyBytesLimit } from "./system-limits.ts";

interface Fellows {
  /** Set if several processes on this machine serve the gateway. */
  readonly member: Membership | undefined;
  readonly store: StoreReplica | undefined;
}

async function openRules(
  { configuration: { auth, store: settings } }: LoadedConfiguration,
  { member, store }: Fellows,
  log: Log,
): Promise<AccessRules> {
  if (store !== undefined && settings.access === "store") return store.access;
  const file = auth.access_control_file;
  return openAccessFile(file, {
    warn: (reason) => log.warn({ file }, reason),
    checkRead: auth.check_permissions,
    // With several replicas, each would change its own copy. The file must be changed at its
    // source.
    isReadOnly: store !== undefined,
    ...(member === undefined ? {} : { tellOthers: () => member.tellOthers("access") }),
  });
}

/** Opens the access rules and reports their reloads. The stack closes them. */
async function openAccess(
  loaded: LoadedConfiguration,
  observers: { log: Log; audit: Audit; metrics: Metrics | undefined },
  fellows: Fellows,
  opened: AsyncDisposableStack,
): Promise<AccessRules> {
  const records = { ...observers, databases: () => knownDatabases(loaded) };
  const access = await openRules(loaded, fellows, observers.log);
  access.subscribe((event) => reportReload(records, event));
  opened.defer(() => access.close());
  records.metrics?.reloaded(access.version);
  await warnOfOddities(records, access.snapshot);
  const { configuration } = loaded;
  if (storesAccess(configuration) && (fellows.member?.isFirst ?? true)) {
    const file = configuration.auth.access_control_file;
    const watch = watchFile(file, () => {
      if (existsSync(file)) {
        observers.log.warn(
          { file },
          "edits of this file are ignored: users and grants are in the store",
        );
      }
    });
    opened.defer(() => watch.close());
  }
  return access;
}

/** Opens the journal that follows changes of the access file. The stack closes it. */
function openChanges(
  { configuration, serviceDirectory }: LoadedConfiguration,
  {
    access,
    audit,
    log,
    member,
  }: Pick<IdentityBase, "access" | "log" | "member"> & { audit: Audit },
  opened: AsyncDisposableStack,
): ChangeJournal {
  const journal = openChangeJournal({
    audit,
    log,
    accessFile: configuration.auth.access_control_file,
    notes: changeNotesOf(serviceDirectory),
    isFirst: member?.isFirst ?? true,
  });
  access.subscribe((event) => journal.onReload(event));
  opened.defer(() => journal.close());
  return journal;
}

/** Writes changes caused by a login, such as a hash with a higher cost, as the user's own. */
async function changeAsUser(
  { access, changes }: Pick<IdentityBase, "access" | "changes">,
  plan: Plan,
): Promise<Snapshot> {
  let planned: readonly Change[] = [];
  const written = await access.change((current) => {
    planned = plan(current);
    return planned;
  });
  changes.noteVersion(written.version);
  const [first] = planned;
  if (first !== undefined) {
    const author = { kind: "api", name: usernameOf(first) } as const;
    changes.write(author, describeChanges(planned), written.version);
  }
  return written;
}

interface Identity {
  readonly keys: LiveKeyRing;
  readonly revocations: LiveRevocations;
  readonly tokens: TokenAuthority;
  readonly login: LoginContext;
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : "unknown";
}

interface IdentityBase extends Fellows {
  readonly access: AccessRules;
  readonly changes: ChangeJournal;
  readonly shared: Shared;
  readonly log: Log;
  readonly metrics: Metrics | undefined;
}

async function openKeys(
  { configuration: { auth }, serviceDirectory }: LoadedConfiguration,
  { store, member, log, metrics }: IdentityBase,
): Promise<LiveKeyRing> {
  const files = () =>
    keyFilesIn(keysDirectoryOf(serviceDirectory), { checkRead: auth.check_permissions });
  const held = store?.keys ?? files();
  const keys = await openLiveKeyRing(held, {
    algorithm: auth.signing_algorithm,
    // A restarted worker must not create signing keys of its own.
    mayMake: member?.isFirst ?? true,
    onReplaced: () =>
      log.warn({ place: held.place }, "no signing keys: made anew, earlier tokens end"),
    onReload() {
      metrics?.keysReloaded(true);
      log.info({ signer: keys.ring.signer.kid }, "signing keys reloaded");
    },
    onFailure(error) {
      metrics?.keysReloaded(false);
      const reason = reasonOf(error);
      log.error({ reason }, "signing keys refused: the last good ones stay in force");
    },
  });
  metrics?.keysReloaded(true);
  return keys;
}

function openRevokedTokens(
  { configuration: { auth } }: LoadedConfiguration,
  { member, log }: IdentityBase,
): Promise<LiveRevocations> {
  return openRevocations(auth.revocations_file, {
    checkRead: auth.check_permissions,
    ...(member === undefined ? {} : { tellOthers: () => member.tellOthers("revocations") }),
    onFailure: (error) =>
      log.error(
        { reason: reasonOf(error) },
        "revocations refused: the last good state stays in force",
      ),
    onLost: (count) =>
      log.warn(
        { file: auth.revocations_file, count },
        "the revocations file lacks what is in force: it stays so and is written back",
      ),
  });
}

async function openIdentity(
  loaded: LoadedConfiguration,
  base: IdentityBase,
  opened: AsyncDisposableStack,
): Promise<Identity> {
  const { configuration } = loaded;
  const { auth } = configuration;
  const { access, changes, shared, store, log, member } = base;
  const keys = await openKeys(loaded, base);
  opened.defer(() => keys.close());
  const revocations = store?.revocations ?? (await openRevokedTokens(loaded, base));
  opened.defer(() => revocations.close());
  if (store === undefined || configuration.store.access === "file") {
    const stop = makeHandEditsLast(access, revocations, {
      turn: member?.number,
      onFailure: (user, error) =>
        log.error({ user, reason: reasonOf(error) }, "tokens could not be revoked for good"),
    });
    opened.defer(stop);
  }
  const tokens = createTokenAuthority(() => keys.ring, auth.issuer);
  const costs = configuredCosts(configuration);
  const login: LoginContext = {
    snapshot: () => access.snapshot,
    revocations,
    change: (plan) => changeAsUser({ access, changes }, plan),
    tokens,
    throttle: shared.throttle,
    hashing: shared.hashing,
    costs,
    tokenLifetime: auth.token_expiration,
    onUpgradeFailed: (error) =>
      log.warn(
        { reason: reasonOf(error) },
        "a password hash could not be upgraded to the configured costs",
      ),
  };
  return { keys, revocations, tokens, login };
}

/**
 * Opens the store that replicas share. The stack closes it. Returns undefined, and loads nothing,
 * if all state is in files.
 *
 * @throws StoreError, StoreKeyError or StoreContentError if it cannot be used
 */
async function openSharedStore(
  configuration: Configuration,
  { log, metrics }: { log: Log; metrics: Metrics | undefined },
  opened: AsyncDisposableStack,
): Promise<StoreReplica | undefined> {
  if (configuration.store.url === undefined) return undefined;
  const { openReplica, openStore } = await import("../store/open.ts");
  const store = await openStore(configuration);
  opened.defer(() => store.close());
  const { max_staleness: seconds } = configuration.store;
  const shared = await openReplica(
    store,
    configuration,
    {
      onLost: (reason) =>
        log.error(
          { reason },
          `the store is out of reach: nothing can be changed, and in ${seconds} seconds nothing is decided`,
        ),
      onFound: () => log.info("the store is there again"),
    },
    opened,
  );
  metrics?.showStore(shared.replica);
  return shared;
}

/**
 * Opens the counters that replicas share. The stack closes them. Returns undefined if each replica
 * counts on its own.
 *
 * @param known the store, if it is already open
 * @throws as `openSharedStore`
 */
export async function openSharedCounts(
  configuration: Configuration,
  known: Store | undefined,
  opened: AsyncDisposableStack,
): Promise<OpenCounts | undefined> {
  if (configuration.store.url === undefined) return undefined;
  const { openStore } = await import("../store/open.ts");
  const { openCounts } = await import("../store/shared-counts.ts");
  const store = known ?? (await openStore(configuration));
  if (known === undefined) opened.defer(() => store.close());
  return openCounts(store, opened);
}

/**
 * Opens the configured upstreams, or an embedded engine as the first one. The stack closes them.
 */
async function openUpstream(
  loaded: LoadedConfiguration,
  { log, engine }: MemberOptions,
  metrics: Metrics | undefined,
  opened: AsyncDisposableStack,
): Promise<DatabaseRouting> {
  const { upstream } = loaded.configuration;
  const options: BackendOptions = {
    connections: upstream.connections,
    connectTimeout: upstream.connect_timeout * 1000,
    responseTimeout: upstream.response_timeout * 1000,
    healthPath: upstream.health_path,
    healthInterval: upstream.health_interval * 1000,
    authorization: upstream.authorization,
    metrics: new QueryMetrics(),
    onChange(target, isLive) {
      if (isLive) log.info({ target }, "an upstream is back and takes queries again");
      else log.warn({ target }, "an upstream failed and takes no queries until a check passes");
    },
  };
  const openGroup = (targets: readonly UpstreamTarget[], own = options): BackendGroup =>
    opened.adopt(new BackendGroup(targets, own), (group) => group.close());
  const targetsOf = ({ url, urls = [] }: Pick<typeof upstream, "url" | "urls">) =>
    (url === undefined ? urls : [url]).map(parseTarget);
  // The configured path belongs to the operator's servers, not to the engine.
  const home = hasOwnEngine(loaded)
    ? openGroup([await engine()], { ...options, healthPath: "/healthz" })
    : openGroup(targetsOf(upstream));
  const elsewhere = new Map<string, BackendGroup>();
  for (const { databases, ...where } of upstream.databases) {
    const group = openGroup(targetsOf(where));
    for (const database of databases) elsewhere.set(database, group);
  }
  const routing = new DatabaseRouting(home, elsewhere);
  metrics?.showUpstream(options.metrics, () => routing.isUp());
  metrics?.showTargets(routing.targets);
  return routing;
}

export interface StartOptions {
  readonly log: Log;
  /** `$GATEHOUSE_ADMIN_PASSWORD`. */
  readonly chosenPassword: string | undefined;
  /** True if a generated password can be shown once on a terminal. */
  readonly hasTerminal: boolean;
  readonly engine: EngineTarget;
}

export interface MemberOptions extends StartOptions {
  /** Set if several processes serve the gateway. */
  readonly member?: Membership;
}

async function openShared(
  loaded: LoadedConfiguration,
  { member, log }: MemberOptions,
  { metrics, store }: { metrics: Metrics | undefined; store: StoreReplica | undefined },
  opened: AsyncDisposableStack,
): Promise<Shared> {
  const shared = member?.shared ?? (await openHere());
  return store === undefined ? shared : { ...shared, sessions: store.sessions };

  async function openHere(): Promise<Shared> {
    const counts = await openSharedCounts(loaded.configuration, store?.store, opened);
    const here = createShared(loaded, log, opened, counts);
    metrics?.showHashing(here.hashing.metrics);
    return here;
  }
}

function headerPolicy({ upstream }: Configuration): HeaderPolicy {
  return {
    forwardHeaders: new Set(upstream.forward_headers.map((name) => name.toLowerCase())),
    forwardAuthorization: upstream.forward_authorization,
    authorization: upstream.authorization,
  };
}

/** In seconds (one year). */
const STRICT_TRANSPORT_AGE = 31_536_000;

/**
 * Strict-Transport-Security (RFC 6797) if the gateway terminates TLS; a reverse proxy sets its own.
 * Sent only with a configured public name, because it applies to every port of that name.
 */
function transportHeaders({ server }: Configuration): readonly string[] {
  const isStrict = server.tls.certificate !== undefined && server.public_url.startsWith("https:");
  return isStrict ? ["Strict-Transport-Security", `max-age=${STRICT_TRANSPORT_AGE}`] : [];
}

async function prepareFirstStart(
  { configuration, serviceDirectory }: LoadedConfiguration,
  { chosenPassword, hasTerminal, member }: MemberOptions,
  passwordRule: PasswordRule,
): Promise<FirstPassword | undefined> {
  if (member?.isFirst === false) return undefined;
  return prepareServiceDirectory({
    serviceDirectory,
    accessFile: configuration.auth.access_control_file,
    keysDirectory: keysDirectoryOf(serviceDirectory),
    costs: configuredCosts(configuration),
    passwordRule,
    chosenPassword,
    hasTerminal,
    isShared: configuration.store.url !== undefined,
  });
}

async function openMetrics({ metrics }: Configuration): Promise<Metrics | undefined> {
  if (metrics.listen === undefined) return undefined;
  const { Metrics } = await import("../observe/metrics.ts");
  return new Metrics();
}

/** The global under which the OpenTelemetry API (all 1.x versions) keeps a registered SDK. */
const registered = Symbol.for("opentelemetry.js.api.1");

/**
 * Traces requests if an OpenTelemetry SDK is registered in this process. Otherwise loads nothing.
 */
async function openTraces(
  routing: DatabaseRouting,
  log: Log,
  opened: AsyncDisposableStack,
): Promise<Tracing | undefined> {
  if (!(registered in globalThis)) return undefined;
  const { openTracing } = await import("../observe/tracing.ts");
  const targets = routing.targets.map(({ name }) => name);
  return opened.adopt(openTracing(version, targets, log), (tracing) => tracing?.flush());
}

/** The console's URL for browsers, as far as it is known before it listens. */
function knownConsoleUrl({ console: { listen, public_url: url } }: Configuration) {
  if (listen === undefined) return undefined;
  return url || (listen.endsWith(":0") ? undefined : `http://${listen}`);
}

export interface OpenedGateway {
  readonly gateway: Gateway & {
    configuration: Configuration;
    publicUrl: string;
    consoleUrl: string | undefined;
  };
  /** Resolved once `/mcp` is ready. */
  readonly mcp: PromiseWithResolvers<McpEndpoint>;
  readonly store: StoreReplica | undefined;
  readonly firstPassword: FirstPassword | undefined;
  /** The embedded engine's data directory. Undefined with an external upstream. */
  readonly dataDirectory: string | undefined;
}

async function activityPlaceOf(
  { serviceDirectory }: LoadedConfiguration,
  { member }: MemberOptions,
  shared: StoreReplica | undefined,
): Promise<ActivityPlace> {
  if (shared === undefined) return activityFile(serviceDirectory, member?.number ?? 0);
  const { activityTable } = await import("../store/activity-table.ts");
  return activityTable(shared.store.database);
}

export async function openGateway(
  loaded: LoadedConfiguration,
  options: MemberOptions,
  opened: AsyncDisposableStack,
): Promise<OpenedGateway> {
  const { log, member } = options;
  const { configuration } = loaded;
  const { server } = configuration;
  const audit = createAudit(configuration.audit.file, log);
  opened.defer(() => audit.close());
  const metrics = await openMetrics(configuration);
  opened.defer(watchClock((seconds) => log.warn({ seconds }, "the system's clock has jumped")));
  const passwordRule = await openPasswordRule(configuration);
  const firstPassword = await prepareFirstStart(loaded, options, passwordRule);
  const store = await openSharedStore(configuration, { log, metrics }, opened);
  const activity = new ActivityNotes(await activityPlaceOf(loaded, options, store), log);
  opened.defer(() => activity.close());
  const access = await openAccess(loaded, { log, audit, metrics }, { member, store }, opened);
  const shared = await openShared(loaded, options, { metrics, store }, opened);
  const changes = openChanges(loaded, { access, audit, log, member }, opened);
  const base = { access, changes, shared, store, log, metrics, member };
  const identity = await openIdentity(loaded, base, opened);
  metrics?.showTokens(identity.tokens.metrics);
  const routing = await openUpstream(loaded, options, metrics, opened);
  const tracing = await openTraces(routing, log, opened);
  const approvals = await openApprovals(loaded, { audit, log, store }, opened);
  metrics?.showApprovals(() => approvals.counts());
  const mcp = Promise.withResolvers<McpEndpoint>();
  const queries = openGrammar(loaded);
  const gateway = {
    configuration,
    publicUrl: server.public_url,
    consoleUrl: knownConsoleUrl(configuration),
    transportHeaders: transportHeaders(configuration),
    access,
    replica: store?.replica,
    authorization: store?.authorization,
    ...identity,
    routing,
    tracing,
    passwordRule,
    get schema() {
      return schema;
    },
    shared,
    mcp: () => mcp.promise,
    headers: headerPolicy(configuration),
    queries,
    approvals,
    budget: new BodyBudget(bodyBytesLimit(server)),
    log,
    audit,
    activity,
    changes,
    metrics,
  };
  const schema: Gateway["schema"] = openSchema(gateway);
  return { gateway, mcp, store, firstPassword, dataDirectory: dataDirectoryOf(loaded) };
}
