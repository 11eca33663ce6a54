import { isAdministrator } from "../core/access/policy.ts";
import { invocation } from "../core/base/product.ts";
import type { LoadedConfiguration } from "../core/config/load.ts";
import { type Configuration, servesMcp } from "../core/config/schema.ts";
import type { Condition, Gateway } from "../core/http/gateway.ts";
import { type Listener, openListener } from "../core/http/server.ts";
import { bodyBytesLimit } from "../core/http/system-limits.ts";
import type { MetricValues } from "../core/observe/metrics.ts";
import { takesConnection } from "../core/upstream/health-check.ts";
import { parseTarget } from "../core/upstream/target.ts";
import type { PresetServer } from "../features/databases/serve.ts";
import { type MemberOptions, type OpenedGateway, openGateway } from "./open-gateway.ts";
import { hasOwnEngine } from "./own-engine.ts";
import { createRoutes } from "./routes.ts";
import type { FirstPassword } from "./service-directory.ts";
import { leads, type SharedFile } from "./shared.ts";

export interface GatewayFacts {
  readonly url: string;
  readonly publicUrl: string;
  readonly consoleUrl: string | undefined;
  /** Set at the first start, or if its generated password has not been seen yet. */
  readonly firstPassword: FirstPassword | undefined;
  readonly dataDirectory: string | undefined;
  /** Whether the databases respond. Undefined without a terminal to report it on. */
  readonly isUpstreamUp: boolean | undefined;
  readonly accessVersion: string;
  readonly users: number;
  readonly administrators: readonly string[];
}

/** In the greeting. */
const MAX_ADMINISTRATORS = 5;
/** With more users than this, garbage from loading them is collected before requests arrive. */
const MANY = 5000;

export interface RunningGateway {
  readonly facts: GatewayFacts;
  /** Reloads access file and revocations and reopens the audit file. */
  refresh(): Promise<void>;
  /** Applies a configuration that differs only in keys that need no restart. */
  configure(configuration: Configuration): Promise<void>;
  note(change: Partial<Condition>): void;
  close(): Promise<void>;
}

export interface RunningMember extends RunningGateway {
  reload(file: SharedFile): Promise<void>;
  metrics(): Promise<MetricValues>;
  /** Stops accepting connections. All processes must do this before any of them closes. */
  stopListening(): Promise<void>;
}

export type OpenedListener = Pick<OpenedGateway, "gateway" | "features"> & {
  readonly listener: Listener;
};

/** @returns the URL for browsers, or undefined if no console is configured */
export type OpenConsole = (
  opened: OpenedListener,
  loaded: LoadedConfiguration,
  stack: AsyncDisposableStack,
) => Promise<string | undefined>;

interface StartGatewayOptions extends MemberOptions {
  /** The console uses the gateway, so the gateway is given it and loads it on demand. */
  readonly loadConsole: () => Promise<{ readonly openConsole: OpenConsole }>;
}

/** Listens, then opens what needs the gateway's URL. The stack closes both. */
async function listen(
  { gateway, features }: OpenedGateway,
  loaded: LoadedConfiguration,
  { member, loadConsole }: StartGatewayOptions,
  opened: AsyncDisposableStack,
): Promise<{ listener: Listener; url: string }> {
  const { server, metrics } = gateway.configuration;
  // Opened after the listener because it needs the URL, but closed only when the listener has
  // drained.
  const behindListener = opened.use(new AsyncDisposableStack());
  const port = (await member?.claimPort()) ?? server.port;
  const listener = await openListener(gateway, port, createRoutes(features));
  const host = server.host.includes(":") ? `[${server.host}]` : server.host;
  const url = `${listener.scheme}://${host}:${listener.port}`;
  gateway.publicUrl ||= url + gateway.basePath;
  opened.defer(() => listener.drain(gateway.configuration.server.shutdown_grace * 1000));
  if (servesMcp(gateway.configuration)) {
    // Loaded in the background, because queries can already be served.
    const loading = import("../features/mcp/open-mcp.ts");
    // Also settled on failure, so that waiting requests do not hang.
    features.mcp.resolve(
      loading.then(({ openMcp }) =>
        openMcp(gateway, features, loaded, listener.originOf, behindListener),
      ),
    );
    await features.mcp.promise;
  }
  if (metrics.listen !== undefined && member === undefined) {
    const exposition = await gateway.metrics?.listen(metrics.listen, gateway.log);
    opened.defer(() => void exposition?.close());
  }
  // Several processes share the gateway's port, but only one of them holds console sessions.
  if (gateway.configuration.console.listen !== undefined && leads(member)) {
    const { openConsole } = await loadConsole();
    features.consoleUrl = await openConsole(
      { gateway, features, listener },
      loaded,
      behindListener,
    );
  }
  return { listener, url };
}

