import { writeFileSync } from "node:fs";
import { z } from "zod";
import { configurationSchema } from "../src/core/config/schema.ts";
import type { Level } from "../src/core/query/kind.ts";
import { accessSchema } from "./access-schema.ts";
import { mcpTools } from "./mcp-tools.ts";
import { querySchema } from "./query-schema.ts";

/** Writes the JSON Schemas of both TOML files and of queries, and the list of MCP tools. */

/** gateway.toml as JSON Schema (Draft 4). */
function gatewaySchema(): object {
  const schema = z.toJSONSchema(configurationSchema, { io: "input", target: "draft-4" });
  return { ...schema, title: "gateway.toml of Gatehouse" };
}

/** The body of `POST /query` at a level of the grammar, as JSON Schema (draft 2020-12). */
function queryBodySchema(level: Level): object {
  const { body, definitions } = querySchema(level, "#/$defs/");
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: `A query of Gatehouse, level ${level}`,
    ...body,
    $defs: definitions,
  };
}

/** Adds the allowed values to the description, which editors show. */
function withAllowed(_key: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (!("title" in value && "description" in value && "type" in value)) return value;
  const { title, description, ...rest } = value;
  return { ...rest, description: `${description} Allowed: ${title}.` };
}

export const schemaFiles = [
  { name: "gateway.schema.json", schema: gatewaySchema() },
  { name: "access_control.schema.json", schema: accessSchema() },
  { name: "query.core.schema.json", schema: queryBodySchema("core") },
  { name: "query.full.schema.json", schema: queryBodySchema("full") },
  { name: "mcp-tools.json", schema: mcpTools() },
].map(({ name, schema }) => ({
  file: new URL(`../schemas/${name}`, import.meta.url),
  text: `${JSON.stringify(schema, withAllowed, 2)}\n`,
}));

if (import.meta.main) for (const { file, text } of schemaFiles) writeFileSync(file, text);
