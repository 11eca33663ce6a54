import { type EntryPoint, groupHolder, type Holder, userHolder } from "../access/grant.ts";
import {
  isAnyUsername,
  isDatabaseOrEvery,
  isExternalGroup,
  isGroupName,
  isLocalGroupName,
  splitNames,
} from "../access/roles.ts";
import { Refusal, type RefusalCode } from "../base/refusal.ts";
import type { Configuration } from "../config/schema.ts";
import { isPlainName, tablePattern } from "../query/names.ts";
import type { Exchange, ResourceChallenge } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";

/** Authentication by tokens that an endpoint accepts besides those of a login. */
interface OwnAuthentication {
  /** The entry point in boundaries and in the audit. */
  readonly via: EntryPoint;
  challenge(gateway: Gateway, exchange: Exchange): ResourceChallenge;
  /**
   * Sets `exchange.authenticated`, unless authentication is off.
   *
   * @throws Refusal if there is no valid token
   */
  authenticate(gateway: Gateway, exchange: Exchange): Promise<void>;
}

/**
 * The authentication requirement of an endpoint:
 * - `public`: open to everyone.
 * - `data`: a token, or anyone while authentication is off.
 * - `administration`: a token, and no one while authentication is off.
 */
type AuthenticationRequirement = "public" | "data" | "administration" | OwnAuthentication;

export interface Endpoint {
  readonly authentication: AuthenticationRequirement;
  /** In bytes of JSON. Absent if the endpoint reads no body. */
  readonly bodyLimit?: number;
  readonly readsBody?: boolean;
  /** True for endpoints that monitors poll. They are left out of the audit. */
  readonly isQuiet?: boolean;
  readonly takesWebSocket?: boolean;
  handle(gateway: Gateway, exchange: Exchange, body: Buffer): Promise<void> | void;
}

/**
 * A path pattern and its methods. A segment `:name` matches any one segment, and a final `*`
 * matches one or more.
 */
export interface Route {
  readonly pattern: string;
  readonly methods: ReadonlyMap<string, Endpoint>;
  /** Of a route of the upstream: headers that it gets besides those of a query, for preflights. */
  readonly forwardedHeaders?: () => readonly string[];
}

export function route(pattern: string, methods: Record<string, Endpoint>): Route {
  return { pattern, methods: new Map(Object.entries(methods)) };
}

export type Router = (
  path: string,
) => { readonly route: Route; readonly parameters: Record<string, string> } | undefined;

export interface Routes {
  readonly routerOf: (configuration: Configuration) => Router;
  /** For browsers at the gateway's URL. */
  readonly home: Endpoint;
}

function matchSegments(
  pattern: readonly string[],
  segments: readonly string[],
): Record<string, string> | undefined {
  const isOpen = pattern.at(-1) === "*";
  const fits = isOpen ? segments.length >= pattern.length : segments.length === pattern.length;
  if (!fits) return undefined;
  const parameters: Record<string, string> = {};
  // Most patterns differ in the first segment. An iterator would cost more than the comparison.
  for (let at = 0; at < pattern.length; at++) {
    const expected = pattern[at] ?? "";
    const found = segments[at] ?? "";
    if (expected === "*") return parameters;
    if (!expected.startsWith(":")) {
      if (found !== expected) return undefined;
    } else if (found === "") return undefined;
    else parameters[expected.slice(1)] = found;
  }
  return parameters;
}

/** @param otherwise asked about paths that match no route */
export function createRouter(routes: readonly Route[], otherwise: Router): Router {
  const isFixed = ({ pattern }: Route) => !pattern.includes("/:") && !pattern.endsWith("/*");
  const fixed = new Map(
    routes.filter(isFixed).map((route) => [route.pattern, { route, parameters: {} }]),
  );
  const others = routes
    .filter((route) => !isFixed(route))
    .map((route) => ({ route, segments: route.pattern.split("/") }));
  // None of them begins with a parameter.
  const byFirst = Map.groupBy(others, ({ segments: [, first] }) => first);
  return (path) => {
    const match = fixed.get(path);
    if (match !== undefined) return match;
    const segments = path.split("/");
    for (const { route, segments: pattern } of byFirst.get(segments[1]) ?? []) {
      const parameters = matchSegments(pattern, segments);
      if (parameters !== undefined) return { route, parameters };
    }
    return otherwise(path);
  };
}

