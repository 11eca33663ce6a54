import { serialize } from "node:v8";
import t from "tap";
import { runAtOnce } from "../../src/core/base/cooperative-scheduling.ts";
import { parseQuery, parseQueryInSlices, parseQueryInSteps } from "../../src/core/query/parse.ts";
import { QueryRefused } from "../../src/core/query/refusal.ts";
import { insertOf, plain, widened } from "./kit.ts";

const target = '"database":"main","table":"users"';
const many = (count: number, make: (index: number) => string) =>
  Array.from({ length: count }, (_, index) => make(index)).join(",");
const row = (index: number) => `{"id":${index},"name":"n","tags":["a",{"b":[1,2]}]}`;
const comparison = (index: number) => `{"column":"c${index}","cmp":"=","value":[1,2,3]}`;

const longBodies = {
  rows: `{"Insert":{${target},"values":[${many(3000, row)}]}}`,
  "one wide row": `{"Insert":{${target},"values":[{${many(4000, (index) => `"column${index}":"${index}"`)}}]}}`,
  "a set": `{"Update":{"set":{${many(9000, (index) => `"c${index}":0`)}},"where":null,${target}}}`,
  "a cell": insertOf(`[${many(20_000, String)}]`),
  "a deep cell": insertOf(`[${many(1000, () => "[".repeat(50) + "]".repeat(50))}]`),
  conditions: `{"Delete":{${target},"where":{"or":[${many(3000, comparison)}]}}}`,
  "a list": `{"Delete":{${target},"where":{"not":{"column":"a","cmp":"IN","value":[${many(20_000, String)}]}}}}`,
  "a pair": `{"Delete":{${target},"where":{"value":[[${many(20_000, String)}],2],"column":"a","cmp":"BETWEEN"}}}`,
  columns: `{"Select":{"columns":[${many(9000, (index) => `"users.c${index}"`)}],"database":"main","from":"users"}}`,
  definitions: `{"CreateTable":{${target},"columns":[${many(3000, (index) => `{"name":"c${index}","type":"int"}`)}]}}`,
  "a Batch": `{"Batch":[${many(900, (index) => insertOf(`"${index}"`))}]}`,
  "an extra field": `{"DropTable":{"trace":{"a":[${many(3000, row)}]},${target}}}`,
};

/** The steps that a parseQuery takes, and what it gives. */
function counted(body: string) {
  const steps = parseQueryInSteps(Buffer.from(body), widened, 1024);
  for (let count = 0; ; count++) {
    const step = steps.next();
    if (step.done === true) return { count, query: step.value };
  }
}

t.test("a long body is parsed in steps of bounded length, with the same result", async (t) => {
  for (const [name, body] of Object.entries(longBodies)) {
    const { count, query } = counted(body);
    // Comparing such values member by member takes a minute.
    const whole = serialize(parseQuery(Buffer.from(body), widened));
    t.ok(serialize(query).equals(whole), name);
    t.ok(count > body.length / 1024 / 4, `${name}: ${count} steps for ${body.length} bytes`);
  }
});

t.test("what parsing a long body takes is charged, and bounded", async (t) => {
  for (const [name, text] of Object.entries(longBodies)) {
    const body = Buffer.from(text);
    let held = 0;
    const hold = (bytes: number) => {
      held += bytes;
    };
    runAtOnce(parseQueryInSteps(body, widened, 1024, hold));
    t.ok(held <= 8 * body.length, `${name}: ${held} bytes for ${body.length}`);
    if (/^(?:rows|a cell|a list|a pair)$/.test(name)) t.equal(held, 0, `${name} makes no tokens`);
    if (name === "conditions") t.ok(held > 0, "conditions do");
  }
  const refuse = () => {
    throw new Error("too much");
  };
  const steps = parseQueryInSteps(Buffer.from(longBodies.conditions), plain, 1024, refuse);
  t.throws(() => runAtOnce(steps), { message: "too much" });
});

