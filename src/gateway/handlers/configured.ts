import { decide } from "../../access/policy.ts";
import { isAdministrator } from "../../access/snapshot.ts";
import type { Configuration } from "../../config/schema.ts";
import { isPlainName } from "../../query/names.ts";
import { isPermissionClass, type PermissionClass } from "../../query/operations.ts";
import { Refusal } from "../../refusal.ts";
import { gatewayHeaders, type Identity, streamHeaders } from "../../upstream/headers.ts";
import { commonHeaders } from "../answer.ts";
import type { Exchange } from "../exchange.ts";
import type { Gateway } from "../gateway.ts";
import type { Endpoint } from "../route.ts";

type RouteSettings = Configuration["routes"][number];

/** Spellings of a path that an upstream might read as another path. */
const ambiguous = /\/\/|\/\.{1,2}(?:\/|$)|[;\\]|%2f|%5c|%2e/i;

function decodeDatabase(raw: string | undefined): string {
  let name: string | undefined;
  try {
    name = raw === undefined ? undefined : decodeURIComponent(raw);
  } catch {
    // Falls through to the refusal.
  }
  if (name === undefined || !isPlainName(name)) throw new Refusal("invalid_database");
  return name;
}

/** The database that the request is about: of the path, or of the configured header. */
function readDatabase(exchange: Exchange, { database_header: header }: RouteSettings): string {
  if (exchange.parameters.database !== undefined)
    return decodeDatabase(exchange.parameters.database);
  const value = header === undefined ? undefined : exchange.request.headers[header.toLowerCase()];
  return decodeDatabase(Array.isArray(value) ? value.join() : value);
}

function requireOnDatabase(
  gateway: Gateway,
  exchange: Exchange,
  settings: RouteSettings,
  permission: PermissionClass,
): Identity | undefined {
  const database = readDatabase(exchange, settings);
  const { caller } = exchange;
  if (caller === undefined) return undefined;
  const { username } = caller.user;
  const subject = { username, tokenDatabase: caller.token.database };
  const { reason, role, entry } = decide(gateway.access.snapshot, subject, permission, database);
  exchange.operations = [{ operation: permission, database, tables: [], role, entry }];
  exchange.operationCount = 1;
  if (reason !== "allowed") throw new Refusal(reason);
  return { username, roles: [role ?? ""], databases: [database] };
}

/** @throws Refusal if the caller may not use the route */
function authorize(
  gateway: Gateway,
  exchange: Exchange,
  settings: RouteSettings,
): Identity | undefined {
  const { caller } = exchange;
  const { access } = settings;
  if (isPermissionClass(access)) return requireOnDatabase(gateway, exchange, settings, access);
  if (access === "public" || caller === undefined) return undefined;
  const { username } = caller.user;
  if (access === "administrator") {
    if (caller.token.database !== "*") throw new Refusal("token_database");
    if (!isAdministrator(gateway.access.snapshot, username)) throw new Refusal("role_insufficient");
  }
  return { username, roles: [], databases: [] };
}

async function handle(
  gateway: Gateway,
  exchange: Exchange,
  settings: RouteSettings,
): Promise<void> {
  if (ambiguous.test(exchange.path)) throw new Refusal("path_not_canonical");
  const identity = authorize(gateway, exchange, settings);
  exchange.decision = "allow";
  const { request, response, requestId, peer } = exchange;
  const { forwardedFor, proto, host, isTrusted } = peer;
  const answer = commonHeaders(exchange);
  for (let at = 0; at + 1 < answer.length; at += 2) {
    response.setHeader(answer[at] ?? "", answer[at + 1] ?? "");
  }
  const headers = {
    ...streamHeaders(request.headers, gateway.headers, isTrusted),
    ...gatewayHeaders({ requestId, forwardedFor, proto, host, identity }),
  };
  await gateway.streams.forward({ request, response, headers });
}

/** An endpoint from `[[routes]]`: judged by its settings, then streamed both ways. */
export function configuredRoute(settings: RouteSettings): Endpoint {
  return {
    door: settings.access === "public" ? "public" : "data",
    handle: (gateway, exchange) => handle(gateway, exchange, settings),
  };
}
