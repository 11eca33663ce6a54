/** Arbitrary nested Selects whose answers are determined, over tables that are alike. */
import type { Chooser } from "../query/arbitrary-selects.ts";
import type {
  Cell,
  ModelInclude,
  ModelName,
  ModelQuery,
  ModelRow,
  ModelSelect,
  ModelSource,
  Where,
} from "./model.ts";

/** JSON with exact integers. */
export function exactJson(value: unknown): string {
  return JSON.stringify(value, (_key, cell: unknown) =>
    typeof cell === "bigint" ? JSON.rawJSON(String(cell)) : cell,
  );
}

/** Kinds of values. A small number may be added to others. */
type Kind = "small" | "big" | "double" | "text" | "day";
/** Columns by name, in their order. */
type Columns = Readonly<Record<string, Kind>>;

export const tableTypes = {
  id: "int",
  region: "text",
  label: "varchar(20)",
  qty: "bigint",
  ratio: "double",
  day: "date",
};
const ownColumns: Columns = {
  id: "small",
  region: "text",
  label: "text",
  qty: "big",
  ratio: "double",
  day: "day",
};
export const tableNames: readonly string[] = ["$a", "$b", "$c"];

const literals: Readonly<Record<Kind, readonly Cell[]>> = {
  small: [1n, 2n, 3n, 5n, 8n],
  big: [0n, 1n, -1n, 7n, 2n ** 62n, -(2n ** 62n), 2n ** 53n + 1n],
  // Their sums are exact in any order.
  double: [0.25, -1.5, 2, 3, 0.5],
  text: ["eu", "EU", "é", "É", "", "a%b", "straße"],
  day: ["2026-01-31", "2026-02-01", "1999-12-31"],
};

export function rowsFor(choose: Chooser): ModelRow[] {
  const cell = (kind: Kind) => (choose.isOneIn(5) ? null : choose.one(...literals[kind]));
  return choose
    .some(20, () => cell)
    .map((_, at) => ({
      id: BigInt(at + 1),
      region: cell("text"),
      label: cell("text"),
      qty: cell("big"),
      ratio: cell("double"),
      day: cell("day"),
    }));
}

const isNumber = (kind: Kind) => ["small", "big", "double"].includes(kind);
const isAlike = (one: Kind, other: Kind) => one === other || (isNumber(one) && isNumber(other));

function namesOf(columns: Columns, fits: (kind: Kind) => boolean = () => true): string[] {
  return Object.entries(columns).flatMap(([name, kind]) => (fits(kind) ? [name] : []));
}

/** Where a condition stands: its columns, and the names of the tables whose columns they are. */
interface Place {
  readonly columns: Columns;
  /** Those that `on` may name: not computed ones. */
  readonly own: Columns;
  /** The table's name, which `on` within needs, then those around an `exists`. */
  readonly names: readonly string[];
  readonly depth: number;
}

/** A name of the place and one of its own for each kind that may be compared. */
function pair(choose: Chooser, columns: Columns): readonly [own: string, outer: string] {
  const short = namesOf(columns, (kind) => kind === "text" || kind === "day");
  const all = namesOf(columns);
  const outer = choose.one(...(short.length > 0 && choose.isOneIn(2) ? short : all));
  const kind = columns[outer] ?? "text";
  return [choose.one(...namesOf(ownColumns, (own) => isAlike(own, kind))), outer];
}

function link(choose: Chooser, table: string, { own, names }: Place): string {
  const [inner, outer] = pair(choose, own);
  const sides = [`${table}.${inner}`, outer.includes(".") ? outer : `${names[0]}.${outer}`];
  return (choose.isOneIn(2) ? sides : sides.toReversed()).join(" = ");
}

function like(choose: Chooser, column: string): Where {
  const patterns = ["e_", "%é%", "É", "A!%_", "a\\%b", "stra!SS!e", "STRA_e", "!%", "%!!", "%", ""];
  const pattern = choose.one(...patterns);
  return {
    column,
    value: pattern,
    ...(choose.isOneIn(2) ? { escape: "!" } : {}),
    ...choose.one({ cmp: "LIKE" }, { cmp: "ILIKE" }, { cmp: "ILIKE", fold: "unicode" as const }),
  };
}

