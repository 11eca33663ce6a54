/** The grammar of `POST /query` in JSON Schemas, as it is without `[query]` in the configuration. */
import { listOf, object, ref, type Schema } from "./schemas.ts";

/** Without control characters, quotes, backslash, backtick or dot. */
const columnCharacter = "[^\\u0000-\\u001f\\u007f-\\u009f'\"\\\\`.]";
const column = `(?!\\*$)${columnCharacter}{1,128}`;
const plainName = "[A-Za-z0-9_-]{1,63}";
const qualified = `${plainName}\\.${columnCharacter}{1,128}`;
const joinSide = `${plainName}\\.(?:(?![ =])${columnCharacter}){1,128}`;

const place = { database: ref("PlainName") };
const target = { ...place, table: ref("PlainName") };
const count: Schema = { type: "integer", minimum: 0, maximum: Number.MAX_SAFE_INTEGER };
const flag: Schema = { type: "boolean" };
const someOf = (items: Schema): Schema => ({ ...listOf(items), minItems: 1 });

/** A comparison with these operators, whose value is of this kind. */
function comparison(operators: readonly string[], value: Schema): Schema {
  return object({ column: ref("Column"), cmp: { enum: operators }, value });
}

const condition: Schema = {
  description: "A comparison, or a combination of conditions.",
  oneOf: [
    comparison(["=", "!=", ">", "<", ">=", "<="], {}),
    comparison(["LIKE"], { type: "string" }),
    comparison(["IN"], { type: "array" }),
    comparison(["BETWEEN"], { type: "array", minItems: 2, maxItems: 2 }),
    object({ and: someOf(ref("Condition")) }),
    object({ or: someOf(ref("Condition")) }),
    object({ not: ref("Condition") }),
  ],
};

const row: Schema = { type: "object", propertyNames: ref("NewColumn") };

/** The fields of each operation, with `?` behind those that may be left out. */
const operations: Readonly<Record<string, Readonly<Record<string, Schema>>>> = {
  Select: {
    ...place,
    from: ref("PlainName"),
    columns: someOf({ oneOf: [{ const: "*" }, ref("Column")] }),
    "where?": ref("Where"),
    "join?": object({
      table: ref("PlainName"),
      on: { type: "string", pattern: `^${joinSide} = ${joinSide}$` },
      join_type: { enum: ["INNER", "LEFT", "RIGHT"] },
    }),
    "order_by?": object({ column: ref("Column"), "direction?": { enum: ["ASC", "DESC"] } }),
    "limit?": count,
    "offset?": count,
  },
  Insert: { ...target, values: someOf(row) },
  Update: { ...target, set: { ...row, minProperties: 1 }, where: ref("Where") },
  Delete: { ...target, where: ref("Where") },
  CreateTable: { ...target, columns: someOf(ref("ColumnDefinition")) },
  DropTable: target,
  CreateDatabase: place,
  DropDatabase: place,
};

const notInBatch = ["CreateDatabase", "DropDatabase"];
const keyed = Object.keys(operations).map((name) => [name, object({ [name]: ref(name) })] as const);

/** The schemas of queries, by name; `Query` is the whole body. */
export const querySchemas: Readonly<Record<string, Schema>> = {
  Query: {
    description:
      "One operation, as an object with one key. The gateway refuses more than can be said here: " +
      "a key given twice, a column of a table that the operation is not about, arrays and objects " +
      "nested more than 64 deep. `[query]` of the configuration may add operations and fields.",
    oneOf: [
      ...keyed.map(([, schema]) => schema),
      object({
        Batch: {
          type: "array",
          minItems: 1,
          maxItems: 1000,
          items: {
            oneOf: keyed.filter(([name]) => !notInBatch.includes(name)).map(([, schema]) => schema),
          },
        },
      }),
    ],
  },
  ...Object.fromEntries(Object.entries(operations).map(([name, fields]) => [name, object(fields)])),
  NewColumn: { type: "string", pattern: `^${column}$` },
  Column: { type: "string", pattern: `^(?:${column}|${qualified})$` },
  ColumnDefinition: object({
    name: ref("NewColumn"),
    type: {
      type: "string",
      pattern: "^[A-Za-z][A-Za-z0-9_]{0,62}(\\([0-9]{1,9}(,[0-9]{1,9})?\\))?$",
    },
    "primary_key?": flag,
    "unique?": flag,
    "nullable?": flag,
  }),
  Condition: condition,
  Where: { oneOf: [ref("Condition"), { type: "null" }] },
};
