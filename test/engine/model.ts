/** Selects as relational algebra over rows in memory, the expected result of every database. */

export type Cell = string | number | bigint | boolean | Decimal | Json | null;

/** An exact number, `digits` times 10 to the power of minus `places`, without zeros at the end. */
export class Decimal {
  readonly digits: bigint;
  readonly places: number;

  constructor(digits: bigint, places: number) {
    let [left, kept] = [digits, places];
    for (; kept > 0 && left % 10n === 0n; kept--) left /= 10n;
    this.digits = left;
    this.places = kept;
  }

  toString(): string {
    const digits = String(this.digits < 0n ? -this.digits : this.digits);
    const padded = digits.padStart(this.places + 1, "0");
    const point = padded.length - this.places;
    const fraction = this.places === 0 ? "" : `.${padded.slice(point)}`;
    return `${this.digits < 0n ? "-" : ""}${padded.slice(0, point)}${fraction}`;
  }
}

/** A JSON value by its text without white space, since databases keep the order of members. */
export class Json {
  readonly text: string;

  constructor(value: unknown) {
    this.text = JSON.stringify(value);
  }

  toString(): string {
    return this.text;
  }
}
export type ModelRow = Readonly<Record<string, Cell>>;
/** A row with the members that `include` adds. */
type ModelAnswer = {
  readonly [name: string]: Cell | true | ModelAnswer | readonly ModelAnswer[];
};

export type Where =
  | { column: string; cmp: string; value: unknown; escape?: string; fold?: "unicode" }
  | { column: string; cmp: string; other: string }
  | { column: string; cmp: string; select: ModelQuery }
  | { exists: { table: string; on: string; where?: Where | undefined } }
  | { and: Where[] }
  | { or: Where[] }
  | { not: Where };

type ModelItem = string | { value: Cell };

export interface ModelName {
  readonly as: string;
  readonly fn: string;
  readonly of?: readonly ModelItem[];
  readonly unit?: string;
  readonly digits?: number;
  readonly path?: readonly (string | number)[];
  readonly when?: Where;
  readonly then?: ModelItem;
  readonly else?: ModelItem;
}

export interface ModelSelect {
  readonly compute?: readonly ModelName[] | undefined;
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
  readonly include?: readonly ModelInclude[] | undefined;
}

export type ModelSource =
  | string
  | { readonly table: string; readonly as: string }
  | { readonly select: ModelQuery; readonly as: string };

interface ModelJoin {
  readonly table: string;
  readonly as?: string;
  readonly on: string;
  readonly join_type: string;
}

/** With `join`, columns are named with their tables. */
export type ModelQuery = ModelSelect & { readonly from: ModelSource; readonly join?: ModelJoin };

export interface ModelInclude extends Omit<ModelSelect, "columns"> {
  readonly as: string;
  readonly table: string;
  readonly on: string;
  readonly columns: string[];
  readonly one?: boolean;
}

/** Null is the smallest value; text is ordered by bytes. */
function compare(one: Cell, other: Cell): number {
  if (one === null || other === null) return Number(one !== null) - Number(other !== null);
  if (one instanceof Json || other instanceof Json) return compare(String(one), String(other));
  if (typeof one === "string" && typeof other === "string") {
    return Buffer.compare(Buffer.from(one), Buffer.from(other));
  }
  if (one instanceof Decimal || other instanceof Decimal) {
    const { digits } = sumOf(exactly(one), exactly(other), -1n);
    return compare(digits, 0n);
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
    return linked(table, on, row, tables).some(
      (found) => condition === undefined || holds(condition, found, tables) === true,
    );
  }
  const cell = row[where.column] ?? null;
  if ("select" in where) {
    const { select } = where;
    const [name = ""] = select.columns ?? select.group_by ?? [select.aggregate?.[0]?.as ?? ""];
    const values = rowsOf(select, tables)
      .map((found) => found[name] ?? null)
      .filter((found) => found !== null);
    if (cell === null && values.length > 0) return undefined;
    const isMember = values.some((found) => beside(cell, "=", found) === true);
    return isMember === (where.cmp === "IN");
  }
  if ("value" in where) return compares(cell, where);
  return beside(cell, where.cmp, row[where.other] ?? null);
}

function bare(name: string): string {
  return name.slice(name.indexOf(".") + 1);
}

/** The rows of a table that `on` links to a row. */
function linked(table: string, on: string, row: ModelRow, tables: ModelTables): ModelRow[] {
  const [one = "", other = ""] = on.split(" = ");
  const [inner, outer] = one.startsWith(`${table}.`) ? [one, other] : [other, one];
  const cellOf = (side: string, of: ModelRow) => of[side] ?? of[bare(side)] ?? null;
  return (tables[table] ?? []).filter(
    (found) => beside(cellOf(inner, found), "=", cellOf(outer, row)) === true,
  );
}

