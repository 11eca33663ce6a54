/** Nested queries use the indexes that SQL would, and cost about as much as statements by hand. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { createConnection } from "mysql2/promise";
import { Client } from "pg";
import t, { type Test } from "tap";
import { treeSeconds } from "../../bench/rig/program.ts";
import { caseCount } from "../kit/nightly.ts";
import { nodeCommand } from "../kit/node.ts";
import { freshEngine, query, send } from "./kit.ts";
import { freshMysql, sharedServer as sharedMysql } from "./mysql/kit.ts";
import { fillMysql, fillPostgres, fillSqlite, orders, type Plans } from "./paged.ts";
import { freshPostgres, sharedServer as sharedPostgres } from "./postgres/kit.ts";

/** Of each table. An item has 20 lines, until the lines end. */
const rowCount = caseCount(100_000, 1_000_000);
const linesPerItem = 20;

const table = `create table main.lines (id bigint not null primary key, item_id bigint not null,
  amount int not null)`;
const index = "create index by_item on main.lines (item_id, id)";
const values = (n: string, whole: string) => `${n}, ${whole} + 1, ${n}`;

interface Scene {
  readonly address: string;
  readonly plans: Plans;
  /** Runs statements written by hand on a connection of their own, and reads their rows as JSON. */
  byHand(...statements: string[]): Promise<unknown>;
}

/** An address that runs statements on an SQLite file. */
async function startByHand(t: Test, file: string): Promise<string> {
  const program = path.join(import.meta.dirname, "by-hand-program.ts");
  const child = spawn(...nodeCommand([program, file]), {
    stdio: ["ignore", "inherit", "inherit", "ipc"],
  });
  t.teardown(() => child.disconnect());
  const [{ port }] = await once(child, "message");
  return `http://127.0.0.1:${port}`;
}

const scenes: Readonly<Record<string, (t: Test) => Promise<Scene>>> = {
  async SQLite(t) {
    const { engine, directory } = await freshEngine(t);
    const plans = fillSqlite(path.join(directory, "data"), rowCount);
    const file = new DatabaseSync(path.join(directory, "data", "main.sqlite"));
    const whole = `(n - 1) / ${linesPerItem}`;
    file.exec(`${table};
      with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < ${rowCount})
        insert into main.lines select ${values("n", whole)} from numbers;
      ${index.replace("by_item on main.", "main.by_item on ")}; analyze`);
    file.close();
    const address = await startByHand(t, path.join(directory, "data", "main.sqlite"));
    const byHand = async (...all: string[]) => {
      const options = { method: "POST", path: "/" };
      const { body }: { body: unknown } = await send(address, options, JSON.stringify(all));
      return body;
    };
    return { address: engine.address, plans, byHand };
  },
  async PostgreSQL(t) {
    const { engine, database, url, sql } = await freshPostgres(t);
    const plans = await fillPostgres(t, await sharedPostgres(), database, rowCount);
    const whole = `(n - 1) / ${linesPerItem}`;
    const fill = `insert into main.lines select ${values("n", whole)} from generate_series(1, ${rowCount}) as n`;
    await sql(table, fill, index);
    await sql("vacuum analyze main.lines");
    const client = new Client({ connectionString: url });
    await client.connect();
    t.teardown(() => client.end());
    const byHand = async (...all: string[]) => {
      const results: unknown[] = [];
      for (const words of all) results.push((await client.query(words)).rows);
      return JSON.parse(JSON.stringify(results));
    };
    return { address: engine.address, plans, byHand };
  },
  async MySQL(t) {
    const { engine, url, sql } = await freshMysql(t);
    const plans = await fillMysql(t, await sharedMysql(), rowCount);
    const whole = `(seq - 1) div ${linesPerItem}`;
    const fill = `insert into main.lines select ${values("seq", whole)} from seq_1_to_${rowCount}`;
    await sql("use main", table, fill, index, "analyze table main.lines");
    const connection = await createConnection(`${url}main`);
    t.teardown(() => connection.destroy());
    const byHand = async (...all: string[]) => {
      const results: unknown[] = [];
      for (const words of all) results.push((await connection.query(words))[0]);
      return JSON.parse(JSON.stringify(results));
    };
    return { address: engine.address, plans, byHand };
  },
};

const from = { database: "main", from: "items" };
const order_by = { column: "id" };
const onItem = "lines.item_id = items.id";

interface Case {
  /** Tables that must not be read whole. */
  readonly indexed: readonly string[];
  readonly index: RegExp;
  readonly select: object;
  readonly byHand: readonly string[];
  /** Of the time by hand, checked every night. */
  readonly most: number;
}

