/** The schema of audit lines, from which the fields in docs/audit.md are generated. */

import { z } from "zod";

function text(description: string) {
  return z.string().describe(description);
}

function optionalText(description: string) {
  return z.string().optional().describe(description);
}

function optionalNumber(description: string) {
  return z.number().optional().describe(description);
}

const time = z.iso.datetime().describe("When it ended: ISO 8601 in UTC with milliseconds.");
const accessVersion = text(
  "Version of the access file in force, by which a query was judged: the short content hash, as in `/readyz`. Absent only if a command could not read the file.",
);

const level = z
  .enum(["info", "warn", "error"])
  .describe(
    "`info`: allowed or completed. `warn`: denied, by the gateway or by a limit of the caller that the engine enforces, such as `too_many_changes`, `row_denied` and `approval_stale`. `error`: the gateway or the upstream failed (5xx), or an access file was rejected.",
  );

export const author = z
  .strictObject({ kind: z.enum(["api", "console", "cli", "file", "store"]), name: z.string() })
  .describe(
    "Who changed users, grants, keys or revocations: the caller (`api`), the console's user (`console`), the system user (`cli`), the owner of the edited file (`file`), the replica (`store`).",
  );

export const auditedChange = z.strictObject({
  change: z.string(),
  user: z.string().optional(),
  group: z.string().optional(),
  members: z.array(z.string()).readonly().optional(),
  left: z.array(z.string()).readonly().optional(),
  entry: z.string().optional(),
  role: z.string().optional(),
  fields: z.array(z.string()).optional(),
  boundary: z.string().optional(),
  key: z.string().optional(),
  token: z.string().optional(),
  client: z.string().optional(),
});

const changes = z
  .array(auditedChange)
  .readonly()
  .describe(
    "The first 100 changes: `change` such as `grant added`, `grant lowered`, `user changed`, `group changed`, `token issued`, `tokens revoked`, `application ended`, `key added`, `key revoked`, and where they apply `user` or `group`, `members` (all that the group then has), `left` (members who left it), `entry` (as in `operations`), `role`, `fields`, `boundary`, `key`, `token`, `client`.",
  );

const operation = z.strictObject({
  operation: z.string(),
  database: z.string(),
  tables: z.array(z.string()).readonly(),
  role: z.string().optional(),
  entry: z.string().optional(),
  boundary: z.string().optional(),
  /** Columns and comparisons, never a value. */
  shape: z.string().optional(),
});

const asked = z.array(operation.pick({ operation: true, database: true, tables: true }));
const cause = optionalText(
  "A sentence, where a document or an answer of the identity provider is at fault.",
);
const rate = z.strictObject({ boundary: z.string(), limit: z.string(), counted: z.number() });

/** In every line. */
const common = z.strictObject({ level, time, accessVersion });

const requestLine = common
  .extend({
    requestId: text("`X-Request-Id` of the response."),
    traceId: optionalText("Trace id of the request."),
    address: text("Client address, with `server.trusted_proxies` applied."),
    method: text("HTTP method; empty if the bytes were not a request."),
    path: optionalText(
      "Path without query string; absent for unknown paths. With a preset it may name documents.",
    ),
    user: optionalText("The caller; for a login, the named user if it exists."),
    tokenId: optionalText("Id of the token; the `jti` of a JWT."),
    via: z
      .enum(["query", "mcp"])
      .optional()
      .describe(
        "How the database was accessed: by `/query`, a route or `/schema` (`query`), or by `/mcp`.",
      ),
    client: optionalText("OAuth client of the token."),
    issuer: optionalText("External issuer of a refused token."),
    operations: z
      .array(operation)
      .readonly()
      .describe(
        "The first 16 operations in order: `operation`, `database`, `tables`; the `role` and `entry` of the access file that decided; the `boundary` that denied; the `shape` (see above).",
      ),
    operationCount: z.number().describe("Number of operations."),
    decision: z.enum(["allow", "deny"]).optional().describe("Absent if nothing was decided."),
    reason: optionalText(
      "Why the request was denied or the response was cut: a code of docs/errors.md.",
    ),
    detail: optionalText("Why a token was refused: a word of docs/issuers.md."),
    cause,
    droppedGroups: optionalNumber(
      "Number of the token's groups that were ignored, since their names are invalid.",
    ),
    narrowed: z.literal("rows").optional().describe("Row filters were added to the query."),
    approval: optionalText("Approval that the request created or used."),
    rates: z
      .array(rate)
      .readonly()
      .optional()
      .describe(
        "Rate limits that counted the request, whether it passed or not: the `boundary`, its `limit` such as `60/min`, and the number `counted` in the window so far.",
      ),
    affected: optionalNumber(
      "Rows inserted, updated and deleted, of a Batch together; not for foreign upstreams, failed queries and Previews.",
    ),
    rows: optionalNumber(
      "Rows returned, of a Batch together; not for foreign upstreams and failed queries. Over `/mcp`, the rows in the tool's result, which may be shortened, for any upstream. For a stream that was cut, the rows read until then.",
    ),
    format: z.enum(["csv", "ndjson"]).optional().describe("The form of streamed rows."),
    author: author.optional(),
    changes: changes.optional(),
    status: z.number().describe("HTTP status; 499 if the client left before the response."),
    toolStatus: optionalNumber("Over `/mcp`: the status of the tool's query, if it is not 200."),
    ms: z.number().describe("Milliseconds from the first byte read to the last byte written."),
    bytes: z.number().describe("Bytes of the response, head and body."),
    msg: z.literal("request").describe("Kind of line."),
  })
  .describe("A completed request: a decision, a login, a change by `/api`.");