function beside(cell: Cell, cmp: string, other: Cell): boolean | undefined {
  if (cell === null || other === null) return undefined;
  // Beside a double, a whole number is a double.
  const isDouble = typeof cell === "number" || typeof other === "number";
  // A date is midnight beside a date with a time.
  const isMixed = isDay(cell) !== isDay(other) && typeof cell === "string";
  const toNumber = isMixed ? (side: Cell) => Date.parse(String(side)) : Number;
  const sides =
    isMixed || (isDouble && typeof cell !== "string")
      ? [toNumber(cell), toNumber(other)]
      : [cell, other];
  const [one = null, value = null] = sides;
  return compares(one, { cmp, value });
}

function isDay(cell: Cell): boolean {
  return typeof cell === "string" && /^\d{4}-\d\d-\d\d$/.test(cell);
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
  if (fn === "count") return BigInt(distinct ? new Set(cells.map(String)).size : cells.length);
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

/** Thrown where the answer is `number_out_of_range`. */
export class OutOfRange extends Error {}

function within64Bits(whole: bigint): bigint {
  if (BigInt.asIntN(64, whole) !== whole) throw new OutOfRange();
  return whole;
}

/** A double by its shortest digits. */
function exactly(cell: Cell): Decimal {
  if (cell instanceof Decimal) return cell;
  const [, whole = "0", fraction = "", exponent = "0"] =
    /^(-?\d+)\.?(\d*)(?:e([+-]\d+))?$/.exec(String(cell)) ?? [];
  const places = fraction.length - Number(exponent);
  const digits = BigInt(whole + fraction);
  return new Decimal(digits * 10n ** BigInt(Math.max(-places, 0)), Math.max(places, 0));
}

function sumOf(one: Decimal, other: Decimal, sign: bigint): Decimal {
  const places = Math.max(one.places, other.places);
  const scaled = (value: Decimal) => value.digits * 10n ** BigInt(places - value.places);
  return new Decimal(scaled(one) + sign * scaled(other), places);
}

/** Of a fraction with so many places, halves away from zero. */
function quotient(above: bigint, below: bigint, places: number): Decimal {
  const magnitude = (value: bigint) => (value < 0n ? -value : value);
  const [dividend, divisor] = [magnitude(above) * 10n ** BigInt(places), magnitude(below)];
  const nearest = (2n * dividend + divisor) / (2n * divisor);
  return new Decimal(above < 0n === below < 0n ? nearest : -nearest, places);
}

function rounded({ digits, places }: Decimal, most: number): Decimal {
  return quotient(digits, 10n ** BigInt(places), most);
}

function calculate(fn: string, one: Cell, other: Cell): Cell {
  if (typeof one === "number" || typeof other === "number") {
    const [left, right] = [Number(one), Number(other)];
    if (fn === "div") return right === 0 ? null : left / right;
    return fn === "add" ? left + right : fn === "sub" ? left - right : left * right;
  }
  const [left, right] = [exactly(one), exactly(other)];
  if (fn === "div") {
    if (right.digits === 0n) return null;
    const scale = (places: number) => 10n ** BigInt(places);
    return quotient(left.digits * scale(right.places), right.digits * scale(left.places), 12);
  }
  const total =
    fn === "mul"
      ? new Decimal(left.digits * right.digits, left.places + right.places)
      : sumOf(left, right, fn === "add" ? 1n : -1n);
  const isWhole = typeof one === "bigint" && typeof other === "bigint";
  return isWhole ? within64Bits(total.digits) : total;
}

function monday(date: Date): Date {
  return new Date(date.getTime() - ((date.getUTCDay() + 6) % 7) * 86_400_000);
}

function partOf(moment: string, unit: string): bigint {
  const [day = "", clock = "00:00"] = moment.split("T");
  if (unit === "hour") return BigInt(clock.slice(0, 2));
  if (unit === "minute") return BigInt(clock.slice(3, 5));
  const [year = 0, month = 0, date = 0] = day.split("-").map(Number);
  const at = new Date(`${day}T00:00:00Z`);
  const thursday = new Date(monday(at).getTime() + 3 * 86_400_000);
  const first = Date.parse(`${thursday.toISOString().slice(0, 4)}-01-01`);
  const ordinal = (thursday.getTime() - first) / 86_400_000;
  const parts: Record<string, number> = { year, month, day: date };
  parts.quarter = Math.ceil(month / 3);
  parts.weekday = at.getUTCDay() === 0 ? 7 : at.getUTCDay();
  parts.week = Math.floor(ordinal / 7) + 1;
  return BigInt(parts[unit] ?? 0);
}

function dayStart(day: string, unit: string): string {
  const [year = "", month = ""] = day.split("-");
  if (unit === "year") return `${year}-01-01`;
  if (unit === "month") return `${year}-${month}-01`;
  if (unit === "quarter") {
    return `${year}-${String(Number(month) - ((Number(month) - 1) % 3)).padStart(2, "0")}-01`;
  }
  return unit === "week"
    ? monday(new Date(`${day}T00:00:00Z`))
        .toISOString()
        .slice(0, 10)
    : day;
}

function startOf(moment: string, unit: string): string {
  const [day = "", clock] = moment.split("T");
  if (clock === undefined) return dayStart(day, unit);
  if (unit === "hour") return `${day}T${clock.slice(0, 2)}:00:00Z`;
  return unit === "minute" ? `${day}T${clock.slice(0, 5)}:00Z` : `${dayStart(day, unit)}T00:00:00Z`;
}

/** The value at the path, if it is there and not null. */
function jsonAt(document: string, path: readonly (string | number)[]): Json | null {
  let found: unknown = JSON.parse(document);
  for (const step of path) {
    const fits = Array.isArray(found) === (typeof step === "number");
    if (!fits || typeof found !== "object" || found === null) return null;
    found = Object.getOwnPropertyDescriptor(found, step)?.value ?? null;
  }
  return found === null ? null : new Json(found);
}

const secondsIn: Record<string, bigint> = { day: 86400n, hour: 3600n, minute: 60n, second: 1n };

function computedCell(name: ModelName, row: ModelRow, tables: ModelTables): Cell {
  const { fn, of = [], unit = "day", digits = 0, path = [] } = name;
  const cellOf = (item: ModelItem | undefined): Cell =>
    typeof item === "string" ? (row[item] ?? null) : (item?.value ?? null);
  if (fn === "if") {
    const isMet = name.when !== undefined && holds(name.when, row, tables) === true;
    return cellOf(isMet ? name.then : name.else);
  }
  const cells = of.map(cellOf);
  const [one = null, other = null] = cells;
  if (fn === "coalesce") return cells.find((cell) => cell !== null) ?? null;
  if (fn === "concat") return cells.map((cell) => cell ?? "").join("");
  if (fn === "nullif") {
    return one !== null && other !== null && compare(one, other) === 0 ? null : one;
  }
  if (cells.includes(null)) return null;
  switch (fn) {
    case "add":
    case "sub":
    case "mul":
    case "div":
      return cells.slice(1).reduce<Cell>((total, cell) => calculate(fn, total, cell), one);
    case "round":
      if (typeof one === "bigint") return one;
      return typeof one === "number"
        ? Number(rounded(exactly(one), digits))
        : rounded(exactly(one), digits);
    case "abs":
      if (typeof one === "bigint") return within64Bits(one < 0n ? -one : one);
      if (one instanceof Decimal) return compare(one, 0n) < 0 ? calculate("sub", 0n, one) : one;
      return Math.abs(Number(one));
    case "lower":
      return String(one).toLowerCase();
    case "upper":
      return Array.from(String(one), (letter) =>
        letter === "ß" ? letter : letter.toUpperCase(),
      ).join("");
    case "trim":
      return String(one).replace(/^ +| +$/g, "");
    case "length":
      return BigInt([...String(one)].length);
    case "trunc":
      return startOf(String(one), unit);
    case "part":
      return partOf(String(one), unit);
    case "json":
      return jsonAt(String(one), path);
    default: {
      const length = Date.parse(String(one)) - Date.parse(String(other));
      return quotient(BigInt(length), 1000n * (secondsIn[unit] ?? 1n), 12);
    }
  }
}

function withNames(row: ModelRow, names: readonly ModelName[], tables: ModelTables): ModelRow {
  const known: Record<string, Cell> = { ...row };
  for (const name of names) known[name.as] = computedCell(name, known, tables);
  return known;
}

function read(from: ModelSource, tables: ModelTables): readonly ModelRow[] {
  if (typeof from === "string") return tables[from] ?? [];
  return "table" in from ? (tables[from.table] ?? []) : rowsOf(from.select, tables);
}

function sourceOf({ from, join }: ModelQuery, tables: ModelTables): readonly ModelRow[] {
  const rows = read(from, tables);
  if (join === undefined) return rows;
  const { table, as = table, on, join_type: type } = join;
  const named = (name: string, row: ModelRow): ModelRow =>
    Object.fromEntries(Object.entries(row).map(([column, cell]) => [`${name}.${column}`, cell]));
  const left = rows.map((row) => named(typeof from === "string" ? from : from.as, row));
  const right = read(table, tables).map((row) => named(as, row));
  const [one = "", other = ""] = on.split(" = ");
  const isPair = (first: ModelRow, second: ModelRow) => {
    const row = { ...first, ...second };
    return beside(row[one] ?? null, "=", row[other] ?? null) === true;
  };
  const lonely = (some: readonly ModelRow[], others: readonly ModelRow[]) =>
    some.filter((row) => !others.some((found) => isPair(row, found)));
  return [
    ...left.flatMap((row) =>
      right.filter((found) => isPair(row, found)).map((found) => ({ ...row, ...found })),
    ),
    ...(type === "LEFT" ? lonely(left, right) : []),
    ...(type === "RIGHT" ? lonely(right, left) : []),
  ];
}

/** The rows of a Select that reads tables or another Select. */
function rowsOf(query: ModelQuery, tables: ModelTables): ModelRow[] {
  return evaluate(sourceOf(query, tables), query, tables);
}

/** As `rowsOf`, with the members that `include` adds. */
export function answersOf(query: ModelQuery, tables: ModelTables): ModelAnswer[] {
  return withMembers(sourceOf(query, tables), query, tables);
}

function withMembers(
  table: readonly ModelRow[],
  query: ModelSelect,
  tables: ModelTables,
): ModelAnswer[] {
  const { include } = query;
  if (include === undefined) return evaluate(table, query, tables);
  return cut(inOrder(table, query, tables), query).map((row) =>
    Object.assign(project(row, table, query), ...include.map((one) => memberOf(one, row, tables))),
  );
}

function memberOf(include: ModelInclude, parent: ModelRow, tables: ModelTables): ModelAnswer {
  const { as, table, on, one = false, limit = one ? 1 : 100, ...query } = include;
  const rows = linked(table, on, parent, tables);
  const answers = withMembers(rows, { ...query, limit: limit + 1 }, tables);
  if (one) return { [as]: answers[0] ?? null };
  const more = answers.length > limit ? { [`${as}_more`]: true as const } : {};
  return { [as]: answers.slice(0, limit), ...more };
}

function starOf([first = {}]: readonly ModelRow[]): string[] {
  return Object.keys(first);
}

/** The selected columns. Their keys have the table's name where two would be equal without. */
function project(row: ModelRow, table: readonly ModelRow[], { columns = [] }: ModelSelect) {
  const names = columns.flatMap((name) => (name === "*" ? starOf(table) : [name]));
  const isSole = (name: string) => names.every((one) => one === name || bare(one) !== bare(name));
  return Object.fromEntries(
    names.map((name) => [isSole(name) ? bare(name) : name, row[name] ?? null]),
  );
}

function cut(rows: readonly ModelRow[], { limit, offset = 0 }: ModelSelect): ModelRow[] {
  return rows.slice(offset, limit === undefined ? undefined : offset + limit);
}

/** @param tables the tables within conditions */
export function evaluate(
  table: readonly ModelRow[],
  query: ModelSelect,
  tables: ModelTables = {},
): ModelRow[] {
  const rows = inOrder(table, query, tables);
  if (query.aggregate !== undefined) return cut(rows, query);
  if (query.distinct !== true) return cut(rows, query).map((row) => project(row, table, query));
  const different = new Map(
    rows.map((row) => project(row, table, query)).map((row) => [rowText(row), row]),
  );
  return cut([...different.values()], query);
}

/** All rows or groups with all their columns. */
function inOrder(table: readonly ModelRow[], query: ModelSelect, tables: ModelTables): ModelRow[] {
  const { where, having, order_by: orders = [], after } = query;
  const order = (one: ModelRow, other: ModelRow): number => {
    for (const { column, direction } of orders) {
      const found = compare(one[column] ?? null, other[column] ?? null);
      if (found !== 0) return direction === "ASC" ? found : -found;
    }
    return 0;
  };
  const named = table.map((row) => withNames(row, query.compute ?? [], tables));
  let rows = named.filter((row) => where === undefined || holds(where, row, tables) === true);
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
  return rows;
}

/** JSON with exact numbers. */
export function rowText(row: ModelAnswer): string {
  const members = Object.entries(row).map(
    ([name, cell]) => `${JSON.stringify(name)}:${text(cell)}`,
  );
  return `{${members.join(",")}}`;
}

function text(cell: ModelAnswer[string]): string {
  if (typeof cell === "bigint" || cell instanceof Decimal || cell instanceof Json) {
    return String(cell);
  }
  if (typeof cell !== "object" || cell === null) return JSON.stringify(cell);
  return isList(cell) ? `[${cell.map(rowText).join(",")}]` : rowText(cell);
}

function isList(cell: ModelAnswer | readonly ModelAnswer[]): cell is readonly ModelAnswer[] {
  return Array.isArray(cell);
}
