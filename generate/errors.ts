import { writeFileSync } from "node:fs";
import { type RefusalCode, refusals } from "../src/core/base/refusal.ts";
import { queryRefusals } from "../src/core/query/refusal.ts";
import { refusalStatuses } from "../src/engine/refusal.ts";

/** Writes docs/errors.md from the tables of refusals and these explanations. */

export const errorsPage = new URL("../docs/errors.md", import.meta.url);

/** When a code is returned, and what to do. */
const explanations: Readonly<Record<string, string>> = {
  batch_across_upstreams:
    "The databases of the Batch are on several upstreams of `[[upstream.databases]]`, but a Batch is sent to one. The message names them. Nothing was forwarded.",
  bad_request:
    "The request is not HTTP/1.1, or two parsers could read it differently. The message may say why.",
  several_authorization_headers: "Two parsers could choose different credentials.",
  several_credentials:
    "Two headers of `auth.accept` carry a credential, or one does beside `Authorization`.",
  invalid_body:
    "The body for one of the gateway's own routes is not JSON or not of the expected shape. The message says where.",
  invalid_username: "A username in a path or body.",
  external_user: "A password for a user of an external issuer.",
  invalid_database: "A database in a path or body.",
  invalid_table: "A table or pattern in the path of an entry.",
  invalid_entry:
    "The access file could not contain this entry. The message names the key and what it must be.",
  invalid_page: "The query string of a list that comes in pages.",
  invalid_role:
    "A role in a body; the spelling is exact. An entry may also have `None`, and the message says so.",
  invalid_email: "An email in a body.",
  password_too_short: "A new password.",
  password_too_long: "A new password, counted in UTF-8.",
  password_common:
    "A new password on the list, whatever its case, with `auth.refuse_common_passwords = true`.",
  unknown_parameter:
    "A query parameter that the configured route or the preset does not list. The message says which are allowed.",
  unknown_member:
    "A preset: a member of a body that it does not list. The message says which are allowed.",
  path_not_canonical:
    "A configured route whose path an upstream might read differently. Also refused are `#`, and encoded `;`, `?`, `#`, dots, control characters and percent signs (`%3b`, `%3f`, `%23`, `%2e`, `%0a`, `%252f`). So are incomplete or non-UTF-8 encodings, and anything but visible ASCII.",
  request_timeout: "The request did not arrive completely within `server.request_timeout`.",
  body_too_large: "The message names the limit in bytes.",
  unsupported_media_type: "Another type or charset, or a `Content-Encoding`.",
  expectation_unknown: "The request has another `Expect`, which the gateway cannot meet.",
  headers_too_large: "More than 16 KiB of headers, or more than 128 of them.",
  unauthenticated: "The route needs a token and the request has no `Authorization`.",
  token_invalid:
    "The scheme is not Bearer, or this is not a token of this gateway. The signature is bad, the key unknown, or the issuer, audience, type or algorithm another one. A claim is missing or of another type.",
  token_expired: "`exp` has passed. Log in again.",
  token_revoked: "The token was revoked, its user is disabled, or its password was changed.",
  user_gone: "The token's user no longer exists.",
  credentials_invalid:
    "The username or the password is wrong. The same for a user who does not exist, is disabled or has no password.",
  no_grant:
    "The user has no entry for the database, for the table, or for `*`. Or a user of an external issuer has no entry at all.",
  role_insufficient:
    "The role on the database does not include the right, or the caller does not outrank the user to be changed.",
  database_case_mismatch:
    "The access file names the database in another case, and the upstream may ignore case.",
  grant_expired: "The `expires` of the deciding entry has passed. Ask for a new grant.",
  group_conflict:
    "The user's groups have different entries for the same place, and the user has none there. The message names the groups. Give the user an entry there, or make the groups' entries equal.",
  groups_unavailable:
    "The issuer's `groups_claim` is set, and the token lacks it, has another type there or more than 1,000 groups, or refers elsewhere for them.",
  name_case_mismatch:
    "A name differs only by case, Unicode form or spaces around it from one in the caller's entries for this database or `*`. An upstream might treat both as one. The message says which.",
  columns_required:
    "`*` in `columns` or `returning` for a table of which the caller may use some columns. The message lists them.",
  column_denied:
    "A column in any position, or a column to be written that the caller may only read. The message names it and lists what is allowed.",
  column_unqualified: "A join with a table of which the caller may use some columns or rows.",
  limit_required:
    "The caller may get a limited number of rows per response, and the Select has no `limit`. The message contains the number.",
  limit_too_high:
    "`limit`, or the sum in a Batch, exceeds the rows that the caller may get in one response. Continue with `after` or `offset`.",
  where_required:
    "The `where` of an Update or Delete does not identify the rows by `=` or `IN`. The message names the columns.",
  too_many_changes:
    "The rows of `values`, or their sum in a Batch, exceed what the caller may change with one query. The engine returns it with 409, after counting.",
  row_denied:
    "A row of `values`, or a `set` or `add`, is outside the rows that the caller may reach. The message says what each column must contain.",
  attribute_missing:
    "A row filter refers to an attribute that is missing in the user record or has another kind of value. An administrator sets it.",
  join_denied:
    "The joined table of a LEFT join, or the tables before a RIGHT join. Use INNER, or reverse the join.",
  not_narrowable:
    "The operation cannot be limited to the columns, rows or numbers that the caller may use. The message says what to use instead.",
  name_too_wide:
    "A preset: a name such as `*`, `logs-*` or `_all`, or none where that means all, and no entry of the caller covers everything that it includes, or one inside it allows less.",
  token_database: "The token is limited to another database, or the operation needs a `*` token.",
  token_read_only: "The token is limited to reading.",
  batch_member_denied:
    'One element of a Batch is denied, so the whole Batch is. Nothing was forwarded. The body names the element, counted from 0, and the reason: `"element": 2, "reason": "column_denied"`.',
  sign_in_refused:
    "Sign-in through a provider: the provider refused, or its claims name no valid user. The audit line says which, as `detail`.",
  sign_in_expired:
    "Sign-in through a provider: more than 10 minutes passed, or another browser has started it. Start at the login page.",
  insufficient_scope:
    "Only on `/mcp`: `scope` in `WWW-Authenticate` names what the operation needs and what the token has.",
  administration_disabled: "`/api` and `/logout` while `auth.enabled = false`.",
  host_not_allowed:
    "`Host` is neither loopback nor that of `public_url` while `auth.enabled = false`.",
  origin_not_allowed:
    "`Origin` or `Sec-Fetch-Site` is foreign while `auth.enabled = false` or with Basic credentials, or `Origin` is foreign on `/mcp` or a WebSocket.",
  approval_required:
    "The entry or a permission boundary has `require_approval` for this operation. `status` is `pending`. `approval` contains `id`, `expires`, and `url` if there is a console.",
  approval_denied: "An approver denied it. The message contains the reason, if one was given.",
  approval_not_found:
    "The id in `X-Gatehouse-Approval`, or in `approval` of a tool, is unknown or belongs to another user.",
  handle_not_found:
    "A preset: the scroll, point in time or checkpoint was given to another user, or was never given.",
  approval_mismatch: "Send exactly what was approved, by the same client and to the same route.",
  approval_expired: "Not decided in time, or not used in time.",
  approval_used:
    "The outcome does not matter. Look at the result before you request approval again.",
  approval_void:
    "An entry, boundary or attribute of the caller has changed, all tokens of the caller or of the approver were revoked, or the approver may no longer approve.",
  too_many_approvals:
    "At most 20 can wait. Wait until some are decided, or until the first one expires, as `Retry-After` says.",
  approvals_failed:
    "The query needs an approval, but the approvals file cannot be accessed. The log says why.",
  not_found: "The path does not exist. Fixed parts match exactly as sent.",
  invalid_group: "A group in a path.",
  group_not_found: "There is no local group of that name.",
  user_not_found: "The user does not exist, and the caller could manage it.",
  grant_not_found: "There is no such entry to remove.",
  schema_not_found:
    "`/schema`, or a tool or resource of `/mcp`, names a database or table that does not exist.",
  schema_not_offered: "The upstream does not answer `GET /schema`.",
  token_not_found:
    "`DELETE /api/tokens/<id>` with an id that is in no list of the caller: unknown, another user's, expired or already revoked.",
  key_not_found: "`gatehouse key revoke` with a name that no signing key has.",
  method_not_allowed: "The path exists. `Allow` lists its methods.",
  user_exists: "A user with this name exists.",
  database_case_conflict: "The access file names a database that differs only by case.",
  entry_narrowed:
    "A role without other keys would replace an entry with columns, filters, limits or an expiry.",
  entry_lists_tables: "The entry is for other tables too.",
  last_owner: "The change would take away the last Owner of a database, by the same rules.",
  last_administrator:
    "The change would take away the last administrator by an own entry, or by a local group if no user has one ([rules](grants.md#the-last-administrator)).",
  access_file_read_only:
    'The file or its directory is read-only, the file is a mount point, or the disk is full. With `store.access = "file"`, always. Nothing was written.',
  access_file_invalid:
    "The file on disk cannot be parsed, or others may read or write it. Nothing was written.",
  store_form_unknown:
    "Only with `[store]`: a replica of an older version is running. Nothing was changed.",
  version_conflict:
    "Only for `gatehouse access apply` and `access edit`: the export is of an earlier version. Nothing was changed.",
  too_many_attempts:
    "Failed logins of this user from this address, or of any user from this address. `Retry-After` says when to try again.",
  rate_limited:
    "The `rate_limit` of a boundary is used up. `Retry-After` says when the window ends; over MCP it is a tool error whose text says so. Denied requests and invalid queries count too, and a Batch counts as its elements.",
  internal_error: "A bug of the gateway. Find it in the log by the request id.",
  upstream_unreachable:
    "No connection could be made, or the certificate of an `https://` upstream could not be verified. The log says why.",
  upstream_broken:
    "The connection broke before any part of a response had been sent to the client, or the response was not valid HTTP. Examples are a 204 with a length and a 205 with a body. With a preset, also a 401: the server refuses `upstream.credential`. A change may have been carried out.",
  busy: "`server.max_buffered_bytes` are in use, or this user holds as much of them as remains for all others, or the access file is locked. `Retry-After` says when to try again.",
  login_busy: "The queue of password checks is full. `Retry-After` says when to try again.",
  revocation_failed:
    "The revocations file or its directory is read-only, others may read or write the file, or the disk is full.",
  store_unreachable:
    "Only with `[store]`. Changes fail at once. Everything except `GET /healthz` fails when the replica has not reached the store for `store.max_staleness`. Nothing was changed.",
  store_uncertain: "Only with `[store]`: the connection broke while the change was committed.",
  shutting_down:
    "Only `GET /readyz`, for `server.shutdown_delay` after SIGTERM. Everything else is served as before.",
  upstream_overloaded:
    "No connection became free in time, or too many queries wait, most of them this user's. For `mcp.upstream`: 100 requests of this user are open. `Retry-After` says when to try again.",
  issuer_unreachable:
    "The keys of the token's issuer cannot be fetched, or not yet again for an unknown `kid`, or it does not answer introspection. `Retry-After` says when to try again.",
  upstream_timeout:
    "`upstream.connect_timeout` or `upstream.response_timeout` has passed. A change may have been carried out.",
} satisfies Record<RefusalCode, string>;

