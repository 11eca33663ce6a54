/** Names in the gateway's database, for hints and warnings of commands. */

import * as z from "zod";
import { findDataDirectory, hasOwnEngine, ownDatabaseUrl } from "../app/own-engine.ts";
import { patternPrefix } from "../core/access/entries.ts";
import type { Grant } from "../core/access/grant.ts";
import { callerFor } from "../core/access/groups.ts";
import { decidingEntry } from "../core/access/rights.ts";
import { EVERY_DATABASE } from "../core/access/roles.ts";
import type { Snapshot } from "../core/access/snapshot.ts";
import { counted, didYouMean } from "../core/base/suggestion.ts";
import { isServerUrl } from "../core/config/addresses.ts";
import type { LoadedConfiguration } from "../core/config/load.ts";
import { splitPlace } from "../core/query/names.ts";
import { readUpstreamCredential } from "../core/upstream/credential.ts";
import { EngineRefusal } from "../engine/refusal.ts";
import { DatabaseFiles } from "../engine/sqlite/files.ts";
import type { Store } from "../engine/store.ts";

/** A Preview locks a SQLite file for no longer than the gateway's queries wait for it. */
const TIMEOUT_MS = 2000;
/** A warning lists all names if there are no more than this. */
const MOST_LISTED = 8;

/**
 * Opens the engine over this gateway's database, for a command that changes nothing there. Undefined
 * for a foreign upstream.
 *
 * @throws Error if a database server refuses the engine
 */
export async function openAsGuest(
  loaded: LoadedConfiguration,
  queryTimeLimit = TIMEOUT_MS,
): Promise<Store | undefined> {
  if (!hasOwnEngine(loaded)) return undefined;
  const url = URL.parse(ownDatabaseUrl(loaded));
  const isServer = url !== null && isServerUrl(url.href);
  if (isServer) {
    const key = url.protocol.startsWith("postgres") ? "connect_timeout" : "connect-timeout";
    // One second, because the engine connects twice.
    url.searchParams.set(key, "1");
  }
  const { pino } = await import("pino");
  const { openEngineStore } = await import("../engine/open.ts");
  const { postgres_databases: databases } = loaded.configuration.upstream;
  return openEngineStore({
    url: url?.href ?? ownDatabaseUrl(loaded),
    databases,
    queryTimeLimit: isServer ? queryTimeLimit : TIMEOUT_MS,
    poolSize: 1,
    isGuest: true,
    log: pino({ level: "silent" }),
  });
}

const answerShape = z.object({
  data: z.union([
    z.object({ databases: z.array(z.string()) }),
    z.object({ tables: z.array(z.string()) }),
    z.object({ columns: z.array(z.object({ name: z.string() }).transform(({ name }) => name)) }),
  ]),
});

/**
 * Lists the databases of an upstream, or with `path` the tables of a database or the columns of a
 * table; undefined if the upstream does not support this.
 */
type ListNames = (database: string, ...path: string[]) => Promise<readonly string[] | undefined>;

/** Returns undefined if the upstream does not respond within two seconds. */
async function withNames<Result>(
  loaded: LoadedConfiguration,
  work: (list: ListNames) => Promise<Result>,
): Promise<Result | undefined> {
  const { upstream } = loaded.configuration;
  const { url, urls: [first] = [] } = upstream;
  const home = hasOwnEngine(loaded) ? undefined : (url ?? first);
  const directory = findDataDirectory(loaded);
  const known = new Map<string, ReturnType<ListNames>>();
  let opening: Promise<Store | undefined> | undefined;
  let signal: AbortSignal | undefined;

  async function readOwn([database, table]: readonly string[]): Promise<string> {
    opening ??= openAsGuest(loaded);
    const store = await opening;
    const { answerText } = await import("../engine/spool.ts");
    try {
      const answer = await store?.readSchema({ database, table }, new AbortController());
      return answer === undefined ? "{}" : answerText(answer);
    } catch (error) {
      // Such as a view of a table that is gone.
      if (error instanceof EngineRefusal && error.status === 409) return "{}";
      throw error;
    }
  }

  async function readForeign(address: string, names: readonly string[]): Promise<string> {
    const { askTarget } = await import("../core/upstream/health-check.ts");
    const { parseTarget, schemaPath } = await import("../core/upstream/target.ts");
    signal ??= AbortSignal.timeout(TIMEOUT_MS);
    const credential = readUpstreamCredential(loaded.configuration);
    const headers = credential === undefined ? {} : { [credential.header]: credential.value };
    const options = { path: schemaPath(names), signal, headers, agent: false };
    return (await askTarget(parseTarget(address), options)).text;
  }

  async function read(address: string | undefined, names: readonly string[]) {
    // The engine would start a process for what the directory shows.
    const isListing = names.length === 0 && address === undefined;
    if (isListing && directory !== undefined) return new DatabaseFiles(directory).names();
    const body = await (address === undefined ? readOwn(names) : readForeign(address, names));
    return Object.values(answerShape.safeParse(JSON.parse(body)).data?.data ?? {})[0];
  }

  try {
    await using opened = new AsyncDisposableStack();
    opened.defer(async () => (await opening)?.close());
    return await work((database, ...path) => {
      const own = upstream.databases.find(({ databases }) => databases.includes(database));
      const address = own === undefined ? home : (own.url ?? own.urls?.[0]);
      const key = JSON.stringify([address, path]);
      const answer = known.get(key) ?? read(address, path);
      known.set(key, answer);
      return answer;
    });
  } catch {
    return undefined;
  }
}

