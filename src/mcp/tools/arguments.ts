/** JSON Schemas of the tools' arguments: the query grammar, for a model to read. */
import { z } from "zod";
import { plainNameRule } from "../../query/names.ts";
import type { CellValue, Condition } from "../../query/shape.ts";

const plainName = z.string().regex(/^[A-Za-z0-9_-]{1,63}$/);

/** The database that a call works on. */
export const database = plainName.describe(`Name of the database: ${plainNameRule}.`);
/** The table that a call works on. */
export const table = plainName.describe(`Name of the table: ${plainNameRule}.`);

const cell: z.ZodType<CellValue> = z
  .json()
  .describe(
    "Any JSON value. An integer beyond 2^53 - 1 may be a string of its digits, as it is in answers.",
  );

const column = z
  .string()
  .min(1)
  .describe("A column, or table.column with a table of this very operation.");

const comparison = z.strictObject({
  column,
  cmp: z.enum(["=", "!=", ">", "<", ">=", "<=", "LIKE", "IN", "BETWEEN"]),
  value: cell.describe(
    "What the column is compared with: an array for IN, an array of two for BETWEEN; " +
      "= null and != null test for null.",
  ),
});

const condition: z.ZodType<Condition> = z
  .union([
    comparison,
    z.strictObject({
      get and() {
        return z.array(condition).min(1);
      },
    }),
    z.strictObject({
      get or() {
        return z.array(condition).min(1);
      },
    }),
    z.strictObject({
      get not() {
        return condition;
      },
    }),
  ])
  .meta({ id: "condition", description: "A comparison, or conditions joined by and, or, not." });

const count = z.int().min(0);
const row = z.record(z.string(), cell).describe("Values by column.");

/** Arguments of `list_databases`. */
export const nothing = z.strictObject({});
/** Arguments of `list_tables`. */
export const ofDatabase = z.strictObject({ database });
/** Arguments of `describe_table` and `drop_table`. */
export const ofTable = z.strictObject({ database, table });

/** Arguments of `select`. */
export const select = z.strictObject({
  database,
  from: table.describe("The table that is read."),
  columns: z.array(column).min(1).describe('Columns that are read; ["*"] for all.'),
  where: condition.nullable().optional().describe("Which rows; all if left out."),
  join: z
    .strictObject({
      table,
      on: z.string().describe("table.column = table.column, both of this select."),
      join_type: z.enum(["INNER", "LEFT", "RIGHT"]),
    })
    .optional(),
  order_by: z.strictObject({ column, direction: z.enum(["ASC", "DESC"]).optional() }).optional(),
  limit: count.optional().describe("Rows at most. The server has a cap of its own."),
  offset: count.optional().describe("Rows that are skipped first."),
});

/** Arguments of `insert`. */
export const insert = z.strictObject({ database, table, values: z.array(row).min(1) });

const everyRow = "Which rows. null means every row, and has to be said.";

/** Arguments of `update`. */
export const update = z.strictObject({
  database,
  table,
  set: row.describe("New values by column."),
  where: condition.nullable().describe(everyRow),
});

/** Arguments of `delete`. */
export const remove = z.strictObject({
  database,
  table,
  where: condition.nullable().describe(everyRow),
});

/** Arguments of `create_table`. */
export const createTable = z.strictObject({
  database,
  table,
  columns: z
    .array(
      z.strictObject({
        name: z.string().min(1).max(128),
        type: z.string().describe("A type such as int, text, boolean, varchar(20), decimal(10,2)."),
        primary_key: z.boolean().optional(),
        unique: z.boolean().optional(),
        nullable: z.boolean().optional().describe("True unless said otherwise or the key."),
      }),
    )
    .min(1),
});
