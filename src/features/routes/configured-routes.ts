import { requireAdministrator } from "../../core/access/administration.ts";
import { foldName } from "../../core/access/entries.ts";
import type { Subject } from "../../core/access/grant.ts";
import { decideWholeDatabase, wholeDatabaseDenial } from "../../core/access/policy.ts";
import { EVERY_DATABASE } from "../../core/access/roles.ts";
import { nameDenial } from "../../core/access/snapshot.ts";
import { memoizeLast } from "../../core/base/memoize.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { foldHeader } from "../../core/config/kinds.ts";
import {
  allowedValues,
  fits,
  isOwnPath,
  routeDatabase,
  splitSegments,
} from "../../core/config/routes.ts";
import { basePathOf, type Configuration } from "../../core/config/schema.ts";
import { commonHeaders, upstreamHeaders } from "../../core/http/answer.ts";
import { type Exchange, queryOrigin, requireListed } from "../../core/http/exchange.ts";
import type { Gateway } from "../../core/http/gateway.ts";
import { requireOwnOrigin } from "../../core/http/origins.ts";
import { countCall, requireAllowed } from "../../core/http/query.ts";
import { type Endpoint, methodIn, type Router } from "../../core/http/route.ts";
import { isPermissionClass, type PermissionClass } from "../../core/query/permissions.ts";
import {
  conditionalHeaders,
  credentialHeaders,
  gatewayHeaders,
  type Identity,
  privateHeaders,
  routeHeaders,
} from "../../core/upstream/headers.ts";
import { asWebSocket } from "./web-socket.ts";

type RouteSettings = Configuration["routes"][number];

