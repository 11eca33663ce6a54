/** Selects as relational algebra over rows in memory, the expected result of every database. */

export type Cell = string | number | bigint | null;
export type ModelRow = Readonly<Record<string, Cell>>;

export type Where =
  | { column: string; cmp: string; value: unknown; escape?: string; fold?: "unicode" }
  | { column: string; cmp: string; other: string }
  | { column: string; cmp: string; select: ModelSelect & { from: string } }
  | { exists: { table: string; on: string; where?: Where | undefined } }
  | { and: Where[] }
  | { or: Where[] }
  | { not: Where };

export interface ModelSelect {
  readonly columns?: string[] | undefined;
  readonly where?: Where | undefined;
  readonly group_by?: string[] | undefined;
  readonly aggregate?:
    | { fn: string; column?: string; distinct?: boolean; as: string }[]
    | undefined;
  readonly having?: Where | undefined;
  readonly distinct?: boolean | undefined;
  readonly order_by?: { column: string; direction: "ASC" | "DESC" }[] | undefined;
  readonly after?: Cell[] | undefined;
  readonly limit?: number | undefined;
  readonly offset?: number | undefined;
}

/** Null is the smallest value; text is ordered by bytes. */
function compare(one: Cell, other: Cell): number {
  if (one === null || other === null) return Number(one !== null) - Number(other !== null);
  if (typeof one === "string" && typeof other === "string") {
    return Buffer.compare(Buffer.from(one), Buffer.from(other));
  }
  return one < other ? -1 : Number(one > other);
}

export type ModelTables = Readonly<Record<string, readonly ModelRow[]>>;

/** Three-valued logic: undefined is neither true nor false. */
function holds(where: Where, row: ModelRow, tables: ModelTables): boolean | undefined {
  if ("and" in where) {
    const parts = where.and.map((part) => holds(part, row, tables));
    return parts.includes(false) ? false : parts.includes(undefined) ? undefined : true;
  }
  if ("or" in where) {
    const parts = where.or.map((part) => holds(part, row, tables));
    return parts.includes(true) ? true : parts.includes(undefined) ? undefined : false;
  }
  if ("not" in where) {
    const inner = holds(where.not, row, tables);
    return inner === undefined ? undefined : !inner;
  }
  if ("exists" in where) {
    const { table, on, where: condition } = where.exists;
    const [one = "", other = ""] = on.split(" = ");
    const [inner, outer] = one.startsWith(`${table}.`) ? [one, other] : [other, one];
    const nameOf = (side: string) => side.slice(side.indexOf(".") + 1);
    return (tables[table] ?? []).some(
      (found) =>
        beside(found[nameOf(inner)] ?? null, "=", row[nameOf(outer)] ?? null) === true &&
        (condition === undefined || holds(condition, found, tables) === true),
    );
  }
  const cell = row[where.column] ?? null;
  if ("select" in where) {
    const { from, ...select } = where.select;
    const [name = ""] = select.columns ?? select.group_by ?? [select.aggregate?.[0]?.as ?? ""];
    const values = evaluate(tables[from] ?? [], select, tables)
      .map((found) => found[name] ?? null)
      .filter((found) => found !== null);
    if (cell === null && values.length > 0) return undefined;
    const isMember = values.some((found) => beside(cell, "=", found) === true);
    return isMember === (where.cmp === "IN");
  }
  if ("value" in where) return compares(cell, where);
  return beside(cell, where.cmp, row[where.other] ?? null);
}

function beside(cell: Cell, cmp: string, other: Cell): boolean | undefined {
  if (cell === null || other === null) return undefined;
  // Beside a double, a whole number is a double.
  const isDouble = typeof cell === "number" || typeof other === "number";
  const sides =
    isDouble && typeof cell !== "string" ? [Number(cell), Number(other)] : [cell, other];
  const [one = null, value = null] = sides;
  return compares(one, { cmp, value });
}

interface Compared {
  readonly cmp: string;
  readonly value: unknown;
  readonly escape?: string;
  readonly fold?: "unicode";
}

function compares(cell: Cell, { cmp, value, fold, ...more }: Compared): boolean | undefined {
  const wanted = value as Cell;
  if (cmp === "=" && value === null) return cell === null;
  if (cmp === "!=" && value === null) return cell !== null;
  if (cmp === "NOT IN" && Array.isArray(value) && value.length === 0) return true;
  if (cmp === "IN" && Array.isArray(value)) {
    if (cell === null) return value.includes(null) ? true : undefinedUnlessEmpty(value);
    return value.some((one) => one !== null && compare(cell, one) === 0);
  }
  if (cell === null) return undefined;
  switch (cmp) {
    case "NOT IN":
      return !(value as Cell[]).some((one) => compare(cell, one) === 0);
    case "BETWEEN": {
      const [low = null, high = null] = value as Cell[];
      return compare(cell, low) >= 0 && compare(cell, high) <= 0;
    }
    case "LIKE":
      return like(String(cell), String(value), more.escape, (text) => text);
    case "ILIKE":
      return like(
        String(cell),
        String(value),
        more.escape,
        fold === undefined ? foldAscii : foldAll,
      );
    case "=":
      return compare(cell, wanted) === 0;
    case "!=":
      return compare(cell, wanted) !== 0;
    case ">":
      return compare(cell, wanted) > 0;
    case "<":
      return compare(cell, wanted) < 0;
    case ">=":
      return compare(cell, wanted) >= 0;
    default:
      return compare(cell, wanted) <= 0;
  }
}

