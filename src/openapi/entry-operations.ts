/** What changing and removing entries have in common, on databases and on tables. */

import { change, lastOnes } from "./refusal-lists.ts";
import { listOf, ref, success } from "./schemas.ts";

export const entryChange = {
  body: ref("Entry"),
  answer: success({ access: listOf(ref("UserGrant")) }),
  refusals: [
    ...change,
    ...(["invalid_username", "invalid_database", "invalid_role", "invalid_entry"] as const),
    ...(["user_not_found", "database_case_conflict"] as const),
    ...(["entry_narrowed", "entry_lists_tables"] as const),
    ...lastOnes,
  ],
} as const;
export const entryRemoval = {
  answer: ref("Success"),
  refusals: [
    ...change,
    ...(["invalid_username", "invalid_database"] as const),
    ...(["user_not_found", "grant_not_found", "entry_lists_tables"] as const),
    ...lastOnes,
  ],
} as const;