const cases: Readonly<Record<string, Case>> = {
  exists: {
    indexed: ["lines"],
    index: /by_item/,
    select: {
      ...{ ...from, columns: ["id"], order_by },
      where: {
        and: [
          { column: "id", cmp: "<=", value: 200 },
          {
            exists: {
              table: "lines",
              on: onItem,
              where: { column: "amount", cmp: "<", value: 20_000 },
            },
          },
        ],
      },
    },
    byHand: [
      `select id from main.items where id <= 200 and exists (select 1 from main.lines
        where lines.item_id = items.id and amount < 20000) order by id`,
    ],
    most: 3,
  },
  "IN with a Select": {
    indexed: ["items", "lines"],
    index: /items_pkey|PRIMARY|INTEGER PRIMARY KEY|sqlite_autoindex_items_1/,
    select: {
      ...{ ...from, columns: ["id", "region"], order_by },
      where: {
        column: "id",
        cmp: "IN",
        select: {
          from: "lines",
          columns: ["item_id"],
          where: { column: "id", cmp: "<=", value: 8000 },
        },
      },
    },
    byHand: [
      `select id, region from main.items where id in (select item_id from main.lines
        where id <= 8000) order by id`,
    ],
    most: 3,
  },
  "order_by with after": {
    indexed: ["items"],
    index: /by_region/,
    select: {
      ...{ ...from, columns: ["region", "id"], order_by: [...orders["two columns"]] },
      ...{ after: ["region c", 50_000], limit: 1000 },
    },
    byHand: [
      `select region, id from main.items where region >= 'region c'
        and (region > 'region c' or id > 50000) order by region, id limit 1000`,
    ],
    most: 3,
  },
  include: {
    indexed: ["lines"],
    index: /by_item/,
    select: {
      ...{ ...from, columns: ["id", "region"], order_by, limit: 100 },
      include: [{ as: "lines", table: "lines", on: onItem, columns: ["id", "amount"] }],
    },
    byHand: [
      "select id, region from main.items order by id limit 100",
      `select item_id, id, amount from main.lines where item_id in
        (${Array.from({ length: 100 }, (_, at) => at + 1)})`,
    ],
    most: 1.5,
  },
};

/** On MySQL, each query also reads the descriptions of its tables. */
const MOST_ELSEWHERE = 2;

/** Of the time by hand, checked at each commit. A lost index or a query for each row takes more. */
const wideLimits: Readonly<Record<string, number>> = { SQLite: 5, PostgreSQL: 5, MySQL: 12 };

/** Other load on the machine only adds time. */
const MOST_PAIRS = 20;

/** Seconds, far above the unit of 10 ms in which the system counts. */
const PER_SAMPLE = 0.2;

/**
 * Processor time of all processes in seconds, from the client to the database. Unlike the time that
 * passes, it hardly depends on other load.
 */
async function cost(work: () => Promise<unknown>): Promise<number> {
  const start = treeSeconds(process.pid);
  let used = 0;
  let times = 0;
  while (used < PER_SAMPLE) {
    for (const end = times + 10; times < end; times += 1) await work();
    used = treeSeconds(process.pid) - start;
  }
  return used / times;
}

for (const [database, open] of Object.entries(scenes)) {
  t.test(`nested queries cost about as much as SQL by hand (${database})`, async (t) => {
    const { address, plans, byHand } = await open(t);
    for (const [name, one] of Object.entries(cases)) {
      const { select, indexed, index } = one;
      const found = await plans(JSON.parse(JSON.stringify(select)));
      const words = `${name}: ${found.map((plan) => plan.words).join("; ")}`;
      const scanned = found
        .flatMap((plan) => plan.scanned)
        .filter((table) => indexed.includes(table));
      t.ok(words.match(index) !== null, words);
      t.same(scanned, [], `${name} reads no table whole`);
      const { body } = await query(address, { Select: select });
      const [expected] = (await byHand(...one.byHand)) as unknown[][];
      t.equal(body.data?.length, expected?.length, `${name}: as many rows`);
      const strict = database === "PostgreSQL" ? one.most : Math.max(one.most, MOST_ELSEWHERE);
      const most = caseCount(wideLimits[database] ?? 0, strict);
      let [own, other] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
      for (let pair = 0; pair < MOST_PAIRS && !(own / other <= most); pair += 1) {
        own = Math.min(own, await cost(() => query(address, { Select: select })));
        other = Math.min(other, await cost(() => byHand(...one.byHand)));
      }
      const ratio = own / other;
      t.ok(ratio <= most, `${name}: ${ratio.toFixed(2)} times, at most ${most}`);
    }
  });
}
