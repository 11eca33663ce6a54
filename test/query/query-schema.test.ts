import { readFileSync } from "node:fs";
import { Ajv2020 } from "ajv/dist/2020.js";
import fc from "fast-check";
import t from "tap";
import { z } from "zod";
import { beyondSchema } from "../../generate/query-schema.ts";
import { createGrammar, fieldNames } from "../../src/core/query/grammar.ts";
import type { Level } from "../../src/core/query/kind.ts";
import { operationNames } from "../../src/core/query/operations.ts";
import { caseCount } from "../kit/nightly.ts";
import { type Choose, choicesOf, query, seeds } from "./arbitrary.ts";
import { fullBodies } from "./full-bodies.ts";
import { refusalOf, select, verdict } from "./kit.ts";

const ajv = new Ajv2020({ strict: false });

function validatorOf(level: Level) {
  const file = new URL(`../../schemas/query.${level}.schema.json`, import.meta.url);
  return ajv.compile(
    z.record(z.string(), z.unknown()).parse(JSON.parse(readFileSync(file, "utf8"))),
  );
}

const levels = (["core", "full"] as const).map((level) => ({
  level,
  grammar: createGrammar({ extraFields: [], operations: {}, level }),
  isValid: validatorOf(level),
}));

const words = `
  column cmp value and or not direction on join_type fn as name type primary_key
  unique nullable default references compute of unit digits path when then else other
  escape fold include one select exists`;
const keys = [
  ...new Set([...fieldNames, ...operationNames, "Batch", "op"]),
  ...words.trim().split(/\s+/),
];
const values: readonly unknown[] = [
  null,
  true,
  false,
  0,
  1,
  -1,
  1.5,
  1_000_001,
  2 ** 53,
  "",
  "*",
  "a",
  "users.a",
  "users.*",
  "other.a",
  "a.b.c",
  "users.id = orders.user_id",
  "users.id = users.id ",
  "ASC",
  "sum",
  "count",
  "LIKE",
  "NOT IN",
  "IN",
  "BETWEEN",
  "int",
  "int(1,2)",
  "x".repeat(129),
  [],
  [1, 2],
  [null],
  ["a"],
  ["*"],
  {},
  { a: 1 },
  { "a.b": 1 },
  { column: "a" },
  { column: "a", cmp: "=", value: 1 },
  [{}],
];

function pick<Item>(items: readonly Item[], choose: Choose): Item | undefined {
  return items[choose(items.length)];
}

/** A copy of a value with one change, at a place that is chosen. */
function changed(value: unknown, choose: Choose): unknown {
  if (typeof value !== "object" || value === null || choose(5) === 0) return pick(values, choose);
  if (Array.isArray(value)) {
    const at = choose(value.length + 1);
    if (choose(3) === 0) return value.toSpliced(at, choose(2), pick(values, choose));
    return value.map((element, index) => (index === at ? changed(element, choose) : element));
  }
  const entries: [string, unknown][] = Object.entries(value);
  const at = choose(entries.length);
  const way = choose(6);
  if (way === 0) return Object.fromEntries(entries.toSpliced(at, 1));
  if (way === 1) {
    return Object.fromEntries([...entries, [pick(keys, choose) ?? "", pick(values, choose)]]);
  }
  return Object.fromEntries(
    entries.map(([key, member], index) => [key, index === at ? changed(member, choose) : member]),
  );
}

/** What `beyondSchema` tells, as the parser says it of bodies that are written from values. */
const beyond: readonly RegExp[] = [
  /a column of the table .* is named; allowed:/,
  /is not an earlier Insert/,
  /neither an alias of aggregate nor a column of group_by/,
  /the table already has a column/,
  /after cannot follow the computed name/,
  /the name .* is taken/,
  /with aggregate, columns must equal group_by/,
  /each column needs one value/,
  /on must compare a column of/,
  /is already in use around/,
  /levels deep/,
  /exists is not allowed in having/,
  /the limits multiply to/,
  /includes at most 8 tables/,
  /contains at most 16 of exists and select/,
];

const bodies = fc
  .tuple(fc.oneof(query, fc.constantFrom(...fullBodies)), seeds, fc.nat({ max: 2 }))
  .map(([body, seed, changes]) => {
    const choose = choicesOf(seed);
    let result: unknown = body;
    for (let left = changes; left > 0; left--) result = changed(result, choose);
    return result;
  });

for (const { level, grammar, isValid } of levels) {
  t.test(`parser and schema agree at the level ${level}`, async (t) => {
    const seen = { accepted: 0, refused: 0 };
    fc.assert(
      fc.property(bodies, (body) => {
        const code = verdict(JSON.stringify(body), grammar);
        const valid = isValid(body);
        seen[valid ? "accepted" : "refused"]++;
        if (!valid && code === "accepted") throw new Error(ajv.errorsText(isValid.errors));
        if (!valid || code === "accepted") return true;
        const { message } = refusalOf(JSON.stringify(body), grammar);
        if (!beyond.some((form) => form.test(message))) throw new Error(message);
        return code in beyondSchema;
      }),
      { numRuns: caseCount(700, 6000) },
    );
    t.ok(Math.min(seen.accepted, seen.refused) > 60, JSON.stringify(seen));
  });
}

t.test("the core schema has no word of the full grammar", async (t) => {
  const [core] = levels;
  for (const body of fullBodies) {
    t.equal(core?.isValid(body), verdict(body, core?.grammar) === "accepted", JSON.stringify(body));
  }
});

t.test("rules beyond the schema are refused by the parser", async (t) => {
  const deep = `${"[".repeat(70)}${"]".repeat(70)}`;
  const examples: Record<keyof typeof beyondSchema, string | object> = {
    duplicate_key: '{"DropTable":{"database":"a","database":"a","table":"t"}}',
    invalid_column: select({ columns: ["other.id"] }),
    duplicate_column: {
      Select: {
        database: "main",
        from: "a",
        aggregate: [
          { fn: "count", as: "n" },
          { fn: "count", as: "N" },
        ],
      },
    },
    invalid_value: select({ order_by: { column: "id" }, after: [1, 2] }),
    nesting_too_deep: `{"Insert":{"database":"a","table":"t","values":[{"c":${deep}}]}}`,
    lone_surrogate: '{"Insert":{"database":"a","table":"t","values":[{"c":"\\ud800"}]}}',
  };
  for (const [code, body] of Object.entries(examples)) {
    t.equal(refusalOf(body).code, code);
    const value: unknown = typeof body === "string" ? JSON.parse(body) : body;
    t.ok(levels.at(-1)?.isValid(value), code);
  }
});
