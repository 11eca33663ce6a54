/** Large tables with indexes for pages, and the plans of Selects on them. */
import { sql } from "kysely";
import type { Select } from "../../src/core/query/tree.ts";
import type { LimitCounter } from "../../src/engine/limits.ts";
import { parseAddress as parseMysql } from "../../src/engine/mysql/address.ts";
import { MysqlConnection } from "../../src/engine/mysql/connection.ts";
import { planOf as planMysql } from "../../src/engine/mysql/dialect.ts";
import { parseAddress as parsePostgres } from "../../src/engine/postgres/address.ts";
import { PostgresConnection } from "../../src/engine/postgres/databases.ts";
import { planOf as planPostgres } from "../../src/engine/postgres/dialect.ts";
import { KnownTables } from "../../src/engine/remote/known-tables.ts";
import type { Fragment } from "../../src/engine/sql/fragment.ts";
import type { ReadingPlan } from "../../src/engine/sql/include.ts";
import type { Column, ColumnKind } from "../../src/engine/sql/scope.ts";
import { comparedValue } from "../../src/engine/sql/values.ts";
import { Databases } from "../../src/engine/sqlite/databases.ts";
import { bindKey, operationsIn, planOf as planSqlite } from "../../src/engine/sqlite/dialect.ts";
import { rows } from "../../src/engine/sqlite/statements.ts";
import type { Teardown } from "./guarded.ts";
import { isMariaDb, series } from "./mysql/server.ts";

interface StatementPlan {
  readonly words: string;
  /** True if it only reads one range of an index, in order. */
  readonly isRange: boolean;
  /** Tables that it reads whole. */
  readonly scanned: readonly string[];
}

/** Explains the statements of a Select on `main`, or of what it includes, optionally with limits. */
export type Plans = (query: Select, counter?: LimitCounter) => Promise<StatementPlan[]>;

/** The statements of a Select, or of what it includes for 50 rows, whose keys `bind` binds. */
function statementsOf<Kind extends ColumnKind>(
  plan: ReadingPlan<Kind>,
  bind = (column: Column<Kind>, id: number): unknown => comparedValue(column, id),
): Iterable<Fragment> {
  const ids = Array.from({ length: 50 }, (_, index) => 7 * index);
  const included = plan.includes.map(({ key, statement }) => {
    return statement(ids.map((id) => bind(key, id)));
  });
  return included.length > 0 ? included : plan.statements(() => 0);
}

/** The orders that the indexes serve. `rank` may be null, and 8 regions repeat. */
export const orders = {
  "one column": [{ column: "id" }],
  "one column, downward": [{ column: "id", direction: "DESC" }],
  "two columns": [{ column: "region" }, { column: "id" }],
  "two columns, downward": [
    { column: "region", direction: "DESC" },
    { column: "id", direction: "DESC" },
  ],
  "mixed directions": [{ column: "region", direction: "DESC" }, { column: "id" }],
  "with nulls": [{ column: "rank" }, { column: "id" }],
  "with nulls, downward": [
    { column: "rank", direction: "DESC" },
    { column: "id", direction: "DESC" },
  ],
} as const;

/** One row in ten has no rank, the others have one of 4. */
const columns = (id: string, modulo: (a: string, b: number) => string) =>
  `${id}, case when ${modulo(id, 10)} = 0 then null else ${modulo(id, 4)} end,
    case ${modulo(id, 8)} ${[..."hgfedcba"].map((letter, at) => `when ${at} then 'region ${letter}'`).join(" ")} end,
    ${id} * 3`;
const percent = (a: string, b: number) => `${a} % ${b}`;

const indexes = (nulls: string) => [
  "create index by_region on items (region, id)",
  "create index by_region_down on items (region desc, id)",
  `create index by_rank on items (${nulls}, id)`,
];

export async function fillSqlite(directory: string, count: number): Promise<Plans> {
  const databases = new Databases(directory);
  const session = databases.open("main");
  const { connection } = session;
  const context = { session, database: "main", schema: "main", counter: undefined };
  const columnsOfItems = [
    { name: "id", type: "bigint", primary_key: true },
    { name: "rank", type: "int" },
    { name: "region", type: "text", nullable: false },
    { name: "amount", type: "int", nullable: false },
  ];
  const items = { database: "main", table: "items", columns: columnsOfItems };
  await operationsIn(session).changes.CreateTable(context, items);
  connection.exec(
    `with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < ${count})
      insert into items select ${columns("n", percent)} from numbers;
    ${indexes("rank").join(";")}; analyze`,
  );
  return async (query, counter) => {
    const plan = await planSqlite({ ...context, counter }, query);
    const statements = statementsOf(plan, ({ kind }, id) => bindKey(kind, id));
    return Array.from(statements, (statement) => {
      const steps = Array.from(rows(connection, sql`explain query plan ${statement}`), (row) =>
        String(row[3]),
      );
      const isRange =
        steps.length === 1 && /^SEARCH main\.items USING .*INDEX.* \(.*\)$/.test(steps[0] ?? "");
      const scanned = steps.flatMap((step) => /^SCAN main\.(\w+)/.exec(step)?.[1] ?? []);
      return { words: steps.join("; "), isRange, scanned };
    });
  };
}

