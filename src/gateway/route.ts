import type { Configuration } from "../config/schema.ts";
import { Refusal } from "../refusal.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";

/**
 * The authentication requirement of an endpoint: anyone may use it; whoever shows a token, or anyone
 * while authentication is off; whoever shows a token, and nobody while authentication is off;
 * whoever shows a token for the protected resource, or anyone while authentication is off.
 */
export type AuthenticationRequirement = "public" | "data" | "administration" | "mcp";

/** What the gateway does for one method on one path. */
export interface Endpoint {
  readonly authentication: AuthenticationRequirement;
  /** Bytes of JSON body that are read; absent where no body is. */
  readonly bodyLimit?: number;
  /** True if the handler takes the body from the request, and bounds it. */
  readonly readsBody?: boolean;
  /** True for what monitors ask all the time: no audit line. */
  readonly isQuiet?: boolean;
  /** True if a client may speak WebSocket here; every other wish for a protocol is not heard. */
  readonly takesWebSocket?: boolean;
  handle(gateway: Gateway, exchange: Exchange, body: Buffer): Promise<void> | void;
}

/**
 * A path and what it answers to. A segment `:name` stands for one segment of any value, and a last
 * segment `*` for one or more.
 */
export interface Route {
  readonly pattern: string;
  readonly methods: ReadonlyMap<string, Endpoint>;
}

/** A route that a request's path fits, with the raw values of its parameters. */
export interface RouteMatch {
  readonly route: Route;
  readonly parameters: Record<string, string>;
}

/** Finds the route of a path; fixed segments match exactly as sent. */
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

/** Makes a router: a map for fixed paths, and a list for those with parameters. */
export function createRouter(routes: readonly Route[]): Router {
  const isFixed = ({ pattern }: Route) => !pattern.includes("/:") && !pattern.endsWith("/*");
  const fixed = new Map(
    routes.filter(isFixed).map((route) => [route.pattern, { route, parameters: {} }]),
  );
  const others = routes
    .filter((route) => !isFixed(route))
    .map((route) => ({ route, segments: route.pattern.split("/") }));
  let latest: (RouteMatch & { readonly path: string }) | undefined;
  return (path) => {
    // Most of what comes is the same again, in a string that is new to a map each time.
    if (path === latest?.path) return latest;
    const match = fixed.get(path);
    if (match !== undefined) {
      latest = { path, ...match };
      return latest;
    }
    const segments = path.split("/");
    for (const { route, segments: pattern } of others) {
      const parameters = matchSegments(pattern, segments);
      if (parameters !== undefined) return { route, parameters };
    }
    return undefined;
  };
}

/** The endpoint for a method: HEAD is answered where GET is (RFC 9110, section 9.3.2). */
export function endpointFor({ methods }: Route, method: string): Endpoint | undefined {
  return methods.get(method) ?? (method === "HEAD" ? methods.get("GET") : undefined);
}

/** The methods of a route, as `Allow` lists them. */
export function allowedMethods({ methods }: Route): string {
  const names = [...methods.keys()];
  if (methods.has("GET")) names.push("HEAD");
  return names.join(", ");
}

/**
 * What an upstream might read as another path: empty and dot segments, parameters of segments, and
 * separators, dots, control characters and percent signs in their encoded form.
 */
const ambiguous =
  /\/\/|\/\.{1,2}(?:\/|$)|[;\\#]|%(?:2[ef]|3b|5c|[01][0-9a-f]|7f|25[0-9a-f]{2})|[^!-~]/i;
/** All that an upstream might take for the end of a path's first segment. */
const separator = /[/;\\#]|%2f|%5c/i;

/** True for a spelling of a path that an upstream might read as another path. */
export function isAmbiguous(path: string): boolean {
  if (ambiguous.test(path)) return true;
  try {
    // Not every reader takes half an encoding, or one that is no UTF-8, for the same.
    decodeURIComponent(path);
    return false;
  } catch {
    return true;
  }
}

/**
 * Refuses odd spellings of paths below configured routes, also those that fit no route as they
 * stand: an upstream or a proxy might read them as one that does.
 *
 * @throws Refusal `path_not_canonical`, from the router that is returned
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
