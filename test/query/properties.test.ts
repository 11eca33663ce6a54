import { deepStrictEqual } from "node:assert/strict";
import fc from "fast-check";
import t from "tap";
import { parseQuery } from "../../src/core/query/parse.ts";
import type { Access } from "../../src/core/query/query.ts";
import { QueryRefused } from "../../src/core/query/refusal.ts";
import { caseCount } from "../kit/nightly.ts";
import { type Choose, choicesOf, query, seeds, write } from "./arbitrary.ts";
import { fullSelect } from "./arbitrary-selects.ts";
import { judgeBody } from "./differential.ts";
import { BodyMaker } from "./fuzz-bodies.ts";
import { gist, insertOf, plain, refusalOf } from "./kit.ts";
import { type Habit, habits, parsePlainly, seenBy } from "./plain-json.ts";
import { referenceAccesses } from "./reference.ts";
import { tablesOfSelect } from "./reference-selects.ts";

/** The accesses as the parser gives them; undefined if it refuses the body. */
function gists(body: Buffer): object[] | undefined {
  return accessesOf(body)?.map(gist);
}

function accessesOf(body: Buffer): readonly Access[] | undefined {
  try {
    return parseQuery(body, plain).accesses;
  } catch (error) {
    if (error instanceof QueryRefused) return undefined;
    throw error;
  }
}

/** What JSON.parse makes of a body; undefined if it is no JSON in UTF-8. */
function parsed(body: Buffer): { value: unknown } | undefined {
  try {
    const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
    return { value: JSON.parse(decoder.decode(body)) };
  } catch {
    return undefined;
  }
}

t.test("a valid query in any spelling has exactly its accesses", async () => {
  fc.assert(
    fc.property(query, seeds, (value, seed) => {
      const choose = choicesOf(seed);
      const accesses = parseQuery(Buffer.from(write(value, choose)), plain).accesses;
      deepStrictEqual(accesses.map(gist), referenceAccesses(value));
    }),
    { numRuns: caseCount(300, 1500) },
  );
});

t.test("each access's offsets are those of its inner object", async () => {
  fc.assert(
    fc.property(query, seeds, (value, seed) => {
      const choose = choicesOf(seed);
      const body = Buffer.from(write(value, choose));
      const { batch, accesses } = parseQuery(body, plain);
      const rebuilt = accesses.map(({ operation, start, end }) => ({
        [operation]: JSON.parse(body.toString("utf8", start, end)),
      }));
      deepStrictEqual(batch ? { Batch: rebuilt } : rebuilt[0], JSON.parse(body.toString()));
    }),
    { numRuns: 300 },
  );
});

t.test("a damaged body is accepted only as what JSON.parse reads", async (t) => {
  let accepted = 0;
  fc.assert(
    fc.property(query, seeds, (value, seed) => {
      const choose = choicesOf(seed);
      const body = damaged(Buffer.from(write(value, choose)), choose);
      const accesses = gists(body);
      if (accesses === undefined) return;
      accepted++;
      deepStrictEqual(accesses, referenceAccesses(parsed(body)?.value), body.toString());
    }),
    { numRuns: caseCount(700, 6000) },
  );
  t.ok(accepted > 8, "some damaged bodies are still queries");
});

t.test("arbitrary bytes and tokens are accepted only if they are a query", async () => {
  const tokens = '{ } [ ] , : "DropTable" "database" "table" "a" 1'.split(" ");
  const soup = fc
    .array(fc.constantFrom(...tokens), { maxLength: 16 })
    .map((list) => Buffer.from(list.join("")));
  const bytes = fc.uint8Array({ maxLength: 40 }).map((array) => Buffer.from(array));
  fc.assert(
    fc.property(fc.oneof(soup, bytes), (body) => {
      const accesses = gists(body);
      if (accesses !== undefined) deepStrictEqual(accesses, referenceAccesses(parsed(body)?.value));
    }),
    { numRuns: caseCount(500, 3000) },
  );
});

t.test("a cell is accepted exactly if JSON.parse accepts it", async () => {
  const pieces = '- 0 1 9 . e E + " \\ u 00 n true null'.split(" ");
  const text = fc.array(fc.constantFrom(...pieces, "[", "]", "{", "}", ",", ":", " ", "\t", "\n"), {
    minLength: 1,
    maxLength: 8,
  });
  fc.assert(
    fc.property(text, (list) => {
      const body = Buffer.from(
        `{"Insert":{"database":"d","table":"t","values":[{"c":${list.join("")}}]}}`,
      );
      const expected = referenceAccesses(parsed(body)?.value);
      deepStrictEqual(gists(body), expected, body.toString());
    }),
    { numRuns: caseCount(1500, 20_000) },
  );
});

