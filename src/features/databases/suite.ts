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
  readonly headers: Headers;
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

export function described({ status, text }: SuiteAnswer): string {
  return `${status} ${text}`;
}

/** The code of a refusal of the gateway. Errors of the servers have none. */
export function codeOf({ json }: SuiteAnswer): string | undefined {
  return isObject(json) && typeof json.code === "string" ? json.code : undefined;
}

export function member(value: Json | undefined, ...names: readonly string[]): Json | undefined {
  return names.reduce<Json | undefined>(
    (found, name) => (isObject(found) ? found[name] : undefined),
    value,
  );
}
