import { randomUUID } from "node:crypto";
import { maySeeGrants } from "../../core/access/administration.ts";
import { patternPrefix } from "../../core/access/entries.ts";
import type { Subject } from "../../core/access/grant.ts";
import { seeTable, visibilityDenial } from "../../core/access/policy.ts";
import { EVERY_DATABASE } from "../../core/access/roles.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { didYouMean } from "../../core/base/suggestion.ts";
import type { Gateway } from "../../core/http/gateway.ts";
import { ask } from "../../core/upstream/database.ts";
import { credentialHeaders, fieldLines } from "../../core/upstream/headers.ts";
import { createSchemaSource } from "../../core/upstream/schema-source.ts";

/** Suggests names on which a user may grant, as far as the upstream returns them in time. */
export type SuggestNames = (
  actor: Subject,
  database: string,
  table: string,
  /** Limits several questions together. */
  signal?: AbortSignal,
) => Promise<{
  readonly databases: readonly string[];
  readonly tables: readonly string[];
  readonly columns: readonly string[];
  /** Set if the database, the table or a table for the pattern does not exist. */
  readonly problem: string | undefined;
}>;

const TIMEOUT_MS = 2000;
const LARGEST_ANSWER_BYTES = 4 * 1024 * 1024;
const SUGGESTED = 200;
const DESCRIBED = 5;

const origin = { via: "query" } as const;

/** Describes the first name that does not exist. An empty list is unknown. */
function problemOf(
  { database, table }: { readonly database: string; readonly table: string },
  databases: readonly string[],
  tables: readonly string[],
): string | undefined {
  if (database === "" || database === EVERY_DATABASE) return undefined;
  if (databases.length > 0 && !databases.includes(database)) {
    return `The database ${database} does not exist${didYouMean(database, databases)}.`;
  }
  if (table === "" || tables.length === 0) return undefined;
  const prefix = patternPrefix(table);
  if (prefix !== undefined) {
    const isThere = tables.some((name) => name.startsWith(prefix));
    return isThere ? undefined : `No table of ${database} begins with ${prefix}.`;
  }
  if (tables.includes(table)) return undefined;
  return `${database} has no table ${table}${didYouMean(table, tables)}.`;
}

export function nameSuggestions({ access, routing, headers }: Gateway): SuggestNames {
  const source = createSchemaSource<Subject>({
    upstreams: routing.upstreams.map(({ holds, database }) => ({
      holds,
      get: ({ username: user }, schema, signal) =>
        ask(database, {
          user,
          authorizeAgain: undefined,
          schema,
          signal,
          requestId: randomUUID(),
          fields: fieldLines({ accept: "application/json", ...credentialHeaders(headers) }),
          largest: LARGEST_ANSWER_BYTES,
          hold: () => {},
        }),
    })),
    visibilityDenial: (actor, database) =>
      maySeeGrants(access.snapshot, actor, database)
        ? visibilityDenial(access.snapshot, actor, database, origin)
        : "no_grant",
  });
  const none = (error: unknown) => {
    if (error instanceof Refusal) return [];
    throw error;
  };

  return async (actor, database, table, signal = AbortSignal.timeout(TIMEOUT_MS)) => {
    const isNamed = database !== "" && database !== EVERY_DATABASE;
    const listed = isNamed && source.listTables(actor, database, signal);
    const [databases, all] = await Promise.all([
      source.listDatabases(actor, signal).catch(none),
      listed ? listed.then(({ tables }) => tables).catch(none) : [],
    ]);
    const tables = all.flatMap((name) => {
      const seen = seeTable(access.snapshot, actor, database, name, origin);
      return typeof seen === "string" ? [] : [{ name, ...seen }];
    });
    const matches = (name: string) =>
      table.endsWith("*") ? name.startsWith(table.slice(0, -1)) : name === table;
    const columns = await Promise.all(
      tables
        .filter(({ name }) => matches(name))
        .slice(0, DESCRIBED)
        .map(async ({ name, sees }) => {
          const described = source.describeTable(actor, database, name, signal);
          const columns = await described.then((found) => found.columns, none);
          return columns.map((column) => column.name).filter(sees);
        }),
    );
    return {
      databases: databases.slice(0, SUGGESTED),
      tables: tables.slice(0, SUGGESTED).map(({ name }) => name),
      // The form separates names with commas.
      columns: [...new Set(columns.flat())]
        .filter((name) => !name.includes(","))
        .slice(0, SUGGESTED),
      problem: problemOf(
        { database, table },
        databases,
        tables.map(({ name }) => name),
      ),
    };
  };
}
