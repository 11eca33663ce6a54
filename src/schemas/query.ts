import type { Level } from "../query/kind.ts";
import { querySchema } from "../query/query-schema.ts";

/** The body of `POST /query` as JSON Schema (draft 2020-12), as much as a level of the grammar has. */
export function queryBodySchema(level: Level): object {
  const { body, definitions } = querySchema(level, "#/$defs/");
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: `A query of Gatehouse, level ${level}`,
    ...body,
    $defs: definitions,
  };
}