const changeLine = common
  .extend({
    accessVersion: accessVersion.optional(),
    at: optionalText("When a command made the change, possibly before the gateway started."),
    author,
    changes,
    changeCount: optionalNumber("Number of changes, if more than 100."),
    msg: z.literal("change").describe("Kind of line."),
  })
  .describe("A change by a command or by an edit of a file.");

const refusedLine = common
  .extend({
    file: text("The access file."),
    line: optionalNumber("Line with the error."),
    reason: text("The reason; never text of the file."),
    msg: z.literal("access file refused").describe("Kind of line."),
  })
  .describe("A rejected access file; the last valid one stays in force.");

const oauthLine = common
  .extend({
    user: optionalText("The user."),
    client: optionalText("The OAuth client."),
    client_name: optionalText("Name that the client gives itself."),
    redirect_uris: z.array(z.string()).optional().describe("Redirect URIs of a registration."),
    document: optionalText("URL of a client's metadata document or key set that was refused."),
    address: optionalText("Address of the request."),
    database: optionalText("Database of a consent, or `*`."),
    read_only: z.boolean().optional().describe("True if a consent allows only reading."),
    scopes: z.array(z.string()).optional().describe("Scopes of a consent."),
    grant_type: z
      .unknown()
      .optional()
      .describe("`authorization_code`, `refresh_token`, or that of assertions."),
    token: optionalText("Id of the token; for a revocation, the kind of token."),
    outcome: optionalText("`allowed`, or the reason why not."),
    issuer: optionalText("Identity provider of a sign-in, logout or assertion."),
    detail: optionalText("Why the identity provider, its answer or its assertion was refused."),
    cause,
    reason: optionalText("Details of the outcome."),
    author: author.optional(),
    msg: z.enum([
      "oauth_registration",
      "oauth_client",
      "oauth_login",
      "oauth_logout",
      "oauth_consent",
      "oauth_token",
      "oauth_revocation",
      "oauth_replay",
    ]),
  })
  .describe("An action of the authorization server.");

const approvalLine = common
  .extend({
    at: text("When the step happened, possibly by a command before the gateway started."),
    approval: text("Id of the approval."),
    user: text("The requesting user."),
    via: z.enum(["query", "mcp"]).describe("How the query arrived."),
    client: optionalText("OAuth client of the request."),
    operations: asked.describe("The first 16 operations."),
    operationCount: z.number().describe("Number of operations."),
    requestId: optionalText("Request that created or used the approval."),
    author: author.optional(),
    reason: optionalText("Why it was denied or became void."),
    msg: z.enum([
      "approval_asked",
      "approval_approved",
      "approval_denied",
      "approval_expired",
      "approval_used",
      "approval_void",
    ]),
  })
  .describe("A step of an approval (docs/approvals.md).");

const approvalShownLine = common
  .extend({
    at: text("When the rows were shown, possibly by a command before the gateway started."),
    approval: text("Id of the approval."),
    user: text("The approver who was shown the rows."),
    requester: text("The requesting user."),
    operations: asked.describe("The operation."),
    operationCount: z.number().describe("Number of operations."),
    tables: z.array(z.string()).describe("The tables whose rows were shown."),
    rows: z.number().describe("Number of rows that were shown."),
    author,
    msg: z.literal("approval_shown").describe("Kind of line."),
  })
  .describe("Rows of a pending query that an approver was shown (docs/approvals.md).");

const consoleLine = common
  .extend({
    user: optionalText("The user; absent for an unknown name."),
    address: optionalText("Address of the request."),
    outcome: optionalText("`allowed`, or the reason why not."),
    issuer: optionalText("Identity provider of a sign-in."),
    detail: optionalText("Why the identity provider or its answer was refused."),
    cause,
    filter: z
      .record(z.string(), z.string())
      .optional()
      .describe("Filter of an export: the fields that were set."),
    lines: optionalNumber("Number of audit lines exported."),
    msg: z.enum(["console_login", "console_logout", "console_export"]),
  })
  .describe(
    "A sign-in, failed sign-in or sign-out at the console, or an export of the audit as CSV.",
  );

/** By section of docs/audit.md. In the log, each line also has `"audit": true`. */
export const auditLines = {
  request: requestLine,
  change: changeLine,
  "access file refused": refusedLine,
  "oauth_*": oauthLine,
  "approval_*": approvalLine,
  approval_shown: approvalShownLine,
  "console_*": consoleLine,
} as const;

export type AuditRecord = Omit<z.infer<typeof requestLine>, "level" | "time" | "msg">;
export type AuditedOperation = z.infer<typeof operation>;
export type AuditedChange = z.infer<typeof auditedChange>;
export type Author = z.infer<typeof author>;
export type AuditedRate = z.infer<typeof rate>;
