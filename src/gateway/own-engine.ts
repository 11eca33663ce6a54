import path from "node:path";
import { isEngineUrl, sqliteDirectory } from "../config/addresses.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { DatabaseFiles } from "../engine/sqlite/files.ts";

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