const engineStatuses: Readonly<Record<string, number>> = {
  ...refusalStatuses,
  internal_error: 500,
};

const ofEngine: Readonly<Record<string, string>> = {
  ambiguous_column: "Several tables of a join have the column. Write `table.column`.",
  batch_not_atomic:
    "On MySQL, the Batch creates or drops a table and also does something else. With several databases of a PostgreSQL server, the Batch uses two of them. None of it was carried out.",
  duplicate_column:
    "Two columns of a new table have the same name in different case, or a column of an Update is in two of `set`, `add` and `bind`.",
  invalid_name: "The engine or the database reserves the name, or the database cannot store it.",
  invalid_type:
    "The type is not one of the [types](query.md#types), or `serial` is not the sole primary key.",
  invalid_value:
    "The column does not accept the value, or cannot be compared with it. The message names the element of the Batch, the row of the Insert, the column and its type. It also says what the column accepts, such as the labels of an enum or the length of a text.",
  no_unique_key:
    "The columns of `on_conflict` or `references` are not a primary or unique key. The message lists the existing keys.",
  not_supported:
    "This database cannot do it, as the message says. On MySQL and MariaDB: read the changed rows of a table without a primary key, Upsert into a table with several unique keys, or continue `after` a very long text. On SQLite: change a file with a write-ahead log in a Batch that uses another database too.",
  number_out_of_range:
    "A whole number exceeds 64 bits, or another number exceeds a double. Or the result of `add` or `compute` does, or the column cannot store it. The message names the column and what it allows. If several columns of `add` may be at fault, it names each.",
  order_not_unique: "`after` with an order in which two rows may be equal.",
  query_too_complex:
    "The query exceeds a limit of the database: too many columns, values or conditions. Or [included rows](query.md#included-rows), a [computed text](query.md#computed-names) or a stored row are too long.",
  self_join: "A table is joined with itself without another name (`as`).",
  too_many_databases: "A Batch uses more than 11 databases.",
  unknown_column:
    "The table has no such column. The message names one with a similar spelling, or lists the columns. A column in `bind` is reported where `bind` names it: `Batch[1]: bind.order_id: …`.",
  batch_member_denied:
    "A row that an element of the Batch wrote is outside the caller's row filter. `element` says which one, and `reason` is `row_denied`. Nothing of the Batch was kept.",
  row_denied:
    "A row as it would be stored is outside the caller's [row filter](grants.md#values-and-their-bytes). Nothing was changed.",
  permission_denied:
    "PostgreSQL or MySQL does not allow this for the engine's own user. Or the target is a view or a table without transactions that does not allow it, or its row-level security does not.",
  database_not_found: "No database has this name.",
  table_not_found:
    "The database has no table of this name. The message names one with a similar spelling.",
  constraint_violation:
    "A value exists already where it must be unique, null is not allowed, or another rule of the database is violated. The message names the table, and the columns that must be unique or need a value. It contains what a trigger or function says, if that has neither digits nor quotation marks. For a foreign key, it names both tables and the columns, on PostgreSQL and MySQL the constraint, and on SQLite and PostgreSQL the value if the query contains it. Callers who do not see the whole schema get none of these.",
  database_exists:
    "A database of this name exists, in any case. If the access file names one in another case, the gateway returns 403 `database_case_mismatch` without asking the engine.",
  database_in_use:
    "With several databases of a PostgreSQL server: other clients are connected to the database to be dropped.",
  database_protected:
    "On SQLite, `main` cannot be dropped. With several databases of a PostgreSQL server, the database of the URL and templates cannot.",
  table_exists: "A table of this name exists, in any case.",
  statement_failed:
    "The database itself cannot run the query: a view, trigger, function, index or file is broken, or does not allow this. The message names the object and the reason where that reveals no row, and only to callers who see the whole schema. The log contains the database's code, a reason without values, and the file.",
  expectation_failed:
    'An element of the Batch affected another number of rows than its `expect`, or than the one row that a later `bind` needs. The body names the element, counted from 0, and both numbers: `"element": 2, "expected": 1, "affected": 0`. Nothing of the Batch was kept.',
  approval_stale:
    "The rows that the change would affect are no longer those that [were approved](approvals.md). Nothing was changed.",
  too_many_changes:
    "The change affects more rows than the caller's grant allows. Nothing was changed.",
  too_many_rows:
    "The change would return more rows than the caller's grant allows. Nothing was changed.",
  internal_error: "The engine has a fault. The log contains the type, code and stack of the cause.",
  upstream_broken:
    "The process that runs SQLite ended before it responded. Nothing was carried out.",
  busy: "Another process holds the SQLite file, or other queries on PostgreSQL or MySQL conflict with this one. Send it again.",
  database_unavailable:
    "PostgreSQL or MySQL cannot be reached, or lacks a resource, or needs another server that cannot be reached. Or the directory of the SQLite files is missing or cannot be read. Nothing was carried out.",
  outcome_unknown:
    "The connection was lost, SQLite's process ended, or the time limit was reached during the commit. The change, or the Batch as a whole, may or may not have been carried out. Read the rows before you send it again.",
  query_timeout:
    "The query took longer than `upstream.statement_timeout` (30 seconds by default) in the database and was canceled. Nothing was carried out.",
  storage_failed:
    "The disk is full, or the database file cannot be written. Nothing of the query was carried out.",
} satisfies Record<keyof typeof refusalStatuses | "internal_error", string>;

