/** JSON Schemas of what the tools answer in `structuredContent`. */
import { z } from "zod";

const next_offset = z
  .int()
  .optional()
  .describe(
    "Where truncated: the offset that goes on. Use order_by, so that rows keep their order.",
  );
const truncated = z.boolean().optional().describe("True if there are more than are listed.");

/** Answer of `select`. */
export const rows = z.object({
  rows: z
    .array(z.record(z.string(), z.json()))
    .describe(
      "The rows, values by column. An integer beyond 2^53 - 1, which JSON readers may round, is a " +
        "string of its digits.",
    ),
  truncated: z.boolean().describe("True if there are more rows than the server returns at once."),
  next_offset,
});

/** Answer of what changes something. */
export const done = z.object({
  message: z.string().describe("What was done, in the database's words."),
});

/** Answer of `list_databases`. */
export const databases = z.object({ databases: z.array(z.string()), truncated });

/** Answer of `list_tables`. */
export const tables = z.object({ tables: z.array(z.string()), truncated });

/** Answer of `describe_table`. */
export const columns = z.object({
  columns: z.array(
    z.object({
      name: z.string(),
      type: z.string().describe("The type as it was declared."),
      primary_key: z.boolean(),
      nullable: z.boolean(),
    }),
  ),
  truncated,
});
