import { watchClock } from "../clock.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import type { Configuration } from "../config/schema.ts";
import { configuredCosts } from "../identity/costs.ts";
import { keysDirectoryOf } from "../identity/key-file.ts";
import { openPasswordRule } from "../identity/password-rule.ts";
import { createAudit } from "../observe/audit.ts";
import type { Log } from "../observe/log.ts";
import { createMetrics, type Metrics, type MetricValues } from "../observe/metrics.ts";
import { openTracing } from "../observe/tracing.ts";
import { createGrammar } from "../query/grammar.ts";
import type { HeaderPolicy } from "../upstream/headers.ts";
import { version } from "../version.ts";
import { BodyBudget } from "./body-collector.ts";
import { accessFacts, type GatewayFacts } from "./facts.ts";
import { prepareServiceDirectory } from "./first-start.ts";
import { requireFreeForFirstStart } from "./free-port.ts";
import type { Gateway } from "./gateway.ts";
import type { McpEndpoint } from "./mcp-endpoint.ts";
import type { Membership, SharedFile } from "./member.ts";
import { openAccess } from "./open-access.ts";
import { openIdentity } from "./open-identity.ts";
import { openEngine, openUpstream } from "./open-upstream.ts";
import { accessInStep } from "./reload-propagation.ts";
import { openSchema } from "./schema.ts";
import { openFront } from "./server.ts";
import { createShared, type Shared } from "./shared.ts";

/** A gateway that listens. */
export interface RunningGateway {
  readonly facts: GatewayFacts;
  /** Reads access file and revocations again, and opens the audit's file again. */
  refresh(): Promise<void>;
  /** Puts a configuration in force that differs by keys alone that need no restart. */
  configure(configuration: Configuration): Promise<void>;
  /** Lets requests in flight finish, then ends all that was started. */
  close(): Promise<void>;
}

/** A process that serves a gateway, alone or with others. */
export interface RunningMember extends RunningGateway {
  /** Reads a file again that another process has changed. */
  reload(file: SharedFile): Promise<void>;
  metrics(): Promise<MetricValues>;
  /** Takes no more connections; to be done by all before any of them is closed. */
  stopListening(): Promise<void>;
}

export interface StartOptions {
  readonly log: Log;
  /** `$GATEHOUSE_ADMIN_PASSWORD`. */
  readonly chosenPassword: string | undefined;
  /** True if there is a terminal on which a made-up password can be shown once. */
  readonly hasTerminal: boolean;
}

export interface MemberOptions extends StartOptions {
  /** Set if other processes serve the same gateway. */
  readonly member?: Membership;
}