function comparison(choose: Chooser, columns: Columns): Where {
  const column = choose.one(...namesOf(columns));
  const kind = columns[column] ?? "text";
  const value = () => choose.one(...literals[kind]);
  const cmp = choose.one("=", "!=", ">", "<", ">=", "<=");
  if (kind === "text" && choose.isOneIn(4)) return like(choose, column);
  switch (choose.bound(7)) {
    case 0:
      return { column, cmp: choose.one("=", "!="), value: null };
    case 1:
      return { column, cmp: choose.one("IN", "NOT IN"), value: choose.some(3, value) };
    case 3:
      return { column, cmp: "BETWEEN", value: [value(), value()] };
    case 4:
      return choose.one(
        { column, cmp: "IN", value: [value(), null] },
        { column, cmp: choose.one("IN", "NOT IN"), value: [] },
      );
    case 2: {
      const others = namesOf(columns, (other) => isAlike(other, kind));
      return { column, cmp, other: choose.one(...others) };
    }
    default:
      return { column, cmp, value: value() };
  }
}

function condition(choose: Chooser, place: Place): Where {
  const deeper = { ...place, depth: place.depth + 1 };
  const inner = () => condition(choose, deeper);
  const kind = place.depth > 2 ? 0 : choose.bound(9);
  if (kind === 5) return { and: choose.some(2, inner) };
  if (kind === 6) return choose.isOneIn(2) ? { not: inner() } : { or: choose.some(2, inner) };
  if (kind === 7) {
    const free = tableNames.filter((name) => !place.names.includes(name));
    if (free.length === 0) return comparison(choose, place.columns);
    const table = choose.one(...free);
    const own = { ...deeper, columns: ownColumns, own: ownColumns, names: [table, ...place.names] };
    const where = choose.isOneIn(2) ? { where: condition(choose, own) } : {};
    return { exists: { table, on: link(choose, table, place), ...where } };
  }
  if (kind < 8) return comparison(choose, place.columns);
  return member(choose, deeper);
}

function member(choose: Chooser, { columns, depth }: Place): Where {
  const column = choose.one(...namesOf(columns));
  const kind = columns[column] ?? "text";
  const cmp = choose.one("IN", "NOT IN");
  const { query, columns: found } = select(choose, depth + 1);
  const picked = namesOf(found, (one) => isAlike(one, kind));
  if (picked.length === 0) return comparison(choose, columns);
  const from = choose.one<ModelSource>(
    "$a",
    { select: query, as: "t" },
    { select: query, as: "t" },
  );
  const chosen = from === "$a" ? pair(choose, { x: kind })[0] : choose.one(...picked);
  return { column, cmp, select: { from, columns: [chosen] } };
}

/** A condition on groups, which cannot contain `exists`. */
function groupCondition(choose: Chooser, place: Place): Where {
  const deeper = { ...place, depth: place.depth + 1 };
  const kind = place.depth > 3 ? 0 : choose.bound(6);
  if (kind < 2) return comparison(choose, place.columns);
  if (kind < 5) return member(choose, deeper);
  const inner = () => groupCondition(choose, deeper);
  return choose.isOneIn(2) ? { not: inner() } : { or: choose.some(2, inner) };
}

/** One or two names, and all columns with them. */
function compute(choose: Chooser, place: Place): { compute: ModelName[]; columns: Columns } {
  const columns: Record<string, Kind> = { ...place.columns };
  const names = choose
    .some(2, () => choose)
    .map((_, at): ModelName => {
      const as = `x${place.depth}${at}`;
      const of = (kind: Kind) => namesOf(columns, (one) => one === kind);
      const note = (kind: Kind, name: Omit<ModelName, "as">): ModelName => {
        columns[as] = kind;
        return { as, ...name };
      };
      const [small, text, double] = [of("small"), of("text"), of("double")];
      const way = choose.bound(5);
      if (way === 0 && small.length > 0) {
        return note("small", { fn: "add", of: [choose.one(...small), { value: 1n }] });
      }
      if (way === 1 && double.length > 0) {
        return note("double", { fn: "abs", of: [choose.one(...double)] });
      }
      if (text.length === 0) {
        return note("text", { fn: "concat", of: [{ value: "a" }, { value: "b" }] });
      }
      const [one, other] = [choose.one(...text), choose.one(...text)];
      if (way === 2) return note("text", { fn: "coalesce", of: [one, { value: "none" }] });
      if (way === 3) return note("text", { fn: "concat", of: [one, other] });
      const when = condition(choose, { ...place, columns: { ...columns }, depth: place.depth + 1 });
      const otherwise = choose.isOneIn(2) ? other : { value: "else" };
      // biome-ignore lint/suspicious/noThenProperty: a field of the grammar
      return note("text", { fn: "if", when, then: one, else: otherwise });
    });
  return { compute: names, columns };
}

