import { isExternalUsername, isUsername } from "../access/records.ts";
import { Refusal } from "../refusal.ts";
import type { Exchange } from "./exchange.ts";

/** Which part of a list is asked for. */
export interface Page {
  /** How many at most. */
  readonly limit: number;
  /** The name that the page begins behind; the first page without one. */
  readonly after: string | undefined;
}

/** Items of a page, unless another number is asked for. */
export const DEFAULT_LIMIT = 100;
export const MAX_LIMIT = 1000;

/** The one value of a parameter; undefined without one. @throws Refusal `invalid_page` */
function only(query: URLSearchParams, name: string): string | undefined {
  const values = query.getAll(name);
  if (values.length > 1) throw new Refusal("invalid_page");
  return values[0];
}

/**
 * Reads `?limit=&after=`, where `after` is a username. Other parameters are not looked at.
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
