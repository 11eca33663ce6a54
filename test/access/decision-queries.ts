/** Random queries about the tables and columns of the random entries. */
import type { DecisionContext } from "../../src/core/access/rights.ts";
import { createGrammar } from "../../src/core/query/grammar.ts";
import { parseQuery } from "../../src/core/query/parse.ts";
import type { Query } from "../../src/core/query/query.ts";
import { QueryRefused } from "../../src/core/query/refusal.ts";
import { type Choose, columns, maybe, now, some } from "./decision-worlds.ts";

export type Json =
  | null
  | boolean
  | number
  | string
  | readonly Json[]
  | { readonly [key: string]: Json };
export type JsonObject = { readonly [key: string]: Json };

export interface AskedQuery {
  readonly body: JsonObject;
  readonly context: DecisionContext;
}

export const grammar = createGrammar({
  extraFields: ["trace"],
  operations: { Truncate: "DELETE" },
  level: "full",
});

const databases = [...Array<string>(12).fill("main"), "shop", "MAIN"];
const tables = ["tickets", "tickets", "customer_a", "customer_b", "orders"];
const namedColumns = [...Array<string[]>(8).fill(columns).flat(), "Tenant", "ténant"];
const literals = ["acme", "eu", "@me", 1, 2, 3, true];
const cells = [...literals, "acme", "eu", null, 1.5];

function columnOf(choose: Choose, among: readonly string[]): string {
  const column = choose(namedColumns);
  const isQualified =
    among.length > 1
      ? choose([true, true, true, true, false])
      : choose([false, false, false, true]);
  return isQualified ? `${choose(among)}.${column}` : column;
}

/** A Select or `exists` on another table, which contains further ones at times. */
function nestedOf(choose: Choose, among: readonly string[]): JsonObject {
  const table = choose(tables);
  const where = maybe(choose, () => ({ where: whereOf(choose, [table]) }), 2);
  if (choose([true, false])) {
    const on = `${choose(among)}.${choose(namedColumns)} = ${table}.${choose(namedColumns)}`;
    return { exists: { table, on, ...where } };
  }
  const other = choose(tables.filter((name) => name !== table));
  const join = {
    table: other,
    on: `${table}.${choose(columns)} = ${other}.${choose(columns)}`,
    join_type: choose(["INNER", "LEFT"]),
  };
  const isJoin = choose([true, false, false]);
  const picked = { columns: [columnOf(choose, isJoin ? [table, other] : [table])] };
  const counted = { aggregate: [{ fn: "max", column: `${table}.${choose(columns)}`, as: "n" }] };
  const columnsOf = [...columns, "tenant"];
  const inner = { from: table, columns: choose([["*"], some(choose, columnsOf, 2)]), ...where };
  const isDerived = !isJoin && choose([true, ...Array<boolean>(5).fill(false)]);
  const derived = { from: { select: inner, as: "d" }, columns: ["tenant"] };
  const select = isDerived
    ? derived
    : {
        from: table,
        ...(isJoin ? { join, ...picked } : { ...choose<JsonObject>([picked, counted]), ...where }),
      };
  return { column: columnOf(choose, among), cmp: choose(["IN", "NOT IN"]), select };
}

function termOf(choose: Choose, among: readonly string[]): JsonObject {
  if (choose([true, ...Array<boolean>(9).fill(false)])) return nestedOf(choose, among);
  const column = columnOf(choose, among);
  const cmp = choose(["=", "=", "=", "!=", "<", "IN", "other"]);
  if (cmp === "other") return { column, cmp: "=", other: columnOf(choose, among) };
  const value =
    cmp === "IN" ? choose<Json>([["acme", "eu"], some(choose, cells, 3)]) : choose(cells);
  return { column, cmp, value };
}

function whereOf(choose: Choose, among: readonly string[]): Json {
  const kind = choose(["term", "term", "and", "and", "or", "null"]);
  if (kind === "null") return null;
  if (kind === "term") return termOf(choose, among);
  return { [kind]: some(choose, [0], 3).map(() => termOf(choose, among)) };
}

function rowOf(choose: Choose): JsonObject {
  return Object.fromEntries(some(choose, namedColumns, 4).map((column) => [column, choose(cells)]));
}

function returningOf(choose: Choose): object {
  return maybe(choose, () => ({ returning: some(choose, ["*", ...columns, ...columns], 2) }), 4);
}

