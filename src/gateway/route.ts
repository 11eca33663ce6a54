import type { Configuration } from "../config/schema.ts";
import { Refusal } from "../refusal.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";

/**
 * The authentication requirement of an endpoint:
 * - `public`: open to everyone.
 * - `data`: a token, or anyone while authentication is off.
 * - `administration`: a token, and no one while authentication is off.
 * - `mcp`: a token for the protected resource, or anyone while authentication is off.
 */
type AuthenticationRequirement = "public" | "data" | "administration" | "mcp";

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
}

interface RouteMatch {
  readonly route: Route;
  readonly parameters: Record<string, string>;
}

export type Router = (path: string) => RouteMatch | undefined;

function matchSegments(
  pattern: readonly string[],
  segments: readonly string[],
): Record<string, string> | undefined {
  const isOpen = pattern.at(-1) === "*";
  const fits = isOpen ? segments.length >= pattern.length : segments.length === pattern.length;
  if (!fits) return undefined;
  const parameters: Record<string, string> = {};
  for (const [at, expected] of pattern.entries()) {
    const found = segments[at] ?? "";
    if (expected === "*") return parameters;
    if (!expected.startsWith(":")) {
      if (found !== expected) return undefined;
    } else if (found === "") return undefined;
    else parameters[expected.slice(1)] = found;
  }
  return parameters;
}

export function createRouter(routes: readonly Route[]): Router {
  const isFixed = ({ pattern }: Route) => !pattern.includes("/:") && !pattern.endsWith("/*");
  const fixed = new Map(
    routes.filter(isFixed).map((route) => [route.pattern, { route, parameters: {} }]),
  );
  const others = routes
    .filter((route) => !isFixed(route))
    .map((route) => ({ route, segments: route.pattern.split("/") }));
  return (path) => {
    const match = fixed.get(path);
    if (match !== undefined) return match;
    const segments = path.split("/");
    for (const { route, segments: pattern } of others) {
      const parameters = matchSegments(pattern, segments);
      if (parameters !== undefined) return { route, parameters };
    }
    return undefined;
  };
}

/** The endpoint for a method. HEAD is allowed where GET is (RFC 9110, section 9.3.2). */
export function endpointFor({ methods }: Route, method: string): Endpoint | undefined {
  return methods.get(method) ?? (method === "HEAD" ? methods.get("GET") : undefined);
}

export function allowedMethods({ methods }: Route): string {
  const names = [...methods.keys()];
  if (methods.has("GET")) names.push("HEAD");
  return names.join(", ");
}

/** Parts that an upstream might normalize to another path. */
const ambiguous =
  /\/\/|\/\.{1,2}(?:\/|$)|[;\\#]|%(?:2[ef]|3b|5c|[01][0-9a-f]|7f|25[0-9a-f]{2})|[^!-~]/i;
const separator = /[/;\\#]|%2f|%5c/i;

/** True for a path that an upstream might read as a different one. */
export function isAmbiguous(path: string): boolean {
  if (ambiguous.test(path)) return true;
  try {
    // Parsers differ on incomplete percent-encoding and on invalid UTF-8.
    decodeURIComponent(path);
    return false;
  } catch {
    return true;
  }
}

/**
 * Refuses ambiguous spellings of paths under configured routes, even if they match no route as
 * written. An upstream or a proxy might read them as one that does match.
 *
 * @throws Refusal `path_not_canonical`, from the returned router
 */
export function refuseAmbiguousPaths(router: Router, routes: Configuration["routes"]): Router {
  const roots = new Set(routes.map(({ path }) => path.split("/")[1]));
  return (path) => {
    const match = router(path);
    if (match !== undefined || !isAmbiguous(path)) return match;
    const [root] = path.slice(1).split(separator);
    if (roots.has(root)) throw new Refusal("path_not_canonical");
    return undefined;
  };
}
