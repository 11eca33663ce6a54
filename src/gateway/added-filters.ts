/** Row filters of the caller that a query lacks are put into its bytes. */
import type { Decision } from "../access/decision.ts";
import { filterAdditions } from "../access/filter-additions.ts";
import type { Access, Query } from "../query/query.ts";
import { LONG_BODY, scan, scanInSlices } from "../query/scan.ts";
import { splice } from "../query/splice.ts";
import { Refusal } from "../refusal.ts";
import type { Gateway } from "./gateway.ts";

/** A query and its bytes. */
export interface Asked {
  readonly body: Buffer;
  readonly query: Query;
}

/**
 * The query with the row filters that it lacks, which is read again, a long one in slices: it must
 * be of the grammar, no longer than any body, and ask for the same tables.
 *
 * @returns what was asked itself if it lacks none
 * @throws QueryRefused, or Refusal `body_too_large`
 */
export function withFilters(
  { queries: { grammar }, configuration }: Pick<Gateway, "queries" | "configuration">,
  asked: Asked,
  decisions: readonly Decision[],
): Asked | Promise<Asked> {
  const additions = filterAdditions(asked.query, decisions);
  if (additions.length === 0) return asked;
  const body = splice(asked.body, additions);
  if (body.length > configuration.server.max_body_bytes) throw new Refusal("body_too_large");
  const isLong = body.length >= LONG_BODY;
  if (!isLong) return { body, query: requireSamePlaces(scan(body, grammar), asked.query) };
  return scanInSlices(body, grammar).then((query) => ({
    body,
    query: requireSamePlaces(query, asked.query),
  }));
}

/** @throws Error if a query asks for something else than another does */
function requireSamePlaces(query: Query | undefined, { accesses: others }: Query): Query {
  const isSame =
    query?.accesses.length === others.length &&
    query.accesses.every((access, at) => isSamePlace(access, others[at]));
  if (!isSame) throw new Error("A query asks for other tables once filters are added");
  return query;
}

function isSamePlace({ operation, database, tables }: Access, other: Access | undefined): boolean {
  return (
    operation === other?.operation &&
    database === other.database &&
    tables.length === other.tables.length &&
    tables.every((table, at) => table === other.tables[at])
  );
}
