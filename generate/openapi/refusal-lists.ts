import { refusalStatuses } from "../../src/engine/refusal.ts";
import { listOf, ref, success } from "./schemas.ts";

/** Error codes that several operations share. */

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
/** Codes of `/readyz` while no request should be sent. */
export const notReady = ["shutting_down", "store_unreachable", "upstream_unreachable"] as const;
/** Refusals by entries with limits. */
export const narrowed = [
  ...(["grant_expired", "name_case_mismatch", "columns_required", "column_denied"] as const),
  ...(["column_unqualified", "limit_required", "limit_too_high", "where_required"] as const),
  ...(["too_many_changes", "row_denied", "attribute_missing", "join_denied"] as const),
  "group_conflict" as const,
  "not_narrowable" as const,
  "rate_limited" as const,
];
/** Codes of the engine's refusals, with their statuses. */
export const engineRefusals: Readonly<Record<string, number>> = {
  ...refusalStatuses,
  internal_error: 500,
};
/** Responses to queries that need approval. */
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
  "Pages and responses of the authorization server; see OAuth 2.1 and docs/oauth.md.";

/** Common to entries for databases and for tables, of users and of groups. */
const anyEntryChange = {
  body: ref("Entry"),
  refusals: [
    ...change,
    ...(["invalid_database", "invalid_role", "invalid_entry", "database_case_conflict"] as const),
    ...(["entry_narrowed", "entry_lists_tables"] as const),
    ...lastOnes,
  ],
} as const;
const anyEntryRemoval = {
  answer: ref("Success"),
  refusals: [
    ...change,
    ...(["invalid_database", "grant_not_found", "entry_lists_tables"] as const),
    ...lastOnes,
  ],
} as const;
const ofUser = ["invalid_username", "user_not_found"] as const;
export const entryChange = {
  ...anyEntryChange,
  answer: success({ access: listOf(ref("UserGrant")) }),
  refusals: [...anyEntryChange.refusals, ...ofUser],
} as const;
export const entryRemoval = {
  ...anyEntryRemoval,
  refusals: [...anyEntryRemoval.refusals, ...ofUser],
} as const;
export const groupEntryChange = {
  ...anyEntryChange,
  answer: success({ access: listOf(ref("GroupGrant")) }),
  refusals: [...anyEntryChange.refusals, "invalid_group"],
} as const;
export const groupEntryRemoval = {
  ...anyEntryRemoval,
  refusals: [...anyEntryRemoval.refusals, "invalid_group"],
} as const;