/** Names that may be spelled like columns, and like each other. */
function computeOf(choose: Choose, among: readonly string[]): readonly JsonObject[] {
  const names = ["x", "y", ...columns].filter(() => choose([true, false, false]));
  const item = (): Json =>
    choose<Json>([columnOf(choose, among), columnOf(choose, among), "x", "y", { value: 1 }]);
  return (names.length === 0 ? ["x"] : names).map((as) =>
    choose<JsonObject>([
      { as, fn: "add", of: [item(), item()] },
      { as, fn: "json", of: [item()], path: ["tenant"] },
      // biome-ignore lint/suspicious/noThenProperty: a field of the grammar
      { as, fn: "if", when: termOf(choose, among), then: item(), else: item() },
    ]),
  );
}

/** Tables that add members to rows of the tables around, up to three levels of them. */
function includesOf(choose: Choose, among: readonly string[], depth: number): JsonObject[] {
  return some(choose, [0], depth === 1 ? 2 : 1).map((_, at) => {
    const table = choose(tables);
    const sides = [table, choose(among)].map((name) => `${name}.${choose(namedColumns)}`);
    const selected = [["*"], some(choose, [0], 2).map(() => columnOf(choose, [table]))];
    const isDeeper = depth < 3 && choose([true, false, false]);
    return {
      as: `m${at}`,
      table,
      on: sides.join(" = "),
      columns: choose(selected.concat(selected.slice(1))),
      ...maybe(choose, () => ({ where: whereOf(choose, [table]) }), 2),
      ...maybe(choose, () => ({ compute: computeOf(choose, [table]) }), 4),
      ...maybe(choose, () => ({ order_by: { column: columnOf(choose, [table]) } }), 4),
      ...choose<JsonObject>([{ limit: choose([0, 1, 2, 3]) }, { one: true }, {}]),
      ...(isDeeper ? { include: includesOf(choose, [table], depth + 1) } : {}),
    };
  });
}

/** A Select as `from`, which reads another one at times. */
function derivedOf(choose: Choose, depth: number): JsonObject {
  const { database: _, include: __, ...select } = selectOf(choose, "main", depth + 1);
  return { select, as: choose(["t1", "t1", "tickets"]) };
}

function selectOf(choose: Choose, database: string, depth = 1): JsonObject {
  const isDerived = depth < 3 && choose([true, false, false, false, false]);
  const derived = isDerived ? derivedOf(choose, depth) : undefined;
  const table = choose(tables);
  const from = derived === undefined ? choose([table, table, "t1"]) : String(derived.as);
  const isSelf = choose([true, false, false]);
  const joined = isSelf ? table : choose(tables.filter((name) => name !== table));
  const other = choose(isSelf ? ["t2"] : [joined, joined, "t2"]);
  const isJoin = choose([true, false, false]);
  const among = isJoin ? [from, other] : [from];
  const column = () => columnOf(choose, among);
  const join = {
    table: joined,
    ...(other === joined ? {} : { as: other }),
    on: `${from}.${choose(columns)} = ${other}.${choose(columns)}`,
    join_type: choose(["INNER", "LEFT", "RIGHT"]),
  };
  const compute = choose([true, false, false]) ? computeOf(choose, among) : undefined;
  const computed = compute?.map(({ as }) => String(as)) ?? [];
  const rest = {
    database,
    from: derived ?? (from === table ? table : { table, as: from }),
    ...(compute === undefined ? {} : { compute }),
    ...(isJoin ? { join } : {}),
    ...maybe(choose, () => ({ where: whereOf(choose, among) }), 2),
    ...(choose([true, true, false]) ? { limit: choose([0, 1, 1, 2, 3, 9]) } : {}),
  };
  if (choose([true, false, false, false])) {
    const groups = maybe(choose, () => ({ group_by: [column()] }), 2);
    const aggregate = [
      choose<JsonObject>([
        { fn: "count", as: "n" },
        { fn: "sum", column: column(), as: "n" },
      ]),
    ];
    const having = maybe(choose, () => ({ having: { column: "n", cmp: ">", value: 1 } }), 2);
    const order = maybe(choose, () => ({ order_by: { column: "n" } }), 2);
    return { ...rest, ...groups, aggregate, ...having, ...order };
  }
  const named = [
    ...(choose([true, true, true, false]) ? some(choose, [0], 3).map(column) : ["*"]),
    ...computed.filter(() => choose([true, false])),
  ];
  return {
    ...rest,
    columns: named,
    ...maybe(choose, () => ({ order_by: [{ column: column() }] })),
    ...maybe(choose, () => ({ include: includesOf(choose, among, 1) }), 4),
  };
}