/** Opens what there is once, unless other processes share it. */
function openShared(
  loaded: LoadedConfiguration,
  { member, log }: MemberOptions,
  metrics: Metrics,
  opened: AsyncDisposableStack,
): Shared {
  if (member !== undefined) return member.shared;
  const shared = createShared(loaded, log, opened);
  metrics.showHashing(shared.hashing.metrics);
  return shared;
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
 * Strict-Transport-Security (RFC 6797) where the gateway speaks TLS itself: a front says it by
 * itself. Only for a public name that is configured, since it counts for every port of the name.
 */
function transportHeaders({ server }: Configuration): readonly string[] {
  const isStrict = server.tls.certificate !== undefined && server.public_url.startsWith("https:");
  return isStrict ? ["Strict-Transport-Security", `max-age=${STRICT_TRANSPORT_AGE}`] : [];
}

function displayHost(host: string): string {
  return host.includes(":") ? `[${host}]` : host;
}

async function open(
  loaded: LoadedConfiguration,
  options: MemberOptions,
  opened: AsyncDisposableStack,
): Promise<Omit<RunningMember, "close">> {
  const { log, chosenPassword, hasTerminal, member } = options;
  const { serviceDirectory } = loaded;
  let { configuration } = loaded;
  const { server } = configuration;
  const audit = createAudit(configuration.audit.file, log);
  opened.defer(() => audit.close());
  const metrics = createMetrics();
  opened.defer(watchClock((seconds) => log.warn({ seconds }, "the system's clock has jumped")));
  if (member === undefined) await requireFreeForFirstStart(configuration);
  const passwordRule = await openPasswordRule(configuration);
  const firstPassword =
    member?.isFirst === false
      ? undefined
      : await prepareServiceDirectory({
          serviceDirectory,
          accessFile: configuration.auth.access_control_file,
          keysDirectory: keysDirectoryOf(serviceDirectory),
          costs: configuredCosts(configuration),
          passwordRule,
          chosenPassword,
          hasTerminal,
        });
  const own = await openAccess(loaded, { log, audit, metrics }, opened);
  const access = member === undefined ? own : accessInStep(own, member.tellOthers);
  const shared = openShared(loaded, options, metrics, opened);
  const identity = await openIdentity(loaded, { access, shared, log, metrics, member }, opened);
  const engine = () => member?.engine() ?? openEngine(loaded, log, opened);
  const behind = await openUpstream(loaded, engine, log, opened);
  const { dataDirectory, metrics: queryMetrics, ...upstream } = behind;
  metrics.showTokens(identity.tokens.metrics);
  metrics.showUpstream(queryMetrics, () => upstream.routing.isUp());
  metrics.showTargets(upstream.routing.targets);
  const targets = upstream.routing.targets.map(({ name }) => name);
  const tracing = openTracing({ version, targets, log });
  if (tracing !== undefined) opened.defer(() => tracing.flush());
  const mcp = Promise.withResolvers<McpEndpoint>();

  // Known once a free port was taken; no request comes before that.
  let publicUrl = server.public_url;
  const gateway: Gateway = {
    get configuration() {
      return configuration;
    },
    get publicUrl() {
      return publicUrl;
    },
    transportHeaders: transportHeaders(configuration),
    access,
    ...identity,
    ...upstream,
    passwordRule,
    get schema() {
      return schema;
    },
    shared,
    mcp: () => mcp.promise,
    headers: headerPolicy(configuration),
    grammar: createGrammar({
      extraFields: configuration.query.extra_fields,
      operations: configuration.query.operations,
    }),
    budget: new BodyBudget(server.max_buffered_bytes),
    log,
    audit,
    metrics,
    tracing,
  };
  const schema = openSchema(gateway);
  // Opened after the front, since it needs the gateway's URL, but closed only when that has drained.
  const behindFront = opened.use(new AsyncDisposableStack());
  const port = (await member?.claimPort()) ?? server.port;
  const front = await openFront(gateway, port);
  const url = `${front.scheme}://${displayHost(server.host)}:${front.port}`;
  publicUrl ||= url;
  opened.defer(() => front.drain(configuration.server.shutdown_grace * 1000));
  if (configuration.mcp.enabled) {
    // Loaded here, since it is nearly half of all code, and requests for queries can be taken now.
    const loading = import("./open-mcp.ts");
    // Also if that fails, so that nobody who has asked already is kept waiting.
    mcp.resolve(
      loading.then(({ openMcp }) => openMcp(gateway, loaded, front.originOf, behindFront)),
    );
    await mcp.promise;
  }
  if (configuration.metrics.listen !== undefined && member === undefined) {
    const listener = await metrics.listen(configuration.metrics.listen);
    opened.defer(() => void listener.close());
  }
  const isUpstreamUp = hasTerminal ? await upstream.routing.isUp() : undefined;
  const facts = { url, publicUrl, firstPassword, dataDirectory, isUpstreamUp };
  return {
    facts: { ...facts, ...accessFacts(own.snapshot) },
    async refresh() {
      audit.reopen();
      await Promise.all([own.reload(), identity.revocations.reload(), front.reloadCertificate()]);
    },
    async configure(next) {
      configuration = next;
      gateway.budget.limit = next.server.max_buffered_bytes;
      shared.configure(next);
      front.configure();
    },
    reload: (file) => (file === "access" ? own.reload() : identity.revocations.reload()),
    metrics: () => metrics.values(),
    stopListening: () => front.stopListening(),
  };
}

/**
 * Starts the gateway: files, keys, upstream, then the front, so that the first request that is
 * taken can be answered. What was opened is closed again if a later step fails.
 */
export async function startGateway(
  loaded: LoadedConfiguration,
  options: MemberOptions,
): Promise<RunningMember> {
  await using opened = new AsyncDisposableStack();
  const running = await open(loaded, options, opened);
  const kept = opened.move();
  return { ...running, close: () => kept.disposeAsync() };
}
