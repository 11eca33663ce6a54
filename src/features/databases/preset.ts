import type { IncomingHttpHeaders } from "node:http";
import type { PresetName } from "../../core/config/upstream.ts";
import type { PermissionClass } from "../../core/query/permissions.ts";

export interface Access {
  readonly permissions: readonly PermissionClass[];
  readonly database: string;
  /** Undefined for the database itself. */
  readonly table?: string | undefined;
  /**
   * Instead of `table`: the beginning of all names that the request means, or empty for all tables. Denied with `name_too_wide` unless the caller may use every one of them.
   */
  readonly everyTable?: string | undefined;
  /** The index of the action, document or search in the body, from 0. Absent outside a bulk. */
  readonly element?: number | undefined;
  /** The name that the client wrote, if it is an alias. A denial names it and not the table. */
  readonly alias?: string | undefined;
}

/** A value of JSON as `JSON.parse` returns it. Numbers are approximate in what goes upstream. */
export type Json = null | boolean | number | string | readonly Json[] | JsonObject;

export interface JsonObject {
  readonly [name: string]: Json;
}

/** The answer to a lookup. `body` is undefined if it is not JSON. */
export interface LookupAnswer {
  readonly status: number;
  readonly body: Json | undefined;
}

/** A list of names that only the caller who got it may send back, such as a scroll. */
export interface Handle {
  /** The upstream's own text. */
  readonly value: string;
  /** The rights without which it stops working. */
  readonly accesses: readonly Access[];
}

/** A request whose path, parameters, headers and body are as the endpoint lists them. */
export interface PresetRequest {
  readonly method: string;
  /** The path of the endpoint. */
  readonly pattern: string;
  /** The parameters of the path, decoded once. */
  readonly path: Readonly<Record<string, string>>;
  /** The query parameters, decoded. Each is given once and is listed. */
  readonly query: ReadonlyMap<string, string>;
  readonly headers: IncomingHttpHeaders;
  /**
   * The body of `json`, or of `multipart/related` its first part. Undefined if it has none.
   * Names of members are unique.
   */
  readonly json: Json | undefined;
  /** The members of `json`, if the endpoint lists them. Empty without a body. */
  readonly members: JsonObject;
  /**
   * The bytes of the body, unless it is passed on in a stream. Empty without a body. `Lines` reads
   * those of `ndjson`.
   */
  readonly bytes: Buffer;
  /** Undefined while authentication is off. */
  readonly user: string | undefined;
  isAdministrator(): boolean;
  /** `auth.default_database`. */
  readonly defaultDatabase: string;
  /** True if the caller's grants allow it. Nothing is recorded: for lists, not for decisions. */
  may(permission: PermissionClass, database: string, table?: string): boolean;
  /** True if the caller may do it with anything in the database or table, such as some rows. */
  mayInside(permission: PermissionClass, database: string, table?: string): boolean;
  /**
   * `GET` on the upstream with the gateway's own credential.
   *
   * @param path with its query, encoded
   * @param rememberMs how long the answer of a 200 may be used again, at most 1000 unless it cannot
   * change
   * @throws Refusal `upstream_broken` for a status of 500 and more, and as `forward` does
   */
  lookup(path: string, rememberMs?: number): Promise<LookupAnswer>;
  /** Signs the handle as a text for the client. Only the same user can open it. */
  seal(kind: string, handle: Handle): Promise<string>;
  /** @throws Refusal `handle_not_found` if it was not sealed for this user with this kind */
  open(kind: string, sealed: string): Promise<Handle>;
}

/** The accesses of a request, and how it is forwarded or answered. */
export interface Plan {
  /** All are judged, in this order, before anything is forwarded. Empty: any user may. */
  readonly accesses: readonly Access[];
  /** Actions, documents or searches in the body, each of which a rate limit counts. */
  readonly elements?: number;
  readonly isForAdministrators?: boolean;
  /** The method that is forwarded instead, without a body. */
  readonly method?: "GET";
  /** The path that is forwarded instead, encoded, without a query. */
  readonly path?: string;
  /** The query parameters that are forwarded instead. */
  readonly query?: ReadonlyMap<string, string>;
  /** The body that is forwarded instead. */
  readonly body?: Buffer;
  /** Answered by the gateway itself: nothing is forwarded. */
  readonly reply?: { readonly status: number; readonly body: Json };
  /**
   * Changes a JSON answer with a status of 200 to 299. Numbers keep their digits. Without it, the
   * answer is passed on as it is.
   */
  readonly answer?: (body: Json) => Json | Promise<Json>;
  /** True for a read that has another answer when it is sent again, such as the next page. */
  readonly isOnce?: boolean;
  /** True for an answer without an end, such as a feed. It has no timeout and is cut with its right. */
  readonly isStream?: boolean;
}

