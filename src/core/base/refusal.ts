import { ClientError } from "./client-error.ts";

/**
 * Every refusal in one table: its stable code, its HTTP status and its public message. Further
 * details go only into the log, as `detail`.
 */
const table = {
  unauthenticated: [401, "Missing Authorization header"],
  token_invalid: [401, "Invalid token format"],
  token_expired: [401, "Token expired"],
  token_revoked: [401, "Token revoked"],
  user_gone: [401, "User not found"],
  credentials_invalid: [401, "Invalid username or password"],

  no_grant: [403, "Insufficient permissions for this operation"],
  role_insufficient: [403, "Insufficient permissions for this operation"],
  database_case_mismatch: [403, "Insufficient permissions for this operation"],
  grant_expired: [403, "The grant for this has expired"],
  group_conflict: [403, "The entries of several groups differ"],
  groups_unavailable: [403, "The groups of the token are unknown"],
  name_case_mismatch: [
    403,
    "A table or column is spelled in a different case than in the caller's grants",
  ],
  columns_required: [403, "Name the columns: * includes some that the caller may not use"],
  column_denied: [403, "The query names a column that the caller may not use"],
  column_unqualified: [403, "Columns must be written as table.column in this query"],
  limit_required: [403, "A limit is required"],
  limit_too_high: [403, "The limit is too high"],
  where_required: [403, "The condition must pin certain columns"],
  too_many_changes: [403, "The query would change more rows than the caller may change"],
  row_denied: [403, "The query writes a row that the caller may not write"],
  attribute_missing: [403, "The caller lacks an attribute that its grants refer to"],
  join_denied: [
    403,
    "A table of which the caller may see only some rows cannot be the optional side of a join",
  ],
  approval_required: [202, "Approval required"],
  approval_denied: [403, "Approval denied"],
  not_narrowable: [403, "This operation cannot be limited to the caller's grants"],
  name_too_wide: [403, "A name includes more than the caller may use: name each one"],
  token_database: [403, "Insufficient permissions for this operation"],
  token_read_only: [403, "Insufficient permissions for this operation"],
  batch_member_denied: [403, "Insufficient permissions for this operation"],
  sign_in_refused: [403, "The identity provider did not sign you in"],
  sign_in_expired: [403, "The sign-in has expired or belongs to another browser: start again"],
  insufficient_scope: [403, "The token's scopes do not cover this operation"],
  administration_disabled: [403, "Administration requires authentication, which is disabled"],
  host_not_allowed: [
    403,
    "The gateway does not accept this Host: use the URL in server.public_url or a loopback address",
  ],
  origin_not_allowed: [403, "Web pages of this Origin may not use the gateway"],

  bad_request: [400, "Bad request"],
  batch_across_upstreams: [400, "The databases of a Batch are on different upstreams"],
  several_authorization_headers: [400, "More than one Authorization header"],
  several_credentials: [
    400,
    "More than one credential: send the Authorization header or one other",
  ],
  invalid_body: [400, "Invalid request body"],
  invalid_username: [
    400,
    "Invalid username: 1 to 64 of letters, digits, '.', '_', '-', '@', and not '.' or '..'",
  ],
  invalid_group: [
    400,
    "Invalid group: 1 to 63 of letters, digits, '_', '-' (for entries also <prefix>:<group> of an issuer)",
  ],
  external_user: [400, "The identity provider manages this user's password: change it there"],
  invalid_database: [
    400,
    "Invalid database: '*' or 1 to 63 of letters, digits, '_', '-', or two such names with a dot between",
  ],
  invalid_table: [
    400,
    "Invalid table: 1 to 512 of letters, digits, '_', '-' and '.', not '.' first, or the beginning of such a name and '*'",
  ],
  invalid_entry: [400, "Invalid entry"],
  invalid_page: [400, "Invalid page: limit is 1 to 1000, and after is a username"],
  invalid_role: [400, "Invalid role: Owner, DbAdmin, ReadWrite or ReadOnly"],
  invalid_email: [400, "Invalid email: 1 to 254 characters without control characters"],
  password_too_short: [400, "Password must be at least 8 characters"],
  password_common: [400, "Password is on a list of common passwords: choose another one"],
  password_too_long: [400, "Password must be at most 1024 bytes"],
  unknown_parameter: [400, "Unknown query parameter"],
  unknown_member: [400, "Unknown member of the body"],
  path_not_canonical: [400, "The path contains dot segments, '//', ';', '\\', '%2f' or '%5c'"],

  not_found: [404, "Not found"],
  user_not_found: [404, "User not found"],
  group_not_found: [404, "Group not found"],
  grant_not_found: [404, "Grant not found"],
  schema_not_found: [404, "Database or table not found"],
  schema_not_offered: [404, "The upstream does not support schema requests"],
  approval_not_found: [404, "Approval not found"],
  handle_not_found: [
    404,
    "The scroll, point in time or checkpoint is not the caller's, or has ended",
  ],
  token_not_found: [404, "Token not found"],
  key_not_found: [404, "Unknown or retired signing key"],
  method_not_allowed: [405, "Method not allowed"],
  request_timeout: [408, "The request took too long to arrive"],

  user_exists: [409, "User already exists"],
  database_case_conflict: [409, "The access rules already name this database in a different case"],
  entry_narrowed: [
    409,
    "The entry has limits besides its role: give the whole entry, or remove it first",
  ],
  entry_lists_tables: [409, "The entry lists several tables: change it in the access file"],
  approval_mismatch: [409, "The approval was given for a different request or client"],
  approval_expired: [409, "The approval has expired: request a new one"],
  approval_used: [409, "The approval has already been used: request a new one"],
  approval_void: [409, "The rights that the approval relies on have changed: request a new one"],
  last_owner: [409, "The last Owner of a database cannot be removed or lowered"],
  last_administrator: [409, "The last administrator cannot be removed, lowered or disabled"],
  access_file_read_only: [409, "The access file cannot be written"],
  store_form_unknown: [409, "A running replica cannot read the new format: upgrade it first"],
  version_conflict: [
    409,
    "The access rules have changed since the export: export again and reapply your change",
  ],
  access_file_invalid: [409, "The access file is invalid: fix it first"],

  body_too_large: [413, "Request body too large"],
  unsupported_media_type: [
    415,
    "Send JSON: Content-Type must be application/json in UTF-8, without a Content-Encoding (docs/http.md)",
  ],
  expectation_unknown: [417, "The only supported Expect is 100-continue"],
  too_many_attempts: [429, "Too many failed attempts"],
  too_many_approvals: [429, "Too many of the caller's approvals are pending"],
  rate_limited: [429, "The rate limit of a permission boundary is exceeded"],
  headers_too_large: [431, "Request headers too large"],

  internal_error: [500, "Internal error"],
  upstream_unreachable: [502, "The database does not respond"],
  upstream_broken: [502, "The database sent no valid response"],
  busy: [503, "Busy: try again shortly"],
  login_busy: [503, "Too many concurrent logins: try again shortly"],
  revocation_failed: [503, "Nothing was revoked: the revocations file cannot be written"],
  store_unreachable: [503, "The shared store does not respond: try again shortly"],
  store_uncertain: [
    503,
    "The store did not respond, so it is unknown whether the change was made: check before you retry",
  ],
  approvals_failed: [503, "Nothing was done: approvals cannot be read or written at the moment"],
  shutting_down: [503, "The gateway is shutting down: retry on another instance"],
  upstream_overloaded: [503, "The database is overloaded: try again shortly"],
  issuer_unreachable: [503, "The authorization server of this token is unreachable"],
  upstream_timeout: [504, "The database took too long to answer"],
} as const satisfies Record<string, readonly [status: number, message: string]>;

