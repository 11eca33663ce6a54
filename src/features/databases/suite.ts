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
   * Sends a request through the gateway. Every user of a grant exists, and `admin` owns all. Any
   * other name sends it without a credential. Without an answer, the status is 0.
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

type RequestOf = (user: string) => SuiteRequest | Promise<SuiteRequest>;

/** Users, from the least to the most that they may do in one database. */
export const roles: readonly string[] = ["stranger", "reader", "writer", "builder", "owner"];

/**
 * A request, and the least of the roles that is enough for it. The operator sends `undo`
 * afterwards, so that the next user can send the same.
 */
export type RoleCase = readonly [
  title: string,
  from: string,
  request: SuiteRequest | RequestOf,
  undo?: RequestOf,
];

/** @param isOptional true for requests that servers may lack: it is enough that they pass */
export async function checkRoles(
  { as, direct, held }: SuiteContext,
  cases: readonly RoleCase[],
  isOptional: boolean,
): Promise<void> {
  for (const [title, from, request, undo] of cases) {
    for (const user of roles) {
      const answer = await as(user)(typeof request === "function" ? await request(user) : request);
      if (undo !== undefined) await direct(await undo(user));
      const isOwn = codeOf(answer) === undefined;
      const isDone = answer.status >= 200 && answer.status < 300;
      const isAllowed = roles.indexOf(user) >= roles.indexOf(from);
      const isPassed = isOptional ? answer.status > 0 && isOwn : isDone;
      const holds = isAllowed ? isPassed : answer.status === 403 && !isOwn;
      held(`${user} ${isAllowed ? "may" : "may not"} ${title}`, holds, described(answer));
    }
  }
}

/** A request that must be refused, and whose answer tells nothing. */
export type Attack = readonly [
  title: string,
  user: string,
  request: SuiteRequest,
  status: number | readonly number[],
  code?: string | undefined,
];

/** @param secret a text that no answer may contain */
export async function checkAttacks(
  { as, held }: SuiteContext,
  attacks: readonly Attack[],
  secret: string,
): Promise<void> {
  for (const [title, user, request, status, code] of attacks) {
    const answer = await as(user)(request);
    const isRefused = [status].flat().some((one) => hasStatus(answer, one, code));
    const found = `${request.method} ${request.path}: ${described(answer)}`;
    held(`refused: ${title}`, isRefused, found);
    const isSilent = !answer.text.includes(secret) || request.path.includes(secret);
    held(`tells nothing: ${title}`, isSilent, found);
  }
}

export function member(value: Json | undefined, ...names: readonly string[]): Json | undefined {
  return names.reduce<Json | undefined>(
    (found, name) => (isObject(found) ? found[name] : undefined),
    value,
  );
}
