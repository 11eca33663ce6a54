/** Random grants, boundaries and queries for the decision, small enough that they meet each other. */
import type { DecisionContext } from "../../src/access/decision.ts";
import type {
  AttributeValue,
  Boundary,
  EntryRole,
  Grant,
  RowCondition,
} from "../../src/access/grant.ts";
import { emptySnapshot, type Snapshot } from "../../src/access/snapshot.ts";
import { collectGrants, GrantCollection } from "../../src/access/user-grants.ts";
import { createGrammar } from "../../src/query/grammar.ts";
import type { Query } from "../../src/query/query.ts";
import { QueryRefused } from "../../src/query/refusal.ts";
import { scan } from "../../src/query/scan.ts";

/** Takes one of some options. */
export type Choose = <Option>(options: readonly Option[]) => Option;

/** The rules that a case is decided by. */
export interface World {
  readonly grants: readonly Grant[];
  readonly boundaries: readonly Boundary[];
  readonly attributes: Readonly<Record<string, AttributeValue>>;
}

/** A JSON value of a query. */
export type Json =
  | null
  | boolean
  | number
  | string
  | readonly Json[]
  | { readonly [key: string]: Json };
export type JsonObject = { readonly [key: string]: Json };

/** What is asked. */
export interface Asked {
  readonly body: JsonObject;
  readonly context: DecisionContext;
}

export const username = "rita";
export const now = 1_000_000;
const grammar = createGrammar({
  extraFields: ["trace"],
  operations: { Truncate: "DELETE" },
  level: "full",
});

/** A choice by a seed, the same each time (mulberry32). */
export function seeded(seed: number): Choose {
  let state = seed | 0;
  return (options) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    const fraction = ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
    const option = options[Math.floor(fraction * options.length)];
    if (option === undefined) throw new Error("nothing to choose from");
    return option;
  };
}

function some<Item>(choose: Choose, items: readonly Item[], most: number, least = 1): Item[] {
  const count = choose(Array.from({ length: most - least + 1 }, (_, at) => at + least));
  return Array.from({ length: count }, () => choose(items));
}

function maybe<Value extends object>(choose: Choose, value: () => Value, odds = 3): Value | object {
  return choose(Array.from({ length: odds }, (_, at) => at)) === 0 ? value() : {};
}

const databases = [...Array<string>(12).fill("main"), "shop", "MAIN"];
const tables = ["tickets", "tickets", "customer_a", "customer_b", "orders"];
const patterns = ["tickets", "tickets", "customer_a", "customer_*", "cust*", "orders", "Orders"];
const columns = ["id", "tenant", "status", "total"];
const namedColumns = [...Array<string[]>(8).fill(columns).flat(), "Tenant", "ténant"];
const literals = ["acme", "eu", "@me", 1, 2, 3, true];
const cells = [...literals, "acme", "eu", null, 1.5];
const roles: EntryRole[] = ["Owner", "DbAdmin", "ReadWrite", "ReadWrite", "ReadWrite", "ReadOnly"];
const narrowRoles: EntryRole[] = [...Array<EntryRole>(6).fill("ReadWrite"), "ReadOnly", "None"];
const rights = ["SELECT", "INSERT", "UPDATE", "DELETE"] as const;

function conditionOf(choose: Choose): RowCondition {
  const column = choose(columns);
  const cmp = choose(["=", "=", "!=", "<", ">=", "IN"] as const);
  if (cmp === "IN")
    return { column, cmp, value: choose(["@regions", ["acme", "eu"], ["@tenant", 1]]) };
  if (cmp === "=" || cmp === "!=") {
    return {
      column,
      cmp,
      value: choose(["@tenant", "@username", "acme", "@@me", 1, true, "@regions"]),
    };
  }
  return { column, cmp, value: choose(["@level", 2, 3]) };
}

function limitsOf(choose: Choose): object {
  return {
    ...maybe(choose, () => ({ maxRows: choose([1, 2, 3, 5]) }), 4),
    ...maybe(choose, () => ({ maxChanges: choose([1, 2, 3]) }), 4),
    ...maybe(choose, () => ({ requireApproval: some(choose, rights, 2) }), 6),
  };
}

function narrowOf(choose: Choose): object {
  return {
    ...limitsOf(choose),
    ...maybe(choose, () => ({ columns: [...new Set(some(choose, columns, 4, 2))] })),
    ...maybe(choose, () => ({ writableColumns: [...new Set(some(choose, columns, 3))] }), 5),
    ...maybe(choose, () => ({ rowFilter: some(choose, [0], 2).map(() => conditionOf(choose)) })),
    ...maybe(choose, () => ({ requireWhere: [...new Set(some(choose, columns, 2))] }), 5),
  };
}

