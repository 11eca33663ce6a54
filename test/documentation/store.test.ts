import { readFileSync } from "node:fs";
import t from "tap";
import { MIGRATIONS } from "../../src/store/migrations.ts";
import { sharedServer } from "../engine/postgres/kit.ts";
import { makeStore } from "../store/kit.ts";

const page = readFileSync(new URL("../../docs/operations.md", import.meta.url), "utf8");

/** The rows of a table under a heading, by the text of their first cells. */
function firstCells(heading: string): string[] {
  const [, section = ""] = page.split(`### ${heading}\n`);
  const [table = ""] = /^\|[-|]+\|\n((?:\|.*\n)+)/m.exec(section)?.slice(1) ?? [];
  return table
    .trim()
    .split("\n")
    .map((row) => row.split("|")[1]?.trim() ?? "");
}

t.test("operators are told of each table of the store, and of each migration", async (t) => {
  const store = await makeStore(t, {}, await sharedServer());
  const found = await store.sql(
    "select tablename from pg_tables where schemaname = 'gatehouse' order by tablename",
  );
  const told = firstCells("What is in the store").flatMap((cell) => cell.match(/\w+/g) ?? []);
  t.strictSame(
    told.toSorted(),
    found.map(({ tablename }) => tablename),
  );
  const numbers = Array.from({ length: MIGRATIONS }, (_, index) => String(index + 1));
  t.strictSame(firstCells("Upgrading replicas"), numbers);
});
