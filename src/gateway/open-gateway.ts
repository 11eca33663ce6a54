import { watchClock } from "../clock.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import type { Configuration } from "../config/schema.ts";
import { configuredCosts } from "../identity/hash.ts";
import { keysDirectoryOf } from "../identity/key-file.ts";
import { openPasswordRule, type PasswordRule } from "../identity/password.ts";
import { ActivityNotes, type ActivityPlace, activityFile } from "../observe/activity.ts";
import { createAudit } from "../observe/audit.ts";
import type { Log } from "../observe/log.ts";
import type { Metrics } from "../observe/metrics.ts";
import type { Tracing } from "../observe/tracing.ts";
import { version } from "../product.ts";
import type { StoreReplica } from "../store/open.ts";
import type { HeaderPolicy } from "../upstream/headers.ts";
import { keepAuditIndexed } from "./audit-indexer.ts";
import { BodyBudget } from "./body-collector.ts";
import type { Gateway, McpEndpoint } from "./gateway.ts";
import { openApprovals } from "./open-approvals.ts";
import { openAccess, openChanges, openIdentity } from "./open-identity.ts";
import { openSharedCounts, openSharedStore } from "./open-store.ts";
import { openUpstream } from "./open-upstream.ts";
import type { EngineTarget } from "./own-engine.ts";
import { openGrammar } from "./query-grammar.ts";
import { openSchema } from "./schema.ts";
import { type FirstPassword, prepareServiceDirectory } from "./service-directory.ts";
import { createShared, type Membership, type Shared } from "./shared.ts";
import { bodyBytesLimit } from "./system-limits.ts";

export interface StartOptions {
  readonly log: Log;
  /** `$GATEHOUSE_ADMIN_PASSWORD`. */
  readonly chosenPassword: string | undefined;
  /** True if there is a terminal on which a made-up password can be shown once. */
  readonly hasTerminal: boolean;
  /** Resolves once the engine of the gateway's own listens, if it has one. */
  readonly engine: EngineTarget;
}

export interface MemberOptions extends StartOptions {
  /** Set if other processes serve the same gateway. */
  readonly member?: Membership;
}

/** Opens what there is once, unless other processes share it. */
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

/** Seconds for which a browser is to remember that this name speaks TLS: a year. */
const STRICT_TRANSPORT_AGE = 31_536_000;

/**
 * Strict-Transport-Security (RFC 6797) where the gateway speaks TLS itself: a proxy in front
 * says it by itself. Only for a public name that is configured, since it counts for every port of the name.
 */
function transportHeaders({ server }: Configuration): readonly string[] {
  const isStrict = server.tls.certificate !== undefined && server.public_url.startsWith("https:");
  return isStrict ? ["Strict-Transport-Security", `max-age=${STRICT_TRANSPORT_AGE}`] : [];
}

/** Makes what a first start makes; undefined on every other start. */
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

/** Makes the metrics, where they are served; else nothing of them is loaded. */
async function openMetrics({ metrics }: Configuration): Promise<Metrics | undefined> {
  if (metrics.listen === undefined) return undefined;
  const { createMetrics } = await import("../observe/metrics.ts");
  return createMetrics();
}

/** What the API of OpenTelemetry keeps the SDK under that has registered itself (all versions 1.x). */
const registered = Symbol.for("opentelemetry.js.api.1");

/** Traces requests if an SDK has registered itself in this process; else nothing is loaded for it. */
async function openTracing(targets: readonly string[], log: Log): Promise<Tracing | undefined> {
  if (!(registered in globalThis)) return undefined;
  const { openTracing } = await import("../observe/tracing.ts");
  return openTracing({ version, targets, log });
}

/** Opens the ways to the databases, and what is told of them. */
async function openDatabases(
  loaded: LoadedConfiguration,
  { log, engine }: MemberOptions,
  metrics: Metrics | undefined,
  opened: AsyncDisposableStack,
) {
  const upstream = await openUpstream(loaded, engine, log, opened);
  const { routing, dataDirectory } = upstream;
  metrics?.showUpstream(upstream.metrics, () => routing.isUp());
  metrics?.showTargets(routing.targets);
  const tracing = await openTracing(
    routing.targets.map(({ name }) => name),
    log,
  );
  if (tracing !== undefined) opened.defer(() => tracing.flush());
  return { routing, dataDirectory, tracing };
}

/** How browsers reach the console, as far as that is known before it listens. */
function knownConsoleUrl({ console: { listen, public_url: url } }: Configuration) {
  if (listen === undefined) return undefined;
  return url || (listen.endsWith(":0") ? undefined : `http://${listen}`);
}

/** A gateway that does not listen yet. */
export interface OpenedGateway {
  /** With what changes while it runs: its URL is known once a port was taken. */
  readonly gateway: Gateway & {
    configuration: Configuration;
    publicUrl: string;
    consoleUrl: string | undefined;
  };
  /** Settled once what stands behind `/mcp` is there. */
  readonly mcp: PromiseWithResolvers<McpEndpoint>;
  /** What replicas share; undefined where files hold everything. */
  readonly store: StoreReplica | undefined;
  readonly firstPassword: FirstPassword | undefined;
  /** Where the embedded engine keeps its databases; undefined if the upstream is another's. */
  readonly dataDirectory: string | undefined;
}

/** Where last logins and last uses are kept. */
async function activityPlaceOf(
  { serviceDirectory }: LoadedConfiguration,
  { member }: MemberOptions,
  shared: StoreReplica | undefined,
): Promise<ActivityPlace> {
  if (shared === undefined) return activityFile(serviceDirectory, member?.number ?? 0);
  const { activityTable } = await import("../store/activity-table.ts");
  return activityTable(shared.store.database);
}

/** Opens files, keys, the upstream and all else that a request may need. */
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
  // The files are the same for all processes.
  if (configuration.audit.file !== undefined && (member?.number ?? 1) === 1) {
    opened.defer(keepAuditIndexed(configuration.audit.file, log));
  }
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
  const { dataDirectory, ...databases } = await openDatabases(loaded, options, metrics, opened);
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
    ...databases,
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
  return { gateway, mcp, store, firstPassword, dataDirectory };
}
