/** Row filters of the caller that a query lacks are put into its bytes. */
import type { Decision } from "../access/decision.ts";
import { filterAdditions } from "../access/filter-additions.ts";
import type { Access, Query } from "../query/query.ts";
import { scan } from "../query/scan.ts";
import { splice } from "../query/splice.ts";
import { Refusal } from "../refusal.ts";
import type { Gateway } from "./gateway.ts";

/** A query and its bytes. */
export interface Asked {
  readonly body: Buffer;
  readonly query: Query;
}

/**
 * The query with the row filters that it lacks, which is read again: it must be of the grammar, no
 * longer than any body, and ask for the same tables.
 *
 * @throws QueryRefused, or Refusal `body_too_large`
 */
export function withFilters(
  { queries, configuration }: Gateway,
  { body, query }: Asked,
  decisions: readonly Decision[],
): Asked {
  const additions = filterAdditions(query, decisions);
  if (additions.length === 0) return { body, query };
  const filtered = splice(body, additions);
  if (filtered.length > configuration.server.max_body_bytes) throw new Refusal("body_too_large");
  const again = scan(filtered, queries.grammar);
  const isSame =
    again.accesses.length === query.accesses.length &&
    again.accesses.every((access, at) => isSamePlace(access, query.accesses[at]));
  if (!isSame) throw new Error("A query asks for other tables once filters are added");
  return { body: filtered, query: again };
}

function isSamePlace({ operation, database, tables }: Access, other: Access | undefined): boolean {
  return (
    operation === other?.operation &&
    database === other.database &&
    tables.length === other.tables.length &&
    tables.every((table, at) => table === other.tables[at])
  );
}
