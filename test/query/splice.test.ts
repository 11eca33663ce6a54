import { deepStrictEqual } from "node:assert";
import fc from "fast-check";
import t from "tap";
import { ExactNumber } from "../../src/core/json/exact.ts";
import { splice } from "../../src/core/query/additions.ts";
import { parseQuery } from "../../src/core/query/parse.ts";
import type { Access } from "../../src/core/query/query.ts";
import { choicesOf, query, seeds, write } from "./arbitrary.ts";
import { plain, widened } from "./kit.ts";

const filters = [
  '{"column":"tenant","cmp":"=","value":"acme \\u00e9"}',
  '{"column":"id","cmp":"IN","value":[9007199254740993,1]}',
];
const takesWhere = new Set(["Select", "Update", "Delete"]);

function accessesOf(body: Buffer): readonly Access[] {
  return parseQuery(body, plain).accesses;
}

function filtered(body: Buffer, conditions: readonly string[]): Buffer {
  const additions = accessesOf(body)
    .filter(({ node }) => takesWhere.has(node.operation))
    .map(({ node }) => ({ node, conditions }));
  return splice(body, additions);
}

/** The expected body with these conditions added. */
function expected(value: unknown, conditions: readonly object[]): unknown {
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => {
      if (key === "Batch") return [key, inner.map((one: unknown) => expected(one, conditions))];
      if (key === "Preview") return [key, expected(inner, conditions)];
      if (!takesWhere.has(key)) return [key, inner];
      const terms = inner.where == null ? conditions : [...conditions, inner.where];
      const [first, ...others] = terms;
      return [key, { ...inner, where: others.length === 0 ? first : { and: terms } }];
    }),
  );
}

const previewOrQuery = fc.oneof(
  { weight: 3, arbitrary: query },
  {
    weight: 1,
    arbitrary: query
      .filter((body) => ["Insert", "Update", "Delete"].includes(Object.keys(body)[0] ?? ""))
      .map((body) => ({ Preview: body })),
  },
);

t.test("only conditions are added, to every where in any spelling", async () => {
  fc.assert(
    fc.property(previewOrQuery, seeds, fc.integer({ min: 1, max: 2 }), (value, seed, count) => {
      const body = Buffer.from(write(value, choicesOf(seed)));
      const conditions = filters.slice(0, count);
      const result = filtered(body, conditions);
      parseQuery(result, plain);
      const parsed: unknown = JSON.parse(result.toString());
      const wanted = expected(
        JSON.parse(body.toString()),
        conditions.map((text) => JSON.parse(text)),
      );
      deepStrictEqual(parsed, wanted);
    }),
    { numRuns: 2000 },
  );
});

t.test("the client's bytes stay unchanged", async (t) => {
  const body =
    '{ "Batch" : [{"Select":{"wh\\u0065re" : null ,"database":"m","from":"a","columns":["*"]}},\n{"Update":{"database":"m","table":"a","set":{"n":1.50e1},"where":{"column":"id","cmp":"=","value":12345678901234567890}}},{"Delete":{"database":"m","table":"a","where":null}}]}';
  t.equal(
    filtered(Buffer.from(body), ["F"]).toString(),
    '{ "Batch" : [{"Select":{"wh\\u0065re" : F ,"database":"m","from":"a","columns":["*"]}},\n{"Update":{"database":"m","table":"a","set":{"n":1.50e1},"where":{"and":[F,{"column":"id","cmp":"=","value":12345678901234567890}]}}},{"Delete":{"database":"m","table":"a","where":F}}]}',
  );
  const bare = '{"Select":{ "database":"m","from":"a","columns":["*"]}}';
  t.equal(
    filtered(Buffer.from(bare), ["F", "G"]).toString(),
    '{"Select":{"where":{"and":[F,G]}, "database":"m","from":"a","columns":["*"]}}',
  );
});

t.test("a Preview has the node and the fields of the change in it", async (t) => {
  const text =
    '{"Preview":{"Insert":{"database":"m","table":"a","values":[{"n":18446744073709551617,"f":1.0,"i":7}]}}}';
  const query = parseQuery(Buffer.from(text), plain);
  const node = query.accesses[0]?.node;
  t.equal(node?.operation, "Insert");
  t.equal(text.slice(node?.range.start, node?.range.end), text.slice(21, -2));
  t.equal(node?.where, undefined);
  t.strictSame(query.operations.at(0)?.fields, {
    database: "m",
    table: "a",
    values: [{ n: 18446744073709551617n, f: new ExactNumber("1.0"), i: 7 }],
  });
  const truncate = Buffer.from('{"Truncate":{"database":"m","table":"a","trace":1}}');
  const configured = parseQuery(truncate, widened);
  t.equal(configured.operations.at(0), undefined);
  t.equal(configured.accesses[0]?.node.hasExtraFields, true);
});
