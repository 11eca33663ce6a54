import path from "node:path";
import { DEFAULT_POOL_SIZE, engineOver, sqliteDirectory } from "../core/config/addresses.ts";
import type { LoadedConfiguration } from "../core/config/load.ts";
import type { QueryInterface } from "../core/http/gateway.ts";
import type { Log } from "../core/observe/log.ts";
import { createGrammar } from "../core/query/grammar.ts";
import { DatabaseFiles } from "../engine/sqlite/files.ts";
import type { Store } from "../engine/store.ts";

/** True if the engine runs queries, and not a foreign upstream. */
export function hasOwnEngine({ configuration: { upstream } }: LoadedConfiguration): boolean {
  return engineOver(upstream) !== undefined;
}

export function ownDatabaseUrl({ configuration, serviceDirectory }: LoadedConfiguration): string {
  return configuration.upstream.url ?? `sqlite:${path.join(serviceDirectory, "data")}`;
}

/** The directory of the SQLite files. Undefined for another database. */
export function findDataDirectory(loaded: LoadedConfiguration): string | undefined {
  return hasOwnEngine(loaded) ? sqliteDirectory(ownDatabaseUrl(loaded)) : undefined;
}

/**
 * Opens the engine over the configured database.
 *
 * @throws Error for an unusable URL or directory, and for a server that refuses the engine
 */
export async function openEngine(
  loaded: LoadedConfiguration,
  log: Log,
  isFirst: boolean,
): Promise<Store> {
  const { upstream } = loaded.configuration;
  // Loaded on demand, because gateways with a foreign upstream do not need it.
  const { openEngineStore, reportUnavailable } = await import("../engine/open.ts");
  const store = await openEngineStore({
    url: ownDatabaseUrl(loaded),
    databases: upstream.postgres_databases,
    queryTimeLimit: upstream.statement_timeout && upstream.statement_timeout * 1000,
    poolSize: upstream.pool_size ?? DEFAULT_POOL_SIZE,
    log,
  });
  if (isFirst) void reportUnavailable(store, log);
  return store;
}

/** Lists existing databases, as far as the gateway's own files show them. */
export function knownDatabases(loaded: LoadedConfiguration): () => string[] {
  const { auth, upstream } = loaded.configuration;
  const configured = upstream.databases.flatMap(({ databases }) => databases);
  const directory = findDataDirectory(loaded);
  const files = directory === undefined ? undefined : new DatabaseFiles(directory);
  const ownNames = () => {
    try {
      return files?.names() ?? [];
    } catch {
      return [];
    }
  };
  return () => [auth.default_database, ...configured, ...ownNames()];
}

/** The default level is `full` for the engine and `core` for foreign upstreams. */
export function openGrammar(loaded: LoadedConfiguration): QueryInterface {
  const { query, upstream } = loaded.configuration;
  const isEngine = hasOwnEngine(loaded) && upstream.databases.length === 0;
  const level = query.level ?? (isEngine ? "full" : "core");
  const { extra_fields: extraFields, operations } = query;
  return { isEngine, grammar: createGrammar({ extraFields, operations, level }) };
}
