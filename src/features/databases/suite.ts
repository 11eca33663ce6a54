import { isObject, type Json, type Preset } from "./preset.ts";

/** A request of a suite. The path is that of the database server, with its query. */
export interface SuiteRequest {
  readonly method: string;
  readonly path: string;
  /** A list is sent as several headers. */
  readonly headers?: Readonly<Record<string, string | readonly string[]>>;
  /** Sent as it is, or as JSON. */
  readonly body?: Json | Buffer;
}

export interface SuiteAnswer {
  readonly status: number;
  readonly text: string;
  /** Undefined if the text is not JSON. */
  readonly json: Json | undefined;
}

export type Send = (request: SuiteRequest) => Promise<SuiteAnswer>;

/** A line of the access file that a suite's gateway starts with. */
export interface SuiteGrant {
  readonly user: string;
  readonly database: string;
  readonly role: "Owner" | "DbAdmin" | "ReadWrite" | "ReadOnly" | "None";
  readonly tables?: readonly string[];
}

export interface SuiteContext {
  /**
   * Sends a request through the gateway. Every user of a grant exists, and `admin` owns all.
   * `operator` is `direct`. Any other name sends it without a credential. Without an answer, the
   * status is 0.
   */
  as(user: string): Send;
  /** Sends a request to the database server itself, with the operator's credential. */
  readonly direct: Send;
  /** Records whether one expectation held. `found` is shown if it did not. */
  held(title: string, holds: boolean, found?: unknown): void;
  /** As `held`: the request has this status, and this code of the gateway if one is given. */
  expect(user: string, request: SuiteRequest, status: number, code?: string): Promise<SuiteAnswer>;
}

/**
 * Allowed, denied and attacking requests, in databases, collections and indexes whose names begin
 * with `gatehouse_test_`, which the suite makes and removes.
 */
export interface Suite {
  readonly preset: Preset;
  readonly grants: readonly SuiteGrant[];
  run(context: SuiteContext): Promise<void>;
  /** Removes what a suite has made, also one that was interrupted. */
  clean(direct: Send): Promise<void>;
}

export const get = (path: string): SuiteRequest => ({ method: "GET", path });
export const remove = (path: string, body?: Json): SuiteRequest =>
  body === undefined ? { method: "DELETE", path } : { method: "DELETE", path, body };
export const post = (path: string, body: Json | Buffer): SuiteRequest => ({
  method: "POST",
  path,
  body,
});
export const put = (path: string, body: Json | Buffer): SuiteRequest => ({
  method: "PUT",
  path,
  body,
});

export function withHeaders(
  request: SuiteRequest,
  headers: Readonly<Record<string, string | readonly string[]>>,
): SuiteRequest {
  return { ...request, headers: { ...request.headers, ...headers } };
}
export const withType = (request: SuiteRequest, type: string): SuiteRequest =>
  withHeaders(request, { "content-type": type });
export const withCoding = (request: SuiteRequest, coding: string): SuiteRequest =>
  withHeaders(request, { "content-encoding": coding });

export function described({ status, text }: SuiteAnswer): string {
  return `${status} ${text}`;
}

/** The code of a refusal of the gateway. Errors of the servers have none. */
export function codeOf({ json }: SuiteAnswer): string | undefined {
  return isObject(json) && typeof json.code === "string" ? json.code : undefined;
}

export function hasStatus(answer: SuiteAnswer, status: number, code?: string): boolean {
  return answer.status === status && (code === undefined || codeOf(answer) === code);
}

const tableLine =
  /^(\S+) ([A-Z,]+)((?: \/\S*)+)((?: [a-z-]+:\S+)*)(?: (?!\d{3}(?:[ ,]|$))(.+?))?(?: (\d{3}(?:,\d{3})*)(?: (\w+))?)?$/;

type Names = Readonly<Record<string, string>>;

/** A request that a user sends, and what the answer must have. */
export interface TableRow {
  readonly title: string;
  readonly user: string;
  readonly request: SuiteRequest;
  /** One of these. */
  readonly statuses: readonly number[];
  readonly code?: string | undefined;
}

