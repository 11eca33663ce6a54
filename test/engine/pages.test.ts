import path from "node:path";
import t, { type Test } from "tap";
import { freshEngine, query } from "./kit.ts";
import { freshMysql, sharedServer as sharedMysql } from "./mysql/kit.ts";
import { fillMysql, fillPostgres, fillSqlite, orders, type Plans } from "./paged.ts";
import { freshPostgres, sharedServer as sharedPostgres } from "./postgres/kit.ts";

const rowCount = 50_000;

/** Where pages begin: in each order behind some rows of a group of equal ones, and before many. */
const offsets = [0, 6_400, 31_400, 46_000];
const pageLength = 20;

const nullsLast = "with nulls, downward";

/** MariaDB finds the last nulls by the index, and sorts them: there it does not see their order. */
function sortsNulls(words: string): boolean {
  return /^(ref|range) by_rank .*filesort$/.test(words);
}

/** Reads pages in every order, from somewhere in the middle to the end of it. */
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
      t.same(await ask(page), rows.slice(1), `${name}, behind ${offset}: the same rows`);
      const found = await plans({ ...select, ...page });
      t.ok(found.length > 0);
      for (const { words, isRange } of found) {
        const isGood =
          isRange || (name === nullsLast && offset === offsets.at(-1) && sortsNulls(words));
        t.ok(isGood, `${name}, behind ${offset}: ${words}`);
      }
    }
  }
}

t.test("a page is a range of an index (SQLite)", async (t) => {
  const { engine, directory } = await freshEngine(t);
  await readPages(t, engine.address, fillSqlite(path.join(directory, "data"), rowCount));
});

t.test("a page is a range of an index (PostgreSQL)", async (t) => {
  const { engine, database } = await freshPostgres(t);
  const plans = await fillPostgres(t, await sharedPostgres(), database, rowCount);
  await readPages(t, engine.address, plans);
});

t.test("a page is a range of an index (MySQL)", async (t) => {
  const { engine } = await freshMysql(t);
  await readPages(t, engine.address, await fillMysql(t, await sharedMysql(), rowCount));
});
