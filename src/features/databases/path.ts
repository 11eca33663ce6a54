import { Refusal } from "../../core/base/refusal.ts";
import { requireListed } from "../../core/http/exchange.ts";
import { badRequest, brokenAnswer } from "./body.ts";
import type { Json, Plan, Preset, PresetEndpoint, PresetRequest } from "./preset.ts";

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

/** @throws Refusal `bad_request` */
function readCount(query: ReadonlyMap<string, string>, name: string, otherwise: number): number {
  const text = query.get(name);
  if (text === undefined) return otherwise;
  if (/^\d{1,9}$/.test(text)) return Number(text);
  throw badRequest(`${name} must be a whole number`);
}

/**
 * A list without what the caller may not read. The page is cut from the rest here: the pages of a
 * server would tell how much is hidden.
 *
 * @param skip the parameter that says where a page begins
 * @throws Refusal `bad_request`
 */
export function filteredList(
  { query }: PresetRequest,
  skip: string,
  isShown: (item: Json) => boolean,
): Pick<Plan, "query" | "answer"> {
  const start = readCount(query, skip, 0);
  const end = start + readCount(query, "limit", Number.POSITIVE_INFINITY);
  const others = query.entries().filter(([name]) => name !== "limit" && name !== skip);
  return {
    query: new Map(others),
    answer: (list) => {
      if (!Array.isArray(list)) throw brokenAnswer("not a list");
      return list.filter(isShown).slice(start, end);
    },
  };
}

export function writeQuery(query: ReadonlyMap<string, string>): string {
  if (query.size === 0) return "";
  const pairs = query
    .entries()
    .map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`);
  return `?${[...pairs].join("&")}`;
}

const plainValue = /^[^_]/s;

interface PresetPath {
  readonly path: string;
  readonly endpoints: Map<string, PresetEndpoint>;
}

interface EndpointMatch extends PresetPath {
  /** The parameters of the path, decoded. */
  readonly parameters: Record<string, string>;
}

/** A parameter, or the rest of the path as one. */
interface Branch {
  readonly name: string;
  readonly isRest: boolean;
  readonly pattern: RegExp;
  readonly step: Step;
}

class Step {
  found: PresetPath | undefined = undefined;
  readonly #literals = new Map<string, Step>();
  readonly #branches: Branch[] = [];

  /** The step after a segment of a preset. */
  after(segment: string, values: Preset["values"]): Step {
    if (!segment.startsWith(":")) {
      const step = this.#literals.get(segment) ?? new Step();
      this.#literals.set(segment, step);
      return step;
    }
    const isRest = segment.endsWith("*");
    const name = segment.slice(1, isRest ? -1 : undefined);
    let branch = this.#branches.find((one) => one.name === name);
    if (branch === undefined) {
      branch = { name, isRest, pattern: values[name] ?? plainValue, step: new Step() };
      this.#branches.push(branch);
      this.#branches.sort((one, other) => Number(one.isRest) - Number(other.isRest));
    }
    return branch.step;
  }

  /** Tries a literal before a parameter before the rest. */
  match(segments: readonly string[], at: number): EndpointMatch | undefined {
    const { found } = this;
    if (at === segments.length) return found && { ...found, parameters: {} };
    const segment = segments[at] ?? "";
    const literal = this.#literals.get(segment)?.match(segments, at + 1);
    if (literal !== undefined) return literal;
    for (const { name, isRest, pattern, step } of this.#branches) {
      const value = isRest ? segments.slice(at).join("/") : segment;
      const next = isRest ? segments.length : at + 1;
      const match = pattern.test(value) ? step.match(segments, next) : undefined;
      if (match === undefined) continue;
      match.parameters[name] = value;
      return match;
    }
    return undefined;
  }
}

export type FindEndpoints = (segments: readonly string[]) => EndpointMatch | undefined;

/** Finds the most specific path that matches. A wider one adds no method. */
export function createFinder({ endpoints, values }: Preset): FindEndpoints {
  const first = new Step();
  for (const endpoint of endpoints) {
    const { path, method } = endpoint;
    let step = first;
    for (const segment of path.slice(1).split("/")) step = step.after(segment, values);
    step.found ??= { path, endpoints: new Map() };
    step.found.endpoints.set(method, endpoint);
  }
  return (segments) => first.match(segments, 0);
}