/** An order that begins with any column and ends with those that tell rows apart. */
const MOST_IN_ORDER = 8;

function order(choose: Chooser, columns: Columns, last: readonly string[]) {
  const first = choose.isOneIn(2) ? [choose.one(...namesOf(columns))] : [];
  const all = new Set([...first, ...last]);
  return [...(all.size > MOST_IN_ORDER ? last : all)].map((column) => ({
    column,
    direction: choose.one("ASC" as const, "DESC" as const),
  }));
}

function picked(choose: Chooser, columns: Columns): string[] {
  const names = namesOf(columns);
  return [...new Set(choose.some(4, () => choose.one(...names)))];
}

function include(choose: Chooser, parent: Place, level: number, at: number): ModelInclude {
  const table = choose.one(...tableNames.filter((name) => !parent.names.includes(name)));
  const own: Place = { columns: ownColumns, own: ownColumns, names: [table], depth: 1 };
  const computed = choose.isOneIn(3) ? compute(choose, own) : undefined;
  const all: Place = { ...own, columns: computed?.columns ?? ownColumns };
  const inner = level < 3 && choose.isOneIn(2);
  // Without a limit only once, as the limits multiply.
  const limit = level > 1 || choose.isOneIn(2) ? { limit: choose.bound(4) } : {};
  return {
    as: `m${at}`,
    table,
    on: link(choose, table, parent),
    columns: choose.isOneIn(4) ? ["*"] : picked(choose, all.columns),
    ...(computed === undefined ? {} : { compute: computed.compute }),
    ...(choose.isOneIn(3) ? { where: condition(choose, all) } : {}),
    order_by: order(choose, all.columns, ["id"]),
    ...(choose.isOneIn(4) ? { one: true } : limit),
    ...(inner ? { include: includes(choose, all, level + 1) } : {}),
  };
}

function includes(choose: Chooser, parent: Place, level: number): ModelInclude[] {
  return choose
    .some(level === 1 ? 2 : 1, () => level)
    .map((_, at) => include(choose, parent, level, at));
}

const summing: readonly {
  readonly fn: string;
  readonly of: Kind;
  readonly to: Kind;
  readonly distinct?: true;
}[] = [
  { fn: "min", of: "text", to: "text" },
  { fn: "max", of: "text", to: "text" },
  { fn: "max", of: "day", to: "day" },
  { fn: "sum", of: "double", to: "double" },
  { fn: "avg", of: "double", to: "double" },
  { fn: "count", of: "text", to: "small" },
  { fn: "count", of: "big", to: "small", distinct: true },
  { fn: "max", of: "big", to: "big" },
];

function summary(
  choose: Chooser,
  { columns, depth, ...place }: Place,
): { fields: ModelSelect; columns: Columns } {
  const texts = namesOf(columns, (kind) => kind === "text" || kind === "day");
  const groups = texts.length === 0 ? [] : [...new Set(choose.some(2, () => choose.one(...texts)))];
  const found: Record<string, Kind> = {};
  for (const name of groups) found[name] = columns[name] ?? "text";
  const number = `n${depth}`;
  const aggregate = [{ fn: "count", as: number }];
  found[number] = "small";
  for (const { of, to, ...counted } of choose.some(4, () => choose.one(...summing))) {
    const [column] = namesOf(columns, (kind) => kind === of);
    const as = `${counted.fn}${of}${depth}`;
    if (column === undefined || as in found) continue;
    aggregate.push(Object.assign({ as, column }, counted));
    found[as] = to;
  }
  const counts = { column: number, cmp: choose.one(">", "<="), value: choose.bound(3) };
  const having = choose.isOneIn(3)
    ? counts
    : groupCondition(choose, { ...place, columns: found, depth });
  const fields = {
    group_by: groups,
    aggregate,
    ...(choose.isOneIn(4) ? {} : { having }),
    order_by: order(choose, found, Object.keys(found)),
  };
  const { group_by: _, ...ungrouped } = fields;
  return { fields: groups.length === 0 ? ungrouped : fields, columns: found };
}

