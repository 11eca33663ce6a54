import { DEFAULT_LIMIT, MAX_LIMIT } from "../../src/gateway/parameters.ts";
import type { Schema } from "../../src/query/kind.ts";
import type { RefusalCode } from "../../src/refusal.ts";
import {
  administrationRefusals,
  approvals,
  change,
  engineRefusals,
  entryChange,
  entryRemoval,
  lastOnes,
  narrowed,
  oauth,
  schemaRefusals,
  storeRefusals,
  upstream,
} from "./refusal-lists.ts";
import { emailOrNull, listOf, object, readiness, ref, schemaTable, success } from "./schemas.ts";

/** What the document says of each route beyond what the route table knows. */

/** One method of one route. */
export interface Operation {
  readonly summary: string;
  /** The parameters of its query string, all of which may be left out. */
  readonly query?: Readonly<Record<string, Schema>>;
  /** The body that it takes, if it takes one. */
  readonly body?: Schema;
  /** The status of its success, 200 by default, and the body that comes with it. */
  readonly status?: number;
  readonly answer?: Schema;
  /** Further media types of its success, which `Accept` asks for. */
  readonly streams?: readonly string[];
  /** Refusals of its own, besides those that its authentication and its body bring. */
  readonly refusals?: readonly RefusalCode[];
  /** Refusals of the engine that are passed on, with their statuses. */
  readonly upstreamRefusals?: Readonly<Record<string, number>>;
  /** Headers of its own that a request may have. */
  readonly headers?: Readonly<Record<string, { schema: Schema; description: string }>>;
  /** Set where somebody else speaks: what may come besides, with any status. */
  readonly others?: string;
  /** What comes with 503 that no other refusal has. */
  readonly notReady?: Schema;
}

const mcp = "Messages of the Model Context Protocol, as docs/mcp.md has them.";

