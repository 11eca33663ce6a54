import t from "tap";
import { sql } from "../../src/engine/sql/fragment.ts";

const double = { quote: '"', numbersValues: true } as const;
const back = { quote: "`", numbersValues: false } as const;

t.test("values are bound, whatever they hold", async (t) => {
  const condition = sql`${sql.id("a")} = ${"'; drop table x; --"}`;
  const fragment = sql`select ${sql.join([1, sql`b`, null])} where ${sql.join([condition, true], " and ")}`;
  const values = [1, null, "'; drop table x; --", true];
  t.strictSame(
    { ...fragment.compile(double) },
    { text: 'select $1, b, $2 where "a" = $3 and $4', values, notation: double },
  );
  t.equal(fragment.compile(back).text, "select ?, b, ? where `a` = ? and ?");
});

t.test("names are quoted, and a quote in one is doubled", async (t) => {
  const name = sql.id('a"b', "c`d");
  t.equal(name.compile(double).text, '"a""b"."c`d"');
  t.equal(name.compile(back).text, '`a"b`.`c``d`');
});

t.test("nothing joined is nothing", async (t) => {
  t.strictSame(sql`(${sql.join([])})`.compile(double).text, "()");
});
