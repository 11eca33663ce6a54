import { z } from "zod";
import { didYouMean, formatHint, suggestion } from "../base/suggestion.ts";
import { renderName, renderValue, type ValuePath, valueAt } from "../base/toml.ts";
import type { Problem } from "./problem.ts";
import { configurationSchema } from "./schema.ts";

export type SchemaNode = z.core.JSONSchema.BaseSchema;

let described: SchemaNode | undefined;

/** Made only when used, since most starts find no problem. */
function root(): SchemaNode {
  described ??= z.toJSONSchema(configurationSchema, { io: "input" });
  return described;
}

function nodeAt(path: readonly PropertyKey[]): SchemaNode | undefined {
  return path.reduce<SchemaNode | undefined>(
    (node, step) =>
      node && (typeof step === "string" ? memberSchema(node, step) : elementSchema(node)),
    root(),
  );
}

function listMembers({ properties = {} }: SchemaNode): [name: string, node: SchemaNode][] {
  return Object.entries(properties).flatMap(([name, member]) =>
    typeof member === "boolean" ? [] : [[name, member]],
  );
}

function elementSchema(node: SchemaNode): SchemaNode | undefined {
  return Array.isArray(node.items) ? undefined : asSchema(node.items);
}

export function isLive(node: SchemaNode): boolean {
  return node.live === true;
}

export function readDescription(node: SchemaNode): string {
  const { description = "" } = node;
  return isLive(node) ? `${description} A change takes effect without a restart.` : description;
}

/** Describes the allowed values, for use after `allowed:` in an error. */
export function allowedBy(node: SchemaNode): string {
  if (node.title !== undefined) return node.title;
  if (node.enum !== undefined) return node.enum.map(renderValue).join(", ");
  if (node.type === "boolean") return "true or false";
  if (node.type === "integer") {
    const { minimum, maximum } = node;
    return minimum === maximum ? `${minimum}` : `a whole number from ${minimum} to ${maximum}`;
  }
  const element = elementSchema(node);
  if (element !== undefined) {
    const kind = (node.minItems ?? 0) > 0 ? "a non-empty array" : "an array";
    return `${kind} of ${element.properties === undefined ? `(${allowedBy(element)})` : "tables"}`;
  }
  const names = asSchema(node.propertyNames);
  const values = asSchema(node.additionalProperties);
  if (names !== undefined && values !== undefined) {
    return `a table of (${allowedBy(names)}) = (${allowedBy(values)})`;
  }
  return "a table";
}

function memberSchema(node: SchemaNode, name: string): SchemaNode | undefined {
  const { properties = {} } = node;
  return Object.hasOwn(properties, name)
    ? asSchema(properties[name])
    : asSchema(node.additionalProperties);
}

function asSchema(schema: SchemaNode | boolean | undefined): SchemaNode | undefined {
  return typeof schema === "boolean" ? undefined : schema;
}

export interface SchemaTable {
  readonly name: string;
  readonly isArray: boolean;
  /** True for an array of tables and what is in its elements. */
  readonly isRepeated: boolean;
  readonly node: SchemaNode;
  readonly isLive: boolean;
  readonly description: string;
  readonly keys: readonly [name: string, node: SchemaNode][];
}

/** True for a table or an array of tables, which have headers. */
function hasHeader(node: SchemaNode): boolean {
  return (elementSchema(node) ?? node).properties !== undefined;
}

function tablesAt(name: string, described: SchemaNode, isInArray = false): SchemaTable[] {
  const element = elementSchema(described);
  const isArray = element !== undefined;
  const isRepeated = isArray || isInArray;
  const node = element ?? described;
  const members = listMembers(node);
  const keys = members.filter(([, member]) => !hasHeader(member));
  const inner = members.filter(([, member]) => hasHeader(member));
  const description = readDescription(described);
  return [
    { name, isArray, isRepeated, node, isLive: isLive(described), description, keys },
    ...inner.flatMap(([key, member]) => tablesAt(`${name}.${key}`, member, isRepeated)),
  ];
}

