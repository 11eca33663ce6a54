/**
 * Measures an `include` of 100 parents with 20 children each on PostgreSQL, SQLite and MariaDB: processor time per
 * request of a gateway without authentication. Compares with a small HTTP server that sends two statements.
 *
 * `node bench/include.ts [--rounds 5] [--seconds 3] [--json]`
 */
import { deepStrictEqual } from "node:assert";
import { mkdirSync } from "node:fs";
import { Agent, request } from "node:http";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { target } from "../test/engine/kit.ts";
import { startMysql } from "../test/engine/mysql/server.ts";
import { startOpenGateway } from "./rig/engine.ts";
import { effortFlags } from "./rig/flags.ts";
import { printFound } from "./rig/machine.ts";
import { openDirectory, openPostgres, scopeOf } from "./rig/opened.ts";
import { Program, treeSeconds } from "./rig/program.ts";
import { rangeText, type Summary, summarize } from "./rig/statistics.ts";
import { markdownTable } from "./rig/table.ts";

const { values: flags } = parseArgs({ options: effortFlags });
const parents = 10_000;
const children = 20;
const connections = 8;

await using opened = new AsyncDisposableStack();
const directory = openDirectory(opened);

/** @param series selects the numbers from 1 as `n` */
function statements(schema: string, series: (count: number) => string): string[] {
  return [
    `create table ${schema}parents (id int primary key, name varchar(40) not null, total int not null)`,
    `create table ${schema}children (id int primary key, parent_id int not null, product varchar(40) not null,
      quantity int not null)`,
    `insert into ${schema}parents select n, concat('parent ', n), n * 7919 % 90000
      from (${series(parents)}) as numbers`,
    `insert into ${schema}children select n, 1 + n % ${parents}, concat('product ', n % 500), 1 + n % 9
      from (${series(parents * children)}) as numbers`,
    `create index by_parent on ${schema}children (parent_id)`,
  ];
}

/** URLs for the gateway and for the server by hand. */
type Urls = readonly [gateway: string, byHand: string];

async function fillPostgres(): Promise<Urls> {
  const server = await openPostgres(opened);
  const series = (count: number) => `select n from generate_series(1, ${count}) as n`;
  for (const words of ["create schema main", ...statements("main.", series), "vacuum analyze"]) {
    await server.sql(words);
  }
  const url = server.url("postgres");
  return [url, url];
}

async function fillSqlite(): Promise<Urls> {
  const data = path.join(directory, "data");
  mkdirSync(data, { mode: 0o700 });
  const files = [path.join(data, "main.sqlite"), path.join(directory, "by-hand.sqlite")];
  const series = (count: number) =>
    `with recursive counted (n) as (select 1 union all select n + 1 from counted where n < ${count})
      select n from counted`;
  for (const file of files) {
    const database = new DatabaseSync(file);
    database.exec("pragma journal_mode = wal");
    for (const words of statements("", series)) database.exec(words);
    database.close();
  }
  return [`sqlite:${data}`, files[1] ?? ""];
}

async function fillMysql(): Promise<Urls> {
  const server = await startMysql(scopeOf(opened));
  const series = (count: number) => `select seq as n from main.seq_1_to_${count}`;
  await server.sql("create database main", ...statements("main.", series));
  return [server.url, server.url];
}

const databases = { PostgreSQL: fillPostgres, SQLite: fillSqlite, MariaDB: fillMysql };

interface Way {
  readonly address: string;
  readonly program: Program;
}

async function start(name: string, [url, ownUrl]: Urls): Promise<readonly Way[]> {
  const script = fileURLToPath(new URL("engine/include-by-hand.js", import.meta.url));
  const program = new Program(process.execPath, [script, ownUrl, String(connections)]);
  opened.defer(() => program.stop());
  const byHand = { program, address: `http://127.0.0.1:${await program.printed(/^(\d+)$/m)}` };
  const gateway = await startOpenGateway(url, directory, name);
  opened.defer(() => gateway.program.end());
  return [byHand, gateway];
}

function selectAfter(value: number): object {
  const include = {
    as: "children",
    table: "children",
    on: "children.parent_id = parents.id",
    columns: ["id", "product", "quantity"],
    order_by: { column: "id" },
  };
  return {
    Select: {
      database: "main",
      from: "parents",
      columns: ["id", "name", "total"],
      where: { column: "id", cmp: ">", value },
      order_by: { column: "id" },
      limit: 100,
      include: [include],
    },
  };
}

async function ask({ address }: Way, agent: Agent, after: number): Promise<string> {
  const headers = { "content-type": "application/json" };
  const options = { ...target(address), path: "/query", method: "POST", headers, agent };
  const outgoing = request(options).end(JSON.stringify(selectAfter(after)));
  const answer = await new Promise<string>((resolve, reject) => {
    outgoing.on("error", reject).on("response", (response) => resolve(text(response)));
  });
  if (!answer.startsWith('{"status":"success"')) throw new Error(answer);
  return answer;
}

/** Microseconds of processor time per request. */
async function load(way: Way, seconds: number): Promise<number> {
  const agent = new Agent({ keepAlive: true, maxSockets: connections });
  const of = () => treeSeconds(way.program.child.pid ?? 0);
  const before = of();
  const end = performance.now() + seconds * 1000;
  let count = 0;
  const one = async () => {
    while (performance.now() < end) {
      await ask(way, agent, Math.floor(Math.random() * (parents - 100)));
      count += 1;
    }
  };
  await Promise.all(Array.from({ length: connections }, one));
  agent.destroy();
  return ((of() - before) * 1e6) / count;
}

interface Found {
  readonly name: string;
  readonly byHand: Summary;
  readonly gateway: Summary;
}

async function measure(name: string, ways: readonly Way[]): Promise<Found> {
  const agent = new Agent();
  const [expected = "", answer = ""] = await Promise.all(ways.map((way) => ask(way, agent, 7)));
  deepStrictEqual(JSON.parse(answer), JSON.parse(expected));
  const samples = ways.map(() => [] as number[]);
  for (let round = 0; round <= Number(flags.rounds); round += 1) {
    for (const [at, way] of ways.entries()) {
      const sample = await load(way, Number(flags.seconds));
      // The first round warms up.
      if (round > 0) samples[at]?.push(sample);
    }
  }
  const [byHand, gateway] = samples.map(summarize);
  if (byHand === undefined || gateway === undefined) throw new Error("nothing was measured");
  return { name, byHand, gateway };
}

const found: Found[] = [];
for (const [name, fill] of Object.entries(databases)) {
  found.push(await measure(name, await start(name, await fill())));
}
printFound(flags.json, { found }, () => {
  const lines = found.map(({ name, byHand, gateway }) => [
    name,
    gateway.median.toFixed(0),
    rangeText(gateway),
    byHand.median.toFixed(0),
    rangeText(byHand),
    (gateway.median / byHand.median).toFixed(2),
  ]);
  const head = ["", "gateway, µs of CPU", "range", "by hand", "range", "of it"];
  return markdownTable(head, lines);
});
