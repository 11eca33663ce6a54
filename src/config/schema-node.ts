/** The schema as JSON Schema, which says for every key what it allows and what it means. */
import { z } from "zod";
import { renderValue } from "../toml/render.ts";
import { configurationSchema } from "./schema.ts";

/** One key, section or element of the configuration, as JSON Schema describes it. */
export type SchemaNode = z.core.JSONSchema.BaseSchema;

const root: SchemaNode = z.toJSONSchema(configurationSchema, { io: "input" });

/** The schema of what stands at `path`; an array's elements share one. */
export function nodeAt(path: readonly PropertyKey[]): SchemaNode | undefined {
  let node: SchemaNode | undefined = root;
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
