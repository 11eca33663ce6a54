/** The schema of audit lines, from which the fields in docs/audit.md are generated. */

import { z } from "zod";

function text(description: string) {
  return z.string().describe(description);
}

function optionalText(description: string) {
  return z.string().optional().describe(description);
}

const time = z.iso.datetime().describe("When it was over: ISO 8601 in UTC with milliseconds.");
const accessVersion = text(
  "The access file in force: the short content hash that `/readyz` has too.",
);

const level = z
  .enum(["info", "warn", "error"])
  .describe(
    "`info`: allowed, or done. `warn`: denied. `error`: the gateway or the upstream failed.",
  );

export const author = z
  .strictObject({
    kind: z.enum(["api", "console", "cli", "file", "store"]),
    name: z.string(),
  })
  .describe(
    "Who has changed users, grants, keys or revocations: the caller (`api`), the console's user (`console`), the system's user (`cli`), the owner of a file that was edited (`file`), the replica (`store`).",
  );

export const auditedChange = z.strictObject({
  change: z.string(),
  user: z.string().optional(),
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
    "What was changed, the first 100: `change` such as `grant added`, `grant lowered`, `user changed`, `token issued`, `tokens revoked`, `application ended`, `key added`, `key revoked`, and as far as it applies `user`, `entry` (as in `operations`), `role`, `fields`, `boundary`, `key`, `token`, `client`.",
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

const rate = z.strictObject({ boundary: z.string(), limit: z.string(), counted: z.number() });

const requestLine = z
  .strictObject({
    level,
    time,
    requestId: text("`X-Request-Id` of the answer."),
    traceId: optionalText("The trace that it is part of."),
    address: text("The client's address, as `server.trusted_proxies` lets it be known."),
    method: text("HTTP method; empty for what was no request."),
    path: optionalText("Path without query string; absent where it is none of the gateway's."),
    user: optionalText("Who asked; at a login, who was named, if there is such a user."),
    tokenId: optionalText("`jti` of the token."),
    via: z
      .enum(["query", "mcp"])
      .optional()
      .describe(
        "How a database was asked: by `/query`, a route or `/schema` (`query`), or by `/mcp`.",
      ),
    client: optionalText("The OAuth client whose token it was."),
    issuer: optionalText("The external issuer of a token that was refused."),
    operations: z
      .array(operation)
      .readonly()
      .describe(
        "The first 16 operations in their order: `operation` and `database` and `tables`; `role` and `entry` of the access file that decided; the permission `boundary` that denied; the `shape`, see below.",
      ),
    operationCount: z.number().describe("How many there were."),
    decision: z.enum(["allow", "deny"]).optional().describe("Absent where nothing was decided."),
    reason: optionalText("Why not, or why it was cut: a code of docs/http.md."),
    detail: optionalText(
      "Why an external token was refused, more precisely: a word of docs/mcp.md.",
    ),
    narrowed: z.literal("rows").optional().describe("Row filters were added to the query."),
    approval: optionalText("The approval that it asked for, or was run by."),
    rates: z
      .array(rate)
      .readonly()
      .optional()
      .describe(
        "The rate limits in which it was counted, whether it passed or not: the `boundary`, its `limit` such as `60/min`, and how much is `counted` in the window by then.",
      ),
    affected: z
      .number()
      .optional()
      .describe("Rows inserted, updated and deleted, as far as `gatehouse engine` is behind."),
    rows: z
      .number()
      .optional()
      .describe(
        "Rows answered, as far as `gatehouse engine` is behind and the answer is not streamed.",
      ),
    author: author.optional(),
    changes: changes.optional(),
    accessVersion,
    status: z.number().describe("HTTP status; 499 for a client that left before its answer."),
    ms: z.number().describe("Milliseconds from the first byte read to the last one written."),
    bytes: z.number().describe("Bytes of the answer, head and body."),
    msg: z.literal("request").describe("The kind of line."),
  })
  .describe("A request that is over: a decision, a login, a change by `/api`.");

const changeLine = z
  .strictObject({
    level,
    time,
    at: optionalText("When a command has made it, which may be before the gateway was started."),
    author,
    changes,
    changeCount: z.number().optional().describe("How many there were, if more than 100."),
    accessVersion: accessVersion.optional(),
    msg: z.literal("change").describe("The kind of line."),
  })
  .describe("A change that no request has made: by a command, or by an edit of a file.");

const refusedLine = z
  .strictObject({
    level,
    time,
    file: text("The access file."),
    line: z.number().optional().describe("The line that is wrong."),
    reason: text("Why; never text of the file."),
    msg: z.literal("access file refused").describe("The kind of line."),
  })
  .describe("A state of the access file that was not taken; the last good one stays in force.");

const oauthLine = z
  .strictObject({
    level,
    time,
    user: optionalText("Whose it is."),
    client: optionalText("The OAuth client."),
    client_name: optionalText("What the client calls itself."),
    redirect_uris: z.array(z.string()).optional().describe("Of a registration."),
    address: optionalText("The address that it came from."),
    database: optionalText("The database that a consent is for, or `*`."),
    read_only: z.boolean().optional().describe("Whether a consent is for reading alone."),
    scopes: z.array(z.string()).optional().describe("The scopes of a consent."),
    grant_type: z.unknown().optional().describe("`authorization_code` or `refresh_token`."),
    token: optionalText("Id of the token; of a revocation, which kind of token."),
    outcome: optionalText("`allowed`, or why not."),
    reason: optionalText("More of that."),
    author: author.optional(),
    msg: z.enum([
      "oauth_registration",
      "oauth_login",
      "oauth_consent",
      "oauth_token",
      "oauth_revocation",
      "oauth_replay",
    ]),
  })
  .describe("What the authorization server has done.");

const approvalLine = z
  .strictObject({
    level,
    time,
    at: text("When it was; a command may have done it before the gateway started."),
    approval: text("Its id."),
    user: text("Who asked."),
    via: z.enum(["query", "mcp"]).describe("How it came."),
    client: optionalText("The OAuth client by which it came."),
    operations: z
      .array(operation.pick({ operation: true, database: true, tables: true }))
      .describe("What is asked for: the first 16 operations."),
    operationCount: z.number().describe("How many there are."),
    requestId: optionalText("The request that asked for it, or was run by it."),
    author: author.optional(),
    reason: optionalText("Why it was denied, or is void."),
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

const consoleLine = z
  .strictObject({
    level,
    time,
    user: optionalText("Who; absent for a name that nobody has."),
    address: optionalText("The address that it came from."),
    outcome: optionalText("`allowed`, or why not."),
    msg: z.enum(["console_login", "console_logout"]),
  })
  .describe("Somebody has signed in to the console, has tried to, or has signed out.");

/** By section of docs/audit.md. In the log, each line also has `"audit": true`. */
export const auditLines = {
  request: requestLine,
  change: changeLine,
  "access file refused": refusedLine,
  "oauth_*": oauthLine,
  "approval_*": approvalLine,
  "console_*": consoleLine,
} as const;

export type AuditRecord = Omit<z.infer<typeof requestLine>, "level" | "time" | "msg">;
export type AuditedOperation = z.infer<typeof operation>;
export type AuditedChange = z.infer<typeof auditedChange>;
export type Author = z.infer<typeof author>;
export type AuditedRate = z.infer<typeof rate>;
