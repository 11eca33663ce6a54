import { statSync } from "node:fs";
import { isAdministrator, type Snapshot } from "../access/snapshot.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import type { Configuration } from "../config/schema.ts";
import { letMemoryGrow } from "../memory-at-start.ts";
import type { MetricValues } from "../observe/metrics.ts";
import type { Gateway } from "./gateway.ts";
import { type MemberOptions, type OpenedGateway, openGateway } from "./open-gateway.ts";
import { type Listener, openListener } from "./server.ts";
import type { FirstPassword } from "./service-directory.ts";
import type { Condition, SharedFile } from "./shared.ts";
import { bodyBytesLimit } from "./system-limits.ts";

/** What is told of a gateway that has started. */
export interface GatewayFacts {
  /** Where it listens, as a URL. */
  readonly url: string;
  /** How clients reach it: the same, unless `server.public_url` is set. */
  readonly publicUrl: string;
  /** How browsers reach the console; undefined if there is none. */
  readonly consoleUrl: string | undefined;
  /** Set if this was the first start, or if what that has made up was not seen yet. */
  readonly firstPassword: FirstPassword | undefined;
  /** Where the embedded engine keeps its databases; undefined if the upstream is another's. */
  readonly dataDirectory: string | undefined;
  /** Whether the databases answer; undefined if nobody is there to be told. */
  readonly isUpstreamUp: boolean | undefined;
  readonly accessVersion: string;
  /** How many users there are. */
  readonly users: number;
  /** The first few administrators. */
  readonly administrators: readonly string[];
}

/** Administrators that are named; there may be many. */
const NAMED = 5;

/** What is told of the access file. */
function accessFacts(
  snapshot: Snapshot,
): Pick<GatewayFacts, "accessVersion" | "users" | "administrators"> {
  return {
    accessVersion: snapshot.version,
    users: snapshot.users.size,
    administrators: snapshot.users
      .keys()
      .filter((name) => isAdministrator(snapshot, name))
      .take(NAMED)
      .toArray(),
  };
}

/** Users past whom what reading them has left is collected before anybody is kept waiting. */
const MANY = 5000;
/** Bytes of so many. */
const MANY_BYTES = 1 << 20;

/** True if there may be that many users, which are read faster with room for young objects. */
function mayHaveMany({ auth, store }: Configuration): boolean {
  if (store.url !== undefined) return true;
  const stat = statSync(auth.access_control_file, { throwIfNoEntry: false });
  return stat !== undefined && stat.size > MANY_BYTES;
}

/** A gateway that listens. */
export interface RunningGateway {
  readonly facts: GatewayFacts;
  /** Reads access file and revocations again, and opens the audit's file again. */
  refresh(): Promise<void>;
  /** Puts a configuration in force that differs by keys alone that need no restart. */
  configure(configuration: Configuration): Promise<void>;
  /** Notes what has changed of how it stands. */
  note(change: Partial<Condition>): void;
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

function displayHost(host: string): string {
  return host.includes(":") ? `[${host}]` : host;
}

/** Listens, and opens what needs the gateway's URL; puts the closing of both on the stack. */
async function listen(
  { gateway, mcp, store }: OpenedGateway,
  loaded: LoadedConfiguration,
  { member }: MemberOptions,
  opened: AsyncDisposableStack,
): Promise<{ listener: Listener; url: string }> {
  const { server, mcp: mcpSettings, metrics } = gateway.configuration;
  // Opened after the listener, since it needs the URL, but closed only when that has drained.
  const behindListener = opened.use(new AsyncDisposableStack());
  const port = (await member?.claimPort()) ?? server.port;
  const listener = await openListener(gateway, port);
  const url = `${listener.scheme}://${displayHost(server.host)}:${listener.port}`;
  gateway.publicUrl ||= url;
  opened.defer(() => listener.drain(gateway.configuration.server.shutdown_grace * 1000));
  if (mcpSettings.enabled) {
    // Loaded here, since requests for queries can be taken now.
    const loading = import("./open-mcp.ts");
    // Also if that fails, so that nobody who has asked already is kept waiting.
    mcp.resolve(
      loading.then(({ openMcp }) => openMcp(gateway, loaded, listener.originOf, behindListener)),
    );
    await mcp.promise;
  }
  if (metrics.listen !== undefined && member === undefined) {
    const exposition = await gateway.metrics?.listen(metrics.listen);
    opened.defer(() => void exposition?.close());
  }
  // Several processes share the gateway's port, but sessions are held by one of them.
  if (gateway.configuration.console.listen !== undefined && (member?.number ?? 1) === 1) {
    const { openConsoleOf } = await import("./open-console.ts");
    gateway.consoleUrl = await openConsoleOf({ gateway, listener, store }, loaded, behindListener);
  }
  return { listener, url };
}

async function warnIfDown({ routing, log }: Gateway): Promise<void> {
  if (await routing.isUp()) return;
  const targets = routing.targets.map(({ name }) => name);
  log.warn({ targets }, "the upstream does not answer: until it does, queries are 502 or 503");
}

async function open(
  loaded: LoadedConfiguration,
  options: MemberOptions,
  opened: AsyncDisposableStack,
): Promise<Omit<RunningMember, "close">> {
  if (mayHaveMany(loaded.configuration)) letMemoryGrow();
  const openedGateway = await openGateway(loaded, options, opened);
  const { gateway, firstPassword, dataDirectory } = openedGateway;
  if (gateway.access.snapshot.users.size > MANY) {
    const { collectGarbage } = await import("../collect-garbage.ts");
    await collectGarbage();
  }
  const { listener, url } = await listen(openedGateway, loaded, options, opened);
  const { publicUrl, consoleUrl, access, revocations } = gateway;
  const isUpstreamUp = options.hasTerminal ? await gateway.routing.isUp() : undefined;
  // The greeting tells a terminal. Of several processes only the first tells the log.
  if (!options.hasTerminal && (options.member?.number ?? 1) === 1) void warnIfDown(gateway);
  const facts = { url, publicUrl, consoleUrl, firstPassword, dataDirectory, isUpstreamUp };
  return {
    facts: { ...facts, ...accessFacts(access.snapshot) },
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
  };
}

/**
 * Starts the gateway: files, keys, upstream, then the listener, so that the first request that is
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
