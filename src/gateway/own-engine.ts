import path from "node:path";
import type { LoadedConfiguration } from "../config/load.ts";
import { isEngineUrl, sqliteDirectory } from "../config/urls.ts";

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
