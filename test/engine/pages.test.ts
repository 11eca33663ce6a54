import path from "node:path";
import t, { type Test } from "tap";
import { LimitCounter } from "../../src/engine/limits.ts";
import { freshEngine, query } from "./kit.ts";
import { freshMysql, sharedServer as sharedMysql } from "./mysql/kit.ts";
import { fillMysql, fillPostgres, fillSqlite, orders, type Plans } from "./paged.ts";
import { freshPostgres, sharedServer as sharedPostgres } from "./postgres/kit.ts";

const rowCount = 50_000;

/** Pages begin within groups of equal rows. */
const offsets = [0, 6_400, 31_400, 46_000];
const pageLength = 20;

const nullsLast = "with nulls, downward";

/** MariaDB finds the last nulls by the index, and then sorts them. */
function sortsNulls(words: string): boolean {
  return /^(ref|range) by_rank .*filesort$/.test(words);
}

/** Reads pages in every order. */
async function readPages(t: Test, address: string, plans: Plans): Promise<void> {
  for (const [name, order] of Object.entries(orders)) {
    const order_by = order.map((one) => ({ ...one }));
    const columns = ["id", "rank", "region"];
    const select = { database: "main", from: "items", columns, order_by };
    const ask = async (more: object): Promise<Record<string, never>[]> => {
      const { status, body, text } = await query(address, { Select: { ...select, ...more } });
      if (status !== 200) throw new Error(text);
      return JSON.parse(JSON.stringify(body.data));
    };
    const keyOf = (row: Record<string, never> | undefined) =>
      order_by.map(({ column }) => row?.[column] ?? null);
    for (const offset of offsets) {
      const rows = await ask({ offset, limit: 1 + 2 * pageLength });
      const page = { after: keyOf(rows[0]), limit: 2 * pageLength };
      t.same(await ask(page), rows.slice(1), `${name}, after ${offset}: the same rows`);
      const found = await plans({ ...select, ...page });
      t.ok(found.length > 0);
      for (const { words, isRange } of found) {
        const isGood =
          isRange || (name === nullsLast && offset === offsets.at(-1) && sortsNulls(words));
        t.ok(isGood, `${name}, after ${offset}: ${words}`);
      }
    }
  }
}

/** Reads rows by a column that is also compared by bytes. */
async function readFiltered(t: Test, plans: Plans): Promise<void> {
  const order_by = [...orders["two columns"]];
  const select = { database: "main", from: "items", columns: ["amount"], order_by, limit: 20 };
  const bytewise = [{ database: "main", table: "items", bytewise: ["region"] }];
  for (const [cmp, value] of [
    ["=", "region a"],
    ["IN", ["region a", "region b"]],
  ] as const) {
    const where = { column: "region", cmp, value: typeof value === "string" ? value : [...value] };
    for (const { words } of await plans({ ...select, where }, new LimitCounter(bytewise))) {
      t.match(words, /by_region/, `${cmp}: ${words}`);
      t.notMatch(words, /SCAN|Seq Scan|^ALL/, words);
    }
  }
}

/** Reads rows of the table by its key for other rows. */
async function readIncluded(t: Test, plans: Plans): Promise<void> {
  const order_by = { column: "amount" };
  const own = { as: "own", table: "items", on: "items.id = i.id", columns: ["amount"], order_by };
  const from = { table: "items", as: "i" };
  const query = { database: "main", from, columns: ["rank"], include: [own] };
  for (const { words } of await plans(query)) {
    t.match(words, /SEARCH main.items [^;]*\(id=\?\)|Scan items_pkey \(id = |ref PRIMARY/, words);
    t.notMatch(words, /SCAN main.items|Seq Scan/, words);
  }
}

t.test("a page is a range of an index, and included rows are found by one (SQLite)", async (t) => {
  const { engine, directory } = await freshEngine(t);
  const plans = await fillSqlite(path.join(directory, "data"), rowCount);
  await readPages(t, engine.address, plans);
  await readFiltered(t, plans);
  await readIncluded(t, plans);
});

t.test(
  "a page is a range of an index, and included rows are found by one (PostgreSQL)",
  async (t) => {
    const { engine, database } = await freshPostgres(t);
    const plans = await fillPostgres(t, await sharedPostgres(), database, rowCount);
    await readPages(t, engine.address, plans);
    await readFiltered(t, plans);
    await readIncluded(t, plans);
  },
);

t.test("a page is a range of an index, and included rows are found by one (MySQL)", async (t) => {
  const { engine } = await freshMysql(t);
  const plans = await fillMysql(t, await sharedMysql(), rowCount);
  await readPages(t, engine.address, plans);
  await readFiltered(t, plans);
  await readIncluded(t, plans);
});
