/** Nested queries use the indexes that SQL would, and cost about as much as statements by hand. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import t, { type Test } from "tap";
import { cpuSecondsOf, treeSeconds } from "../../bench/rig/program.ts";
import { nightly, sampled } from "../kit/nightly.ts";
import { nodeCommand } from "../kit/node.ts";
import { query, send, temporaryDirectory } from "./kit.ts";
import { freshMysql, sharedServer as sharedMysql } from "./mysql/kit.ts";
import { fillMysql, fillPostgres, fillSqlite, orders, type Plans } from "./paged.ts";
import { freshPostgres, sharedServer as sharedPostgres } from "./postgres/kit.ts";
import { startService } from "./postgres/service.ts";

/** Of each table. An item has 20 lines, until the lines end. */
const rowCounts = sampled([100_000, 1_000_000]);
const linesPerItem = 20;

const table = `create table main.lines (id bigint not null primary key, item_id bigint not null,
  amount int not null)`;
const index = "create index by_item on main.lines (item_id, id)";
const values = (n: string, whole: string) => `${n}, ${whole} + 1, ${n}`;

interface Scene {
  /** Of the engine. */
  readonly address: string;
  readonly plans: Plans;
  /** For `by-hand-program.ts`. */
  readonly url: string;
}

const scenes: Readonly<Record<string, (t: Test, rowCount: number) => Promise<Scene>>> = {
  async SQLite(t, rowCount) {
    const directory = temporaryDirectory(t);
    const { address } = await startService(t, `sqlite:${directory}`);
    const plans = await fillSqlite(directory, rowCount);
    const columns = ["id", "item_id", "amount"].map((name) => ({ name, type: "int" }));
    await query(address, { CreateTable: { database: "main", table: "lines", columns } });
    const path = join(directory, "main.sqlite");
    const file = new DatabaseSync(path);
    const whole = `(n - 1) / ${linesPerItem}`;
    file.exec(`
      with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < ${rowCount})
        insert into lines select ${values("n", whole)} from numbers;
      create unique index by_id on lines (id);
      ${index.replace("by_item on main.", "main.by_item on ")}; analyze`);
    file.close();
    return { address, plans, url: `sqlite:${path}` };
  },
  async PostgreSQL(t, rowCount) {
    const { database, url, sql } = await freshPostgres(t);
    // The values of a Select exceed it, as those of a larger table exceed the usual one.
    await sql(`alter database ${database} set work_mem = '1MB'`);
    const plans = await fillPostgres(t, await sharedPostgres(), database, rowCount);
    const whole = `(n - 1) / ${linesPerItem}`;
    const fill = `insert into main.lines select ${values("n", whole)} from generate_series(1, ${rowCount}) as n`;
    await sql(table, fill, index);
    await sql("vacuum analyze main.lines");
    const { address } = await startService(t, url);
    return { address, plans, url };
  },
  async MySQL(t, rowCount) {
    const { url, sql } = await freshMysql(t);
    const plans = await fillMysql(t, await sharedMysql(), rowCount);
    const whole = `(seq - 1) div ${linesPerItem}`;
    const fill = `insert into main.lines select ${values("seq", whole)} from seq_1_to_${rowCount}`;
    await sql("use main", table, fill, index, "analyze table main.lines");
    const { address } = await startService(t, url);
    return { address, plans, url };
  },
};

/** Returns a function that has statements run by hand. */
async function startByHand(t: Test, url: string) {
  const program = join(import.meta.dirname, "by-hand-program.ts");
  const child = spawn(...nodeCommand([program, url]), {
    stdio: ["ignore", "inherit", "inherit", "ipc"],
  });
  t.teardown(() => child.disconnect());
  const [{ port }] = await once(child, "message");
  return async (statements: readonly string[]): Promise<unknown[][]> => {
    const body = JSON.stringify(statements);
    const { text } = await send(`http://127.0.0.1:${port}`, { method: "POST", path: "/" }, body);
    return JSON.parse(text);
  };
}

const from = { database: "main", from: "items" };
const order_by = { column: "id" };
const onItem = "lines.item_id = items.id";

interface Case {
  /** Tables that must not be read whole. */
  readonly indexed: readonly string[];
  readonly index: RegExp;
  readonly select: object;
  readonly byHand: readonly string[];
  /** Of the time by hand. Without an index or with a query for each row it is ten times or more. */
  readonly most: number;
}

