import { gzipSync } from "node:zlib";
import { isObject, type Json, type Preset, type PresetEndpoint, words } from "./preset.ts";

/** Characters of an answer that are reported. */
export const LONGEST_FOUND = 400;

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

export interface SuiteCheck {
  readonly title: string;
  readonly holds: boolean;
  readonly found: string | undefined;
}

export type Send = (request: SuiteRequest) => Promise<SuiteAnswer>;

/** A line of the access file that a suite's gateway starts with. */
export interface SuiteGrant {
  readonly user: string;
  readonly database: string;
  readonly role: "Owner" | "DbAdmin" | "ReadWrite" | "ReadOnly" | "None";
  readonly tables?: readonly string[];
}

/** The text of each `$NAME` in a table. */
export type Names = Readonly<Record<string, string>>;

/**
 * Allowed, denied and attacking requests, in databases, collections and indexes whose names begin
 * with `gatehouse_test_`, which the suite makes and removes.
 */
export interface Suite {
  readonly preset: Preset;
  readonly grants: readonly SuiteGrant[];
  readonly names: Names;
  run(context: SuiteRun): Promise<void>;
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

export function described({ status, text }: SuiteAnswer): string {
  return `${status} ${text}`;
}

/** The code of a refusal of the gateway. Errors of the servers have none. */
function codeOf({ json }: SuiteAnswer): string | undefined {
  return isObject(json) && typeof json.code === "string" ? json.code : undefined;
}

const tableLine =
  /^(\S+) ([A-Z,]+)((?: \/\S*)+)((?: [a-z-]+:\S+)*)(?: (?!\d{3}(?:[ ,]|$))(.+?))?(?: (\d{3}(?:,\d{3})*)(?: ([a-z_]+))?((?: [+-]\S+| [A-Z]+=\S+)*))?$/;

/** A request that a user sends, and what the answer must have. */
export interface TableRow {
  readonly title: string;
  readonly user: string;
  readonly request: SuiteRequest;
  /** One of these. Empty for any of success. */
  readonly statuses: readonly number[];
  readonly code?: string | undefined;
  /** Texts that it contains, after `+`, and texts that it lacks, after `-`. JSON has no spaces. */
  readonly texts?: readonly string[];
  /** Names of later rows, each with the member of the answer that is its text. */
  readonly kept?: Names;
}

/**
 * Reads a table: `user METHOD path header:value body status code +text -text NAME=member`, with as
 * many parts as a request has. Each combination of several users and methods with commas, paths with
 * spaces and bodies with ` || ` is a request. `$NAME` is one of the names when the row is reached,
 * `\n` and `\r` are line ends. A line that begins with `#` is a comment, with `|` it continues the
 * one before. The user `-` has no credential.
 */
function* readTable(table: string, names: Names): Generator<TableRow> {
  const fillIn = (text: string) =>
    text.replace(/\$([A-Z]+)/g, (token, name: string) => names[name] ?? token);
  for (const line of table.replace(/\s*\n *\|/g, "").split(/\n\s*/)) {
    if (line === "" || line.startsWith("#")) continue;
    const [, users, methods = "", paths = "", fields = "", bodies = "", ...expected] =
      tableLine.exec(line) ?? [];
    if (users === undefined) throw new Error(`no request: ${line}`);
    const [statuses = "", code, more = ""] = expected;
    const pairs = words(fields).map((one) => fillIn(one).split(/:(.*)/).slice(0, 2));
    const isText = (one: string) => /^[+-]/.test(one);
    const kept = words(more).filter((one) => !isText(one));
    for (const user of users.split(","))
      for (const method of methods.split(","))
        for (const path of paths.trim().split(" "))
          for (const body of bodies.split(" || ")) {
            const text = fillIn(body).replaceAll("\\n", "\n").replaceAll("\\r", "\r");
            const headers = Object.fromEntries(pairs);
            const request: SuiteRequest = { method, path: fillIn(path), headers };
            yield {
              title: `${method} ${path}${fields} ${body}`.trim(),
              user,
              request: body === "" ? request : { ...request, body: Buffer.from(text) },
              statuses: words(statuses.replaceAll(",", " ")).map(Number),
              code,
              texts: words(more).filter(isText).map(fillIn),
              kept: Object.fromEntries(kept.map((one) => one.split("="))),
            };
          }
  }
}

/** In documents, names and metadata that most users may not see. No refusal may contain it. */
export const SECRET = "gatehouse-hush";

function hasTexts({ text, json }: SuiteAnswer, texts: readonly string[]): boolean {
  const written = json === undefined ? text : JSON.stringify(json);
  return texts.every((one) => written.includes(one.slice(1)) === one.startsWith("+"));
}

/** @param statuses empty for any of 200 to 299 */
function hasStatus({ status }: SuiteAnswer, statuses: readonly number[]): boolean {
  return statuses.length === 0 ? status >= 200 && status < 300 : statuses.includes(status);
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
async function answersTo(send: Send, table: string, names: Names): Promise<Answers> {
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

/** Users, from the least to the most that they may do in one database. */
export const roles: readonly string[] = ["stranger", "reader", "writer", "builder", "owner"];

const deep = "[".repeat(99) + "]".repeat(99);
const jsonForms = [
  '{"a":1,"a":2}',
  '{"a":1,"\\u0061":2}',
  "{}{}",
  "\ufeff{}",
  '{"a":',
  "a=1",
  deep,
];

/** Requests to an endpoint in a form that is refused for every user. */
function* attacksByForm(
  { method, path: pattern, body: kind = "none", types = [] }: PresetEndpoint,
  user: string,
  values: Names,
): Generator<TableRow> {
  const path = pattern.replace(/:(\w+)\*?/g, (_, name: string) => values[name] ?? "a");
  const end = kind === "ndjson" ? "\n" : "";
  const withBody = (body: string | Buffer): SuiteRequest => {
    return { method, path, body: Buffer.from(body) };
  };
  const request = kind === "none" ? { method, path } : withBody(`{}${end}`);
  const withHeader = (name: string, ...value: readonly string[]): SuiteRequest => {
    return { ...request, headers: { [name]: value } };
  };
  const attack = (how: string, sent: SuiteRequest, status: number, code?: string): TableRow => {
    const title = `${method} ${pattern} ${how}`;
    return { title, user, request: sent, statuses: [status], code };
  };

  yield { ...attack("without a credential", request, 401), user: "" };
  yield attack("with two credentials", withHeader("authorization", "Bearer x", "Bearer y"), 400);
  yield attack("with another method", { ...request, method: "PATCH" }, 405);
  const parameter = { ...request, path: `${path}?gatehouse=1` };
  yield attack("with a parameter", parameter, 400, "unknown_parameter");
  for (const rest of ["/../a", "/%2e%2e/a", "//a", "/%5c..", "%00", ";a"]) {
    yield attack(`with ${rest}`, { ...request, path: path + rest }, 400, "path_not_canonical");
  }
  if (kind === "none") {
    yield attack("with a body", withBody("{}"), 400);
    return;
  }

  const coding = "content-encoding";
  yield attack("in an unknown coding", withHeader(coding, "br"), 415);
  yield attack("in broken gzip", withHeader(coding, "gzip"), 400);
  const type = "content-type";
  yield attack("with two types", withHeader(type, "application/json", "text/plain"), 400);
  if (types.includes("*")) return;
  yield attack("as text", withHeader(type, "text/plain"), 415);
  yield attack("in UTF-16", withHeader(type, "application/json; charset=utf-16"), 415);
  if (kind === "stream") return;
  for (const text of jsonForms) yield attack(`with ${text}`, withBody(text + end), 400);
  yield attack("in broken UTF-8", withBody(Buffer.from(`"\xff"${end}`, "latin1")), 400);
  const twice = withBody(gzipSync(`{"a":1,"a":2}${end}`));
  yield attack("with a key twice in gzip", { ...twice, headers: { [coding]: "gzip" } }, 400);
  if (kind === "ndjson") yield attack("without an end", withBody("{}"), 400);
}

/** Sends requests for a suite, and reports which of its expectations hold. */
export class SuiteRun {
  /** Those of the suite, and those that rows of its tables have kept. */
  readonly names: Record<string, string>;
  /** Sends a request to the database server itself, with the operator's credential. */
  readonly direct: Send;
  readonly #sendAs: (user: string) => Send;
  readonly #report: (check: SuiteCheck) => void;

  /** @param sendAs `admin` owns all, and users without a grant have no credential */
  constructor(
    names: Names,
    direct: Send,
    sendAs: (user: string) => Send,
    report: (check: SuiteCheck) => void,
  ) {
    this.names = { ...names };
    this.direct = direct;
    this.#sendAs = sendAs;
    this.#report = report;
  }

  /** Sends a request through the gateway. Without an answer, the status is 0. */
  as(user: string): Send {
    return user === "operator" ? this.direct : this.#sendAs(user);
  }

  /** Records whether one expectation held. */
  held(title: string, holds: boolean, found: string): void {
    this.#report({ title, holds, found: holds ? undefined : found.slice(0, LONGEST_FOUND) });
  }

  /** Sends the requests of a table one after the other. */
  async checkTable(table: string): Promise<void> {
    for (const row of readTable(table, this.names)) this.#keep(row, await this.#checkRow(row));
  }

  /** Sends the requests of a table to the server itself. @throws Error unless each succeeds */
  async fill(table: string): Promise<void> {
    for (const row of readTable(table, this.names)) {
      const answer = await this.direct(row.request);
      if (!hasStatus(answer, row.statuses)) throw new Error(`${row.title}: ${described(answer)}`);
      this.#keep(row, answer);
    }
  }

  #keep({ kept = {} }: TableRow, { json }: SuiteAnswer): void {
    for (const [name, path] of Object.entries(kept)) this.names[name] = String(member(json, path));
  }

  /** Sends the request of a row. A refusal must not tell the secret. */
  async #checkRow({
    title,
    user,
    request,
    statuses,
    code,
    texts = [],
  }: TableRow): Promise<SuiteAnswer> {
    const answer = await this.as(user)(request);
    const isExpected =
      hasStatus(answer, statuses) &&
      (code === undefined || codeOf(answer) === code) &&
      hasTexts(answer, texts);
    const who = user || "no user";
    const expected = [statuses.join(" or "), code ?? [], texts].flat().join(" ");
    // Where the title has names in place of the path.
    const sent = title.includes(request.path) ? "" : `${request.method} ${request.path}: `;
    const found = sent + described(answer);
    this.held(`${who} gets ${expected} for ${title}`, isExpected, found);
    if (answer.status >= 400) {
      const isSilent = !answer.text.includes(SECRET) || request.path.includes(SECRET);
      this.held(`${who} learns nothing: ${title}`, isSilent, found);
    }
    return answer;
  }

