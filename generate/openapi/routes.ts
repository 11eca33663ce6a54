import type { RefusalCode } from "../../src/core/base/refusal.ts";
import { DEFAULT_LIMIT, MAX_LIMIT } from "../../src/core/http/route.ts";
import type { Schema } from "../../src/core/query/kind.ts";
import {
  administrationRefusals,
  approvals,
  change,
  engineRefusals,
  entryChange,
  entryRemoval,
  groupEntryChange,
  groupEntryRemoval,
  lastOnes,
  narrowed,
  oauth,
  schemaRefusals,
  storeRefusals,
  upstream,
} from "./refusal-lists.ts";
import { emailOrNull, listOf, object, readiness, ref, schemaTable, success } from "./schemas.ts";

/** Describes one method of a route, in addition to the route table. */
export interface Operation {
  readonly summary: string;
  /** Optional parameters of the query string. */
  readonly query?: Readonly<Record<string, Schema>>;
  readonly body?: Schema;
  /** Of a success; 200 by default. */
  readonly status?: number;
  readonly answer?: Schema;
  /** Further media types that `Accept` can select. */
  readonly streams?: readonly string[];
  /** Refusals other than those of authentication and body. */
  readonly refusals?: readonly RefusalCode[];
  /** Refusals of the engine that are forwarded, with their statuses. */
  readonly upstreamRefusals?: Readonly<Record<string, number>>;
  readonly headers?: Readonly<Record<string, { schema: Schema; description: string }>>;
  /** Describes responses that are not the gateway's own, with any status. */
  readonly others?: string;
  /** The body of a 503. */
  readonly notReady?: Schema;
}

const mcp = "Messages of the Model Context Protocol; see docs/mcp.md.";