/** Every table of the file in order; an array of tables follows its parent table. */
export function schemaTables(): SchemaTable[] {
  return listMembers(root()).flatMap(([name, node]) => tablesAt(name, node));
}

const LONGEST_FOUND = 64;

export interface Checked {
  readonly values: unknown;
  readonly placeOf: (path: ValuePath) => Pick<Problem, "source" | "line">;
}

/** The problems of one issue: one for each unknown key, otherwise a single one. */
export function issueProblems(issue: z.core.$ZodIssue, checked: Checked): Problem[] {
  const { path } = issue;
  if (issue.code === "unrecognized_keys") {
    return issue.keys.map((key) => {
      const value = valueAt(checked.values, [...path, key]);
      const reason = found(renderName(key), keysAllowed(key, value, nodeAt(path)));
      return problemAt([...path, key], reason, checked);
    });
  }
  if (issue.code === "invalid_key") {
    const names = asSchema(nodeAt(path.slice(0, -1))?.propertyNames);
    const reason = found(renderName(String(path.at(-1))), allowedBy(names ?? {}));
    return [problemAt(path, reason, checked)];
  }
  const { allowed: rule, reason }: Record<string, unknown> =
    (issue.code === "custom" && issue.params) || {};
  if (typeof reason === "string") return [problemAt(path, reason, checked)];
  // An element of a value with several forms has no node of its own.
  const node = nodeAt(path) ?? nodeAt(path.slice(0, -1)) ?? {};
  const allowed = typeof rule === "string" ? rule : allowedBy(node);
  return [valueProblem(path, allowed, checked)];
}

export function valueProblem(path: ValuePath, allowed: string, checked: Checked): Problem {
  const node = nodeAt(path) ?? {};
  const value = valueAt(checked.values, path) ?? node.default;
  const reason = `${found(displayed(value, node), allowed)}${headerMeant(path, value, node)}`;
  return problemAt(path, reason, checked);
}

/** Formats a key path as in TOML, with the number of an element in brackets. */
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
  const names = listMembers(node).map(([name]) => name);
  const sibling = didYouMean(key, names);
  return `${names.join(", ")}${sibling === "" ? elsewhere(key, value) : sibling}`;
}

/** Finds a similar name in another table: a table if a table was found, else a key of one table. */
function elsewhere(key: string, value: unknown): string {
  const isTable = typeof value === "object" && value !== null;
  const places = new Map<string, string | undefined>();
  for (const { name, isArray, isRepeated, keys } of schemaTables()) {
    if (isTable)
      places.set(name.slice(name.lastIndexOf(".") + 1), isArray ? `[[${name}]]` : `[${name}]`);
    else if (!isRepeated)
      for (const [own] of keys) places.set(own, places.has(own) ? undefined : `${name}.${own}`);
  }
  return formatHint(places.get(suggestion(key, places.keys()) ?? ""));
}

/** A table was written instead of an array of tables, or the reverse. */
function headerMeant(path: ValuePath, value: unknown, node: SchemaNode): string {
  const isTable = typeof value === "object" && value !== null && !(value instanceof Date);
  if (!isTable || path.some((step) => typeof step === "number")) return "";
  if (Array.isArray(value)) {
    return node.properties === undefined ? "" : ` (did you mean [${renderPath(path)}]?)`;
  }
  const isArray = elementSchema(node)?.properties !== undefined;
  return isArray ? ` (did you mean [[${renderPath(path)}]]?)` : "";
}

/**
 * Formats a value for a message. Secrets are never shown. Tables and arrays are named by kind only,
 * since they may contain a secret, or be written where one belongs.
 */
function displayed(value: unknown, node: SchemaNode): string {
  if (value === undefined) return "nothing";
  if (Array.isArray(value)) return value.length === 0 ? "an empty array" : "an array";
  if (typeof value === "object" && value !== null && !(value instanceof Date)) return "a table";
  if (node.writeOnly === true) return "a secret (not shown)";
  if (node.properties !== undefined) return value instanceof Date ? "a date" : `a ${typeof value}`;
  if (typeof value === "string") return renderValue(withoutCredentials(value));
  return renderValue(value);
}

/** Credentials may extend up to the last `@` of a URL. */
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
