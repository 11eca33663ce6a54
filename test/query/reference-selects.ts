/** Selects of the full grammar once more, plainly: with `include`, nested `from` and conditions. */
import { isColumn } from "./reference.ts";

type Fields = Readonly<Record<string, unknown>>;

class Refused extends Error {}

function must(isMet: boolean): asserts isMet {
  if (!isMet) throw new Refused();
}

function isObject(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function fieldsOf(value: unknown, required: string, optional = ""): Fields {
  must(isObject(value));
  const needed = required.split(" ");
  const allowed = [...needed, ...optional.split(" ")];
  must(Object.keys(value).every((key) => allowed.includes(key)));
  must(needed.every((key) => key in value));
  return value;
}

function listOf(value: unknown, most = Number.POSITIVE_INFINITY): readonly unknown[] {
  must(Array.isArray(value) && value.length > 0 && value.length <= most);
  return value;
}

function oneOrMany(value: unknown, most: number): readonly unknown[] {
  return Array.isArray(value) ? listOf(value, most) : [value];
}

function text(value: unknown, isGood: (text: string) => boolean): string {
  must(typeof value === "string" && isGood(value));
  return value;
}

const plainName = (value: unknown) => text(value, (one) => /^[\w-]{1,63}$/.test(one));
const newColumn = (value: unknown) => text(value, isColumn);
const fold = (name: string) => name.toLowerCase();
const bare = (name: string) => name.slice(name.indexOf(".") + 1);

function count(value: unknown): number {
  must(typeof value === "number" && Number.isSafeInteger(value) && value >= 0);
  return value;
}

function flag(value: unknown): boolean {
  must(typeof value === "boolean");
  return value;
}

function literal(value: unknown): void {
  must(value === null || ["string", "number", "boolean"].includes(typeof value));
}

function allDiffer(names: readonly string[]): void {
  must(new Set(names.map(fold)).size === names.length);
}

/** The sums over a whole operation. */
interface Whole {
  readonly tables: string[];
  nested: number;
  includes: number;
}

/** The names by which columns may be qualified, and those that an `exists` within may not take. */
interface Scope {
  readonly names: readonly string[];
  readonly taken: readonly string[];
  readonly level: number;
}

function column(value: unknown, { names }: Scope, ...more: string[]): string {
  return text(value, (one) => {
    const [first = "", second, ...rest] = one.split(".");
    if (more.includes(one)) return true;
    if (second === undefined) return isColumn(first);
    return rest.length === 0 && names.includes(first) && isColumn(second);
  });
}

/** The two names in `on`. */
function tablesIn(value: unknown, names: readonly string[]): readonly string[] {
  const sides = text(value, (one) => one.split(" = ").length === 2).split(" = ");
  for (const side of sides) {
    must(!/[ =]/.test(side) && side.includes("."));
    column(side, { names, taken: [], level: 0 });
  }
  return sides.map((side) => side.split(".")[0] ?? "");
}

function condition(value: unknown, scope: Scope, whole: Whole, isHaving = false): string[] {
  must(isObject(value));
  const [key = ""] = ["and", "or", "not", "exists"].filter((one) => one in value);
  if (key !== "") fieldsOf(value, key);
  if (key === "not") return condition(value.not, scope, whole, isHaving);
  if (key === "exists") {
    must(!isHaving);
    exists(value.exists, scope, whole);
    return [];
  }
  if (key !== "") {
    return listOf(value[key]).flatMap((one) => condition(one, scope, whole, isHaving));
  }
  const kind = ["value", "other", "select"].find((one) => one in value) ?? "value";
  const { column: name, cmp, ...beside } = fieldsOf(value, `column cmp ${kind}`);
  const names = [column(name, scope)];
  const isOrdering = ["=", "!=", ">", "<", ">=", "<="].includes(String(cmp));
  if (kind === "select") {
    must(cmp === "IN" || cmp === "NOT IN");
    select(beside.select, "condition", nest(scope, whole), whole);
  } else if (kind === "other") {
    must(isOrdering);
    names.push(column(beside.other, scope));
  } else {
    const { value: cell } = beside;
    const isList = Array.isArray(cell);
    if (cmp === "LIKE" || cmp === "ILIKE") must(typeof cell === "string");
    else if (cmp === "IN") must(isList);
    else if (cmp === "NOT IN") must(isList && !cell.includes(null));
    else if (cmp === "BETWEEN") must(isList && cell.length === 2);
    else must(isOrdering);
  }
  return names;
}

/** One level further, where no name of this one may be used. */
function nest({ level }: Scope, whole: Whole): Scope {
  whole.nested++;
  must(whole.nested <= 16 && level < 6);
  return { names: [], taken: [], level: level + 1 };
}

function exists(value: unknown, outer: Scope, whole: Whole): void {
  const { table, on, where } = fieldsOf(value, "table on", "where");
  const own = plainName(table);
  const { level } = nest(outer, whole);
  whole.tables.push(own);
  must(!outer.taken.map(fold).includes(fold(own)));
  link(on, own, outer.names);
  if (where === undefined || where === null) return;
  condition(where, { names: [own], taken: [...outer.taken, own], level }, whole);
}

/** `on` equates a column of the own table with one of the level around it. */
function link(on: unknown, own: string, around: readonly string[]): void {
  const sides = tablesIn(on, [own, ...around]);
  must(sides.includes(own) && sides.some((side) => around.includes(side)));
}

/** A member, whatever its name, or an element. */
function pathStep(value: unknown): void {
  if (typeof value !== "string") count(value);
}

const mostItems: Readonly<Record<string, readonly [number, number]>> = {
  add: [2, 8],
  concat: [2, 8],
  sub: [2, 2],
  abs: [1, 1],
  lower: [1, 1],
  json: [1, 1],
};

/** Returns the names. */
function compute(value: unknown, scope: Scope, whole: Whole): string[] {
  const names: string[] = [];
  const item = (one: unknown) => {
    if (isObject(one)) literal(fieldsOf(one, "value").value);
    else column(one, scope, ...names);
  };
  for (const one of listOf(value, 32)) {
    must(isObject(one));
    if (one.fn === "if") {
      fieldsOf(one, "as fn when then else");
      condition(one.when, scope, whole);
      for (const branch of [one.then, one.else]) item(branch);
    } else {
      const [least, most] = mostItems[String(one.fn)] ?? [1, 0];
      const { of, path } = fieldsOf(one, one.fn === "json" ? "as fn of path" : "as fn of");
      const items = listOf(of);
      if (one.fn === "json") listOf(path, 8).forEach(pathStep);
      must(typeof one.fn === "string" && items.length >= least && items.length <= most);
      items.forEach(item);
    }
    names.push(newColumn(one.as));
  }
  allDiffer(names);
  return names;
}

/** Returns the columns. */
function orders(value: unknown, scope: Scope): string[] {
  return oneOrMany(value, 8).map((one) => {
    const { column: name, direction = "ASC" } = fieldsOf(one, "column", "direction");
    must(direction === "ASC" || direction === "DESC");
    return column(name, scope);
  });
}

/** The name of the source of rows. */
function source(value: unknown, scope: Scope, whole: Whole, depth: number): string {
  if (!isObject(value)) {
    const table = plainName(value);
    whole.tables.push(table);
    return table;
  }
  if (!("select" in value)) {
    const { table, as } = fieldsOf(value, "table as");
    whole.tables.push(plainName(table));
    return plainName(as);
  }
  const { select: inner, as } = fieldsOf(value, "select as");
  must(depth < 3);
  select(inner, "from", nest(scope, whole), whole, depth + 1);
  return plainName(as);
}

/** Returns the names of the tables, the own one first. */
function join(value: unknown, from: string, whole: Whole): readonly string[] {
  const joins = value === undefined ? [] : oneOrMany(value, 4);
  const all = joins.map((one) => fieldsOf(one, "table on join_type", "as"));
  for (const { table } of all) whole.tables.push(plainName(table));
  const names = [from, ...all.map(({ table, as }) => plainName(as ?? table))];
  for (const [index, { on, join_type: type }] of all.entries()) {
    must(["INNER", "LEFT", "RIGHT"].includes(String(type)) && typeof type === "string");
    const sides = tablesIn(on, names);
    if (all.length === 1) continue;
    const before = names.slice(0, index + 1);
    must(sides.includes(names[index + 1] ?? "") && sides.some((side) => before.includes(side)));
  }
  return names;
}

function aggregates(value: unknown, scope: Scope): string[] {
  return listOf(value, 64).map((one) => {
    const { fn, column: name, distinct, as } = fieldsOf(one, "fn as", "column distinct");
    must(typeof fn === "string" && ["count", "sum", "min", "max", "avg"].includes(fn));
    if (name === undefined) must(fn === "count" && distinct === undefined);
    else column(name, scope);
    if (distinct !== undefined) must(flag(distinct) !== undefined && fn === "count");
    return newColumn(as);
  });
}

const shared =
  "columns compute where join group_by aggregate having distinct order_by limit offset";

/** @param place what the Select is: the operation, a `from` or a member of a condition */
function select(
  value: unknown,
  place: "operation" | "from" | "condition",
  around: Scope,
  whole: Whole,
  depth = 1,
): void {
  const isWhole = place === "operation";
  const fields = isWhole
    ? fieldsOf(value, "database from", `${shared} after include`)
    : fieldsOf(value, "from", shared);
  if (isWhole) plainName(fields.database);
  const from = source(fields.from, around, whole, depth);
  const names = join(fields.join, from, whole);
  const isRenamed = isObject(fields.from) || oneOrMany(fields.join, 4).some(hasAlias);
  if (isRenamed) allDiffer(names);
  const scope: Scope = { names, taken: names, level: around.level };
  const computed = fields.compute === undefined ? [] : compute(fields.compute, scope, whole);
  if (fields.where !== undefined && fields.where !== null) condition(fields.where, scope, whole);
  const ordered = fields.order_by === undefined ? [] : orders(fields.order_by, scope);
  for (const cut of [fields.limit, fields.offset]) if (cut !== undefined) count(cut);
  const isDistinct = fields.distinct !== undefined && flag(fields.distinct);
  if (fields.after !== undefined) {
    const last = listOf(fields.after, 8);
    last.forEach(literal);
    must(last.length === ordered.length && fields.offset === undefined && !isDistinct);
    must(fields.aggregate === undefined && ordered.every((one) => !computed.includes(one)));
  }
  const columns =
    fields.columns === undefined
      ? undefined
      : listOf(fields.columns, place === "condition" ? 1 : undefined).map((one) =>
          place !== "condition" && one === "*" ? "*" : column(one, scope),
        );
  if (fields.aggregate === undefined) {
    must(columns !== undefined && !("group_by" in fields) && !("having" in fields));
    if (fields.include !== undefined) {
      must(!isDistinct);
      const limit = fields.limit === undefined ? 1 : count(fields.limit);
      includes(fields.include, { scope, columns, computed, depth: 1, rows: limit }, whole);
    }
    return;
  }
  must(fields.include === undefined);
  const groups =
    fields.group_by === undefined
      ? []
      : listOf(fields.group_by, 64).map((one) => column(one, scope));
  const aliases = aggregates(fields.aggregate, scope);
  if (columns !== undefined) must(JSON.stringify(columns) === JSON.stringify(groups));
  allDiffer([...computed, ...aliases]);
  for (const name of groups) must(!aliases.map(fold).includes(fold(bare(name))));
  const { having } = fields;
  const used = having === undefined || having === null ? [] : condition(having, scope, whole, true);
  must([...used, ...ordered].every((one) => groups.includes(one) || aliases.includes(one)));
  if (place === "condition") must((groups.length === 0 ? aliases : groups).length === 1);
}

function hasAlias(value: unknown): boolean {
  return isObject(value) && "as" in value;
}

/** The level to whose rows an `include` adds members. */
interface Parent {
  readonly scope: Scope;
  readonly columns: readonly string[];
  readonly computed: readonly string[];
  readonly depth: number;
  /** The rows that limits allow, for each row of the answer if that has no limit. */
  readonly rows: number;
}

function includes(value: unknown, parent: Parent, whole: Whole): void {
  const { scope, columns, computed, depth, rows } = parent;
  must(depth <= 3);
  const all = listOf(value).map((one) =>
    fieldsOf(one, "as table on columns", "where compute order_by limit one include"),
  );
  const members = all.flatMap(({ as }) => [plainName(as), `${plainName(as)}_more`]);
  allDiffer(members);
  const taken = [...columns.flatMap((name) => [name, bare(name)]), ...computed].map(fold);
  must(members.every((name) => !taken.includes(fold(name))));
  for (const one of all) {
    whole.includes++;
    must(whole.includes <= 8);
    const table = plainName(one.table);
    whole.tables.push(table);
    must(!scope.names.map(fold).includes(fold(table)));
    link(one.on, table, scope.names);
    const own: Scope = { names: [table], taken: [table], level: scope.level };
    const names = one.compute === undefined ? [] : compute(one.compute, own, whole);
    if (one.where !== undefined && one.where !== null) condition(one.where, own, whole);
    if (one.order_by !== undefined) orders(one.order_by, own);
    const selected = listOf(one.columns).map((name) => (name === "*" ? "*" : column(name, own)));
    const isOne = one.one !== undefined && flag(one.one);
    must(!isOne || one.limit === undefined);
    const limit = isOne ? 1 : one.limit === undefined ? 100 : count(one.limit);
    must(rows * limit <= 1_000_000);
    if (one.include === undefined) continue;
    const inner = { columns: selected, computed: names, depth: depth + 1, rows: rows * limit };
    includes(one.include, { scope: own, ...inner }, whole);
  }
}

/** The tables of a Select in any order; undefined if it is not in the full grammar. */
export function tablesOfSelect(body: unknown): string[] | undefined {
  const whole: Whole = { tables: [], nested: 0, includes: 0 };
  try {
    const { Select } = fieldsOf(body, "Select");
    select(Select, "operation", { names: [], taken: [], level: 1 }, whole);
    return whole.tables.sort();
  } catch (error) {
    if (error instanceof Refused) return undefined;
    throw error;
  }
}
