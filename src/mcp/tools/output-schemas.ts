/** JSON Schemas of what tools answer in `structuredContent`, where that is not what queries answer. */
import type { Level, Schema } from "../../query/kind.ts";

/** Rows, and how to go on behind them. */
export function rowsSchema(level: Level): Schema {
  const next_after = {
    type: "array",
    description: "The after that goes on, where order_by has a unique column.",
  };
  const items = {
    type: "object",
    description: "An integer beyond 2^53 - 1 is a string of its digits.",
  };
  return {
    type: "object",
    properties: {
      rows: { type: "array", items },
      truncated: { type: "boolean" },
      ...(level === "full" ? { next_after } : {}),
      next_offset: { type: "integer", description: "The offset that goes on." },
    },
    required: ["rows"],
  };
}

/** A number of rows. */
export const countSchema: Schema = {
  type: "object",
  properties: { count: { type: "integer" } },
  required: ["count"],
};