export type RefusalCode = keyof typeof table;

export const refusals: Readonly<Record<RefusalCode, readonly [status: number, message: string]>> =
  table;

type Members = Readonly<Record<string, string | number | Readonly<Record<string, string>>>>;

/** A refused token, for the audit and the log. */
export interface RefusedToken {
  /** Only for a configured issuer. */
  readonly issuer?: string;
  /** Known only after the signature was verified. */
  readonly user?: string | undefined;
  readonly tokenId?: string | undefined;
  readonly client?: string | undefined;
  /** A sentence, where a document or an answer of the issuer is at fault. */
  readonly cause?: string | undefined;
}

interface RefusalOptions {
  /** Replaces the table's message by a more specific one. */
  message?: string | undefined;
  detail?: string | undefined;
  /** The refused token; the audit then shows `detail` too. */
  token?: RefusedToken;
  members?: Members | undefined;
  /** Seconds after which a retry may succeed (RFC 9110, section 10.2.3). */
  retryAfter?: number | undefined;
  /** The methods that are allowed, for 405 (RFC 9110, section 10.2.1). */
  allow?: string;
  /** The scopes that the operation needs, separated by spaces (RFC 6750, section 3). */
  scope?: string;
  cause?: unknown;
}

/** Thrown wherever a rule refuses a caller; rendered in one place at the edge. */
export class Refusal extends ClientError {
  readonly code: RefusalCode;
  readonly token: RefusedToken | undefined;
  readonly members: Members | undefined;
  readonly retryAfter: number | undefined;
  readonly allow: string | undefined;
  readonly scope: string | undefined;

  constructor(code: RefusalCode, options: RefusalOptions = {}) {
    super(options.message ?? table[code][1], options);
    this.code = code;
    this.token = options.token;
    this.members = options.members;
    this.retryAfter = options.retryAfter;
    this.allow = options.allow;
    this.scope = options.scope;
  }

  get status(): number {
    return table[this.code][0];
  }
}