/** Of a code that the gateway returns too, with the same status. */
function alsoOfEngine(code: string, status: number): string {
  const text = ofEngine[code];
  return text === undefined || engineStatuses[code] !== status ? "" : ` From the engine: ${text}`;
}

function isOfGateway(code: string, status: number): boolean {
  const [own] = Object.entries(refusals).find(([name]) => name === code)?.[1] ?? [];
  return own === status || (code in queryRefusals && status === 400);
}

type Row = readonly [code: string, status: number, ...cells: string[]];

function table(head: string, rows: readonly Row[]): string {
  const sorted = rows.toSorted(([a, first], [b, second]) => first - second || a.localeCompare(b));
  const lines = sorted.map(([code, ...cells]) => `| \`${code}\` | ${cells.join(" | ")} |`);
  return [
    `| Code | Status | ${head} |`,
    `${"| --- ".repeat(head.split(" | ").length + 2)}|`,
    ...lines,
  ].join("\n");
}

const sections: readonly (readonly [
  title: string,
  has: (code: string, status: number) => boolean,
])[] = [
  ["Approvals", (code) => code.includes("approval")],
  ["Authentication and permissions", (_code, status) => status === 401 || status === 403],
  ["Not found and conflicts", (_code, status) => [404, 405, 409].includes(status)],
  ["Rate limits, server and database errors", (_code, status) => status === 429 || status >= 500],
  ["Invalid requests", () => true],
];

