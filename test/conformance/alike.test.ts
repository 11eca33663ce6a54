import { writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { connectTo, readCases, runSection } from "../../src/features/conformance/run.ts";
import { type Answer, freshEngine } from "../engine/kit.ts";
import { freshMysql } from "../engine/mysql/kit.ts";
import { freshPostgres } from "../engine/postgres/kit.ts";
import { startGateway, temporaryHome } from "../kit/gateway.ts";
import { runWarm } from "../kit/warm-command.ts";

const engines = { SQLite: freshEngine, PostgreSQL: freshPostgres, MySQL: freshMysql };
type Database = keyof typeof engines;
const databases: readonly Database[] = ["SQLite", "PostgreSQL", "MySQL"];

function normalized(answer: string): string {
  const plain = answer.replace(
    /("(?:[^"\\]|\\.)*")|(-?\d+)\.(\d*?)0+(?=[,}\]])/g,
    (_, text: string | undefined, whole: string, places: string) =>
      text ?? (places === "" ? whole : `${whole}.${places}`),
  );
  return plain.startsWith('{"status":"error"')
    ? plain.replace(/"message":"(?:[^"\\]|\\.)*"/, '"message":""')
    : plain;
}

t.test("all databases answer every case with the same bytes", async (t) => {
  const answers = await Promise.all(
    databases.map(async (database) => {
      const { engine } = await engines[database](t);
      const send = connectTo(engine.address, undefined);
      const texts: string[] = [];
      const recording = async (body: string) => {
        const answer = await send(body);
        texts.push(`${body}\n${answer.status} ${answer.text}`);
        return answer;
      };
      for (const [index, section] of readCases().sections.entries()) {
        await runSection(section, `alike_${index}`, recording);
      }
      return texts;
    }),
  );
  const [sqlite = [], ...others] = answers;
  t.ok(sqlite.length > 200);
  let equal = 0;
  for (const texts of others) {
    t.equal(texts.length, sqlite.length);
    for (const [index, text] of texts.entries()) {
      const [body = "", answer = ""] = text.split("\n");
      const [, expected = ""] = sqlite[index]?.split("\n") ?? [];
      if (answer === expected) equal++;
      else t.equal(withStatus(answer), withStatus(expected), body);
    }
  }
  t.ok(equal > 0.85 * 2 * sqlite.length, `${equal} of ${2 * sqlite.length} without normalizing`);
});

