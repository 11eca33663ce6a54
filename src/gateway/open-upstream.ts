import path from "node:path";
import type { LoadedConfiguration } from "../config/load.ts";
import type { Log } from "../observe/log.ts";
import { type EngineAddress, startEmbeddedEngine } from "../upstream/embedded-engine.ts";
import { Probe } from "../upstream/probe.ts";
import { createQueryClient, type QueryClient } from "../upstream/query-client.ts";
import { createStreamProxy, type StreamProxy } from "../upstream/stream-proxy.ts";
import { parseTarget, type UpstreamTarget } from "../upstream/target.ts";

/** The database behind, and the ways to it. */
export interface Upstream {
  readonly target: UpstreamTarget;
  readonly probe: Probe;
  readonly queries: QueryClient;
  readonly streams: StreamProxy;
  /** Where the embedded engine keeps its databases; undefined if the upstream is another's. */
  readonly dataDirectory: string | undefined;
}

/** Starts an engine of the gateway's own; puts its closing on the stack. */
export async function openEngine(
  { serviceDirectory }: LoadedConfiguration,
  log: Log,
  opened: AsyncDisposableStack,
): Promise<EngineAddress> {
  const dataDirectory = path.join(serviceDirectory, "data");
  const engine = await startEmbeddedEngine({ dataDirectory, log });
  opened.defer(() => engine.close());
  return { target: engine.target, dataDirectory };
}

/**
 * Opens the configured upstream or an engine of the gateway's own; puts its closing on the stack.
 *
 * @param engine starts the engine
 */
export async function openUpstream(
  { configuration: { upstream } }: LoadedConfiguration,
  engine: () => Promise<EngineAddress>,
  opened: AsyncDisposableStack,
): Promise<Upstream> {
  const { target, dataDirectory } =
    upstream.url === undefined
      ? await engine()
      : { target: parseTarget(upstream.url), dataDirectory: undefined };

  const connectTimeout = upstream.connect_timeout * 1000;
  const responseTimeout = upstream.response_timeout * 1000;
  const queries = createQueryClient({
    target,
    connections: upstream.connections,
    connectTimeout,
    responseTimeout,
  });
  opened.defer(() => queries.close());
  const streams = createStreamProxy({ target, connectTimeout, responseTimeout });
  opened.defer(() => streams.close());
  return { target, probe: new Probe(target), queries, streams, dataDirectory };
}