/**
 * Reads a table: `user METHOD path header:value body status code`, with as many parts as a request
 * has. Each combination of several users and methods with commas, paths with spaces and bodies with
 * ` || ` is a request. `$NAME` is one of the names, `\n` and `\r` are line ends. A line that begins
 * with `#` is a comment, with `|` it continues the one before. The user `-` has no credential.
 */
export function readTable(table: string, names: Names): TableRow[] {
  const fill = (text: string) =>
    text.replace(/\$([A-Z]+)/g, (token, name: string) => names[name] ?? token);
  const found: TableRow[] = [];
  for (const line of table.replace(/\s*\n *\|/g, "").split(/\n\s*/)) {
    if (line === "" || line.startsWith("#")) continue;
    const [, users, methods = "", paths = "", fields = "", bodies = "", statuses = "", code] =
      tableLine.exec(line) ?? [];
    if (users === undefined) throw new Error(`no request: ${line}`);
    const pairs = fields.split(" ").filter((one) => one !== "");
    const headers = Object.fromEntries(pairs.map((one) => fill(one).split(/:(.*)/).slice(0, 2)));
    for (const user of users.split(","))
      for (const method of methods.split(","))
        for (const path of paths.trim().split(" "))
          for (const body of bodies.split(" || ")) {
            const text = fill(body).replaceAll("\\n", "\n").replaceAll("\\r", "\r");
            const request: SuiteRequest = { method, path: fill(path), headers };
            found.push({
              title: `${method} ${path}${fields} ${body}`.trim(),
              user,
              request: body === "" ? request : { ...request, body: Buffer.from(text) },
              statuses: statuses.split(",").map(Number),
              code,
            });
          }
  }
  return found;
}

/** Sends the requests of a table one after the other. */
export async function expectAll(
  { expect }: SuiteContext,
  table: string,
  names: Names,
): Promise<void> {
  for (const { user, request, statuses, code } of readTable(table, names)) {
    await expect(user, request, statuses[0] ?? 0, code);
  }
}

/** Sends the requests of a table to the server itself. @throws Error unless each succeeds */
export async function fill(direct: Send, table: string, names: Names): Promise<void> {
  for (const { title, request } of readTable(table, names)) {
    const answer = await direct(request);
    if (answer.status < 200 || answer.status > 299)
      throw new Error(`${title}: ${described(answer)}`);
  }
}

/** Servers may write the members of an object in any order. */
function sorted(value: Json): Json {
  if (Array.isArray(value)) return value.map(sorted);
  if (!isObject(value)) return value;
  const members = Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1));
  return Object.fromEntries(members.map(([name, one]) => [name, sorted(one)]));
}

/** These differ between two answers to the same request. */
const volatile = /"(?:took|request_id)":(?:"[^"]*"|\d+)/g;

type Answers = ReadonlyMap<string, string>;

/** The answers to the requests of a table, as texts that are equal for equal answers. */
export async function answersTo(send: Send, table: string, names: Names): Promise<Answers> {
  const answers = new Map<string, string>();
  for (const { title, request } of readTable(table, names)) {
    const { status, text, json } = await send(request);
    let answer = json === undefined ? text : JSON.stringify(sorted(json)).replace(volatile, "");
    // The values of names may differ, such as random ids.
    for (const [name, value] of Object.entries(names))
      answer = answer.replaceAll(value, () => name);
    answers.set(title, `${status} ${answer}`);
  }
  return answers;
}

export function checkSame(
  { held }: SuiteContext,
  what: string,
  before: Answers,
  after: Answers,
): void {
  for (const [title, answer] of before) {
    const later = after.get(title);
    held(`${what}: ${title}`, later === answer, `${answer} became ${later}`);
  }
}

/** Users, from the least to the most that they may do in one database. */
export const roles: readonly string[] = ["stranger", "reader", "writer", "builder", "owner"];

/**
 * Sends the requests of a table as each user, whose name is `$USER`. The user in a row is the least
 * of the roles that is enough for it. Those of `operator` only prepare others, or undo them.
 *
 * @param isOptional true for requests that servers may lack: it is enough that they pass
 * @param others further users, each with the role whose requests are allowed to it
 */
