import { Refusal } from "../../core/base/refusal.ts";
import { requireListed } from "../../core/http/exchange.ts";
import { badRequest } from "./body.ts";
import type { Preset } from "./preset.ts";

/** Characters of a path (RFC 3986, section 3.3), except `;`, which some servers cut off. */
const plainPath = /^\/(?:[A-Za-z0-9._~!$&'()*+,=:@/-]|%[0-9A-Fa-f]{2})*$/;
/** A path whose segments are the same encoded and decoded, and none of which is a step. */
const simplePath = /^(?:\/[A-Za-z0-9_~!'()*-][A-Za-z0-9._~!'()*-]*)+$/;
/** Steps that a server may follow, also if the slash was encoded. */
const dotStep = /(?:^|[/\\])\.{1,2}(?:$|[/\\])/;

function decodeSegments(path: string): string[] | undefined {
  try {
    return path.slice(1).split("/").map(decodeURIComponent);
  } catch {
    return undefined;
  }
}

function isCanonical(segment: string, isLast: boolean): boolean {
  return (segment !== "" || isLast) && !/\p{Cc}/u.test(segment) && !dotStep.test(segment);
}

/**
 * The segments of a path, decoded exactly once. A slash at the end makes an empty one.
 *
 * @throws Refusal `path_not_canonical`
 */
export function readPath(path: string): string[] {
  if (simplePath.test(path)) return path.slice(1).split("/");
  const segments = plainPath.test(path) ? decodeSegments(path) : undefined;
  if (segments?.every((one, at) => isCanonical(one, at === segments.length - 1))) return segments;
  throw new Refusal("path_not_canonical", {
    message: "The path has empty or dot segments, control characters, or characters to be encoded",
  });
}

/** Encodes segments so that one decoding returns them. */
export function writePath(segments: readonly string[]): string {
  return `/${segments.map(encodeURIComponent).join("/")}`;
}

/** The one spelling of a path that is forwarded. @throws Refusal `path_not_canonical` */
export function respell(path: string): string {
  return simplePath.test(path) ? path : writePath(readPath(path));
}

/** @throws Refusal `unknown_parameter`, or `bad_request` for one that is sent twice */
export function readQuery(url: string, listed: readonly string[]): ReadonlyMap<string, string> {
  const start = url.indexOf("?");
  const query = new Map<string, string>();
  if (start === -1) return query;
  for (const pair of url.slice(start + 1).split("&")) {
    if (pair === "") continue;
    const [written = "", ...value] = pair.split("=");
    const name = decodeQuery(written);
    requireListed(name, listed, query);
    query.set(name, decodeQuery(value.join("=")));
  }
  return query;
}

function decodeQuery(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    throw badRequest("the query is not percent-encoded UTF-8");
  }
}

/** Cuts the page from a list that two parameters ask for. @throws Refusal `bad_request` */
export function readPage(
  query: ReadonlyMap<string, string>,
  skip: string,
): <One>(list: readonly One[]) => One[] {
  const read = (name: string, otherwise: number): number => {
    const text = query.get(name);
    if (text === undefined) return otherwise;
    if (/^\d{1,9}$/.test(text)) return Number(text);
    throw badRequest(`${name} must be a whole number`);
  };
  const start = read(skip, 0);
  const end = start + read("limit", Number.POSITIVE_INFINITY);
  return (list) => list.slice(start, end);
}

export function writeQuery(query: ReadonlyMap<string, string>): string {
  if (query.size === 0) return "";
  const pairs = query
    .entries()
    .map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`);
  return `?${[...pairs].join("&")}`;
}

const plainValue = /^[^_]/s;

interface PathMatch {
  /** As the preset writes it. */
  readonly path: string;
  /** The parameters of the path, decoded. */
  readonly parameters: Record<string, string>;
}

/** Sorts each path before all wider ones: a literal before a parameter before the rest. */
function pathRank(segments: readonly string[]): string {
  const rank = (one: string) => (one.endsWith("*") ? 2 : Number(one.startsWith(":")));
  return segments.map(rank).join("");
}

function matchSegments(
  pattern: readonly string[],
  segments: readonly string[],
  values: Preset["values"],
): Record<string, string> | undefined {
  const isOpen = pattern.at(-1)?.endsWith("*");
  const { length } = pattern;
  if (isOpen ? segments.length < length : segments.length !== length) return undefined;
  const parameters: Record<string, string> = {};
  for (const [at, expected] of pattern.entries()) {
    if (!expected.startsWith(":")) {
      if (expected !== segments[at]) return undefined;
      continue;
    }
    const isRest = expected.endsWith("*");
    const name = expected.slice(1, isRest ? -1 : undefined);
    const value = isRest ? segments.slice(at).join("/") : (segments[at] ?? "");
    if (!(values[name] ?? plainValue).test(value)) return undefined;
    parameters[name] = value;
  }
  return parameters;
}

export type FindPath = (segments: readonly string[]) => PathMatch | undefined;

/** Finds the most specific path that matches. */
export function createFinder({ endpoints, values }: Preset): FindPath {
  const patterns = Array.from(new Set(endpoints.map(({ path }) => path)), (path) => {
    const segments = path.slice(1).split("/");
    return { path, segments, rank: pathRank(segments) };
  }).sort((one, other) => one.rank.localeCompare(other.rank));
  return (segments) => {
    for (const { path, segments: pattern } of patterns) {
      const parameters = matchSegments(pattern, segments, values);
      if (parameters !== undefined) return { path, parameters };
    }
    return undefined;
  };
}