/** Every method and path that the gateway answers without `[[routes]]`. */
export const operations: Readonly<Record<string, Operation>> = {
  "POST /login": {
    summary: "A username and a password for a token.",
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
    summary: "The token that is shown stops working.",
    answer: ref("Success"),
    refusals: ["revocation_failed", ...storeRefusals],
  },
  "POST /query": {
    summary: "One operation, or a Batch; the answer is the database's.",
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
        description: "The id of an approval of these very bytes, which is used up.",
      },
    },
    others:
      "The answer of a database other than `gatehouse engine`, as it came; `X-Gatehouse-Decision: allow` tells it apart.",
  },
  "GET /schema": {
    summary: "The databases that the caller may read.",
    answer: success({ data: object({ databases: listOf({ type: "string" }) }) }),
    refusals: ["schema_not_offered", ...upstream],
  },
  "GET /schema/:database": {
    summary: "The tables of a database.",
    answer: success({ data: object({ tables: listOf({ type: "string" }) }) }),
    refusals: schemaRefusals,
  },
  "GET /schema/:database/:table": {
    summary: "The columns of a table.",
    answer: success({ data: schemaTable }),
    refusals: schemaRefusals,
  },
  "GET /api/me": {
    summary: "Who the caller is, and what its token opens.",
    answer: success({
      user: object({
        username: ref("AnyUsername"),
        email: emailOrNull,
        disabled: { type: "boolean" },
      }),
      token: object({ expires: { type: "integer" }, database: ref("DatabaseOrEvery") }),
      access: listOf(ref("Grant")),
    }),
  },
  "GET /api/users": {
    summary: "A page of the users on the databases that the caller may grant on, by name.",
    query: {
      limit: { type: "integer", minimum: 1, maximum: MAX_LIMIT, default: DEFAULT_LIMIT },
      after: ref("AnyUsername"),
    },
    answer: success({ users: listOf(ref("User")), "next?": ref("AnyUsername") }),
    refusals: [...administrationRefusals, "invalid_page"],
  },
  "POST /api/users": {
    summary: "A new user with a first grant.",
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
    summary: "Another email, or disabled and enabled.",
    body: {
      ...object({ "email?": emailOrNull, "disabled?": { type: "boolean" } }),
      minProperties: 1,
    },
    answer: success({ user: ref("User") }),
    refusals: [
      ...[...change, ...lastOnes],
      ...(["invalid_username", "invalid_email", "user_not_found", "revocation_failed"] as const),
    ],
  },
  "DELETE /api/users/:username": {
    summary: "The user is removed with all its grants, and its tokens die.",
    answer: ref("Success"),
    refusals: [...change, "invalid_username", "user_not_found", ...lastOnes, "revocation_failed"],
  },
  "DELETE /api/users/:username/tokens": {
    summary: "Every token that the user has by now stops working.",
    answer: ref("Success"),
    refusals: [
      ...administrationRefusals,
      "invalid_username",
      "user_not_found",
      "revocation_failed",
    ],
  },
  "PUT /api/users/:username/password": {
    summary: "Another password; every token of the old one stops working.",
    body: object({ "old_password?": { type: "string" }, new_password: ref("Password") }),
    answer: ref("Success"),
    refusals: [
      ...change,
      ...(["credentials_invalid", "invalid_username", "external_user", "user_not_found"] as const),
      ...(["password_too_short", "password_too_long", "password_common"] as const),
      ...(["too_many_attempts", "login_busy", "revocation_failed"] as const),
    ],
  },
  "GET /api/access": {
    summary: "Who has which role, on the databases that the caller may grant on.",
    answer: success({ access: listOf(ref("UserGrant")) }),
    refusals: administrationRefusals,
  },
  "PUT /api/access/:username/:database": {
    summary: "Gives an entry for the whole database, in the place of the one that is held there.",
    ...entryChange,
  },
  "DELETE /api/access/:username/:database": {
    summary: "Takes the entry for the whole database away, whatever it says.",
    ...entryRemoval,
  },
  "PUT /api/access/:username/:database/:table_or_pattern": {
    summary: "The same for a table, or for the tables that a pattern fits.",
    ...entryChange,
    refusals: [...entryChange.refusals, "invalid_table"],
  },
  "DELETE /api/access/:username/:database/:table_or_pattern": {
    summary: "Takes such an entry away.",
    ...entryRemoval,
    refusals: [...entryRemoval.refusals, "invalid_table"],
  },
  "GET /.well-known/jwks.json": { summary: "The keys that verify tokens.", answer: ref("JwkSet") },
  "POST /mcp": {
    summary: "A message of the Model Context Protocol.",
    body: ref("McpMessage"),
    others: `${mcp} 406 without \`Accept: application/json, text/event-stream\` before revision 2026-07-28.`,
  },
  "GET /mcp": { summary: "A session's stream, for clients of earlier revisions.", others: mcp },
  "DELETE /mcp": { summary: "Ends a session, for clients of earlier revisions.", others: mcp },
  "GET /.well-known/oauth-protected-resource": {
    summary: "How to get a token for `/mcp` (RFC 9728).",
    answer: ref("ProtectedResource"),
  },
  "GET /.well-known/oauth-protected-resource/mcp": {
    summary: "The same, where clients of `/mcp` look first.",
    answer: ref("ProtectedResource"),
  },
  "GET /.well-known/oauth-authorization-server": {
    summary: "Metadata of the embedded authorization server (RFC 8414).",
    answer: ref("AuthorizationServer"),
  },
  "GET /.well-known/oauth-authorization-server/mcp": {
    summary: "The same, for clients that look below the resource.",
    answer: ref("AuthorizationServer"),
  },
  "GET /.well-known/openid-configuration": {
    summary: "The same, for clients that look there.",
    answer: ref("AuthorizationServer"),
  },
  "GET /.well-known/openid-configuration/mcp": {
    summary: "The same.",
    answer: ref("AuthorizationServer"),
  },
  "GET /oauth/*": { summary: "Pages of the embedded authorization server.", others: oauth },
  "POST /oauth/*": { summary: "Its endpoints.", others: oauth },
  "OPTIONS /oauth/*": { summary: "The same, for clients in a browser.", others: oauth },
  "GET /healthz": {
    summary: "The process lives.",
    answer: success({ version: { type: "string" } }),
  },
  "GET /readyz": {
    summary: "Queries can be served, and by which state of the access file.",
    answer: success(readiness),
    notReady: ref("NotReady"),
  },
};
