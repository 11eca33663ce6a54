import { tablePattern } from "../access/records.ts";
import { isExternalUsername, isUsername } from "../access/roles.ts";
import { isPlainName } from "../query/names.ts";
import { Refusal } from "../refusal.ts";
import type { Exchange } from "./exchange.ts";

/** Decodes percent-encoding exactly once. */
function decode(raw: string): string | undefined {
  try {
    return decodeURIComponent(raw);
  } catch {
    return undefined;
  }
}

/** @throws Refusal `invalid_username` unless the path's `<u>` is a username */
export function usernameParameter(exchange: Exchange): string {
  const name = decode(exchange.routed.parameters.username ?? "");
  if (isUsername(name) || isExternalUsername(name)) return name;
  throw new Refusal("invalid_username");
}

/**
 * The path's `<table>`.
 *
 * @throws Refusal `schema_not_found` unless it is a plain name
 */
export function tableParameter(exchange: Exchange): string {
  const name = decode(exchange.routed.parameters.table ?? "");
  if (name !== undefined && isPlainName(name)) return name;
  throw new Refusal("schema_not_found");
}

/**
 * The path's decoded `<table or pattern>`, or undefined if absent.
 *
 * @throws Refusal `invalid_table`
 */
export function entryTableParameter({ routed: { parameters } }: Exchange): string | undefined {
  const raw = parameters.table_or_pattern;
  if (raw === undefined) return undefined;
  const name = decode(raw);
  if (name !== undefined && tablePattern.test(name)) return name;
  throw new Refusal("invalid_table");
}

/**
 * The path's decoded `<database>`.
 *
 * @param others values allowed besides plain names
 * @throws Refusal `invalid_database`
 */
export function databaseParameter(exchange: Exchange, others: readonly string[] = []): string {
  const name = decode(exchange.routed.parameters.database ?? "");
  if (name !== undefined && (isPlainName(name) || others.includes(name))) return name;
  const allowed = [...others.map((other) => `'${other}'`), "1 to 63 of letters, digits, '_', '-'"];
  throw new Refusal("invalid_database", { message: `Invalid database: ${allowed.join(" or ")}` });
}

export interface Page {
  readonly limit: number;
  /** The page starts after this name. Undefined for the first page. */
  readonly after: string | undefined;
}

export const DEFAULT_LIMIT = 100;
export const MAX_LIMIT = 1000;

/** @throws Refusal `invalid_page` if the parameter is repeated */
function only(query: URLSearchParams, name: string): string | undefined {
  const values = query.getAll(name);
  if (values.length > 1) throw new Refusal("invalid_page");
  return values[0];
}

/**
 * Reads `?limit=&after=`, where `after` is a username. Ignores other parameters.
 *
 * @throws Refusal `invalid_page`
 */
export function readPage({ request: { url = "" }, path }: Exchange): Page {
  const query = new URLSearchParams(url.slice(path.length));
  const limit = only(query, "limit") ?? String(DEFAULT_LIMIT);
  const after = only(query, "after");
  const isNumber = /^[1-9]\d{0,3}$/.test(limit) && Number(limit) <= MAX_LIMIT;
  const isName = after === undefined || isUsername(after) || isExternalUsername(after);
  if (!isNumber || !isName) throw new Refusal("invalid_page");
  return { limit: Number(limit), after };
}
