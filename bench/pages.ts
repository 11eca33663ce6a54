/**
 * Measures page 1,000 of a million rows against page 1 on SQLite, PostgreSQL and MariaDB: the time of a query
 * to the engine, and whether the database reads the page as index ranges.
 *
 * `node bench/pages.ts [--rows 1000000] [--page 100] [--rounds 100] [--json]`
 */
import path from "node:path";
import { parseArgs } from "node:util";
import { query } from "../test/engine/kit.ts";
import { startMysql } from "../test/engine/mysql/server.ts";
import { fillMysql, fillPostgres, fillSqlite, orders, type Plans } from "../test/engine/paged.ts";
import { startPostgres } from "../test/engine/postgres/server.ts";
import { startOpenGateway } from "./rig/engine.ts";
import { printFound } from "./rig/machine.ts";
import { openDirectory, scopeOf } from "./rig/opened.ts";
import { summarize } from "./rig/statistics.ts";
import { markdownTable } from "./rig/table.ts";

const { values: flags } = parseArgs({
  options: {
    rows: { type: "string", default: "1000000" },
    page: { type: "string", default: "100" },
    rounds: { type: "string", default: "100" },
    json: { type: "boolean", default: false },
  },
});
const rowCount = Number(flags.rows);
const limit = Number(flags.page);
const farPage = 1000;

await using opened = new AsyncDisposableStack();
const scope = scopeOf(opened);
const directory = openDirectory(opened);

interface Database {
  readonly name: string;
  readonly address: string;
  readonly plans: Plans;
}

async function openSqlite(): Promise<Database> {
  const data = path.join(directory, "data");
  const { program, address } = await startOpenGateway(`sqlite:${data}`, directory, "sqlite");
  opened.defer(() => program.end());
  return { name: "SQLite", address, plans: await fillSqlite(data, rowCount) };
}

async function openPostgres(): Promise<Database> {
  const server = await startPostgres(scope);
  const database = await server.createDatabase();
  const { program, address } = await startOpenGateway(server.url(database), directory, "postgres");
  opened.defer(() => program.end());
  const plans = await fillPostgres(scope, server, database, rowCount);
  return { name: "PostgreSQL", address, plans };
}

async function openMysql(): Promise<Database> {
  const server = await startMysql(scope);
  const plans = await fillMysql(scope, server, rowCount);
  const { program, address } = await startOpenGateway(server.url, directory, "mysql");
  opened.defer(() => program.end());
  return { name: "MariaDB", address, plans };
}

type Row = Readonly<Record<string, string | number | null>>;

/** Median milliseconds, and the number of statements that use only index ranges. */
async function measure({ address, plans }: Database, order: (typeof orders)[keyof typeof orders]) {
  const order_by = order.map((one) => ({ ...one }));
  const select = {
    database: "main",
    from: "items",
    columns: ["id", "rank", "region"],
    order_by,
    limit,
  };
  const ask = async (more: object): Promise<Row[]> => {
    const { status, text } = await query(address, { Select: { ...select, ...more } });
    if (status !== 200) throw new Error(text);
    return JSON.parse(text).data;
  };
  const behind = async (offset: number) => {
    const [row] = await ask({ offset, limit: 1 });
    return order_by.map(({ column }) => row?.[column] ?? null);
  };
  // Starts at the second page, the first with an `after`.
  const pages = [
    {},
    { after: await behind(limit - 1) },
    { after: await behind((farPage - 1) * limit - 1) },
  ];
  const times: number[][] = pages.map(() => []);
  for (let round = 0; round < Number(flags.rounds); round += 1) {
    for (const [at, page] of pages.entries()) {
      const startedAt = performance.now();
      await ask(page);
      times[at]?.push(performance.now() - startedAt);
    }
  }
  const found = await plans({ ...select, ...pages[2] });
  return {
    times: times.map((taken) => summarize(taken).median),
    isRange: found.every(({ isRange }) => isRange),
    plan: found.map(({ words }) => words),
  };
}

const results: {
  name: string;
  order: string;
  times: number[];
  isRange: boolean;
  plan: string[];
}[] = [];
for (const open of [openSqlite, openPostgres, openMysql]) {
  const database = await open();
  for (const [order, terms] of Object.entries(orders)) {
    results.push({ name: database.name, order, ...(await measure(database, terms)) });
  }
}
printFound(flags.json, { results }, () => {
  const head = [
    "",
    "order",
    "page 1, ms",
    "page 2, ms",
    "page 1,000, ms",
    "of page 1",
    "of page 2",
    "range of an index",
  ];
  const lines = results.map(({ name, order, times: [first = 0, second = 0, far = 0], isRange }) => [
    name,
    order,
    first.toFixed(2),
    second.toFixed(2),
    far.toFixed(2),
    (far / first).toFixed(2),
    (far / second).toFixed(2),
    isRange ? "yes" : "no",
  ]);
  const plans = results
    .filter(({ isRange }) => !isRange)
    .map(({ name, order, plan }) => `${name}, ${order}: ${plan.join(" | ")}`);
  return [markdownTable(head, lines), ...plans].join("\n");
});
