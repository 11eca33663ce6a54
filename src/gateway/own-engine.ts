import path from "node:path";
import { isEngineUrl, sqliteDirectory } from "../config/addresses.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { DatabaseFiles } from "../engine/sqlite/files.ts";
import type { Log } from "../observe/log.ts";
import type { UpstreamTarget } from "../upstream/target.ts";

/** True if the gateway starts an embedded engine instead of using `upstream.url`. */
export function hasOwnEngine({ configuration: { upstream } }: LoadedConfiguration): boolean {
  return upstream.url === undefined ? upstream.urls === undefined : isEngineUrl(upstream.url);
}

/** The embedded engine's database, in the form that `gatehouse engine --url` accepts. */
export function ownDatabaseUrl({ configuration, serviceDirectory }: LoadedConfiguration): string {
  return configuration.upstream.url ?? `sqlite:${path.join(serviceDirectory, "data")}`;
}

/** The directory of the embedded engine's SQLite files. Undefined without an embedded engine. */
export function dataDirectoryOf(loaded: LoadedConfiguration): string | undefined {
  return hasOwnEngine(loaded) ? sqliteDirectory(ownDatabaseUrl(loaded)) : undefined;
}

function engineFlags({ configuration: { upstream } }: LoadedConfiguration): string[] {
  const { statement_timeout: timeout, pool_size: size, postgres_databases: kind } = upstream;
  return [
    ...(timeout === undefined ? [] : ["--statement-timeout", String(timeout)]),
    ...(size === undefined ? [] : ["--pool-size", String(size)]),
    ...(kind === undefined ? [] : ["--databases", kind]),
  ];
}

export type EngineTarget = () => Promise<UpstreamTarget>;

/**
 * Starts the embedded engine's process, if there is one. The stack closes it.
 *
 * @returns a function that waits until the engine listens, and rejects if it fails to start
 */
export async function openEngine(
  loaded: LoadedConfiguration,
  log: Log,
  opened: AsyncDisposableStack,
): Promise<EngineTarget> {
  if (!hasOwnEngine(loaded)) return () => Promise.reject(new Error("the upstream is another's"));
  // Loaded on demand, because gateways with an external database do not need it.
  const { startEngine } = await import("../upstream/engine-process.ts");
  const engine = startEngine({
    url: ownDatabaseUrl(loaded),
    flags: engineFlags(loaded),
    directory: loaded.serviceDirectory,
    log,
  });
  // Callers who wait for the engine get the error.
  const ended = engine.catch(() => undefined);
  opened.defer(async () => (await ended)?.close());
  return async () => (await engine).target;
}

function ownDatabases(loaded: LoadedConfiguration): string[] {
  const directory = dataDirectoryOf(loaded);
  if (directory === undefined) return [];
  try {
    return new DatabaseFiles(directory).names();
  } catch {
    return [];
  }
}

/** Existing databases, as far as the gateway's own files show them. */
export function knownDatabases(loaded: LoadedConfiguration): string[] {
  const { auth, upstream } = loaded.configuration;
  return [
    auth.default_database,
    ...upstream.databases.flatMap(({ databases }) => databases),
    ...ownDatabases(loaded),
  ];
}