function refusalBy(read: () => unknown): string {
  try {
    read();
    return "accepted";
  } catch (error) {
    if (error instanceof QueryRefused) return `${error.code}: ${error.message}`;
    throw error;
  }
}

t.test("an error in a long body is the same in steps", async (t) => {
  const tails = ['"x":1}', ",,", "}}}}}", ']}}{"a":1}', "]]]]", '"\\ud800"', ""];
  for (const [name, body] of Object.entries(longBodies)) {
    for (const [index, tail] of tails.entries()) {
      const broken = Buffer.from(body.slice(0, body.length - 4 - index) + tail);
      const expected = refusalBy(() => parseQuery(broken, plain));
      t.equal(
        refusalBy(() => runAtOnce(parseQueryInSteps(broken, plain, 512))),
        expected,
        name,
      );
      t.not(expected, "accepted", name);
    }
  }
});

t.test("a BETWEEN that is read in steps still needs two values", async (t) => {
  const list = `[[${many(5000, String)}],2,3]`;
  const body = `{"Delete":{${target},"where":{"column":"a","cmp":"BETWEEN","value":${list}}}}`;
  t.match(
    refusalBy(() => runAtOnce(parseQueryInSteps(Buffer.from(body), plain, 64))),
    /^invalid_value/,
  );
});

t.test("only an empty set is refused, also in steps", async (t) => {
  const update = (set: string) => Buffer.from(`{"Update":{${target},"where":null,"set":${set}}}`);
  t.match(
    refusalBy(() => runAtOnce(parseQueryInSteps(update("{}"), plain, 1))),
    /^invalid_value/,
  );
  t.equal(
    refusalBy(() => runAtOnce(parseQueryInSteps(update('{"a":[1,2]}'), plain, 1))),
    "accepted",
  );
});

const longRows = many(300_000, (index) => `{"c":"${index}"}`);

t.test("other work runs between the slices of a long scan", async (t) => {
  let turns = 0;
  let isDone = false;
  const turn = () => {
    turns++;
    if (!isDone) setImmediate(turn);
  };
  setImmediate(turn);
  const body = Buffer.from(`{"Insert":{${target},"values":[${longRows}]}}`);
  // Several, which share the time of a turn: a fast machine may read one of them within it.
  const queries = await Promise.all(
    Array.from({ length: 8 }, () => parseQueryInSlices(body, plain)),
  );
  isDone = true;
  for (const query of queries) t.equal(query?.accesses.length, 1);
  t.ok(turns > 1, `${turns} turns`);
  const broken = Buffer.from(`{"c":[${longRows}]}`);
  await t.rejects(parseQueryInSlices(broken, plain), { code: "unknown_operation" });
});

t.test("a long parseQuery stops when its result is no longer wanted", async (t) => {
  const body = Buffer.from(`{"Insert":{${target},"values":[${longRows}]}}`);
  let asked = 0;
  t.equal(await parseQueryInSlices(body, plain, () => ++asked < 3), undefined);
  t.equal(asked, 3);
});

t.test("many long scans block the event loop little longer than one", async (t) => {
  const body = Buffer.from(`{"Insert":{${target},"values":[${longRows}]}}`);
  const turns: number[] = [];
  // What this thread itself takes: what else the machine does counts for nothing.
  const spent = () => process.threadCpuUsage().user / 1000;
  let before = spent();
  let isDone = false;
  const turn = () => {
    const now = spent();
    turns.push(now - before);
    before = now;
    if (!isDone) setImmediate(turn);
  };
  setImmediate(turn);
  await Promise.all(Array.from({ length: 16 }, () => parseQueryInSlices(body, plain)));
  isDone = true;
  const usual = turns.sort((one, other) => one - other)[turns.length >> 1] ?? 0;
  t.ok(usual < 64, `${Math.round(usual)} ms at a time`);
});