function withStatus(answer: string): string {
  // SQLite does not name constraints.
  const unnamed = answer.replace(/("constraint":\{"kind":"\w+",)"name":"\w+",/, "$1");
  return unnamed.slice(0, 4) + normalized(unnamed.slice(4));
}

type Outcome = string | RegExp;

const differences: readonly [row: string, bodies: readonly string[], ...outcomes: Outcome[]][] = [
  ["Decimals", [insert('"d": 1.5'), select("d")], '[{"d":1.5}]', '[{"d":1.50}]', '[{"d":1.50}]'],
  ["Decimals", [insert('"d": 1.125')], "Inserted 1 row", "invalid_value", "invalid_value"],
  ["Length of `varchar(n)`", [insert('"v": "long"')], /^Ins/, "invalid_value", "invalid_value"],
  ["`date`", [insert('"day": "soon"')], /^Ins/, "invalid_value", "invalid_value"],
  ["`uuid`", [insert('"u": "x"')], /^Ins/, "invalid_value", "invalid_value"],
  [
    "`timestamp`",
    [insert('"at": "2026-01-02T03:04:05+02:00"'), select("at")],
    '[{"at":"2026-01-02T03:04:05+02:00"}]',
    '[{"at":"2026-01-02T01:04:05Z"}]',
    '[{"at":"2026-01-02T01:04:05Z"}]',
  ],
  [
    "`json`",
    [insert('"j": {"b": 2.50, "a": 1}'), select("j")],
    '[{"j":{"b":2.5,"a":1}}]',
    '[{"j":{"b":2.50,"a":1}}]',
    '[{"j":{"b":2.50,"a":1}}]',
  ],
  [
    "A whole number past 64 bits in a condition",
    [select("id", '{"column": "id", "cmp": ">", "value": 9223372036854775808}')],
    "number_out_of_range",
    "[]",
    "[]",
  ],
  ["The character U+0000", [insert('"s": "a\\u0000"')], /^Ins/, "invalid_value", /^Ins/],
  [
    "Numbers of `serial`",
    [
      '{"Preview": {"Insert": {"database": "main", "table": "n", "values": [{"s": "x"}]}}}',
      '{"Insert": {"database": "main", "table": "n", "values": [{"s": "x"}], "returning": ["id"]}}',
    ],
    '[{"id":1}]',
    '[{"id":2}]',
    '[{"id":2}]',
  ],
  [
    "A Batch with CreateTable",
    [
      '{"Batch": [{"CreateTable": {"database": "main", "table": "b", "columns": [{"name": "id", "type": "int"}]}}, {"DropTable": {"database": "main", "table": "b"}}]}',
    ],
    /Table b created/,
    /Table b created/,
    "batch_not_atomic",
  ],
  [
    "`returning` without a primary key",
    [
      '{"Update": {"database": "main", "table": "k", "set": {"id": 1}, "where": null, "returning": ["id"]}}',
    ],
    "[]",
    "[]",
    "not_supported",
  ],
  [
    "Upsert on a table with a further unique key",
    [
      '{"Upsert": {"database": "main", "table": "f", "values": [{"id": 1, "s": "x"}], "on_conflict": ["id"], "update": []}}',
    ],
    "Upserted 1 row",
    "Upserted 1 row",
    "not_supported",
  ],
];

const tables = [
  table("t", [
    ["id", "int"],
    ["d", "decimal(10,2)"],
    ["v", "varchar(3)"],
    ["day", "date"],
    ["at", "timestamp"],
    ["u", "uuid"],
    ["j", "json"],
    ["s", "text"],
  ]),
  table("n", [
    ["id", "serial"],
    ["s", "text"],
  ]),
  '{"CreateTable": {"database": "main", "table": "k", "columns": [{"name": "id", "type": "int"}]}}',
  '{"CreateTable": {"database": "main", "table": "f", "columns": [{"name": "id", "type": "int", "primary_key": true}, {"name": "s", "type": "text", "unique": true}]}}',
];

function table(name: string, columns: readonly (readonly [name: string, type: string])[]): string {
  const definitions = columns.map(
    ([column, type], index) =>
      `{"name": "${column}", "type": "${type}", "primary_key": ${index === 0}}`,
  );
  return `{"CreateTable": {"database": "main", "table": "${name}", "columns": [${definitions}]}}`;
}

function insert(cell: string): string {
  return `{"Insert": {"database": "main", "table": "t", "values": [{"id": 1, ${cell}}]}}`;
}

function select(column: string, where = "null"): string {
  return `{"Select": {"database": "main", "from": "t", "columns": ["${column}"], "where": ${where}}}`;
}

function gist({ text, body }: Answer): string {
  return body.code ?? /"data":(.*)\}$/.exec(text)?.[1] ?? body.message ?? "";
}

for (const [at, database] of databases.entries()) {
  t.test(`differences of ${database} are as documented`, async (t) => {
    const { ask } = await engines[database](t);
    for (const body of tables) t.match(await ask(body), { status: 200 });
    for (const [row, bodies, ...outcomes] of differences) {
      await ask('{"Delete": {"database": "main", "table": "t", "where": null}}');
      let last = "";
      for (const body of bodies) last = gist(await ask(body));
      const expected = outcomes[at] ?? "";
      if (typeof expected === "string") t.equal(last, expected, row);
      else t.match(last, expected, row);
    }
  });
}

t.test("the engine passes every case through the gateway, by a credential file", async (t) => {
  const gateway = await startGateway(t);
  const home = temporaryHome(t);
  const file = path.join(home, "authorization");
  writeFileSync(file, `Bearer ${await gateway.login()}`, { mode: 0o600 });
  const run = (...flags: string[]) =>
    runWarm(home, ["upstream", "test", "--url", gateway.url, ...flags]);
  const { code, stdout, stderr } = await run("--authorization-file", file, "--level", "full");
  t.equal(code, 0, stdout + stderr);
  t.match(stdout, /^\d+ cases at level full, 0 failed$/m);
  t.match(await run(), { code: 1, stdout: /the status is 401, not 200/ });
  const missing = await run("--authorization-file", `${file}2`);
  t.match(missing, { code: 1, stderr: /not a file that can be read \(ENOENT: / });
});