/** Parts that an upstream might normalize to another path. */
const ambiguous = /\/\/|\/\.{1,2}(?:\/|$)|[;\\#]|%(?:2[3ef]|3[bf]|5c|[01][0-9a-f]|7f)|[^!-~]/i;
const separator = /[/;\\#]|%2f|%5c/i;

/** True for a path that an upstream might read as a different one. */
function isAmbiguous(path: string): boolean {
  if (ambiguous.test(path)) return true;
  try {
    // Parsers differ on incomplete encodings and invalid UTF-8. Some decode twice, or normalize dots.
    return /%[0-9a-f]{2}|\/\.{1,2}(?:\/|$)/i.test(decodeURIComponent(path).normalize("NFKC"));
  } catch {
    return true;
  }
}

const isParameter = (segment: string) => segment.startsWith(":");

/** Sorts each path before all wider ones: a literal before a parameter before `*`. */
function pathRank({ path }: RouteSettings): string {
  const rank = (one: string) => (one === "*" ? 2 : Number(isParameter(one)));
  return splitSegments(path).map(rank).join("");
}

/** Equal for routes between which only the exact spelling and values of a path decide. */
function pathShape({ path }: RouteSettings): string {
  const shape = splitSegments(path).map((one) => (isParameter(one) ? ":" : fold(one)));
  return `/${shape.join("/")}`;
}

/**
 * Windows ignores dots and spaces at the end, for which the lookbehind keeps the search linear, and
 * takes `private::$INDEX_ALLOCATION` for `private`. Servers that read a number ignore zeros before
 * it, and the sign of zero.
 */
function fold(segment: string): string {
  const [name = ""] = foldName(segment).split(":");
  const folded = name.replace(/(?<![.\s])[.\s]+$/, "");
  if (!/^[+-]?\d+$/.test(folded)) return folded;
  const number = folded.replace(/^\+?(-?)0*(?=\d)/, "$1");
  return number === "-0" ? "0" : number;
}

/** True if an upstream could take a folded segment of a path for this literal. */
function isAlike(literal: string, segment = ""): boolean {
  // The short names of Windows, such as `CONFID~1`, keep at least the first two characters.
  const start = /^(..?).{0,4}~\d/.exec(segment)?.[1];
  const isShort = start !== undefined && literal.replace(/^\.+/, "").startsWith(start);
  return literal === segment || isShort;
}

/**
 * True if an upstream could take the path for one of this shape, since many decode literals, ignore
 * their case, or ignore a slash at the end, also before `*`. A wider route does not decide then.
 *
 * @param folded the segments of the path, which a slash of another width may divide
 */
function resembles(shape: string, folded: readonly string[]): boolean {
  const pattern = splitSegments(shape);
  const { length } = pattern;
  const isOpen = pattern.at(-1) === "*";
  if (isOpen ? folded.length < length - 1 : folded.length !== length) return false;
  return pattern.every((one, at) => one === ":" || one === "*" || isAlike(one, folded[at]));
}

/** The values of the path's parameters, decoded exactly once. */
function parametersIn({ path: pattern }: RouteSettings, path: string): Map<string, string> {
  const segments = splitSegments(path);
  const parameters = new Map<string, string>();
  for (const [at, one] of splitSegments(pattern).entries()) {
    if (isParameter(one)) parameters.set(one.slice(1), decodeURIComponent(segments[at] ?? ""));
  }
  return parameters;
}

function matches(route: RouteSettings, path: string): boolean {
  const segments = splitSegments(path);
  const isClosed = !route.path.endsWith("*");
  if (isClosed && path.endsWith("/") !== route.path.endsWith("/")) return false;
  return (
    splitSegments(route.path).every(
      (one, at) => at < segments.length && (/^[:*]/.test(one) || one === segments[at]),
    ) &&
    parametersIn(route, path)
      .entries()
      .every(([name, value]) => fits(value, allowedValues(route, name)))
  );
}

/** Returns the routes that decide on a path, by method. */
type RouteFinder = (path: string) => ReadonlyMap<string, RouteSettings>;

const finderFor = memoizeLast((configuration: Configuration): RouteFinder => {
  const { routes } = configuration;
  const basePath = basePathOf(configuration);
  const ordered = routes.toSorted((one, other) => (pathRank(one) < pathRank(other) ? -1 : 1));
  const groups = [...Map.groupBy(ordered, pathShape)];
  const roots = new Set(routes.map(({ path }) => splitSegments(path)[0] ?? ""));
  const isOpen = roots.keys().some((root) => /^[:*]/.test(root));
  return (path) => {
    if (isAmbiguous(path)) {
      // Also if it matches no route as written, since an upstream might read it as one that does.
      const parts = path.split(separator).filter((part) => part !== "");
      const isForeign = !isOwnPath(parts, basePath) && (isOpen || roots.has(parts[0] ?? ""));
      if (isForeign) throw new Refusal("path_not_canonical");
      return new Map();
    }
    const decoded = splitSegments(path).map(decodeURIComponent);
    if (isOwnPath(decoded, basePath)) return new Map();
    const folded = decoded.map(fold);
    const forms = [folded, folded.flatMap((segment) => segment.split("/"))];
    const deciding = groups.find(([shape]) => forms.some((form) => resembles(shape, form)));
    const matching = deciding?.[1].filter((route) => matches(route, path)) ?? [];
    return new Map(matching.flatMap((route) => route.methods.map((method) => [method, route])));
  };
});

/** The headers that pages of other origins may send to a route, besides those of a query. */
function headersFrom({ forward_headers: added, database_header: header }: RouteSettings) {
  return [...conditionalHeaders, ...added, ...(header === undefined ? [] : [header])];
}

/** @throws Refusal `path_not_canonical`, from the returned router */
export function configuredRouter(configuration: Configuration): Router {
  const find = finderFor(configuration);
  return (path) => {
    const found = find(path);
    const [settings] = found.values();
    if (settings === undefined) return undefined;
    const methods = new Map(found.entries().map(([method, one]) => [method, routeEndpoint(one)]));
    const forwardedHeaders = () => [...found.values()].flatMap(headersFrom);
    return { route: { pattern: settings.path, methods, forwardedHeaders }, parameters: {} };
  };
}

function databaseIn({ request }: Exchange, header: string): string {
  const name = request.headers[header.toLowerCase()];
  if (typeof name === "string" && fits(name)) return name;
  const message = `The header ${header} must name a database: 1 to 63 of letters, digits, '_', '-', and not '_' first`;
  throw new Refusal("invalid_database", { message });
}

interface Place {
  /** Undefined if the route names none. */
  readonly database: string | undefined;
  readonly table: string | undefined;
}

/** @throws Refusal `invalid_database` */
function reachedPlace(exchange: Exchange, settings: RouteSettings): Place {
  const parameters = parametersIn(settings, exchange.path);
  const fill = (template?: string) =>
    template?.replace(/:(\w+)/g, (_, name: string) => {
      const value = parameters.get(name) ?? "";
      return allowedValues(settings, name) === "number" ? String(BigInt(value)) : value;
    });
  const { database_header: header, table } = settings;
  const database =
    header === undefined ? fill(routeDatabase(settings)) : databaseIn(exchange, header);
  return { database, table: fill(table) };
}

/** Parameters by which some servers run another method than the judged one, as PHP folds them. */
const methodOverride = /^(?:|x-http|x)-method(?:-override)?$/;

/** @throws Refusal `unknown_parameter` or `bad_request` */
function requireListedQuery({ request: { url = "" } }: Exchange, settings: RouteSettings): void {
  const start = url.indexOf("?");
  if (start === -1) return;
  const { access, query: listed = isPermissionClass(access) ? [] : ["*"] } = settings;
  const seen = new Set<string>();
  // Some parsers take `;` for `&`.
  for (const name of new URLSearchParams(url.slice(start).replaceAll(";", "&")).keys()) {
    const isOverride = methodOverride.test(foldHeader(name.trimStart()));
    requireListed(name, isOverride ? listed.filter((one) => one !== "*") : listed, seen);
    seen.add(name);
  }
}

function requireRight(
  gateway: Gateway,
  exchange: Exchange,
  permission: PermissionClass,
  { database, table }: Place,
): Identity | undefined {
  if (database === undefined) throw new Refusal("invalid_database");
  const { subject } = exchange.authenticated;
  if (subject === undefined) return undefined;
  const { snapshot } = gateway.access;
  const origin = queryOrigin(exchange);
  const decision = decideWholeDatabase(snapshot, subject, permission, database, origin, table);
  const { role, entry, boundary } = decision;
  const tables = table === undefined ? [] : [table];
  const judged = { operation: permission, database, tables, role, entry, boundary };
  exchange.verdict.record([judged], 1, snapshot.version);
  requireAllowed(decision);
  return { username: subject.username, roles: [role ?? ""], databases: [database] };
}

/** These requests cannot be narrowed, so access to part of a database is not enough. */
function requireWhole(
  { access }: Gateway,
  exchange: Exchange,
  subject: Subject,
  database: string,
): void {
  const objection = nameDenial(access.snapshot, subject, "SELECT", database);
  if (objection !== undefined) throw new Refusal(objection);
  const denial = wholeDatabaseDenial(access.snapshot, subject, database, queryOrigin(exchange));
  if (denial !== undefined) requireAllowed(denial);
}

/** An administrator, whom no boundary keeps from any right. */
function requireOwnerOfAll({ access }: Gateway, exchange: Exchange, subject: Subject): void {
  const { snapshot } = access;
  requireAdministrator(snapshot, subject);
  const origin = queryOrigin(exchange);
  const right = "DROP DATABASE";
  requireAllowed(decideWholeDatabase(snapshot, subject, right, EVERY_DATABASE, origin));
}

function authorize(
  gateway: Gateway,
  exchange: Exchange,
  { access }: RouteSettings,
  place: Place,
): Identity | undefined {
  if (isPermissionClass(access)) return requireRight(gateway, exchange, access, place);
  const { subject } = exchange.authenticated;
  if (access === "public" || subject === undefined) return undefined;
  const { username, tokenDatabase } = subject;
  const { database } = place;
  if (access === "administrator") requireOwnerOfAll(gateway, exchange, subject);
  // A token for one database opens only routes that name that database.
  else if (tokenDatabase !== EVERY_DATABASE && tokenDatabase !== database) {
    throw new Refusal("token_database");
  }
  if (database !== undefined) requireWhole(gateway, exchange, subject, database);
  return { username, roles: [], databases: [] };
}

/** @throws Refusal `unsupported_media_type` for a coding that the upstream would not hear of */
function clientHeaders(
  { headers: policy }: Gateway,
  { request: { headers }, isHandshake }: Exchange,
  { database_header: header, forward_headers: added }: RouteSettings,
): NodeJS.Dict<string | string[]> {
  const names = new Set(added.map((name) => name.toLowerCase()));
  const kept = routeHeaders(
    headers,
    policy,
    (name) => names.has(name) || (isHandshake && name.startsWith("sec-websocket-")),
  );
  if (headers["content-encoding"] !== undefined && kept["content-encoding"] === undefined) {
    const message = "Content-Encoding is not forwarded on this route: send the body without one";
    throw new Refusal("unsupported_media_type", { message });
  }
  if (header !== undefined) {
    // The upstream gets exactly the judged value, even if `Connection` lists the header. Other
    // spellings that an upstream may fold to the same name are removed.
    for (const name in kept) if (foldHeader(name) === foldHeader(header)) delete kept[name];
    kept[header.toLowerCase()] = headers[header.toLowerCase()];
  }
  return kept;
}

/** @throws Refusal if the request would not be allowed by the routes of the present configuration */
function requireStillAllowed(gateway: Gateway, exchange: Exchange, before: RouteSettings): void {
  const { request, path, isHandshake } = exchange;
  const settings = methodIn(finderFor(gateway.configuration)(path), request.method ?? "");
  const isClosed = before.access === "public" && settings?.access !== "public";
  if (settings === undefined || isClosed || (isHandshake && !settings.upgrade)) {
    throw new Refusal("not_found");
  }
  requireListedQuery(exchange, settings);
  authorize(gateway, exchange, settings, reachedPlace(exchange, settings));
}

async function handle(
  gateway: Gateway,
  exchange: Exchange,
  settings: RouteSettings,
): Promise<void> {
  // A target has no fragment (RFC 9112, section 3.2). Some servers cut it off, others do not.
  if (exchange.request.url?.includes("#")) throw new Refusal("path_not_canonical");
  const kept = clientHeaders(gateway, exchange, settings);
  requireListedQuery(exchange, settings);
  // A page of any site may open a WebSocket through its visitor's browser.
  if (exchange.isHandshake) requireOwnOrigin(gateway, exchange);
  const place = reachedPlace(exchange, settings);
  await countCall(gateway, exchange, place.database);
  const identity = authorize(gateway, exchange, settings, place);
  const headers = {
    ...kept,
    ...gatewayHeaders(exchange, identity),
    // Last, so that no setting of the route can replace it.
    ...credentialHeaders(gateway.headers, exchange.request.headers),
  };
  exchange.verdict.allow();
  const { request, response } = exchange;
  const { method = "" } = request;
  const addedHeaders = (settings.pages ? commonHeaders : upstreamHeaders)(exchange);
  // A public route has no identity.
  const selectHeaders = (_: number, raw: readonly string[]) =>
    identity === undefined ? raw : privateHeaders(raw);
  const stream = { request, response, headers, addedHeaders, selectHeaders };
  exchange.forwardUpstream({ method, headers, target: gateway.tracing?.upstream });
  exchange.sendContinue();
  exchange.verdict.checkWhileOpen(() => requireStillAllowed(gateway, exchange, settings));
  exchange.verdict.noteStream();
  const idleTimeout = settings.upgrade_idle_timeout * 1000;
  // With several upstreams, the database that the route names chooses one.
  await gateway.routing
    .databaseOf(place.database)
    .forwardStream(exchange.isHandshake ? asWebSocket(stream, idleTimeout) : stream);
}

/** Authorized by the route's settings, then streamed in both directions. */
function routeEndpoint(settings: RouteSettings): Endpoint {
  return {
    authentication: settings.access === "public" ? "public" : "data",
    readsBody: true,
    takesWebSocket: settings.upgrade,
    handle: (gateway, exchange) => handle(gateway, exchange, settings),
  };
}
