import { tablePattern } from "../access/records.ts";
import {
  groupSubject,
  isAnyUsername,
  isDatabaseOrEvery,
  isGroupName,
  isLocalGroupName,
} from "../access/roles.ts";
import { Refusal } from "../base/refusal.ts";
import { isPlainName } from "../query/names.ts";
import type { Exchange } from "./exchange.ts";

/** Decodes a path parameter's percent-encoding exactly once. */
function decode({ routed: { parameters } }: Exchange, name: string): string | undefined {
  try {
    return decodeURIComponent(parameters[name] ?? "");
  } catch {
    return undefined;
  }
}

/** @throws Refusal `invalid_username` unless the path's `<u>` is a username */
export function usernameParameter(exchange: Exchange): string {
  const name = decode(exchange, "username");
  if (isAnyUsername(name)) return name;
  throw new Refusal("invalid_username");
}

/** @throws Refusal `invalid_group` unless the path's `<group>` is the name of a local group */
export function groupParameter(exchange: Exchange): string {
  const name = decode(exchange, "group");
  if (isLocalGroupName(name)) return name;
  throw new Refusal("invalid_group");
}

/**
 * The user, or `group:<name>`, whose entry the path means.
 *
 * @throws Refusal `invalid_username` or `invalid_group`
 */
export function holderParameter(exchange: Exchange): string {
  if (exchange.routed.parameters.group === undefined) return usernameParameter(exchange);
  const name = decode(exchange, "group");
  if (isGroupName(name)) return groupSubject(name);
  throw new Refusal("invalid_group");
}

/** @throws Refusal `schema_not_found` unless the path's `<table>` is a plain name */
export function tableParameter(exchange: Exchange): string {
  const name = decode(exchange, "table");
  if (name !== undefined && isPlainName(name)) return name;
  throw new Refusal("schema_not_found");
}

/** @throws Refusal `invalid_table` */
export function entryTableParameter(exchange: Exchange): string | undefined {
  if (exchange.routed.parameters.table_or_pattern === undefined) return undefined;
  const name = decode(exchange, "table_or_pattern");
  if (name !== undefined && tablePattern.test(name)) return name;
  throw new Refusal("invalid_table");
}

/** @throws Refusal `invalid_database` unless the path's `<database>` is a plain name */
export function databaseParameter(exchange: Exchange): string {
  const name = decode(exchange, "database");
  if (name !== undefined && isPlainName(name)) return name;
  const message = "Invalid database: 1 to 63 of letters, digits, '_', '-'";
  throw new Refusal("invalid_database", { message });
}

/** @throws Refusal `invalid_database` unless entries may be for the path's `<database>` */
export function accessDatabaseParameter(exchange: Exchange): string {
  const name = decode(exchange, "database");
  if (isDatabaseOrEvery(name)) return name;
  throw new Refusal("invalid_database");
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