/** A plan that needs no right. */
export const forEveryUser = (): Plan => ({ accesses: [] });

/** A plan that the gateway answers itself. */
export function replyWith(status: number, body: Json): Plan {
  return { accesses: [], reply: { status, body } };
}

export type BodyKind = "none" | "json" | "optional json" | "ndjson" | "stream";

const methods = ["GET", "HEAD", "POST", "PUT", "DELETE", "COPY"] as const;

/** A method and a path that pass. Everything that it does not list is refused. */
export interface PresetEndpoint {
  readonly method: (typeof methods)[number];
  /**
   * A segment `:name` matches one segment, by the preset's `values`. A final `:name*` matches the
   * rest. A GET also serves HEAD.
   */
  readonly path: string;
  /** The rights, as `preset show` prints them: `SELECT`, or `by line`. */
  readonly right: string;
  /** Where names stand besides the path, as `preset show` prints them. */
  readonly names?: string;
  readonly parameters?: readonly string[];
  /**
   * - `none`: a body is 400.
   * - `json`, `optional json`, `ndjson`: read up to `server.max_body_bytes`.
   * - `stream`: passes unread up to `upstream.max_upload_bytes`.
   */
  readonly body?: BodyKind;
  /**
   * Media types of the body. By default `application/json`; `*` is any. `multipart/related` is read
   * as JSON and then files.
   */
  readonly types?: readonly string[];
  /** The members of a body that is an object. Otherwise the plan says what it may contain. */
  readonly members?: ReadonlySet<string> | undefined;
  plan(request: PresetRequest): Plan | Promise<Plan>;
}

/** The HTTP interface of one database server: what passes, and what it asks for. */
export interface Preset {
  readonly name: PresetName;
  readonly title: string;
  /** The versions that the suite was run against, as beginnings: `1.5`. */
  readonly tested: readonly string[];
  /** Patterns of path parameters. By default, anything that does not begin with `_`. */
  readonly values: Readonly<Record<string, RegExp>>;
  /** Request headers that go up, in lower case, besides `accept`, `content-type` and tracing. */
  readonly headers: readonly string[];
  readonly endpoints: readonly PresetEndpoint[];
  /** The only database that a path can name. Undefined if it names none. */
  databaseIn(path: Readonly<Record<string, string>>, defaultDatabase: string): string | undefined;
  /** The path that tells the version, and where in its JSON it stands. */
  readonly version: { readonly path: string; read(body: Json): string | undefined };
}

export function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The words of a text, for long lists of names. */
export function words(text: string): string[] {
  return text.split(/\s+/).filter((word) => word !== "");
}

/** Of an endpoint with a body, or with names besides its path. */
export type EndpointOptions = Pick<PresetEndpoint, "names" | "body" | "types">;

/**
 * An endpoint for each method and path of a text such as `GET POST /_count /:index/_count q df`. Its
 * other words are query parameters, and those in braces the members of a body in JSON.
 */
export function endpointsAt(
  text: string,
  right: string,
  plan: PresetEndpoint["plan"],
  options: EndpointOptions = {},
): PresetEndpoint[] {
  const braces = /\{(.*)\}/s;
  const inBody = braces.exec(text)?.[1];
  const all = words(text.replace(braces, ""));
  const named = all.flatMap((word) => methods.find((method) => method === word) ?? []);
  const endpoint = {
    body: inBody === undefined ? "none" : "json",
    members: inBody === undefined ? undefined : new Set(words(inBody)),
    parameters: [...new Set(all.filter((word) => /^[^A-Z/]/.test(word)))],
    ...options,
    right,
    plan,
  } as const;
  return all
    .filter((word) => word.startsWith("/"))
    .flatMap((path) => named.map((method) => ({ ...endpoint, method, path })));
}
