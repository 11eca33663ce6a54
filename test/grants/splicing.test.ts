/** Filters in the bodies that the parser is fuzzed with: once, read alike by all, and nothing else. */
import t from "tap";
import { parseAccessFile } from "../../src/core/access/parse.ts";
import { decideQuery } from "../../src/core/access/policy.ts";
import { filterAdditions, type QueryDecision } from "../../src/core/access/rights.ts";
import { addedTexts } from "../../src/core/access/row-filter.ts";
import { runAtOnce } from "../../src/core/base/cooperative-scheduling.ts";
import { addToBytes, splice } from "../../src/core/query/additions.ts";
import { termText } from "../../src/core/query/conditions.ts";
import { parseQuery } from "../../src/core/query/parse.ts";
import type { Query } from "../../src/core/query/query.ts";
import { QueryRefused } from "../../src/core/query/refusal.ts";
import { choicesOf } from "../query/arbitrary.ts";
import { judgeBody } from "../query/differential.ts";
import { BodyMaker } from "../query/fuzz-bodies.ts";
import { gist, plain } from "../query/kit.ts";
import { entry } from "./kit.ts";

const filters = [
  '{ column = "tenant", cmp = "=", value = "@tenant" }',
  '{ column = "größe", cmp = "IN", value = [9007199254740993, -1] }',
];
const attributes = 'attributes = { tenant = "a\\"\\\\é😀\\u0007 \\"where\\":null" }';
const file = `[[users]]\nusername = "rita"\n${attributes}\n\n${entry("rita", "*", "ReadWrite", `row_filter = [${filters.join(", ")}]`)}`;
const snapshot = parseAccessFile(file, "access_control.toml");
const subject = { username: "rita", tokenDatabase: "*" };

/** The query, or the code by which it is refused. */
function read(body: Buffer): Query | string {
  try {
    return parseQuery(body, plain);
  } catch (error) {
    if (error instanceof QueryRefused) return error.code;
    throw error;
  }
}

function decide(query: Query): QueryDecision {
  return decideQuery(snapshot, subject, query, { via: "query", now: 0, isEngine: true });
}

/** The body with what a decision adds, as the gateway makes it. */
function narrowed(body: Buffer, { decisions }: QueryDecision): Buffer {
  const additions = filterAdditions(decisions).map(({ node, conditions }) => ({
    node,
    conditions: conditions.map(termText),
  }));
  return splice(body, additions);
}

/** The bytes of a body but for each `where` that is null, which gives way. */
function kept(body: Buffer, { accesses }: Query, { decisions }: QueryDecision): Buffer {
  const pieces: Buffer[] = [];
  let from = 0;
  for (const [at, { node }] of accesses.entries()) {
    const { where } = node;
    const isAdded = addedTexts(decisions[at]?.filters).length > 0;
    if (where === undefined || !isAdded || body[where.start] !== 0x6e) continue;
    pieces.push(body.subarray(from, where.start));
    from = where.end;
  }
  return Buffer.concat([...pieces, body.subarray(from)]);
}

/** True if `whole` contains all bytes of `part` in order. */
function isWithin(part: Buffer, whole: Buffer): boolean {
  let at = 0;
  for (const byte of whole) if (byte === part[at]) at++;
  return at === part.length;
}

/** The fault of a filtered body, if any. */
function faultOf(body: Buffer, query: Query, decision: QueryDecision): string | undefined {
  const up = narrowed(body, decision);
  const again = read(up);
  // The gateway refuses what is too deep by its filters.
  if (typeof again === "string") return again === "nesting_too_deep" ? undefined : again;
  const { fault } = judgeBody(up);
  if (fault !== undefined) return fault;
  const places = (one: Query) => JSON.stringify(one.accesses.map(gist));
  if (places(again) !== places(query)) return "other tables";
  if (!isWithin(kept(body, query, decision), up)) return "bytes of the client's are gone";
  const second = decide(again);
  if (!second.allowed) return `denied then: ${second.reason}`;
  if (!narrowed(up, second).equals(up)) return "filtered twice";
  for (const [at, { node }] of again.accesses.entries()) {
    const { filters = [] } = decision.decisions[at] ?? {};
    const demanded = filters.flatMap(({ conditions }) => conditions.map(termText));
    const said =
      node.where === undefined ? "" : up.toString("utf8", node.where.start, node.where.end);
    if (addedTexts(filters).length === 0) continue;
    if (!demanded.every((one) => said.includes(one))) return "a filter is missing";
  }
  return undefined;
}