export const operations: Readonly<Record<string, Operation>> = {
  "POST /login": {
    summary: "Exchange username and password for a token.",
    body: object({
      username: { type: "string" },
      password: { type: "string" },
      "database?": ref("DatabaseOrEvery"),
    }),
    answer: success({ token: { type: "string" }, expires_in: { type: "integer", minimum: 1 } }),
    refusals: [
      ...(["credentials_invalid", "invalid_database", "no_grant"] as const),
      ...(["database_case_mismatch", "too_many_attempts", "login_busy"] as const),
    ],
  },
  "POST /logout": {
    summary: "Revoke the presented token.",
    answer: ref("Success"),
    refusals: ["revocation_failed", ...storeRefusals],
  },
  "POST /query": {
    summary: "Run one operation or a Batch; the response is the database's.",
    body: ref("Query"),
    answer: ref("Answer"),
    streams: ["application/x-ndjson", "text/csv"],
    upstreamRefusals: engineRefusals,
    refusals: [
      ...(["no_grant", "role_insufficient", "database_case_mismatch"] as const),
      ...(["token_database", "batch_member_denied", "batch_across_upstreams"] as const),
      ...narrowed,
      ...approvals,
      ...upstream,
    ],
    headers: {
      "X-Gatehouse-Approval": {
        schema: { type: "string" },
        description: "The id of an approval for exactly these bytes; each approval works once.",
      },
    },
    others: "The unchanged response of a foreign upstream, with `X-Gatehouse-Decision: allow`.",
  },
  "GET /schema": {
    summary: "List the databases that the caller may read.",
    answer: success({ data: object({ databases: listOf({ type: "string" }) }) }),
    refusals: ["schema_not_offered", ...upstream],
  },
  "GET /schema/:database": {
    summary: "List the tables of a database.",
    answer: success({
      data: object({
        tables: listOf({ type: "string" }),
        "unavailable?": {
          ...listOf({ type: "string" }),
          description: "Tables whose names no query can contain.",
        },
      }),
    }),
    refusals: schemaRefusals,
  },
  "GET /schema/:database/:table": {
    summary: "List the columns of a table.",
    answer: success({ data: schemaTable }),
    refusals: schemaRefusals,
  },
  "GET /api/me": {
    summary: "Show the caller, the token, and the entries that apply.",
    answer: success({
      user: object({
        username: ref("AnyUsername"),
        email: emailOrNull,
        disabled: { type: "boolean" },
      }),
      token: object({
        id: { type: "string", description: "As in the audit." },
        "name?": { type: "string" },
        expires: { type: "integer" },
        database: ref("DatabaseOrEvery"),
      }),
      access: listOf(ref("Grant")),
    }),
  },
  "GET /api/users": {
    summary: "List a page of the users that the caller may manage, by name.",
    query: {
      limit: { type: "integer", minimum: 1, maximum: MAX_LIMIT, default: DEFAULT_LIMIT },
      after: ref("AnyUsername"),
    },
    answer: success({ users: listOf(ref("User")), "next?": ref("AnyUsername") }),
    refusals: [...administrationRefusals, "invalid_page"],
  },
  "POST /api/users": {
    summary: "Add a user with a first grant.",
    body: object({
      username: ref("Username"),
      "email?": emailOrNull,
      password: ref("Password"),
      role: ref("Role"),
      "database?": ref("DatabaseOrEvery"),
    }),
    status: 201,
    answer: success({ user: ref("User") }),
    refusals: [
      ...change,
      ...(["invalid_username", "invalid_email", "invalid_role", "invalid_database"] as const),
      ...(["password_too_short", "password_too_long", "password_common"] as const),
      ...(["user_exists", "database_case_conflict", "login_busy"] as const),
      "entry_narrowed",
    ],
  },
  "PATCH /api/users/:username": {
    summary: "Change the email or another name of the person, or disable or enable the user.",
    body: {
      ...object({
        "email?": emailOrNull,
        "disabled?": { type: "boolean" },
        "same_as?": { anyOf: [ref("AnyUsername"), { type: "null" }] },
      }),
      minProperties: 1,
    },
    answer: success({ user: ref("User") }),
    refusals: [
      ...[...change, ...lastOnes],
      ...(["invalid_username", "invalid_email", "user_not_found", "revocation_failed"] as const),
    ],
  },
  "DELETE /api/users/:username": {
    summary: "Remove the user with all grants, and revoke their tokens.",
    answer: ref("Success"),
    refusals: [...change, "invalid_username", "user_not_found", ...lastOnes, "revocation_failed"],
  },
  "DELETE /api/users/:username/tokens": {
    summary: "Revoke all current tokens of the user.",
    answer: ref("Success"),
    refusals: [
      ...administrationRefusals,
      "invalid_username",
      "user_not_found",
      "revocation_failed",
    ],
  },
  "PUT /api/users/:username/password": {
    summary: "Set the password, and revoke all tokens of the old one.",
    body: object({ "old_password?": { type: "string" }, new_password: ref("Password") }),
    answer: ref("Success"),
    refusals: [
      ...change,
      ...(["credentials_invalid", "invalid_username", "external_user", "user_not_found"] as const),
      ...(["password_too_short", "password_too_long", "password_common"] as const),
      ...(["too_many_attempts", "login_busy", "revocation_failed"] as const),
    ],
  },
  "GET /api/users/:username/access": {
    summary:
      "List the entries of the user and of the user's local groups, or with `effective=true` what they allow together with boundaries.",
    query: {
      effective: { type: "boolean", default: false },
      groups: {
        type: "string",
        description: "Groups of the user's token, separated by commas, such as `staff:a,staff:b`.",
      },
    },
    answer: success({ access: listOf({ anyOf: [ref("UserEntry"), ref("EffectiveAccess")] }) }),
    refusals: [...administrationRefusals, "invalid_username", "invalid_group", "user_not_found"],
  },
  "GET /api/tokens": {
    summary: "List the issued tokens of the caller; for administrators, of all users.",
    answer: success({ tokens: listOf(ref("IssuedToken")) }),
  },
  "DELETE /api/tokens/:id": {
    summary: "Revoke an issued token.",
    answer: ref("Success"),
    refusals: ["token_not_found", "revocation_failed", ...storeRefusals],
  },
  "GET /api/access": {
    summary: "List the entries on databases that the caller may grant on.",
    answer: success({ access: listOf({ oneOf: [ref("UserGrant"), ref("GroupGrant")] }) }),
    refusals: administrationRefusals,
  },
  "PUT /api/access/:username/:database": {
    summary: "Set the entry for a whole database, replacing the existing one.",
    ...entryChange,
  },
  "DELETE /api/access/:username/:database": {
    summary: "Remove the entry for a whole database.",
    ...entryRemoval,
  },
  "PUT /api/access/:username/:database/:table_or_pattern": {
    summary: "Set the entry for a table, or for the tables that match a pattern.",
    ...entryChange,
    refusals: [...entryChange.refusals, "invalid_table"],
  },
  "DELETE /api/access/:username/:database/:table_or_pattern": {
    summary: "Remove the entry for a table or pattern.",
    ...entryRemoval,
    refusals: [...entryRemoval.refusals, "invalid_table"],
  },
  "GET /api/groups": {
    summary: "List the groups that have entries on databases that the caller may grant on.",
    answer: success({ groups: listOf(ref("Group")) }),
    refusals: administrationRefusals,
  },
  "PUT /api/groups/:group": {
    summary: "Add a local group, or replace its members.",
    body: object({ members: listOf(ref("AnyUsername")) }),
    answer: success({ group: ref("Group") }),
    refusals: [...change, ...lastOnes, "invalid_group", "invalid_username", "user_not_found"],
  },
  "DELETE /api/groups/:group": {
    summary: "Remove a local group with its entries.",
    answer: ref("Success"),
    refusals: [...change, ...lastOnes, "invalid_group", "group_not_found"],
  },
  "PUT /api/groups/:group/access/:database": {
    summary: "Set a group's entry for a whole database, replacing the existing one.",
    ...groupEntryChange,
  },
  "DELETE /api/groups/:group/access/:database": {
    summary: "Remove a group's entry for a whole database.",
    ...groupEntryRemoval,
  },
  "PUT /api/groups/:group/access/:database/:table_or_pattern": {
    summary: "Set a group's entry for a table, or for the tables that match a pattern.",
    ...groupEntryChange,
    refusals: [...groupEntryChange.refusals, "invalid_table"],
  },
  "DELETE /api/groups/:group/access/:database/:table_or_pattern": {
    summary: "Remove a group's entry for a table or pattern.",
    ...groupEntryRemoval,
    refusals: [...groupEntryRemoval.refusals, "invalid_table"],
  },
  "GET /.well-known/jwks.json": {
    summary: "Public keys that verify tokens.",
    answer: ref("JwkSet"),
  },
  "POST /mcp": {
    summary: "Send a message of the Model Context Protocol.",
    body: ref("McpMessage"),
    others: `${mcp} 406 without \`Accept: application/json, text/event-stream\` before revision 2026-07-28.`,
  },
  "GET /mcp": { summary: "Open a session's stream (earlier revisions).", others: mcp },
  "DELETE /mcp": { summary: "End a session (earlier revisions).", others: mcp },
  "GET /.well-known/oauth-protected-resource": {
    summary: "Protected resource metadata of `/mcp` (RFC 9728).",
    answer: ref("ProtectedResource"),
  },
  "GET /.well-known/oauth-protected-resource/mcp": {
    summary: "The same, at the path that MCP clients try first.",
    answer: ref("ProtectedResource"),
  },
  "GET /.well-known/oauth-authorization-server": {
    summary: "Metadata of the embedded authorization server (RFC 8414).",
    answer: ref("AuthorizationServer"),
  },
  "GET /.well-known/oauth-authorization-server/mcp": {
    summary: "The same, for clients that append the resource path.",
    answer: ref("AuthorizationServer"),
  },
  "GET /.well-known/openid-configuration": {
    summary: "The same, for OpenID Connect clients.",
    answer: ref("AuthorizationServer"),
  },
  "GET /.well-known/openid-configuration/mcp": {
    summary: "The same, with the resource path.",
    answer: ref("AuthorizationServer"),
  },
  "GET /oauth/*": { summary: "Pages of the embedded authorization server.", others: oauth },
  "POST /oauth/*": { summary: "Endpoints of the embedded authorization server.", others: oauth },
  "OPTIONS /oauth/*": { summary: "CORS preflight for clients in a browser.", others: oauth },
  "GET /openapi.yaml": {
    summary: "This document, for the version that runs.",
    others: "The document in YAML.",
  },
  "GET /healthz": {
    summary: "The process is running.",
    answer: success({ version: { type: "string" } }),
  },
  "GET /readyz": {
    summary: "The gateway can serve queries; with the version of the access file.",
    answer: success(readiness),
    notReady: ref("NotReady"),
  },
};