t.test("a changed query is accepted exactly if it is in the grammar", async (t) => {
  let refused = 0;
  fc.assert(
    fc.property(query, seeds, (value, seed) => {
      const choose = choicesOf(seed);
      const changed = mutated(value, choose);
      const expected = referenceAccesses(changed);
      if (expected === undefined) refused++;
      deepStrictEqual(
        gists(Buffer.from(write(changed, choose))),
        expected,
        JSON.stringify(changed),
      );
    }),
    { numRuns: caseCount(700, 6000) },
  );
  t.ok(refused > 200, "most changes break the grammar");
});

t.test("a full Select, changed or not, is accepted exactly if it is in the grammar", async (t) => {
  const seen = { accepted: 0, refused: 0 };
  fc.assert(
    fc.property(fullSelect, seeds, fc.boolean(), (value, seed, isChanged) => {
      const choose = choicesOf(seed);
      const body = isChanged ? mutated(value, choose) : value;
      const expected = tablesOfSelect(body);
      seen[expected === undefined ? "refused" : "accepted"]++;
      const accesses = accessesOf(Buffer.from(write(body, choose)));
      deepStrictEqual(
        accesses?.flatMap(({ tables }) => [...tables].sort()),
        expected,
        JSON.stringify(body),
      );
    }),
    { numRuns: caseCount(700, 6000) },
  );
  t.ok(seen.accepted > 200 && seen.refused > 200, JSON.stringify(seen));
});

/** Copies a body with one to three faults: bytes changed, removed, doubled or moved. */
function damaged(body: Buffer, choose: Choose): Buffer {
  let result = body;
  for (let fault = choose(3); fault >= 0; fault--) {
    const start = choose(result.length + 1);
    const end = Math.min(result.length, start + 1 + choose(8));
    const before = result.subarray(0, start);
    const piece = result.subarray(start, end);
    const after = result.subarray(end);
    const byte = Buffer.of(choose(4) === 0 ? choose(256) : 0x20 + choose(0x60));
    const variants = [
      [before, after],
      [before, byte, after],
      [before, byte, piece, after],
      [before, piece, piece, after],
      [piece, before, after],
      [before, Buffer.from('"\\{}[]:, 0e-'.charAt(choose(12))), after],
    ];
    result = Buffer.concat(variants[choose(variants.length)] ?? []);
  }
  return result;
}

const replacements = [null, true, 0, -1, 1.5, "", "*", "a.b", "users", [], {}, [1, 2], { a: 1 }];

/** Copies a value with one change somewhere: a value replaced, a member removed, renamed or added. */
function mutated(value: unknown, choose: Choose): unknown {
  const stop = choose(5) === 0;
  if (stop || typeof value !== "object" || value === null) {
    return replacements[choose(replacements.length)];
  }
  if (Array.isArray(value)) {
    if (value.length === 0 || choose(6) === 0) return value.slice(1);
    const index = choose(value.length);
    return value.map((element, at) => (at === index ? mutated(element, choose) : element));
  }
  const entries: [string, unknown][] = Object.entries(value);
  const index = choose(entries.length);
  const [key, member] = entries[index] ?? ["added", 1];
  const variants = [
    () => [[key, mutated(member, choose)]],
    () => [[key, mutated(member, choose)]],
    () => [[key, mutated(member, choose)]],
    () => [],
    () => [[`${key}x`, member]],
    () => [
      [key, member],
      ["op", "select"],
    ],
  ];
  const replaced = variants[choose(variants.length)]?.() ?? [];
  return Object.fromEntries([...entries.slice(0, index), ...replaced, ...entries.slice(index + 1)]);
}

t.test("no parser sees another operation, database or table than the parser", async (t) => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const maker = new BodyMaker(choicesOf(seed));
  const count = caseCount(800, 12_000);
  let accepted = 0;
  for (let number = 0; number < count; number++) {
    const body = maker.next();
    const { fault, isAccepted } = judgeBody(body, 1 + (number % 7));
    if (isAccepted) accepted++;
    if (fault !== undefined) t.fail(`seed ${seed}: ${fault}: ${body.toString("base64")}`);
  }
  t.ok(accepted > count / 12, `${accepted} bodies were accepted`);
});