t.test("filters are added once to any query, and every parser sees them", async (t) => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const maker = new BodyMaker(choicesOf(seed));
  let count = 0;
  for (let number = 0; number < 12_000; number++) {
    const body = maker.next();
    const query = read(body);
    if (typeof query === "string") continue;
    const decision = decide(query);
    if (!decision.allowed) continue;
    if (filterAdditions(decision.decisions).length === 0) continue;
    count++;
    maker.keep(body);
    const fault = faultOf(body, query, decision);
    if (fault !== undefined) t.fail(`seed ${seed}: ${fault}: ${body.toString("base64")}`);
  }
  t.ok(count > 100, `${count} bodies were filtered`);
});

t.test("a long body is parsed at most once to judge it", async (t) => {
  const file = `[[users]]\nusername = "rita"\n${attributes}\n\n${entry("rita", "*", "ReadWrite", `row_filter = [${filters[0]}]\nrequire_where = ["id"]\nmax_rows = 100000\nmax_changes = 100000`)}`;
  const limited = parseAccessFile(file, "access_control.toml");
  const parse = t.capture(JSON, "parse", JSON.parse);
  const parsedBytes = (text: string) => {
    const query = parseQuery(Buffer.from(text), plain);
    parse();
    const { reason } = decideQuery(limited, subject, query, {
      via: "query",
      now: 0,
      isEngine: true,
    });
    t.match(reason, /^(allowed|row_denied)$/, text.slice(0, 100));
    return parse().reduce((sum, { args: [one] }) => sum + one.length, 0);
  };
  const pin = '{"column":"id","cmp":"=","value":1}';
  const joins = [1, 2, 3, 4].map(
    (n) => `{"join_type":"INNER","table":"tickets","as":"j${n}","on":"m.id = j${n}.id"}`,
  );
  const from = `"from":{"table":"tickets","as":"m"},"join":[${joins}],"columns":["m.id"]`;
  for (const length of [5_000, 50_000]) {
    const list = `[${Array(length).fill("1.5")}]`;
    let where = `{"column":"m.id","cmp":"IN","value":${list}}`;
    for (let level = 6; level > 1; level--) {
      where = `{"column":"m.id","cmp":"IN","select":{${from},"where":${where}}}`;
    }
    const bodies = [
      `{"Select":{"database":"main",${from},"limit":1,"where":${where}}}`,
      `{"Update":{"database":"main","table":"tickets","set":{"x":${list}},"where":${pin}}}`,
      `{"Insert":{"database":"main","table":"tickets","values":[{"x":${list}}]}}`,
    ];
    for (const body of bodies) {
      const bytes = parsedBytes(body);
      t.ok(bytes <= 1.1 * body.length, `${bytes} of ${body.length}: ${body.slice(0, 80)}`);
    }
  }
});

t.test("a filter is added after more columns than a shape has, even if one fits it", async (t) => {
  const text = '[[users]]\nusername = "rita"\n\n';
  const own = '[{ column = "tenant", cmp = "=", value = "a" }]';
  const limited = parseAccessFile(
    text + entry("rita", "*", "ReadWrite", `row_filter = ${own}`),
    "access_control.toml",
  );
  const additionsFor = (column: string) => {
    const columns = JSON.stringify(Array(5000).fill("tenant"));
    const body = `{"Select":{"database":"main","from":"tickets","columns":${columns},"where":{"value":"a","cmp":"=","column":"${column}"}}}`;
    const query = parseQuery(Buffer.from(body), plain);
    const context = { via: "query", now: 0, isEngine: true } as const;
    return addedTexts(decideQuery(limited, subject, query, context).decisions[0]?.filters).length;
  };
  t.equal(additionsFor("status"), 1);
  t.equal(additionsFor("tenant"), 0);
});

t.test("long values that are equal in another spelling stay as they are", async (t) => {
  const long = "a".repeat(1100);
  const where = `{"and":[{"column":"x","cmp":"=","value":"${long}"},{"column":"y","cmp":"=","value":"\\u0061${long.slice(1)}"}]}`;
  const body = Buffer.from(`{"Delete":{"database":"main","table":"tickets","where":${where}}}`);
  const query = parseQuery(body, plain);
  const additions = filterAdditions(decide(query).decisions);
  t.ok(additions.length > 0);
  const steps = addToBytes({ body, query }, additions, plain, Number.POSITIVE_INFINITY);
  t.ok(runAtOnce(steps).body.includes(where));
});
