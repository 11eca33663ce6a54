/** Writes the JSON Schemas of both TOML files and of queries: `node src/schemas/write.ts`. */
import { writeFileSync } from "node:fs";
import { accessSchema } from "./access.ts";
import { gatewaySchema } from "./gateway.ts";
import { queryBodySchema } from "./query.ts";

/** What an editor shows of a value is its description, so that says what is allowed. */
function withAllowed(_key: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (!("title" in value && "description" in value && "type" in value)) return value;
  const { title, description, ...rest } = value;
  return { ...rest, description: `${description} Allowed: ${title}.` };
}

/** The files under `schemas/`, each with its text. */
export const schemaFiles = [
  { name: "gateway.schema.json", schema: gatewaySchema() },
  { name: "access_control.schema.json", schema: accessSchema() },
  { name: "query.core.schema.json", schema: queryBodySchema("core") },
  { name: "query.full.schema.json", schema: queryBodySchema("full") },
].map(({ name, schema }) => ({
  file: new URL(`../../schemas/${name}`, import.meta.url),
  text: `${JSON.stringify(schema, withAllowed, 2)}\n`,
}));

if (import.meta.main) for (const { file, text } of schemaFiles) writeFileSync(file, text);