/** A Select and the columns that it answers. `depth` counts Selects within each other. */
function select(choose: Chooser, depth: number): { query: ModelQuery; columns: Columns } {
  const table = choose.one(...tableNames);
  const inner = depth < 3 && choose.isOneIn(2) ? select(choose, depth + 1) : undefined;
  const as = `d${depth}`;
  const from =
    inner === undefined
      ? choose.one<ModelSource>(table, table, { table, as })
      : { select: inner.query, as };
  const name = typeof from === "string" ? from : from.as;
  const single: Place = {
    columns: inner?.columns ?? ownColumns,
    own: inner?.columns ?? ownColumns,
    names: [name],
    depth,
  };
  const joined = choose.isOneIn(4) ? join(choose, single) : undefined;
  const source = joined?.place ?? single;
  const computed = choose.isOneIn(4) ? compute(choose, source) : undefined;
  const place: Place = { ...source, columns: computed?.columns ?? source.columns };
  const isIncluding = depth === 1 && choose.isOneIn(2);
  const common = {
    from,
    ...(joined === undefined ? {} : { join: joined.join }),
    ...(computed === undefined ? {} : { compute: computed.compute }),
    ...(choose.isOneIn(isIncluding ? 4 : 2) ? { where: condition(choose, place) } : {}),
    ...(choose.isOneIn(2) ? { limit: choose.bound(9) } : {}),
    ...(choose.isOneIn(6) ? { offset: choose.bound(3) } : {}),
  };
  const any = isIncluding ? 1 + 2 * choose.bound(3) : Math.max(choose.bound(6) - 2, 0);
  const way = joined === undefined ? any : Math.max(any, isIncluding ? 3 : 2);
  if (way === 0) {
    const { fields, columns } = summary(choose, place);
    return { query: { ...common, ...fields }, columns };
  }
  const isWhole = way === 1;
  const some = isWhole ? namesOf(source.columns) : picked(choose, place.columns);
  const isFirst = (one: string, at: number) => some.map(bare).indexOf(bare(one)) === at;
  // The names of a Select that another one reads differ.
  const columns = depth === 1 ? some : some.filter(isFirst);
  const selected = Object.fromEntries(columns.map((one) => [one, place.columns[one] ?? "text"]));
  const ends = inner === undefined ? ["id"] : namesOf(single.columns);
  const last =
    joined === undefined ? ends : [...ends.map((one) => `${name}.${one}`), `${joined.name}.id`];
  const isDistinct = way === 2;
  const fields = {
    columns: isWhole ? ["*"] : columns,
    ...(isDistinct ? { distinct: true } : {}),
    order_by: isDistinct ? order(choose, selected, columns) : order(choose, place.columns, last),
  };
  const included = isIncluding ? { include: includes(choose, place, 1) } : {};
  const answered = Object.entries(selected).map(([one, kind]) => [bare(one), kind] as const);
  return { query: { ...common, ...fields, ...included }, columns: Object.fromEntries(answered) };
}

const bare = (name: string) => name.slice(name.indexOf(".") + 1);

/** A join, and the place with the columns of both sides. */
function join(choose: Chooser, place: Place) {
  const [own = ""] = place.names;
  const table = choose.one(...tableNames.filter((one) => one !== own));
  const name = choose.isOneIn(3) ? `j${place.depth}` : table;
  const sides = [
    ...Object.entries(place.columns).map(([one, kind]) => [`${own}.${one}`, kind] as const),
    ...Object.entries(ownColumns).map(([one, kind]) => [`${name}.${one}`, kind] as const),
  ];
  const columns: Columns = Object.fromEntries(sides);
  const joined = {
    table,
    ...(name === table ? {} : { as: name }),
    on: link(choose, name, place),
    join_type: choose.one("INNER", "LEFT", "RIGHT"),
  };
  return { join: joined, name, place: { ...place, columns, own: columns, names: [own, name] } };
}

export function nestedSelect(choose: Chooser): ModelQuery {
  for (;;) {
    const { query } = select(choose, 1);
    const text = JSON.stringify(query, (_, cell) => (typeof cell === "bigint" ? 0 : cell));
    // An operation contains so many of them at most.
    if ((text.match(/"(?:select|exists)":/g) ?? []).length <= 16) return query;
  }
}