function changeOf(choose: Choose, database: string): JsonObject {
  const place = { database, table: choose(tables) };
  const rows = () => some(choose, [0], 3).map(() => rowOf(choose));
  const where = () => whereOf(choose, [place.table]);
  switch (choose(["Insert", "Update", "Update", "Delete", "Upsert"])) {
    case "Insert":
      return { Insert: { ...place, values: rows(), ...returningOf(choose) } };
    case "Update": {
      const set = { set: rowOf(choose) };
      const add = { add: { [choose(columns)]: 1 } };
      const changed = choose<object>([set, set, add]);
      return { Update: { ...place, ...changed, where: where(), ...returningOf(choose) } };
    }
    case "Delete":
      return { Delete: { ...place, where: where(), ...returningOf(choose) } };
    default: {
      const updated = { on_conflict: [choose(columns)], update: some(choose, columns, 2, 0) };
      return { Upsert: { ...place, values: rows(), ...updated, ...returningOf(choose) } };
    }
  }
}

function defineOf(choose: Choose, database: string): JsonObject {
  const table = choose(tables);
  const column = { name: "ref", type: "int" };
  const references = { references: `${choose(tables)}.${choose(namedColumns)}` };
  const columnsOf = [{ ...column, ...maybe(choose, () => references, 2) }];
  return choose<JsonObject>([
    { CreateTable: { database, table, columns: columnsOf } },
    { DropTable: { database, table } },
  ]);
}

function elementOf(choose: Choose): JsonObject {
  const database = choose(databases);
  switch (choose(["select", "select", "select", "change", "change", "change", "define"])) {
    case "select":
      return { Select: selectOf(choose, database) };
    case "change":
      return changeOf(choose, database);
    default:
      return defineOf(choose, database);
  }
}

/** Lets the last of several elements bind a column of the first, if both fit. */
function bindOf(choose: Choose, elements: readonly JsonObject[]): readonly JsonObject[] {
  const [name = ""] = Object.keys(elements.at(-1) ?? {});
  const isFit = elements.length > 1 && (name === "Insert" || name === "Update");
  if (!isFit || choose([true, false])) return elements;
  const source = { element: 0, column: choose(namedColumns) };
  const bind = { [choose(namedColumns)]: source };
  const fields = Object(elements.at(-1)?.[name]);
  return [...elements.slice(0, -1), { [name]: { ...fields, bind } }];
}

function bodyOf(choose: Choose): JsonObject {
  const database = choose(databases);
  switch (choose("one one one one one one batch batch batch preview other extra".split(" "))) {
    case "batch":
      return {
        Batch: bindOf(
          choose,
          some(choose, [0], 3).map(() => elementOf(choose)),
        ),
      };
    case "preview": {
      const changes = some(choose, [0], 3).map(() => changeOf(choose, choose(databases)));
      const batch = { Batch: bindOf(choose, changes) };
      return { Preview: choose([changeOf(choose, database), batch]) };
    }
    case "other":
      return choose<JsonObject>([
        { Truncate: { database, table: choose(tables) } },
        { CreateDatabase: { database } },
        { DropDatabase: { database } },
      ]);
    case "extra":
      return { Select: { ...selectOf(choose, database), trace: 1 } };
    default:
      return elementOf(choose);
  }
}

export function askedOf(choose: Choose): AskedQuery {
  const client = choose<{ client?: string }>([{}, { client: "agent" }]);
  const context = {
    via: choose(["mcp", "query"] as const),
    ...client,
    now,
    isEngine: choose([true, true, false]),
  };
  return { body: bodyOf(choose), context };
}

/** A Select that reads further tables in many ways. */
export function readingOf(choose: Choose): AskedQuery {
  const reading = () => ({ Select: selectOf(choose, "main") });
  const body = choose<JsonObject>([reading(), reading(), { Batch: [reading(), reading()] }]);
  return { body, context: { ...askedOf(choose).context, isEngine: true } };
}

export function parsed({ body }: AskedQuery): Query | undefined {
  try {
    return parseQuery(Buffer.from(JSON.stringify(body)), grammar);
  } catch (error) {
    if (error instanceof QueryRefused) return undefined;
    throw error;
  }
}
