import { setImmediate as nextTurn } from "node:timers/promises";
import t from "tap";
import { configurationSchema } from "../../src/config/schema.ts";
import { type Asked, withFilters } from "../../src/gateway/query.ts";
import { createGrammar } from "../../src/query/grammar.ts";
import { LONG_BODY, scan } from "../../src/query/scan.ts";

const grammar = createGrammar({ extraFields: [], operations: {}, level: "core" });
const gateway = {
  configuration: configurationSchema.parse({ server: { max_body_bytes: 8 * LONG_BODY } }),
  queries: { grammar, isEngine: false, known: Promise.resolve() },
};
const own = '{"column":"tenant","cmp":"=","value":"acme"}';
const decisions = [
  { allowed: true, reason: "allowed", role: "ReadOnly", entry: "main.a", additions: [own] },
] as const;

/** A Select that asks for rows by their keys. */
function asking(keys: number): Asked {
  const or = Array.from({ length: keys }, (_, value) => ({ column: "id", cmp: "=", value }));
  const select = { database: "main", from: "a", columns: ["id"], where: { or } };
  const body = Buffer.from(JSON.stringify({ Select: select }));
  return { body, query: scan(body, grammar, true) };
}

t.test("a short query is read again at once", (t) => {
  const sent = withFilters(gateway, asking(2), decisions);
  t.notOk(sent instanceof Promise);
  t.end();
});

t.test("long queries are read again in slices, between which others are served", async (t) => {
  const asked = asking(60_000);
  t.ok(asked.body.length > 4 * LONG_BODY);
  let isRead = false;
  // Several, which share the time of a turn: a fast machine may read one of them within it.
  const reads = Promise.all(
    Array.from({ length: 8 }, () => withFilters(gateway, asked, decisions)),
  );
  const whenRead = reads.finally(() => {
    isRead = true;
  });
  let turns = 0;
  for (; !isRead; turns++) await nextTurn();
  t.ok(turns > 1, `${turns} turns of others`);
  for (const { body, query } of await whenRead) {
    t.equal(body.length, asked.body.length + `{"and":[${own},]}`.length);
    t.strictSame(query.accesses[0]?.tables, ["a"]);
  }
});

t.test("a query that filters make too long is refused", (t) => {
  const asked = asking(100);
  const server = { max_body_bytes: asked.body.length };
  const configuration = configurationSchema.parse({ server });
  t.throws(() => withFilters({ ...gateway, configuration }, asked, decisions), {
    code: "body_too_large",
  });
  t.end();
});