export async function checkRoles(
  { as, direct, held }: SuiteContext,
  table: string,
  names: Names,
  isOptional: boolean,
  others: Names = {},
): Promise<void> {
  for (const user of [...roles, ...Object.keys(others)]) {
    for (const { title, user: from, request } of readTable(table, { ...names, USER: user })) {
      if (from === "operator") {
        await direct(request);
        continue;
      }
      const answer = await as(user)(request);
      const isOwn = codeOf(answer) === undefined;
      const isDone = answer.status >= 200 && answer.status < 300;
      const isAllowed = roles.indexOf(others[user] ?? user) >= roles.indexOf(from);
      const isPassed = isOptional ? answer.status > 0 && isOwn : isDone;
      const holds = isAllowed ? isPassed : answer.status === 403 && !isOwn;
      held(`${user} ${isAllowed ? "may" : "may not"} ${title}`, holds, described(answer));
    }
  }
}

const jsonForms = ['{"a":1,"a":2}', '{"a":1,"\\u0061":2}', "{}{}", "\ufeff{}", '{"a":', "a=1"];
const deep = "[".repeat(99) + "]".repeat(99);

/**
 * Requests to each endpoint of a preset in a form that is refused for every user.
 *
 * @param values of the parameters of paths
 */
export function attacksByForm({ endpoints }: Preset, user: string, values: Names): TableRow[] {
  return endpoints.flatMap(({ method, path: pattern, body: kind = "none", types }): TableRow[] => {
    const path = pattern.replace(/:(\w+)\*?/g, (_, name: string) => values[name] ?? "a");
    const bytes = Buffer.from(kind === "ndjson" ? "{}\n" : "{}");
    const plain: SuiteRequest = { method, path };
    const request: SuiteRequest = kind === "none" ? plain : { ...plain, body: bytes };
    const withPath = (other: string): SuiteRequest => ({ ...request, path: other });
    const withBody = (text: string): SuiteRequest => ({ ...plain, body: Buffer.from(text) });
    const attack = (how: string, sent: SuiteRequest, status: number, code?: string): TableRow => ({
      title: `${method} ${pattern} ${how}`,
      user: how === "unsigned" ? "" : user,
      request: sent,
      statuses: [status],
      code,
    });
    const found = [
      attack("unsigned", request, 401),
      attack("with another method", { ...request, method: "PATCH" }, 405),
      attack("with a parameter", withPath(`${path}?gatehouse=1`), 400, "unknown_parameter"),
      ...["/../a", "/%2e%2e/a", "//a", "/%5c..", "%00", ";a"].map((rest) =>
        attack(`with ${rest}`, withPath(path + rest), 400, "path_not_canonical"),
      ),
    ];
    if (kind === "none") return [...found, attack("with a body", withBody("{}"), 400)];
    found.push(
      attack("in an unknown coding", withCoding(request, "br"), 415),
      attack("in broken gzip", withCoding(request, "gzip"), 400),
    );
    if (types?.includes("*")) return found;
    found.push(
      attack("as text", withType(request, "text/plain"), 415),
      attack("in UTF-16", withType(request, "application/json; charset=utf-16"), 415),
    );
    if (kind === "stream") return found;
    for (const text of [...jsonForms, deep]) {
      found.push(attack(`with ${text}`, withBody(kind === "ndjson" ? `${text}\n` : text), 400));
    }
    return kind === "ndjson" ? [...found, attack("without an end", withBody("{}"), 400)] : found;
  });
}

/** In documents, names and metadata that most users may not see. No refusal may contain it. */
export const SECRET = "gatehouse-hush";

/** Each request must be refused, by an answer without secrets. */
export async function checkAttacks(
  { as, held }: SuiteContext,
  attacks: readonly TableRow[],
): Promise<void> {
  for (const { title, user, request, statuses, code } of attacks) {
    const answer = await as(user)(request);
    const isRefused = statuses.some((one) => hasStatus(answer, one, code));
    const found = `${request.method} ${request.path}: ${described(answer)}`;
    const who = user || "no user";
    held(`${who} is refused: ${title}`, isRefused, found);
    const isSilent = !answer.text.includes(SECRET) || request.path.includes(SECRET);
    held(`${who} learns nothing: ${title}`, isSilent, found);
  }
}

export function member(value: Json | undefined, ...names: readonly string[]): Json | undefined {
  return names.reduce<Json | undefined>(
    (found, name) => (isObject(found) ? found[name] : undefined),
    value,
  );
}
