import { refusalStatuses } from "../../src/engine/refusal.ts";
import { listOf, ref, success } from "./schemas.ts";

/** Codes by which several operations are refused alike. */

export const administrationRefusals = ["no_grant", "role_insufficient", "token_database"] as const;
export const storeRefusals = ["store_uncertain", "store_form_unknown"] as const;
export const change = [
  ...administrationRefusals,
  ...(["access_file_read_only", "access_file_invalid"] as const),
  ...storeRefusals,
];
export const lastOnes = ["last_owner", "last_administrator"] as const;
export const upstream = [
  ...(["upstream_unreachable", "upstream_broken"] as const),
  ...(["upstream_overloaded", "upstream_timeout"] as const),
];
/** What `/readyz` says where nothing should be sent. */
export const notReady = ["shutting_down", "store_unreachable", "upstream_unreachable"] as const;
/** What a query is refused for by grants that say more than a role. */
export const narrowed = [
  ...(["grant_expired", "name_case_mismatch", "columns_required", "column_denied"] as const),
  ...(["column_unqualified", "limit_required", "limit_too_high", "where_required"] as const),
  ...(["too_many_changes", "row_denied", "attribute_missing", "join_denied"] as const),
  "not_narrowable" as const,
  "rate_limited" as const,
];
/** What the engine refuses only if the gateway itself is wrong. */
const ofGateway = [
  ...["unauthorized", "host_not_allowed", "not_found", "method_not_allowed"],
  "unsupported_media_type",
];
/** The statuses of the codes by which the engine refuses queries, which the gateway passes on. */
export const engineRefusals: Readonly<Record<string, number>> = Object.fromEntries([
  ...Object.entries(refusalStatuses).filter(([code]) => !ofGateway.includes(code)),
  ["internal_error", 500],
]);
/** What becomes of a query that needs somebody's approval. */
export const approvals = [
  ...(["approval_required", "approval_denied", "approval_not_found"] as const),
  ...(["approval_mismatch", "approval_expired", "approval_used", "approval_void"] as const),
  ...(["too_many_approvals", "approvals_failed"] as const),
];
export const schemaRefusals = [
  ...(["schema_not_offered", "schema_not_found", "invalid_database", "no_grant"] as const),
  ...(["role_insufficient", "database_case_mismatch", "token_database"] as const),
  ...upstream,
];
export const oauth =
  "Pages and answers of the authorization server, as OAuth 2.1 and docs/oauth.md have them.";

/** What changing entries has in common, on databases and on tables. */
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
/** The same of removing them. */
export const entryRemoval = {
  answer: ref("Success"),
  refusals: [
    ...change,
    ...(["invalid_username", "invalid_database"] as const),
    ...(["user_not_found", "grant_not_found", "entry_lists_tables"] as const),
    ...lastOnes,
  ],
} as const;