/** Lists the databases of the default upstream, including the default database if it exists. */
export function listDatabases(loaded: LoadedConfiguration): Promise<readonly string[] | undefined> {
  return withNames(loaded, (list) => list(loaded.configuration.auth.default_database));
}

type Named = Omit<Partial<Grant>, "role">;

/** 0 if the entry names the table, 1 if a pattern of it matches, 2 if it is for the whole database. */
function widthAt({ tables }: Pick<Grant, "tables">, table: string): number {
  if (tables === undefined) return 2;
  return tables.includes(table) ? 0 : 1;
}

/** True if a narrower entry of the same user, of one of the user's groups, or of the same group decides. */
function isOverridden(snapshot: Snapshot, entry: Named, database: string, table: string): boolean {
  if (entry.holder === undefined) return false;
  const caller = callerFor(entry.holder);
  const deciding = decidingEntry(snapshot, caller, database, table, Date.now());
  return deciding !== undefined && widthAt(deciding.grant, table) < widthAt(entry, table);
}

function hintFor(name: string, all: readonly string[] = []): string {
  const isListed = all.length > 0 && all.length <= MOST_LISTED;
  return didYouMean(name, all) || (isListed ? ` (known: ${all.join(", ")})` : "");
}

async function* missingIn(
  snapshot: Snapshot,
  entry: Named,
  list: ListNames,
): AsyncGenerator<string, undefined> {
  const { database = EVERY_DATABASE, tables } = entry;
  if (database === EVERY_DATABASE) return;
  const databases = await list(database);
  if (databases === undefined) return;
  if (!databases.includes(database)) {
    const { database: outer, table } = splitPlace(database);
    const isTable = table !== undefined && databases.includes(outer);
    const tableHint = `; name the table ${table} in \`tables\``;
    const hint = isTable ? tableHint : hintFor(database, databases);
    yield `the database ${database} does not exist${hint}`;
    return;
  }
  const filters = [
    ...(entry.rowFilter ?? []).map(({ column }) => column),
    ...(entry.requireWhere ?? []),
  ];
  const used = new Set([...(entry.columns ?? []), ...(entry.writableColumns ?? []), ...filters]);
  if (tables === undefined && used.size === 0) return;
  const all = await list(database, database);
  if (all === undefined) return;
  const covered = new Set(tables === undefined ? all : []);
  for (const table of tables ?? []) {
    const prefix = patternPrefix(table);
    const found = all.filter((name) =>
      prefix === undefined ? name === table : name.startsWith(prefix),
    );
    for (const name of found) covered.add(name);
    if (found.length > 0) continue;
    yield prefix === undefined
      ? `${database} has no table ${table}${hintFor(table, all)}`
      : `no table of ${database} begins with ${prefix}`;
  }
  if (used.size === 0) return;
  const columnsOf = new Map<string, readonly string[]>();
  for (const table of covered) {
    const columns = await list(database, database, table);
    if (columns === undefined) covered.delete(table);
    else columnsOf.set(table, columns);
  }
  for (const column of used) {
    const without = [...covered].filter((table) => !columnsOf.get(table)?.includes(column));
    // Each table that a filter applies to needs its column. A list may name columns of some tables.
    const lacking = filters.includes(column)
      ? without.filter((table) => !isOverridden(snapshot, entry, database, table))
      : without.filter(() => without.length === covered.size);
    const [first = ""] = lacking;
    if (first === "") continue;
    const more = lacking.length > 1 ? ` and ${counted(lacking.length - 1, "other table")}` : "";
    yield `${database}.${first}${more} has no column ${column}${hintFor(column, columnsOf.get(first))}`;
  }
}

/** @param named entries and boundaries with their names for warnings */
export async function missingNames(
  loaded: LoadedConfiguration,
  snapshot: Snapshot,
  named: Iterable<readonly [about: string, entry: Named]>,
): Promise<string[]> {
  const found: string[] = [];
  await withNames(loaded, async (list) => {
    for (const [about, entry] of named) {
      for await (const problem of missingIn(snapshot, entry, list))
        found.push(`${about}: ${problem}`);
    }
  });
  return found;
}
