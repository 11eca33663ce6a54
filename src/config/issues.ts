/** Turns what the schema objects to into problems that an operator can mend. */
import type { z } from "zod";
import { didYouMean, suggestion } from "../suggestion.ts";
import { type ValuePath, valueAt } from "../toml/outline.ts";
import { renderName, renderValue } from "../toml/values.ts";
import type { Problem } from "./problem.ts";
import {
  allowedBy,
  elementOf,
  membersOf,
  namesOf,
  nodeAt,
  type SchemaNode,
  schemaTables,
} from "./schema-node.ts";

/** The most characters of a value that a message shows. */
const LONGEST_FOUND = 64;

/** Where a value came from. */
export interface Place {
  readonly source: string | undefined;
  readonly line?: number | undefined;
}

/** The values that were checked, and where each of them stands. */
export interface Checked {
  readonly values: unknown;
  readonly placeOf: (path: ValuePath) => Place;
}

/** The problems behind one issue: an unknown key each, else a single one. */
export function problemsOf(issue: z.core.$ZodIssue, checked: Checked): Problem[] {
  const { path } = issue;
  if (issue.code === "unrecognized_keys") {
    return issue.keys.map((key) => {
      const value = valueAt(checked.values, [...path, key]);
      const reason = found(renderName(key), keysAllowed(key, value, nodeAt(path)));
      return problemAt([...path, key], reason, checked);
    });
  }
  if (issue.code === "invalid_key") {
    const names = namesOf(nodeAt(path.slice(0, -1)) ?? {});
    const reason = found(renderName(String(path.at(-1))), allowedBy(names ?? {}));
    return [problemAt(path, reason, checked)];
  }
  return [problemOf(path, ruleOf(issue) ?? allowedBy(nodeAt(path) ?? {}), checked)];
}

/** The problem of a value that is there but not allowed, or not there at all. */
export function problemOf(path: ValuePath, allowed: string, checked: Checked): Problem {
  const node = nodeAt(path) ?? {};
  const value = valueAt(checked.values, path) ?? node.default;
  const reason = `${found(shown(value, node), allowed)}${headerMeant(path, value, node)}`;
  return problemAt(path, reason, checked);
}

/** A key path as it is written in TOML, with the number of an element in brackets. */
function renderPath(path: ValuePath): string {
  let text = "";
  for (const step of path) {
    if (typeof step === "number") text += `[${step}]`;
    else text += `${text === "" ? "" : "."}${cut(renderName(String(step)))}`;
  }
  return text;
}

function problemAt(path: ValuePath, reason: string, { placeOf }: Checked): Problem {
  return { ...placeOf(path), key: renderPath(path), reason };
}

function found(value: string, allowed: string): string {
  return `found ${cut(value)}; allowed: ${allowed}`;
}

function keysAllowed(key: string, value: unknown, node: SchemaNode = {}): string {
  const names = (membersOf(node) ?? []).map(([name]) => name);
  const sibling = didYouMean(key, names);
  return `${names.join(", ")}${sibling === "" ? elsewhere(key, value) : sibling}`;
}

/** What stands elsewhere under a name like this one: a table if a table was found, else a key. */
function elsewhere(key: string, value: unknown): string {
  const isTable = typeof value === "object" && value !== null;
  const places = new Map<string, string>();
  for (const { name, isArray, keys } of schemaTables()) {
    if (isTable)
      places.set(name.slice(name.lastIndexOf(".") + 1), isArray ? `[[${name}]]` : `[${name}]`);
    else for (const [own] of keys) places.set(own, places.get(own) ?? `${name}.${own}`);
  }
  const meant = suggestion(key, places.keys());
  return meant === undefined ? "" : ` (did you mean ${places.get(meant)}?)`;
}

/** How the header of a table is written where one was taken for an array of them, or the reverse. */
function headerMeant(path: ValuePath, value: unknown, node: SchemaNode): string {
  const isTable = typeof value === "object" && value !== null && !(value instanceof Date);
  if (!isTable || path.some((step) => typeof step === "number")) return "";
  if (Array.isArray(value)) {
    return node.properties === undefined ? "" : ` (did you mean [${renderPath(path)}]?)`;
  }
  const isArray = elementOf(node)?.properties !== undefined;
  return isArray ? ` (did you mean [[${renderPath(path)}]]?)` : "";
}

/** The words that a rule between keys comes with. */
function ruleOf(issue: z.core.$ZodIssue): string | undefined {
  if (issue.code !== "custom") return undefined;
  const allowed: unknown = issue.params?.allowed;
  return typeof allowed === "string" ? allowed : undefined;
}

/**
 * A value as a message may show it: a secret never, tables and arrays by their kind, since a
 * secret may be in them or a table's place may have been given to one.
 */
function shown(value: unknown, node: SchemaNode): string {
  if (value === undefined) return "nothing";
  if (Array.isArray(value)) return "an array";
  if (typeof value === "object" && value !== null && !(value instanceof Date)) return "a table";
  if (node.writeOnly === true) return "a value that is not shown, as it is a secret";
  if (node.properties !== undefined) return value instanceof Date ? "a date" : `a ${typeof value}`;
  if (typeof value === "string") return renderValue(withoutCredentials(value));
  return renderValue(value);
}

/** Credentials may stand in a URL up to its last `@`. */
function withoutCredentials(text: string): string {
  const end = text.lastIndexOf("@");
  const start = text.indexOf("//");
  const bare =
    start === -1 || end < start ? text : `${text.slice(0, start + 2)}***${text.slice(end)}`;
  return bare.replace(/(password=)[^&]*/gi, "$1***");
}

function cut(text: string): string {
  const characters = [...text];
  if (characters.length <= LONGEST_FOUND) return text;
  return `${characters.slice(0, LONGEST_FOUND - 1).join("")}…`;
}