function gatewaySections(): string[] {
  const rows = new Map<string, Row[]>(sections.map(([title]) => [title, []]));
  for (const [code, [status, message]] of Object.entries(refusals)) {
    const [title = ""] = sections.find(([, has]) => has(code, status)) ?? [];
    rows
      .get(title)
      ?.push([
        code,
        status,
        `\`${message}\``,
        (explanations[code] ?? "") + alsoOfEngine(code, status),
      ]);
  }
  return Array.from(
    rows,
    ([title, found]) => `## ${title}\n\n${table("Message | When, and what to do", found)}`,
  );
}

function engineTable(): string {
  const own = Object.entries(engineStatuses).filter(([code, status]) => !isOfGateway(code, status));
  const rows = own.map(([code, status]): Row => [code, status, ofEngine[code] ?? ""]);
  return table("When, and what to do", rows);
}

export function errorsText(): string {
  const ofQueries = Object.entries(queryRefusals).map(
    ([code, meaning]): Row => [code, 400, meaning + alsoOfEngine(code, 400)],
  );
  return `${[
    "# Errors",
    "For developers and operators who have an error code and want to know what to do.",
    "Every error has a stable `code`, next to a message for people; [Responses and errors](http.md#responses-and-errors) has the form. Where several codes share a message, the message only says that the caller is not allowed to do this.",
    "Two codes tell a program whether it may send a change again:",
    "- `database_unavailable` (503): nothing was carried out, so the change may be sent again.\n- `outcome_unknown` (503): the change may or may not have been carried out, so read the rows first. The same applies to a change that returns `upstream_broken` or `upstream_timeout`.",
    ...gatewaySections(),
    "## Invalid queries",
    "A refused query body gets one of these codes. The message says where and why, and never contains the value of a cell.",
    table("Meaning", ofQueries),
    "## Errors of the engine",
    "The engine returns these codes in addition, on SQLite and on [PostgreSQL and MySQL](databases.md). It also returns some of those above, where they say so. `X-Gatehouse-Decision: allow` says that the caller was allowed to send the query.",
    engineTable(),
  ].join("\n\n")}\n`;
}

if (import.meta.main) writeFileSync(errorsPage, errorsText());
