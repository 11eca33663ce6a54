/** How a model goes on behind a page of rows. */
import { z } from "zod";
import type { Level } from "../../query/kind.ts";
import { countIn } from "./call-arguments.ts";

/** The arguments of a select that say where its pages end. */
export const pageNames = [
  "limit",
  "offset",
  "after",
  "order_by",
  "columns",
  "distinct",
  "aggregate",
];

/** What a result says beside the rows that it shows, where there are more. */
export type GoOn = (shown: readonly Buffer[]) => Promise<Readonly<Record<string, unknown>>>;

const order = z.object({ column: z.string() });
const orders = z.union([order.transform((only) => [only]), z.array(order)]);
const columnNames = z.array(z.string());
const literals = z.array(z.union([z.string(), z.number(), z.boolean(), z.null()]));

/** Digits up to which a double gives a number back as it was written. */
const KEPT_DIGITS = 15;

/** A number that is not the same once a JSON reader has read and written it is none to go on by. */
function keptNumber(_key: string, value: unknown, context?: { readonly source?: string }): unknown {
  const { source = "" } = context ?? {};
  if (typeof value !== "number" || String(value) === source) return value;
  const digits = source.replace(/[eE].*$|[-.]/g, "").replace(/^0+/, "");
  return digits.length <= KEPT_DIGITS ? value : {};
}

function bare(name: string): string {
  return name.slice(name.indexOf(".") + 1);
}

/** True if a column of the answer is the one that is ordered by. */
function isOf(selected: string, ordered: string): boolean {
  if (selected === "*" || selected === ordered) return true;
  const areOfTables = selected.includes(".") && ordered.includes(".");
  return !areOfTables && bare(selected) === bare(ordered);
}

function parsed(value: Buffer | undefined): unknown {
  return value === undefined ? undefined : JSON.parse(value.toString("utf8"));
}

/** The columns that rows are ordered by, if every row of the answer has them. */
function orderedBy(found: ReadonlyMap<string, Buffer>): readonly string[] | undefined {
  const isOfRows = !found.has("aggregate") && found.get("distinct")?.toString() !== "true";
  const order = orders.safeParse(parsed(found.get("order_by")));
  const columns = columnNames.safeParse(parsed(found.get("columns")));
  if (!isOfRows || !order.success || !columns.success) return undefined;
  const names = order.data.map(({ column }) => column);
  const isThere = (name: string) => columns.data.some((column) => isOf(column, name));
  return names.every(isThere) && new Set(names).size === names.length ? names : undefined;
}

/** The values of the row by which the next page goes on behind it. */
function cursorAt(row: Buffer, names: readonly string[]): unknown[] | undefined {
  const read: unknown = JSON.parse(row.toString("utf8"), keptNumber);
  const values = new Map(Object.entries(typeof read === "object" && read !== null ? read : {}));
  const cursor = names.map((name) =>
    values.has(name) ? values.get(name) : values.get(bare(name)),
  );
  return literals.safeParse(cursor).success ? cursor : undefined;
}

/**
 * Goes on behind the rows that are shown: by the values of `order_by` in the last one, and by an
 * offset where the call itself did not go on by such values.
 *
 * @param found the `pageNames` among the arguments of a select that was carried out
 * @param isUnique whether no two rows are equal in these columns; asked once, for the first page
 */
export function goOnBehind(
  found: ReadonlyMap<string, Buffer>,
  level: Level,
  isUnique: (order: readonly string[]) => Promise<boolean>,
): GoOn {
  const names = level === "full" ? orderedBy(found) : undefined;
  let isTaken: Promise<boolean> | undefined;
  return async (shown) => {
    const last = shown.at(-1);
    let after = names === undefined || last === undefined ? undefined : cursorAt(last, names);
    if (names !== undefined && after !== undefined) {
      isTaken ??= found.has("after") ? Promise.resolve(true) : isUnique(names);
      if (!(await isTaken)) after = undefined;
    }
    const offset = countIn(found.get("offset")) ?? 0;
    return {
      ...(after === undefined ? {} : { next_after: after }),
      ...(found.has("after") ? {} : { next_offset: offset + shown.length }),
    };
  };
}