t.test("bodies that parsers read differently are refused or unambiguous", async (t) => {
  const target = '"database":"main","table":"users"';
  const bodies = [
    `{"DropTable":{${target}},"op":"select"}`,
    `{"DropTable":{${target},"Database":"other"}}`,
    `{"DropTable":{${target},"database":"other"}}`,
    `{"DropTable":{${target},"database\\u0000":"other"}}`,
    `{"DropTable":{${target},"\\u0064atabase":"other"}}`,
    `{"DropTable":{${target}},"droptable":{${target}}}`,
    `["drop_table","main","users"]`,
    `{"Batch":{"0":{"DropTable":{${target}}}}}`,
    `{"DropTable":{"database":"main\\u0000","table":"users"}}`,
    `{"DropTable":{"database":"main","table":"us\u212ars"}}`,
    `\ufeff{"DropTable":{${target}}}`,
    `{"DropTable":{${target}}}{"DropTable":{${target}}}`,
    insertOf('{"a":1,"a":{"database":"other"}}'),
    insertOf("1e999"),
    ...["-0", "1.0", "1e2", "-1E-400", "9007199254740993"].map(
      (limit) => `{"Select":{"database":"main","from":"t","columns":["*"],"limit":${limit}}}`,
    ),
  ];
  for (const body of bodies) t.equal(judgeBody(Buffer.from(body)).fault, undefined, body);
});

t.test("the reference parsers differ from each other", async (t) => {
  const body = parsePlainly(
    '{"DropTable":{"database":"a","Database":"b","database":"c","table":"t"}}',
  );
  const databaseBy = (name: string) => {
    const habit: Habit | undefined = habits.find((candidate) => candidate.name === name);
    return habit && body && seenBy(habit, body)?.[0]?.database;
  };
  t.equal(databaseBy("exact, first key wins"), "a");
  t.equal(databaseBy("exact, last key wins"), "c");
  t.equal(databaseBy("case-insensitive, last key wins"), "c");
  t.equal(databaseBy("loose, first key wins"), "a");
  const tagged = parsePlainly('{"DropTable":{"database":"a","table":"t"},"OP":1}');
  t.same(
    tagged && habits.map((habit) => seenBy(habit, tagged) === undefined).filter(Boolean).length,
    4,
  );
});

const row =
  '{"id":12,"name":"Ada L","email":"a\u00e9@b.c","active":true,"gone":false,"x":null,"n":-0.5}';
const bytes = [...'\u0000\u001f !"\\/+-.0159:;EeNTfnrstu[]{},x\u007f'].map((one) =>
  one.charCodeAt(0),
);

/** Rows of which all behind the first repeat it, and perhaps another one. */
function rows(count: number, ...others: string[]): Buffer {
  const values = [...Array(count).fill(row), ...others].join();
  return Buffer.from(`{"Insert":{"database":"main","table":"users","values":[${values}]}}`);
}

t.test("repeated rows with one damaged byte are judged like any others", async (t) => {
  const body = rows(5);
  const start = body.indexOf(row) + 2 * (Buffer.byteLength(row) + 1);
  for (let offset = start; offset < start + Buffer.byteLength(row) + 3; offset++) {
    for (const byte of [...bytes, 0xc3, 0xff]) {
      const damaged = Buffer.from(body);
      damaged[offset] = byte;
      const { fault } = judgeBody(damaged, 1 + (offset % 7));
      if (fault !== undefined) t.fail(`${fault}: ${damaged.toString("base64")}`);
    }
  }
});

t.test("an error after repeated rows has its row number", async (t) => {
  const found = (last: string) => {
    const body = rows(7)
      .toString()
      .replace(/\]\}\}$/, `,${last}]}}`);
    const { code, location } = refusalOf(body);
    return `${code} ${location.path}`;
  };
  t.equal(found('{"id":1,"id":2}'), "duplicate_key Insert.values[7]");
  t.equal(found('{"id":12,"name":"Ada L","id":13}'), "duplicate_key Insert.values[7]");
  t.equal(found('{"id":tru}'), "invalid_json Insert.values[7]");
  t.equal(found('{"id":12,"name":[}'), "invalid_json Insert.values[7]");
  t.equal(found("7"), "wrong_type Insert.values[7]");
});
