import { requireAdministrator } from "../access/administration-rights.ts";
import { EVERY_DATABASE } from "../access/roles.ts";
import { judgeName, type Subject } from "../access/subject.ts";
import { decideWhole, whyNotWhole } from "../access/whole-access.ts";
import type { Configuration } from "../config/schema.ts";
import { isPlainName } from "../query/names.ts";
import { isPermissionClass, type PermissionClass } from "../query/permissions.ts";
import { Refusal } from "../refusal.ts";
import type { Identity } from "../upstream/headers.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { originOf, requireAllowed } from "./judge.ts";
import { databaseParameter } from "./parameters.ts";

/** A route of `[[routes]]`. */
export type RouteSettings = Configuration["routes"][number];

/** True if each request on the route is about one database. */
export function namesDatabase({ path, database_header: header }: RouteSettings): boolean {
  return header !== undefined || path.split("/").includes(":database");
}

/** The database that the request is about: of the path, or of the configured header. */
export function readDatabase(
  exchange: Exchange,
  { database_header: header }: RouteSettings,
): string {
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
  const decision = decideWhole(snapshot, subject, permission, database, originOf(exchange));
  const { role, entry, boundary } = decision;
  exchange.verdict.ask([{ operation: permission, database, tables: [], role, entry, boundary }]);
  requireAllowed(decision);
  return { username: subject.username, roles: [role ?? ""], databases: [database] };
}

/** A token for one database opens a route about that one, and no route about anything else. */
function requireTokenFor(exchange: Exchange, settings: RouteSettings, limit: string): void {
  if (limit === EVERY_DATABASE) return;
  if (!namesDatabase(settings) || readDatabase(exchange, settings) !== limit) {
    throw new Refusal("token_database");
  }
}

/**
 * Nobody reaches a database by another case of its name, and who may use only a part of it reaches
 * it by no route, which nobody can narrow.
 */
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
  const denial = whyNotWhole(access.snapshot, subject, database, originOf(exchange));
  if (denial !== undefined) requireAllowed(denial);
}

/** @throws Refusal if the caller may not use the route */
export function authorize(
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
