import { Refusal } from "../../core/base/refusal.ts";
import { quoteName } from "../../core/json/fault.ts";
import { badRequest } from "./body.ts";
import type { Preset, PresetEndpoint } from "./preset.ts";

/** Characters of a path (RFC 3986, section 3.3), except `;`, which some servers cut off. */
const plainPath = /^\/(?:[A-Za-z0-9._~!$&'()*+,=:@/-]|%[0-9A-Fa-f]{2})*$/;
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

/** @throws Refusal `unknown_parameter`, or `bad_request` for one that is sent twice */
export function readQuery(url: string, listed: readonly string[]): ReadonlyMap<string, string> {
  const start = url.indexOf("?");
  const query = new Map<string, string>();
  if (start === -1) return query;
  for (const pair of url.slice(start + 1).split("&")) {
    if (pair === "") continue;
    const [written = "", ...value] = pair.split("=");
    const name = decodeQuery(written);
    if (!listed.includes(name)) {
      const allowed = listed.join(", ") || "none";
      const message = `Unknown query parameter ${quoteName(name)}; allowed: ${allowed}`;
      throw new Refusal("unknown_parameter", { message });
    }
    if (query.has(name)) throw badRequest(`the query parameter ${quoteName(name)} is sent twice`);
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

export function writeQuery(query: ReadonlyMap<string, string>): string {
  if (query.size === 0) return "";
  const pairs = query
    .entries()
    .map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`);
  return `?${[...pairs].join("&")}`;
}

const plainValue = /^[^_]/s;

interface Pattern {
  readonly segments: readonly string[];
  readonly endpoints: ReadonlyMap<string, PresetEndpoint>;
  readonly path: string;
}

export interface EndpointMatch {
  /** The path of the endpoints. */
  readonly path: string;
  readonly endpoints: ReadonlyMap<string, PresetEndpoint>;
  /** The parameters of the path, decoded. */
  readonly parameters: Readonly<Record<string, string>>;
}

/** Sorts each path before all wider ones: a literal before a parameter before the rest. */
function rankOf({ segments }: Pattern): string {
  const rank = (one: string) => (one.startsWith(":") ? (one.endsWith("*") ? 2 : 1) : 0);
  return segments.map(rank).join("");
}

function matchPattern(
  { segments: pattern }: Pattern,
  segments: readonly string[],
  values: Preset["values"],
): Record<string, string> | undefined {
  const isOpen = pattern.at(-1)?.endsWith("*") === true;
  if (isOpen ? segments.length < pattern.length : segments.length !== pattern.length) {
    return undefined;
  }
  const parameters: Record<string, string> = {};
  for (const [at, expected] of pattern.entries()) {
    const found = segments[at] ?? "";
    if (!expected.startsWith(":")) {
      if (found !== expected) return undefined;
      continue;
    }
    const isRest = isOpen && at === pattern.length - 1;
    const name = isRest ? expected.slice(1, -1) : expected.slice(1);
    const value = isRest ? segments.slice(at).join("/") : found;
    if (!(values[name] ?? plainValue).test(value)) return undefined;
    parameters[name] = value;
  }
  return parameters;
}

export type FindEndpoints = (segments: readonly string[]) => EndpointMatch | undefined;

/** Finds the most specific path that matches. A wider one adds no method. */
export function createFinder({ endpoints, values }: Preset): FindEndpoints {
  const byPath = Map.groupBy(endpoints, ({ path }) => path);
  const patterns = byPath
    .entries()
    .map(
      ([path, group]): Pattern => ({
        path,
        segments: path.slice(1).split("/"),
        endpoints: new Map(group.map((endpoint) => [endpoint.method, endpoint])),
      }),
    )
    .toArray()
    .sort((one, other) => (rankOf(one) < rankOf(other) ? -1 : 1));
  return (segments) => {
    for (const pattern of patterns) {
      const parameters = matchPattern(pattern, segments, values);
      if (parameters !== undefined) {
        return { path: pattern.path, endpoints: pattern.endpoints, parameters };
      }
    }
    return undefined;
  };
}