async function warnIfUntested(
  { routing, log }: Gateway,
  preset: PresetServer | undefined,
): Promise<void> {
  if (preset === undefined) return;
  const { title, name, tested } = preset.preset;
  const version = await preset.version();
  if (version === undefined) {
    const sentence = `the upstream does not answer as ${title}: check upstream.url and upstream.credential`;
    if (await routing.isUp()) log.warn(sentence);
  } else if (!preset.isTested(version)) {
    log.warn(
      { version, tested },
      `this version of ${title} was not tested: run \`${invocation} preset test ${name}\` against a server of it`,
    );
  }
}

async function warnIfDown({ routing, log }: Gateway, loaded: LoadedConfiguration): Promise<void> {
  const targets = routing.targets.map(({ name }) => name);
  // An external upstream gets no request before a client sends one: a connection is enough.
  const answers = hasOwnEngine(loaded)
    ? [await routing.isUp()]
    : await Promise.all(targets.map((name) => takesConnection(parseTarget(name))));
  if (answers.every(Boolean)) return;
  log.warn({ targets }, "the upstream does not respond: until it does, queries get 502 or 503");
}

/**
 * Starts the gateway: files, keys and upstream first, then the listener, so that the first accepted
 * request can be answered. If a step fails, everything opened before is closed.
 */
export async function startGateway(
  loaded: LoadedConfiguration,
  options: StartGatewayOptions,
): Promise<RunningMember> {
  await using opened = new AsyncDisposableStack();
  const openedGateway = await openGateway(loaded, options, opened);
  const { gateway, features, firstPassword, dataDirectory } = openedGateway;
  const { access, revocations } = gateway;
  if (access.snapshot.users.size > MANY) {
    // Frees the memory that only the start needed.
    const { Session } = process.getBuiltinModule("node:inspector/promises");
    const session = new Session();
    session.connect();
    await session.post("HeapProfiler.collectGarbage");
    session.disconnect();
  }
  const { listener, url } = await listen(openedGateway, loaded, options, opened);
  const { publicUrl } = gateway;
  const { consoleUrl } = features;
  const isUpstreamUp = options.hasTerminal ? await gateway.routing.isUp() : undefined;
  // On a terminal the greeting reports it. Only the first of several processes logs it.
  if (!options.hasTerminal && leads(options.member)) {
    void warnIfDown(gateway, loaded);
  }
  if (leads(options.member)) void warnIfUntested(gateway, features.preset);
  const { snapshot } = access;
  const isNamed = (name: string) => isAdministrator(snapshot, { username: name });
  const kept = opened.move();
  return {
    facts: {
      url,
      publicUrl,
      consoleUrl,
      firstPassword,
      dataDirectory,
      isUpstreamUp,
      accessVersion: snapshot.version,
      users: snapshot.users.size,
      administrators: snapshot.users.keys().filter(isNamed).take(MAX_ADMINISTRATORS).toArray(),
    },
    async refresh() {
      gateway.audit.reopen();
      await Promise.all([access.reload(), revocations.reload(), listener.reloadCertificate()]);
    },
    async configure(next) {
      gateway.configuration = next;
      gateway.budget.limit = bodyBytesLimit(next.server);
      gateway.shared.configure(next);
      listener.configure();
    },
    note: gateway.shared.note,
    reload: (file) => (file === "access" ? access.reload() : revocations.reload()),
    metrics: async () => gateway.metrics?.values() ?? [],
    stopListening: () => listener.stopListening(),
    close: () => kept.disposeAsync(),
  };
}
