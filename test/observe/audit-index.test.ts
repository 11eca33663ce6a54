/** The index of the audit's files: what it leaves unread holds nothing that was asked. */
import {
  appendFileSync,
  existsSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import fc from "fast-check";
import t from "tap";
import type { AuditFilter } from "../../src/observe/audit-filter.ts";
import { BLOCK_BYTES, extendIndex } from "../../src/observe/audit-index.ts";
import { searchAudit } from "../../src/observe/audit-search.ts";
import { eventually } from "../kit/eventually.ts";
import { startGateway, temporaryHome } from "../kit/gateway.ts";
import { runCommand } from "../kit/process.ts";

const begin = Date.now() - 20 * 24 * 3_600_000;
/** Every so many lines one is of the user `rare`, or denied; else by one user of a hundred. */
const RARE = 17_001;

/** A name that is not written in JSON as it is. */
const odd = 'q"\\é\u{1f600}';

/** The line with this number; long enough that a block has some thousands. */
function line(at: number): string {
  const isRare = at % RARE === RARE - 1;
  const entry = isRare ? "main.t, main.u" : "main";
  const operations = [{ operation: "Select", database: "main", tables: [`t${at % 7}`], entry }];
  const time = new Date(begin + at * 10_000).toISOString();
  const user = isRare ? odd : `u${at % 100}`;
  const decision = at % (2 * RARE) === RARE - 1 ? "deny" : "allow";
  return `${JSON.stringify({ level: "info", time, at, user, operations, operationCount: 1, decision, shape: "x".repeat(at % 500), msg: "request" })}\n`;
}
const lines = (from: number, to: number) =>
  Array.from({ length: to - from }, (_, at) => line(from + at)).join("");

const rest = async () => {};
const home = temporaryHome(t);
const file = path.join(home, "audit.log");
const TOTAL = 60_000;
writeFileSync(file, lines(0, TOTAL));
const indexOf = (name: string) => path.join(home, `.audit.log.${statSync(name).ino}.index`);

async function ask(some: Partial<AuditFilter>, limit = 10_000) {
  const filter = { since: 0, until: Number.POSITIVE_INFINITY, ...some };
  const question = { file, filter, shown: undefined, from: undefined, limit, patience: 60_000 };
  const { lines: found, bytesRead } = await searchAudit(question);
  return { found: found.map(({ at }) => Number(at)), bytesRead };
}

const rare = Array.from({ length: Math.floor(TOTAL / RARE) }, (_, at) => (at + 1) * RARE - 1);

t.test("what is rare is found by few blocks, and none is missed", async (t) => {
  const before = await ask({ user: odd });
  t.strictSame(before.found, rare.toReversed());
  t.equal(before.bytesRead, statSync(file).size);
  await extendIndex(file, file, rest);
  t.equal(statSync(indexOf(file)).mode & 0o777, 0o600);
  const denied = rare.filter((at) => at % (2 * RARE) === RARE - 1);
  const questions: [Partial<AuditFilter>, number[]][] = [
    [{ user: odd }, rare],
    [{ outcome: "denied" }, denied],
  ];
  for (const [some, wanted] of questions) {
    const { found, bytesRead } = await ask(some);
    t.strictSame(found, wanted.toReversed());
    t.ok(bytesRead < before.bytesRead, `${bytesRead} of ${before.bytesRead} bytes`);
  }
  const none = await ask({ user: "nobody" });
  t.strictSame(none.found, []);
  t.ok(none.bytesRead < BLOCK_BYTES + 1024 * 1024, "the end of the file alone is read");
  await fc.assert(
    fc.asyncProperty(fc.nat(99), fc.nat(6), fc.nat(TOTAL), async (user, table, from) => {
      const since = begin + from * 10_000;
      const wanted = Array.from({ length: TOTAL - from }, (_, at) => TOTAL - 1 - at).filter(
        (at) => at % 100 === user && at % 7 === table && at % RARE !== RARE - 1,
      );
      const { found } = await ask({ user: `u${user}`, table: `main.t${table}`, since });
      t.strictSame(found, wanted);
    }),
    { numRuns: 10 },
  );
});

t.test("the command finds the same by it", async (t) => {
  writeFileSync(path.join(home, "gateway.toml"), '[audit]\nfile = "audit.log"\n');
  for (const [flags, wanted] of [
    [["--user", odd], rare],
    [["--denied", "--table", "nothing"], []],
    [["--user", "u5", "--table", "t3"], undefined],
  ] as const) {
    const { stdout } = await runCommand(home, ["audit", "--json", ...flags]);
    const found = stdout.split("\n").flatMap((text) => (text === "" ? [] : JSON.parse(text).at));
    const expected = wanted ?? (await ask({ user: "u5", table: "t3" })).found.toReversed();
    t.strictSame(found, expected, flags.join(" "));
  }
});

t.test(
  "it grows with the file, goes with it when it is rotated, and is made anew for another",
  async (t) => {
    appendFileSync(file, lines(TOTAL, TOTAL + 2 * RARE));
    const more = [...rare, ...[4, 5].map((at) => at * RARE - 1)].toReversed();
    t.strictSame((await ask({ user: odd })).found, more, "before it was extended");
    const size = statSync(indexOf(file)).size;
    // As a crash leaves it.
    appendFileSync(indexOf(file), "half a record");
    await extendIndex(file, file, rest);
    t.ok(statSync(indexOf(file)).size > size);
    t.strictSame((await ask({ user: odd })).found, more);
    renameSync(file, `${file}.1`);
    writeFileSync(file, lines(TOTAL + 2 * RARE, TOTAL + 2 * RARE + 10));
    const { found, bytesRead } = await ask({ user: odd });
    t.strictSame(found, more);
    t.ok(bytesRead < statSync(`${file}.1`).size);
    // As logrotate does with copytruncate.
    truncateSync(`${file}.1`);
    appendFileSync(`${file}.1`, lines(RARE - 2, 2 * RARE));
    t.strictSame((await ask({ user: odd })).found, [2 * RARE - 1, RARE - 1]);
    await extendIndex(file, `${file}.1`, rest);
    t.strictSame((await ask({ user: odd })).found, [2 * RARE - 1, RARE - 1]);
    t.ok((await ask({ user: "nobody" })).bytesRead < statSync(`${file}.1`).size);
  },
);

t.test("a gateway indexes what it finds, and forgets what is gone", async (t) => {
  const gone = path.join(home, ".audit.log.1.index");
  writeFileSync(gone, "");
  rmSync(indexOf(`${file}.1`));
  await startGateway(t, { home, config: '[audit]\nfile = "audit.log"\n' });
  await eventually("there is an index", () => existsSync(indexOf(`${file}.1`)));
  await eventually("what is gone is forgotten", () => !existsSync(gone));
  t.strictSame((await ask({ user: odd })).found, [2 * RARE - 1, RARE - 1]);
  t.equal(readdirSync(home).filter((name) => name.endsWith(".index")).length, 1);
});