/** What serves a method. HEAD is allowed where GET is (RFC 9110, section 9.3.2). */
export function methodIn<One>(methods: ReadonlyMap<string, One>, method: string): One | undefined {
  return methods.get(method) ?? (method === "HEAD" ? methods.get("GET") : undefined);
}

export function allowedMethods({ methods }: Route): string {
  const names = [...methods.keys()];
  if (methods.has("GET")) names.push("HEAD");
  return names.join(", ");
}

/**
 * A path parameter, whose percent-encoding is decoded exactly once.
 *
 * @throws Refusal with the code unless it is valid
 */
function parameter(
  { routed: { parameters } }: Exchange,
  name: string,
  isValid: (text: string) => boolean,
  code: RefusalCode,
  message?: string,
): string {
  let text: string | undefined;
  try {
    text = decodeURIComponent(parameters[name] ?? "");
  } catch {
    // The percent-encoding is invalid.
  }
  if (text !== undefined && isValid(text)) return text;
  throw new Refusal(code, { message });
}

export function usernameParameter(exchange: Exchange): string {
  return parameter(exchange, "username", isAnyUsername, "invalid_username");
}

export function tokenIdParameter(exchange: Exchange): string {
  return parameter(exchange, "id", (text) => text !== "", "token_not_found");
}

export function groupParameter(exchange: Exchange): string {
  return parameter(exchange, "group", isLocalGroupName, "invalid_group");
}

/** Whose entry the path means. @throws Refusal `invalid_username` or `invalid_group` */
export function holderParameter(exchange: Exchange): Holder {
  return exchange.routed.parameters.group === undefined
    ? userHolder(usernameParameter(exchange))
    : groupHolder(parameter(exchange, "group", isGroupName, "invalid_group"));
}

export function tableParameter(exchange: Exchange): string {
  return parameter(exchange, "table", isPlainName, "schema_not_found");
}

export function entryTableParameter(exchange: Exchange): string | undefined {
  if (exchange.routed.parameters.table_or_pattern === undefined) return undefined;
  const isValid = (text: string) => tablePattern.test(text);
  return parameter(exchange, "table_or_pattern", isValid, "invalid_table");
}

export function databaseParameter(exchange: Exchange): string {
  const message = "Invalid database: 1 to 63 of letters, digits, '_', '-'";
  return parameter(exchange, "database", isPlainName, "invalid_database", message);
}

export function accessDatabaseParameter(exchange: Exchange): string {
  return parameter(exchange, "database", isDatabaseOrEvery, "invalid_database");
}

export const DEFAULT_LIMIT = 100;
export const MAX_LIMIT = 1000;

/**
 * Reads `?limit=&after=`, where `after` is a username. Ignores other parameters.
 *
 * @throws Refusal `invalid_page`
 */
export function readPage({ request: { url = "" }, path }: Exchange) {
  const query = new URLSearchParams(url.slice(path.length));
  const [limit = String(DEFAULT_LIMIT), ...otherLimits] = query.getAll("limit");
  const [after, ...others] = query.getAll("after");
  const isOnce = otherLimits.length + others.length === 0;
  const isNumber = /^[1-9]\d{0,3}$/.test(limit) && Number(limit) <= MAX_LIMIT;
  const isName = after === undefined || isAnyUsername(after);
  if (!isOnce || !isNumber || !isName) throw new Refusal("invalid_page");
  return { limit: Number(limit), after };
}

/**
 * Reads `?effective=true&groups=staff:a,staff:b`. Ignores other parameters.
 *
 * @throws Refusal `invalid_group` for a group that is not one of an issuer
 */
export function readAccessQuestion({ request: { url = "" }, path }: Exchange) {
  const query = new URLSearchParams(url.slice(path.length));
  const groups = query.getAll("groups").flatMap(splitNames);
  const message = "Invalid groups: only those of an issuer, <prefix>:<group>; local ones are known";
  if (!groups.every(isExternalGroup)) throw new Refusal("invalid_group", { message });
  return { isEffective: query.get("effective") === "true", groups };
}
