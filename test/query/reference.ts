/** The core grammar once more, plainly: judges what JSON.parse made of a body. Knows no duplicates. */

import { z } from "zod";

// Schemas are made for each body, so that compiling them never pays.
z.config({ jitless: true });

const name = z.string().regex(/^[\w-]{1,63}$/);
const forbidden = /[\p{Cc}'"\\`.]/u;
export const isColumn = (text: string) =>
  text !== "*" && !forbidden.test(text) && [...text].length >= 1 && [...text].length <= 128;
const bareColumn = z.string().refine(isColumn);

function qualified(tables: readonly unknown[]) {
  return z.string().refine((text) => {
    const [table, column = "", ...rest] = text.split(".");
    return rest.length === 0 && tables.includes(table) && isColumn(column);
  });
}

/** Any value that JSON.parse gives, with the infinities that it makes of numbers such as 1e400. */
const cell = z.custom<unknown>((value) => value !== undefined);

function condition(tables: readonly unknown[]): z.ZodType {
  const column = bareColumn.or(qualified(tables));
  const self = z.lazy(() => condition(tables));
  return z.union([
    z.strictObject({ column, cmp: z.enum(["=", "!=", ">", "<", ">=", "<="]), value: cell }),
    z.strictObject({ column, cmp: z.literal("LIKE"), value: z.string() }),
    z.strictObject({ column, cmp: z.literal("IN"), value: z.array(cell) }),
    z.strictObject({ column, cmp: z.literal("BETWEEN"), value: z.array(cell).length(2) }),
    z.strictObject({ and: z.array(self).min(1) }),
    z.strictObject({ or: z.array(self).min(1) }),
    z.strictObject({ not: self }),
  ]);
}

function on(tables: readonly unknown[]) {
  return z.string().refine((text) => {
    const sides = text.split(" = ");
    const side = qualified(tables).refine((half) => !/[ =]/.test(half));
    const named = new Set(sides.map((half) => half.slice(0, half.indexOf("."))));
    const isOfBoth = named.size === new Set(tables).size;
    return sides.length === 2 && isOfBoth && sides.every((half) => side.safeParse(half).success);
  });
}

const count = z.int().min(0);

function select(tables: readonly unknown[]) {
  const column = bareColumn.or(qualified(tables));
  const joinType = z.enum(["INNER", "LEFT", "RIGHT"]);
  const direction = z.enum(["ASC", "DESC"]);
  return z.strictObject({
    database: name,
    from: name,
    columns: z.array(column.or(z.literal("*"))).min(1),
    where: condition(tables).nullable().optional(),
    join: z.strictObject({ table: name, on: on(tables), join_type: joinType }).optional(),
    order_by: z.strictObject({ column, direction: direction.optional() }).optional(),
    limit: count.optional(),
    offset: count.optional(),
  });
}

const isRow = (value: unknown) =>
  typeof value === "object" &&
  value !== null &&
  !Array.isArray(value) &&
  Object.keys(value).every(isColumn);
const row = z.custom<object>(isRow);
const target = { database: name, table: name };
const where = (tables: readonly unknown[]) => condition(tables).nullable();
const definition = z.strictObject({
  name: bareColumn,
  type: z.string().regex(/^[A-Za-z]\w{0,62}(\(\d{1,9}(,\d{1,9})?\))?$/),
  primary_key: z.boolean().optional(),
  unique: z.boolean().optional(),
  nullable: z.boolean().optional(),
});

const schemas: Record<string, (tables: readonly unknown[]) => z.ZodType> = {
  Select: select,
  Insert: () => z.strictObject({ ...target, values: z.array(row).min(1) }),
  Update: (tables) =>
    z.strictObject({
      ...target,
      set: row.refine((set) => Object.keys(set).length > 0),
      where: where(tables),
    }),
  Delete: (tables) => z.strictObject({ ...target, where: where(tables) }),
  CreateTable: () =>
    z.strictObject({
      ...target,
      columns: z
        .array(definition)
        .min(1)
        .refine((all) => new Set(all.map((column) => column.name)).size === all.length),
    }),
  DropTable: () => z.strictObject(target),
  CreateDatabase: () => z.strictObject({ database: name }),
  DropDatabase: () => z.strictObject({ database: name }),
};

/** The rights by the contract's own words, so that a wrong one in the grammar's table is found. */
const permissions = new Map([
  ["Select", "SELECT"],
  ["Insert", "INSERT"],
  ["Update", "UPDATE"],
  ["Delete", "DELETE"],
  ["CreateTable", "CREATE"],
  ["DropTable", "DROP"],
  ["CreateDatabase", "CREATE DATABASE"],
  ["DropDatabase", "DROP DATABASE"],
]);

const named = z.object({
  database: z.unknown(),
  from: z.unknown().optional(),
  table: z.unknown().optional(),
  join: z.object({ table: z.unknown() }).optional().catch(undefined),
});

function accessOf(body: unknown) {
  const entries = Object.entries(z.record(z.string(), z.unknown()).parse(body));
  const [operation, inner] = entries[0] ?? ["", undefined];
  if (entries.length !== 1 || !Object.hasOwn(schemas, operation)) throw new Error("no operation");
  const { database, from, table, join } = named.parse(inner);
  const tables = [from ?? table, join?.table].filter((found) => found !== undefined);
  schemas[operation]?.(tables).parse(inner);
  return { operation, permission: permissions.get(operation), database, tables };
}

const element = z.record(z.string(), z.unknown()).refine((body) => {
  return !("CreateDatabase" in body) && !("DropDatabase" in body);
});
const batch = z.strictObject({ Batch: z.array(element).min(1).max(1000) });

/** The accesses that a parsed body asks for; undefined if it is not of the grammar. */
export function referenceAccesses(body: unknown): object[] | undefined {
  try {
    const parsed = batch.safeParse(body);
    return parsed.success ? parsed.data.Batch.map(accessOf) : [accessOf(body)];
  } catch {
    return undefined;
  }
}

/**
 * Parses a body for `referenceAccesses`. A key `__proto__` becomes another column name that is no
 * field either, since the library that judges the shape overlooks it.
 */
export function parseForReference(text: string): unknown {
  return JSON.parse(text, (_, value: unknown) => {
    if (typeof value !== "object" || value === null) return value;
    if (!Object.hasOwn(value, "__proto__")) return value;
    const entries: [string, unknown][] = Object.entries(value);
    return Object.fromEntries(
      entries.map(([key, member]) => [key === "__proto__" ? "__proto__ " : key, member]),
    );
  });
}
