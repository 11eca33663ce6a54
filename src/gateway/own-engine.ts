import path from "node:path";
import { isEngineUrl, sqliteDirectory } from "../config/addresses.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { DatabaseFiles } from "../engine/sqlite/files.ts";
import type { Log } from "../observe/log.ts";
import type { UpstreamTarget } from "../upstream/target.ts";

/** True if the gateway starts an engine of its own in the place of `upstream.url`. */
export function hasOwnEngine({ configuration: { upstream } }: LoadedConfiguration): boolean {
  return upstream.url === undefined ? upstream.urls === undefined : isEngineUrl(upstream.url);
}

/** The database of that engine, as `gatehouse engine --url` takes it. */
export function ownDatabaseUrl({ configuration, serviceDirectory }: LoadedConfiguration): string {
  return configuration.upstream.url ?? `sqlite:${path.join(serviceDirectory, "data")}`;
}

/** Where an engine of the gateway's own keeps SQLite files; undefined if it does not. */
export function dataDirectoryOf(loaded: LoadedConfiguration): string | undefined {
  return hasOwnEngine(loaded) ? sqliteDirectory(ownDatabaseUrl(loaded)) : undefined;
}

/** The flags by which `gatehouse engine` is told what the configuration says of it. */
export function engineFlags({ configuration: { upstream } }: LoadedConfiguration): string[] {
  const { statement_timeout: timeout, pool_size: size, postgres_databases: kind } = upstream;
  return [
    ...(timeout === undefined ? [] : ["--statement-timeout", String(timeout)]),
    ...(size === undefined ? [] : ["--pool-size", String(size)]),
    ...(kind === undefined ? [] : ["--databases", kind]),
  ];
}

/** Where the engine listens, once it does. */
export type EngineTarget = () => Promise<UpstreamTarget>;

/**
 * Starts the process of the engine of the gateway's own, if it has one; puts its closing on the stack.
 *
 * @returns what waits until it listens, and rejects if it does not come up
 */
export async function openEngine(
  loaded: LoadedConfiguration,
  log: Log,
  opened: AsyncDisposableStack,
): Promise<EngineTarget> {
  if (!hasOwnEngine(loaded)) return () => Promise.reject(new Error("the upstream is another's"));
  // Loaded here, since gateways before another database have no use for it.
  const { startEngine } = await import("../upstream/engine-process.ts");
  const engine = startEngine({
    url: ownDatabaseUrl(loaded),
    flags: engineFlags(loaded),
    directory: loaded.serviceDirectory,
    log,
  });
  // Whoever waits for it is told why it did not come up.
  const ended = engine.catch(() => undefined);
  opened.defer(async () => (await ended)?.close());
  return async () => (await engine).target;
}

/** Those of an engine of the gateway's own; none before it has made its directory. */
function ownDatabases(loaded: LoadedConfiguration): string[] {
  const directory = dataDirectoryOf(loaded);
  if (directory === undefined) return [];
  try {
    return new DatabaseFiles(directory).names();
  } catch {
    return [];
  }
}

/** Databases that are there, as far as the gateway's own files tell. */
export function knownDatabases(loaded: LoadedConfiguration): string[] {
  const { auth, upstream } = loaded.configuration;
  return [
    auth.default_database,
    ...upstream.databases.flatMap(({ databases }) => databases),
    ...ownDatabases(loaded),
  ];
}