function grantOf(choose: Choose): Grant {
  const isNarrow = choose([true, true, false]);
  const tablesOf = choose([true, true, false])
    ? { tables: [...new Set(some(choose, patterns, 2))] }
    : {};
  return {
    username,
    database: choose(["main", "main", "*"]),
    role: choose(isNarrow || "tables" in tablesOf ? narrowRoles : roles),
    ...tablesOf,
    ...(isNarrow ? narrowOf(choose) : {}),
    ...maybe(choose, () => ({ expires: choose([now, now + 1]) }), 5),
  };
}

function boundaryOf(choose: Choose): Boundary {
  return {
    via: choose(["mcp", "query"] as const),
    ...maybe(choose, () => ({ client: choose(["agent", "other"]) }), 4),
    ...maybe(choose, () => ({ username: choose([username, "bob"]) }), 4),
    ...maybe(choose, () => ({ database: choose(["main", "shop"]) }), 2),
    ...maybe(choose, () => ({ role: choose(roles) }), 2),
    ...limitsOf(choose),
  };
}

/** Entries and boundaries that may stand in one file. */
export function worldOf(choose: Choose): World {
  const { tables: _, ...whole } = grantOf(choose);
  const base = choose([true, true, false]) ? [{ ...whole, database: "main" }] : [];
  const drafted = [...base, ...some(choose, [0], 4).map(() => grantOf(choose))];
  const grants: Grant[] = [];
  for (const grant of drafted) {
    const trial = new GrantCollection();
    if ([...grants, grant].every((one) => trial.add(one) === undefined)) grants.push(grant);
  }
  const count = choose([0, 0, 0, 1, 2]);
  const attributes = {
    ...maybe(choose, () => ({ tenant: choose(["acme", "eu", 1]) }), 1),
    ...maybe(choose, () => ({ regions: choose([["acme", "eu"], ["eu"], []]) }), 2),
    ...maybe(choose, () => ({ level: choose([2, 3, "high"]) }), 2),
  };
  const kept = choose([0, 1, 2, 3]) === 0 ? {} : attributes;
  return {
    grants,
    boundaries: Array.from({ length: count }, () => boundaryOf(choose)),
    attributes: kept,
  };
}

function columnOf(choose: Choose, among: readonly string[]): string {
  const column = choose(namedColumns);
  const isQualified =
    among.length > 1
      ? choose([true, true, true, true, false])
      : choose([false, false, false, true]);
  return isQualified ? `${choose(among)}.${column}` : column;
}

function termOf(choose: Choose, among: readonly string[]): JsonObject {
  const column = columnOf(choose, among);
  const cmp = choose(["=", "=", "=", "!=", "<", "IN"]);
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

function selectOf(choose: Choose, database: string): JsonObject {
  const from = choose(tables);
  const other = choose(tables.filter((table) => table !== from));
  const isJoin = choose([true, false, false]);
  const among = isJoin ? [from, other] : [from];
  const column = () => columnOf(choose, among);
  const join = {
    table: other,
    on: `${from}.${choose(columns)} = ${other}.${choose(columns)}`,
    join_type: choose(["INNER", "INNER", "LEFT", "RIGHT"]),
  };
  const rest = {
    database,
    from,
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
  const named = choose([true, true, true, false]) ? some(choose, [0], 3).map(column) : ["*"];
  return {
    ...rest,
    columns: named,
    ...maybe(choose, () => ({ order_by: [{ column: column() }] })),
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

function bodyOf(choose: Choose): JsonObject {
  const database = choose(databases);
  switch (
    choose([
      "one",
      "one",
      "one",
      "one",
      "one",
      "one",
      "batch",
      "batch",
      "batch",
      "preview",
      "other",
      "extra",
    ])
  ) {
    case "batch":
      return { Batch: some(choose, [0], 3).map(() => elementOf(choose)) };
    case "preview":
      return { Preview: changeOf(choose, database) };
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

/** A query and the way it came. */
export function askedOf(choose: Choose): Asked {
  const client = choose<{ client?: string }>([{}, { client: "agent" }]);
  const context = {
    via: choose(["mcp", "query"] as const),
    ...client,
    now,
    isEngine: choose([true, true, false]),
  };
  return { body: bodyOf(choose), context };
}

/** The query as the scanner reads it; undefined if it is not of the grammar. */
export function scanned({ body }: Asked): Query | undefined {
  try {
    return scan(Buffer.from(JSON.stringify(body)), grammar, true);
  } catch (error) {
    if (error instanceof QueryRefused) return undefined;
    throw error;
  }
}

/** The rules as a snapshot. */
export function snapshotOf({ grants, boundaries, attributes }: World): Snapshot {
  const names = [...grants, ...boundaries]
    .map(({ database = "*" }) => database)
    .filter((name) => name !== "*");
  const user = {
    username,
    email: undefined,
    passwordHash: undefined,
    disabled: false,
    tokensValidAfter: 0,
    attributes: new Map(Object.entries(attributes)),
  };
  return {
    ...emptySnapshot,
    users: new Map([[username, user]]),
    grants: new Map([[username, collectGrants(grants)]]),
    databases: new Map(names.map((name) => [name.toLowerCase(), name])),
    boundaries,
  };
}