  /** The answers to the requests of a table stay the same for a user, whatever is done. */
  async checkUnchanged(user: string, table: string, act: () => Promise<void>): Promise<void> {
    const before = await answersTo(this.as(user), table, this.names);
    await act();
    const after = await answersTo(this.as(user), table, this.names);
    for (const [title, answer] of before) {
      const later = after.get(title);
      const found = `${answer} became ${later}`;
      this.held(`nothing changed for ${user}: ${title}`, later === answer, found);
    }
  }

  /**
   * Sends the requests of a table as each user, whose name is `$USER`. The user in a row is the least
   * of the roles that is enough for it. Those of `operator` only prepare others, or undo them.
   *
   * @param isOptional true for requests that servers may lack: it is enough that they pass
   * @param others further users, each with the role whose requests are allowed to it
   */
  async checkRoles(table: string, isOptional: boolean, others: Names = {}): Promise<void> {
    for (const user of [...roles, ...Object.keys(others)]) {
      const names = { ...this.names, USER: user };
      for (const { title, user: from, request } of readTable(table, names)) {
        const answer = await this.as(from === "operator" ? from : user)(request);
        if (from === "operator") continue;
        const isOwn = codeOf(answer) === undefined;
        const isAllowed = roles.indexOf(others[user] ?? user) >= roles.indexOf(from);
        const isPassed = isOptional ? answer.status > 0 && isOwn : hasStatus(answer, []);
        const holds = isAllowed ? isPassed : answer.status === 403 && !isOwn;
        this.held(`${user} ${isAllowed ? "may" : "may not"} ${title}`, holds, described(answer));
      }
    }
  }

  /** @param values of the parameters of paths */
  async checkForms({ endpoints }: Preset, user: string, values: Names): Promise<void> {
    for (const endpoint of endpoints) {
      for (const row of attacksByForm(endpoint, user, values)) await this.#checkRow(row);
    }
  }
}

export function member(value: Json | undefined, ...names: readonly string[]): Json | undefined {
  return names.reduce<Json | undefined>(
    (found, name) => (isObject(found) ? found[name] : undefined),
    value,
  );
}
