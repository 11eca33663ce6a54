import type { Query } from "../query/query.ts";
import type { AddedConditions } from "../query/splice.ts";
import type { Decision } from "./decision.ts";

/** What row filters add to a query of which each access is decided on. */
export function filterAdditions(
  { accesses }: Query,
  decisions: readonly Decision[],
): AddedConditions[] {
  return accesses.flatMap(({ detail }, at) => {
    const conditions = decisions[at]?.additions ?? [];
    return detail === undefined || conditions.length === 0 ? [] : [{ detail, conditions }];
  });
}
