import { groupHolder, type Holder, userHolder } from "../access/holder.ts";
import { tablePattern } from "../access/records.ts";
import {
  isAnyUsername,
  isDatabaseOrEvery,
  isGroupName,
  isLocalGroupName,
} from "../access/roles.ts";
import { Refusal, type RefusalCode } from "../base/refusal.ts";
import { isPlainName } from "../query/names.ts";
import type { Exchange } from "./exchange.ts";

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
  throw new Refusal(code, message === undefined ? {} : { message });
}

export function usernameParameter(exchange: Exchange): string {
  return parameter(exchange, "username", isAnyUsername, "invalid_username");
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