const cases: Readonly<Record<string, Case>> = {
  exists: {
    indexed: ["lines"],
    index: /by_item/,
    select: {
      ...from,
      columns: ["id"],
      order_by,
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
      ...from,
      columns: ["id", "region"],
      order_by,
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
  "NOT IN with a Select that has a limit": {
    indexed: ["items"],
    // PostgreSQL could also compare each row with all values.
    index: /Hash Join|LIST SUBQUERY|range PRIMARY/,
    select: {
      ...from,
      columns: ["id"],
      order_by,
      where: {
        and: [
          { column: "id", cmp: "BETWEEN", value: [99_801, 100_000] },
          {
            column: "id",
            cmp: "NOT IN",
            select: { from: "lines", columns: ["item_id"], order_by, limit: 100_000 },
          },
        ],
      },
    },
    byHand: [
      `select id from main.items where id between 99801 and 100000 and not exists (select 1 from
        (select item_id from main.lines order by id limit 100000) as picked
        where picked.item_id = items.id) order by id`,
    ],
    most: 3,
  },
  "order_by with after": {
    indexed: ["items"],
    index: /by_region/,
    select: {
      ...from,
      columns: ["region", "id"],
      order_by: [...orders["two columns"]],
      after: ["region c", 50_000],
      limit: 1000,
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
      ...from,
      columns: ["id", "region"],
      order_by,
      limit: 100,
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

/** SQLite works in a process of its own, and on MySQL each query reads the descriptions of its tables. */
const MOST_ELSEWHERE = 7;

/** Other load on the machine only adds time, so the lowest of each counts. */
const MOST_PAIRS = 20;

/** Seconds, far above the unit of 10 ms in which the system counts. */
const PER_SAMPLE = 0.2;

/** Seconds of processor time so far, of the engine, the program by hand and the databases. */
const used = () => treeSeconds(process.pid) - cpuSecondsOf(process.pid);

/** Unlike the time that passes, processor time hardly depends on other load. */
async function cost(work: () => Promise<unknown>): Promise<number> {
  const start = used();
  let times = 0;
  for (;;) {
    for (const end = times + 10; times < end; times += 1) await work();
    const seconds = used() - start;
    if (seconds > PER_SAMPLE) return seconds / times;
  }
}

const kinds = rowCounts.flatMap((rowCount) =>
  Object.entries(scenes).map(([database, open]) => ({ rowCount, database, open })),
);
for (const { rowCount, database, open } of kinds) {
  const name = `${rowCount} rows, ${database}`;
  const options = database === "MySQL" ? nightly : {};
  t.test(`nested queries use the indexes that SQL would (${name})`, options, async (t) => {
    const { address, plans, url } = await open(t, rowCount);
    const byHand = await startByHand(t, url);
    for (const [name, { select, indexed, index, byHand: statements }] of Object.entries(cases)) {
      const found = await plans(JSON.parse(JSON.stringify(select)));
      const words = `${name}: ${found.map((plan) => plan.words).join("; ")}`;
      const scanned = found
        .flatMap((plan) => plan.scanned)
        .filter((table) => indexed.includes(table));
      t.ok(words.match(index) !== null, words);
      t.same(scanned, [], `${name} reads no table whole`);
      const { body } = await query(address, { Select: select });
      const [expected] = await byHand(statements);
      t.equal(body.data?.length, expected?.length, `${name}: as many rows`);
    }
    await t.test("nested queries cost about as much as SQL by hand", nightly, async (t) => {
      for (const [name, one] of Object.entries(cases)) await compareCosts(t, name, one);
    });
    async function compareCosts(t: Test, name: string, one: Case): Promise<void> {
      const { select } = one;
      const most = database === "PostgreSQL" ? one.most : Math.max(one.most, MOST_ELSEWHERE);
      let [own, other] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
      for (let pair = 0; pair < MOST_PAIRS && !(own / other <= most); pair += 1) {
        own = Math.min(own, await cost(() => query(address, { Select: select })));
        other = Math.min(other, await cost(() => byHand(one.byHand)));
      }
      t.comment(`${name}: ${(own * 1e3).toFixed(2)} ms, ${(other * 1e3).toFixed(2)} by hand`);
      const ratio = own / other;
      t.ok(ratio <= most, `${name}: ${ratio.toFixed(2)} times, at most ${most}`);
    }
  });
}
