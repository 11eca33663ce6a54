import { z } from "zod";
import { didYouMean, suggestion } from "../suggestion.ts";
import { type ValuePath, valueAt } from "../toml/outline.ts";
import { renderName, renderValue } from "../toml/values.ts";
import type { Problem } from "./problem.ts";
import { configurationSchema } from "./schema.ts";

/** The schema as JSON Schema, which says for every key what it allows and what it means. */

/** One key, section or element of the configuration, as JSON Schema describes it. */
export type SchemaNode = z.core.JSONSchema.BaseSchema;

let described: SchemaNode | undefined;

/** Made when it is first asked for, since most starts find nothing wrong. */
function root(): SchemaNode {
  described ??= z.toJSONSchema(configurationSchema, { io: "input" });
  return described;
}

/** The schema of what stands at `path`; an array's elements share one. */
function nodeAt(path: readonly PropertyKey[]): SchemaNode | undefined {
  let node: SchemaNode | undefined = root();
  for (const step of path) {
    if (node === undefined) return undefined;
    node = typeof step === "string" ? memberOf(node, step) : elementOf(node);
  }
  return node;
}

/** The keys of a table with fixed keys, in order; undefined for every other kind of value. */
function membersOf(node: SchemaNode): [name: string, node: SchemaNode][] | undefined {
  if (node.properties === undefined) return undefined;
  return Object.entries(node.properties).flatMap(([name, member]) => {
    const schema = schemaOf(member);
    return schema === undefined ? [] : [[name, schema]];
  });
}

/** The elements' schema, if `node` is an array. */
function elementOf(node: SchemaNode): SchemaNode | undefined {
  return Array.isArray(node.items) ? undefined : schemaOf(node.items);
}

/** True for what is taken over while the gateway runs; every other key takes a restart. */
export function isLive(node: SchemaNode): boolean {
  return node.live === true;
}

/** What a key or a table means, and whether a change of it takes no restart. */
export function descriptionOf(node: SchemaNode): string {
  const { description = "" } = node;
  return isLive(node) ? `${description} A change is in force at once.` : description;
}

/** What the keys of an open table may be called, if `node` is one. */
function namesOf(node: SchemaNode): SchemaNode | undefined {
  return schemaOf(node.propertyNames);
}

/** What a value may be, in words, as it stands after `allowed:` in an error. */
export function allowedBy(node: SchemaNode): string {
  if (node.title !== undefined) return node.title;
  if (node.enum !== undefined) return node.enum.map(renderValue).join(", ");
  if (node.type === "boolean") return "true or false";
  if (node.type === "integer") return wholeNumber(node);
  const element = elementOf(node);
  if (element !== undefined) return `${arrayKind(node)} of ${elementsAllowedBy(element)}`;
  const names = namesOf(node);
  const values = schemaOf(node.additionalProperties);
  if (names !== undefined && values !== undefined) {
    return `a table of (${allowedBy(names)}) = (${allowedBy(values)})`;
  }
  return "a table";
}

function wholeNumber({ minimum, maximum }: SchemaNode): string {
  if (minimum === maximum) return `${minimum}`;
  return `a whole number from ${minimum} to ${maximum}`;
}

function arrayKind({ minItems = 0 }: SchemaNode): string {
  return minItems > 0 ? "a non-empty array" : "an array";
}

function elementsAllowedBy(element: SchemaNode): string {
  return element.properties === undefined ? `(${allowedBy(element)})` : "tables";
}

function memberOf(node: SchemaNode, name: string): SchemaNode | undefined {
  const { properties = {} } = node;
  return Object.hasOwn(properties, name)
    ? schemaOf(properties[name])
    : schemaOf(node.additionalProperties);
}

function schemaOf(schema: SchemaNode | boolean | undefined): SchemaNode | undefined {
  return typeof schema === "boolean" ? undefined : schema;
}

/** A table of the file, with the keys that stand directly in it. */
export interface SchemaTable {
  /** Such as `server` or `mcp.tools`. */
  readonly name: string;
  readonly isArray: boolean;
  readonly node: SchemaNode;
  /** True for an array of tables that is taken over while the gateway runs. */
  readonly isLive: boolean;
  readonly description: string;
  readonly keys: readonly [name: string, node: SchemaNode][];
}

/** True for a table, or an array of tables, which get headers of their own. */
function hasHeader(node: SchemaNode): boolean {
  return (elementOf(node) ?? node).properties !== undefined;
}

function tablesAt(name: string, described: SchemaNode): SchemaTable[] {
  const element = elementOf(described);
  const node = element ?? described;
  const members = membersOf(node) ?? [];
  const keys = members.filter(([, member]) => !hasHeader(member));
  const inner = members.filter(([, member]) => hasHeader(member));
  const description = descriptionOf(described);
  return [
    { name, isArray: element !== undefined, node, isLive: isLive(described), description, keys },
    ...inner.flatMap(([key, member]) => tablesAt(`${name}.${key}`, member)),
  ];
}

/** Every table of the file, in order, an array of tables behind the table that it belongs to. */
export function schemaTables(): SchemaTable[] {
  return (membersOf(root()) ?? []).flatMap(([name, node]) => tablesAt(name, node));
}

/** Turns what the schema objects to into problems that an operator can mend. */

/** The most characters of a value that a message shows. */
const LONGEST_FOUND = 64;

/** Where a value came from. */
interface Place {
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
