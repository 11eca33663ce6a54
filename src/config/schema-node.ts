/** The schema as JSON Schema, which says for every key what it allows and what it means. */
import { z } from "zod";
import { renderValue } from "../toml/values.ts";
import { configurationSchema } from "./schema.ts";

/** One key, section or element of the configuration, as JSON Schema describes it. */
export type SchemaNode = z.core.JSONSchema.BaseSchema;

let described: SchemaNode | undefined;

/** Made when it is first asked for, since most starts find nothing wrong. */
function root(): SchemaNode {
  described ??= z.toJSONSchema(configurationSchema, { io: "input" });
  return described;
}

/** The schema of what stands at `path`; an array's elements share one. */
export function nodeAt(path: readonly PropertyKey[]): SchemaNode | undefined {
  let node: SchemaNode | undefined = root();
  for (const step of path) {
    if (node === undefined) return undefined;
    node = typeof step === "string" ? memberOf(node, step) : elementOf(node);
  }
  return node;
}

/** The keys of a table with fixed keys, in order; undefined for every other kind of value. */
export function membersOf(node: SchemaNode): [name: string, node: SchemaNode][] | undefined {
  if (node.properties === undefined) return undefined;
  return Object.entries(node.properties).flatMap(([name, member]) => {
    const schema = schemaOf(member);
    return schema === undefined ? [] : [[name, schema]];
  });
}

/** The elements' schema, if `node` is an array. */
export function elementOf(node: SchemaNode): SchemaNode | undefined {
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
export function namesOf(node: SchemaNode): SchemaNode | undefined {
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