function undefinedUnlessEmpty(values: readonly unknown[]): false | undefined {
  return values.length === 0 ? false : undefined;
}

function foldAscii(text: string): string {
  return text.replace(/[A-Z]/g, (letter) => letter.toLowerCase());
}

function foldAll(text: string): string {
  return text.toLowerCase();
}

function like(
  text: string,
  pattern: string,
  literal: string | undefined,
  fold: (text: string) => string,
): boolean {
  const characters = [...pattern];
  let source = "";
  for (let next = characters.shift(); next !== undefined; next = characters.shift()) {
    const escaped = next === literal ? characters.shift() : undefined;
    if (escaped === undefined && next === "%") source += ".*";
    else if (escaped === undefined && next === "_") source += ".";
    else source += fold(escaped ?? next).replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
  }
  return new RegExp(`^${source}$`, "su").test(fold(text));
}

function aggregate(rows: readonly ModelRow[], fn: string, column?: string, distinct = false): Cell {
  if (column === undefined) return BigInt(rows.length);
  const cells = rows.map((row) => row[column] ?? null).filter((cell) => cell !== null);
  if (fn === "count") return BigInt(distinct ? new Set(cells).size : cells.length);
  if (cells.length === 0) return null;
  const sorted = cells.toSorted(compare);
  if (fn === "min") return sorted[0] ?? null;
  if (fn === "max") return sorted.at(-1) ?? null;
  const isWhole = cells.every((cell) => typeof cell === "bigint");
  const sum = isWhole
    ? cells.reduce<bigint>((total, cell) => total + BigInt(cell), 0n)
    : cells.reduce<number>((total, cell) => total + Number(cell), 0);
  return fn === "sum" ? sum : Number(sum) / cells.length;
}

function group(rows: readonly ModelRow[], query: ModelSelect): ModelRow[] {
  const { group_by: names = [], aggregate: wanted = [] } = query;
  const groups = new Map<string, ModelRow[]>();
  if (names.length === 0) groups.set("[]", []);
  for (const row of rows) {
    const key = JSON.stringify(names.map((name) => String(row[name])));
    const known = groups.get(key);
    if (known === undefined) groups.set(key, [row]);
    else known.push(row);
  }
  return Array.from(groups.values(), (members) => {
    const grouped = names.map((name) => [name, members[0]?.[name] ?? null]);
    const computed = wanted.map(({ fn, column, distinct, as }) => [
      as,
      aggregate(members, fn, column, distinct),
    ]);
    return Object.fromEntries([...grouped, ...computed]);
  });
}

/** @param tables the tables within conditions */
export function evaluate(
  table: readonly ModelRow[],
  query: ModelSelect,
  tables: ModelTables = {},
): ModelRow[] {
  const { where, having, order_by: orders = [], after, limit, offset = 0, columns = [] } = query;
  const order = (one: ModelRow, other: ModelRow): number => {
    for (const { column, direction } of orders) {
      const found = compare(one[column] ?? null, other[column] ?? null);
      if (found !== 0) return direction === "ASC" ? found : -found;
    }
    return 0;
  };
  let rows = table.filter((row) => where === undefined || holds(where, row, tables) === true);
  if (query.aggregate !== undefined) {
    rows = group(rows, query).filter(
      (row) => having === undefined || holds(having, row, tables) === true,
    );
  }
  rows = rows.toSorted(order);
  if (after !== undefined) {
    const last = Object.fromEntries(orders.map(({ column }, at) => [column, after[at] ?? null]));
    rows = rows.filter((row) => order(row, last) > 0);
  }
  if (query.aggregate === undefined) {
    rows = rows.map((row) => Object.fromEntries(columns.map((name) => [name, row[name] ?? null])));
  }
  if (query.distinct === true) {
    rows = [...new Map(rows.map((row) => [rowText(row), row])).values()];
  }
  return rows.slice(offset, limit === undefined ? undefined : offset + limit);
}

/** JSON with exact integers. */
export function rowText(row: ModelRow): string {
  const members = Object.entries(row).map(([name, cell]) => {
    const text = typeof cell === "bigint" ? String(cell) : JSON.stringify(cell);
    return `${JSON.stringify(name)}:${text}`;
  });
  return `{${members.join(",")}}`;
}
