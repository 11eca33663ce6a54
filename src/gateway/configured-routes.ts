import { requireAdministrator } from "../access/administration.ts";
import { decideWholeDatabase, wholeDatabaseDenial } from "../access/policy.ts";
import { EVERY_DATABASE, judgeName, type Subject } from "../access/roles.ts";
import { foldHeader } from "../config/kinds.ts";
import type { Configuration } from "../config/schema.ts";
import { isPlainName } from "../query/names.ts";
import { isPermissionClass, type PermissionClass } from "../query/query.ts";
import { Refusal } from "../refusal.ts";
import { gatewayHeaders, type Identity, streamHeaders } from "../upstream/headers.ts";
import { asWebSocket } from "../upstream/web-socket.ts";
import { commonHeaders } from "./answer.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { requireOwnOrigin } from "./origins.ts";
import { databaseParameter } from "./parameters.ts";
import { originOf, requireAllowed } from "./query.ts";
import { type Endpoint, isAmbiguous } from "./route.ts";
import { cutWhenStalled, guardStream } from "./stream-limits.ts";

type RouteSettings = Configuration["routes"][number];

function namesDatabase({ path, database_header: header }: RouteSettings): boolean {
  return header !== undefined || path.split("/").includes(":database");
}

function readDatabase(exchange: Exchange, { database_header: header }: RouteSettings): string {
  if (header === undefined) return databaseParameter(exchange);
  const name = exchange.request.headers[header.toLowerCase()];
  if (typeof name === "string" && isPlainName(name)) return name;
  const message = `The header ${header} must name a database: 1 to 63 of letters, digits, '_', '-'`;
  throw new Refusal("invalid_database", { message });
}

function requireOnDatabase(
  gateway: Gateway,
  exchange: Exchange,
  settings: RouteSettings,
  permission: PermissionClass,
): Identity | undefined {
  const database = readDatabase(exchange, settings);
  const { subject } = exchange.authenticated;
  if (subject === undefined) return undefined;
  const { snapshot } = gateway.access;
  const decision = decideWholeDatabase(snapshot, subject, permission, database, originOf(exchange));
  const { role, entry, boundary } = decision;
  exchange.verdict.record([{ operation: permission, database, tables: [], role, entry, boundary }]);
  requireAllowed(decision);
  return { username: subject.username, roles: [role ?? ""], databases: [database] };
}

/** A token for one database opens only routes that name that database. */
function requireTokenFor(exchange: Exchange, settings: RouteSettings, limit: string): void {
  if (limit === EVERY_DATABASE) return;
  if (!namesDatabase(settings) || readDatabase(exchange, settings) !== limit) {
    throw new Refusal("token_database");
  }
}

/** These requests cannot be narrowed, so access to part of a database is not enough. */
function requireWhole(
  { access }: Gateway,
  exchange: Exchange,
  settings: RouteSettings,
  subject: Subject,
): void {
  if (!namesDatabase(settings)) return;
  const database = readDatabase(exchange, settings);
  const objection = judgeName(access.snapshot, subject, "SELECT", database);
  if (objection !== undefined) throw new Refusal(objection);
  const denial = wholeDatabaseDenial(access.snapshot, subject, database, originOf(exchange));
  if (denial !== undefined) requireAllowed(denial);
}

function authorize(
  gateway: Gateway,
  exchange: Exchange,
  settings: RouteSettings,
): Identity | undefined {
  const { access } = settings;
  if (isPermissionClass(access)) return requireOnDatabase(gateway, exchange, settings, access);
  const { subject } = exchange.authenticated;
  if (access === "public" || subject === undefined) return undefined;
  const { username, tokenDatabase } = subject;
  if (access === "administrator") requireAdministrator(gateway.access.snapshot, subject);
  else requireTokenFor(exchange, settings, tokenDatabase);
  requireWhole(gateway, exchange, settings, subject);
  return { username, roles: [], databases: [] };
}

function headersOf(
  { headers: policy }: Gateway,
  { request, requestId, peer }: Exchange,
  { database_header: header }: RouteSettings,
  identity: Identity | undefined,
): NodeJS.Dict<string | string[]> {
  const { forwardedFor, proto, host, isTrusted } = peer;
  const kept = streamHeaders(request.headers, policy, isTrusted);
  if (header !== undefined) {
    // The upstream gets exactly the judged value, even if `Connection` lists the header. Other
    // spellings that an upstream may fold to the same name are removed.
    for (const name in kept) if (foldHeader(name) === foldHeader(header)) delete kept[name];
    kept[header.toLowerCase()] = request.headers[header.toLowerCase()];
  }
  return { ...kept, ...gatewayHeaders({ requestId, forwardedFor, proto, host, identity }) };
}

/** @throws Refusal `not_found` if the route was removed or its access requirement changed */
function requireSameRoute({ configuration: { routes } }: Gateway, settings: RouteSettings): void {
  const isSame = (route: RouteSettings) =>
    route.path === settings.path &&
    route.access === settings.access &&
    route.database_header === settings.database_header &&
    settings.methods.every((method) => route.methods.includes(method));
  if (!routes.includes(settings) && !routes.some(isSame)) throw new Refusal("not_found");
}

async function handle(
  gateway: Gateway,
  exchange: Exchange,
  settings: RouteSettings,
): Promise<void> {
  // A target has no fragment (RFC 9112, section 3.2). Some servers cut it off, others do not.
  const hasFragment = exchange.request.url?.includes("#") ?? false;
  if (hasFragment || isAmbiguous(exchange.path)) throw new Refusal("path_not_canonical");
  // A page of any site may open a WebSocket through its visitor's browser.
  if (exchange.isHandshake) requireOwnOrigin(gateway, exchange);
  const identity = authorize(gateway, exchange, settings);
  // With several upstreams, the database that the route names chooses one.
  const isAboutOne = !gateway.routing.isSingle && namesDatabase(settings);
  const database = isAboutOne ? readDatabase(exchange, settings) : undefined;
  const group = gateway.routing.groupOf(database);
  exchange.verdict.allow();
  const stream = {
    request: exchange.request,
    response: exchange.response,
    headers: headersOf(gateway, exchange, settings, identity),
    answerHeaders: commonHeaders(exchange),
  };
  const { method = "" } = exchange.request;
  exchange.forwardUpstream({ method, headers: stream.headers, target: gateway.tracing?.upstream });
  exchange.sendContinue();
  exchange.verdict.requireStillAllowed = () => {
    requireSameRoute(gateway, settings);
    authorize(gateway, exchange, settings);
  };
  guardStream(gateway, exchange);
  if (!exchange.isHandshake) cutWhenStalled(exchange.response);
  const idleTimeout = settings.upgrade_idle_timeout * 1000;
  await group.forwardStream(exchange.isHandshake ? asWebSocket(stream, idleTimeout) : stream);
}

/** An endpoint from `[[routes]]`: authorized by its settings, then streamed in both directions. */
export function configuredRoute(settings: RouteSettings): Endpoint {
  return {
    authentication: settings.access === "public" ? "public" : "data",
    readsBody: true,
    takesWebSocket: settings.upgrade,
    handle: (gateway, exchange) => handle(gateway, exchange, settings),
  };
}