/** A step in `explain (format json)`. */
interface PostgresStep {
  readonly "Node Type": string;
  readonly "Index Cond"?: string;
  readonly "Index Name"?: string;
  readonly "Relation Name"?: string;
  readonly Filter?: string;
  readonly Plans?: readonly PostgresStep[];
}

function stepsIn(step: PostgresStep): PostgresStep[] {
  return [step, ...(step.Plans ?? []).flatMap(stepsIn)];
}

interface Server {
  sql(statements: string, database: string): Promise<unknown>;
  url(database: string): string;
}

export async function fillPostgres(
  test: Teardown,
  server: Server,
  database: string,
  count: number,
): Promise<Plans> {
  await server.sql(
    `create schema if not exists main; set search_path to main;
    create table items (id bigint not null primary key, rank int, region text collate "C" not null, amount int not null);
    insert into items select ${columns("n", percent)} from generate_series(1, ${count}) as n;
    ${indexes("rank nulls first").join(";")}`,
    database,
  );
  await server.sql("vacuum analyze main.items", database);
  const connection = await PostgresConnection.open(parsePostgres(server.url(database)), database, {
    tables: new KnownTables(),
    timeLimit: 30_000,
  });
  test.teardown(() => connection.end());
  const { session } = connection;
  return async (query, counter) => {
    const context = { session, database: "main", schema: "main", counter };
    const plans: StatementPlan[] = [];
    for (const statement of statementsOf(await planPostgres(context, query))) {
      const [[json = ""] = []] = await session.rows(
        sql`explain (format json, costs off) ${statement}`,
      );
      const [{ Plan: first }]: [{ Plan: PostgresStep }] = JSON.parse(json ?? "");
      const words = stepsIn(first).map((step) =>
        [
          step["Node Type"],
          step["Index Name"],
          step["Index Cond"],
          step.Filter && `Filter ${step.Filter}`,
        ]
          .filter((part) => part !== undefined)
          .join(" "),
      );
      const isRange =
        words.length === 2 &&
        /^Limit; Index (Only )?Scan \w+ \((?!.*Filter)/.test(words.join("; "));
      const scanned = stepsIn(first).flatMap((step) =>
        step["Node Type"] === "Seq Scan" ? (step["Relation Name"] ?? []) : [],
      );
      plans.push({ words: words.join("; "), isRange, scanned });
    }
    return plans;
  };
}

export async function fillMysql(
  test: Teardown,
  server: { sql(...statements: string[]): Promise<unknown>; readonly url: string },
  count: number,
): Promise<Plans> {
  await server.sql(
    "create database if not exists main",
    "use main",
    "create table items (id bigint not null primary key, `rank` int, region varchar(20) collate utf8mb4_bin not null, amount int not null)",
    `insert into items select ${columns("seq", percent)} from ${series(count)}`,
    ...indexes("`rank`"),
    "analyze table items",
  );
  const connection = await MysqlConnection.open(parseMysql(server.url), 30_000);
  test.teardown(() => connection.end());
  const { session } = connection;
  return async (query, counter) => {
    const context = { session, database: "main", schema: "main", counter };
    const plans: StatementPlan[] = [];
    for (const statement of statementsOf(await planMysql(context, query))) {
      const rows = await session.rows(sql`explain format = traditional ${statement}`);
      // MySQL also tells partitions, and how many rows remain.
      const found = isMariaDb ? rows : rows.map((row) => row.toSpliced(10, 1).toSpliced(3, 1));
      const words = found.map((row) => [row[3], row[5], row[9]].map(String).join(" "));
      const isRange =
        words.length === 1 &&
        /^(range|ref) (?!null)(?!.*(filesort|temporary))/.test(words[0] ?? "");
      const scanned = found.filter((row) => row[3] === "ALL").map((row) => String(row[2]));
      plans.push({ words: words.join("; "), isRange, scanned });
    }
    return plans;
  };
}
