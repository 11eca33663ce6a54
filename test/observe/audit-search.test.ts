/** Questions to the audit's files by the newest lines first. */
import { appendFileSync, renameSync, utimesSync, writeFileSync } from "node:fs";
import path from "node:path";
import { gzipSync } from "node:zlib";
import t from "tap";
import { type AuditQuestion, searchAudit } from "../../src/observe/audit-search.ts";
import { summarizeAudit } from "../../src/observe/audit-summary.ts";
import { temporaryHome } from "../kit/gateway.ts";

const MINUTE_MS = 60_000;
const begin = Date.now() - 3_600_000 * 24 * 30;

/** The line of a request, so many minutes after the first. */
function line(at: number, { user = `u${at}`, database = "main", more = {} } = {}): string {
  const operations = [{ operation: "Select", database, tables: ["t"] }];
  const time = new Date(begin + at * MINUTE_MS).toISOString();
  return `${JSON.stringify({ level: "info", time, user, operations, operationCount: 1, decision: "allow", ...more, msg: "request" })}\n`;
}

const lines = (from: number, to: number) =>
  Array.from({ length: to - from }, (_, at) => line(from + at)).join("");

const all = {
  filter: { since: 0, until: Number.POSITIVE_INFINITY },
  shown: undefined,
  from: undefined,
  limit: 50,
  patience: 60_000,
};

/** Every line that pages of a question have, one page after the other. */
async function pages(question: AuditQuestion): Promise<string[]> {
  const users: string[] = [];
  for (let from = question.from; ; ) {
    const answer = await searchAudit({ ...question, from });
    users.push(...answer.lines.map(({ user }) => user ?? ""));
    if (answer.next === undefined) return users;
    from = answer.next;
  }
}

const names = (from: number, to: number) =>
  Array.from({ length: from - to }, (_, at) => `u${from - 1 - at}`);

t.test("pages go back over rotated and compressed files, and miss nothing", async (t) => {
  const file = path.join(temporaryHome(t), "audit.log");
  writeFileSync(`${file}.2.gz`, gzipSync(lines(0, 130)));
  writeFileSync(`${file}.1`, lines(130, 9000));
  writeFileSync(file, `${lines(9000, 9070)}{"cut`);
  for (const [at, name] of [`${file}.2.gz`, `${file}.1`, file].entries()) {
    utimesSync(name, Date.now() / 1000 - 10 + at, Date.now() / 1000 - 10 + at);
  }
  for (const limit of [1000, 4435]) {
    t.strictSame(await pages({ ...all, file, limit }), names(9070, 0), `${limit} a page`);
  }
  t.strictSame(await pages({ ...all, file, limit: 1000, patience: 0 }), names(9070, 0));
  const rare = { ...all, file, filter: { ...all.filter, user: "u5" }, patience: 0 };
  t.match(
    await searchAudit(rare),
    { lines: { length: 0 }, next: {}, reached: JSON.parse(line(9000)).time },
    "a search that runs out of time says how far back it looked",
  );
  t.strictSame(await pages(rare), ["u5"], "and the next pages find what is older");
  const filter = { ...all.filter, since: begin + 100 * MINUTE_MS, until: begin + 199 * MINUTE_MS };
  t.strictSame(await pages({ ...all, file, filter }), names(200, 100));
  const some = { ...all.filter, user: "u77" };
  t.strictSame(await pages({ ...all, file, filter: some }), ["u77"]);
  const late = { ...all.filter, since: begin + 9060 * MINUTE_MS };
  const { bytesRead } = await searchAudit({ ...all, file, filter: late });
  t.ok(bytesRead < 2 * 1024 * 1024, "what is too old is not read");
});

t.test("a page goes on where it was, also once the file is rotated", async (t) => {
  const file = path.join(temporaryHome(t), "audit.log");
  writeFileSync(file, lines(0, 100));
  const first = await searchAudit({ ...all, file });
  appendFileSync(file, lines(100, 120));
  renameSync(file, `${file}.1`);
  writeFileSync(file, lines(120, 130));
  const second = await searchAudit({ ...all, file, from: first.next });
  t.strictSame(
    second.lines.map(({ user }) => user),
    names(50, 0),
  );
  t.match(await searchAudit({ ...all, file, from: { inode: "1", offset: 9 } }), {
    lines: { length: 0 },
    isLost: true,
  });
});

t.test("lines of other databases, and of none, are left out", async (t) => {
  const file = path.join(temporaryHome(t), "audit.log");
  const about = (entry: string) => ({
    operations: [],
    changes: [{ change: "grant added", entry }],
  });
  const none = { operations: [], operationCount: 0 };
  const both = {
    operations: ["main", "side"].map((database) => ({ operation: "Select", database, tables: [] })),
  };
  const made = [
    line(0, { user: "main" }),
    line(1, { user: "side", database: "side" }),
    line(2, { user: "both", more: both }),
    line(3, { user: "none", more: none }),
    line(4, { user: "entry", more: about("main.t, main.u") }),
    line(5, { user: "other entry", more: about("main.t,side") }),
    line(6, { user: "change", more: { operations: [], changes: [{ change: "user added" }] } }),
    line(7, { user: "new", database: "new" }),
  ];
  writeFileSync(file, made.join(""));
  const named = new Map([
    ["main", true],
    ["side", false],
  ]);
  t.strictSame(await pages({ ...all, file, shown: { named, others: false } }), ["entry", "main"]);
  t.strictSame(await pages({ ...all, file, shown: { named, others: true } }), [
    ...["new", "entry", "main"],
  ]);
});

t.test("long lines and lines that are none are passed over", async (t) => {
  const file = path.join(temporaryHome(t), "audit.log");
  const long = `${"x".repeat(5 * 1024 * 1024)}\n`;
  const odd = ["\n", "nothing\n", long, "{}\n", long, "\n\n"];
  writeFileSync(file, odd.map((text, at) => line(at) + text).join(""));
  t.strictSame(await pages({ ...all, file, limit: 2 }), names(6, 0));
});

t.test("queries and denials are counted by the hour, in whatever files they are", async (t) => {
  const file = path.join(temporaryHome(t), "audit.log");
  const denied = { more: { decision: "deny", reason: "no_grant" } };
  const held = { more: { decision: "deny", reason: "approval_required" } };
  writeFileSync(`${file}.2.gz`, gzipSync(lines(0, 61)));
  writeFileSync(`${file}.1`, lines(61, 120));
  const hidden = line(125, { database: "payroll", ...denied });
  const login = JSON.stringify({ time: new Date(begin + 121 * MINUTE_MS), decision: "deny" });
  const last = [
    ...[line(122, { user: "bob", ...denied }), line(123, { user: "bob", ...denied })],
    ...[line(124, { user: "eve", ...denied }), line(126, held), line(-1), line(180)],
  ];
  writeFileSync(file, `${hidden}${login}\n${last.join("")}{"cut`);
  const question = { file, since: begin, hours: 3, top: 2, patience: 60_000 };
  const shown = { named: new Map([["payroll", false]]), others: true };
  const { hours, users, tables, ...rest } = await summarizeAudit({ ...question, shown });
  t.strictSame(hours, [
    { queries: 60, denials: 0 },
    { queries: 60, denials: 0 },
    { queries: 4, denials: 3 },
  ]);
  t.match(users, [
    { name: "bob", count: 2, last: { reason: "no_grant" } },
    { name: "eve", count: 1 },
  ]);
  t.match(tables, [{ name: "main.t", count: 3 }]);
  t.strictSame(rest, { isSampled: false, isPartial: false });
  const all = await summarizeAudit({ ...question, shown: undefined });
  t.strictSame(all.hours[2], { queries: 5, denials: 4 });
  const late = await summarizeAudit({ ...question, shown, patience: 0 });
  t.equal(late.isPartial, true);
});

t.test("of a large file a part of each hour is read, and the rest is estimated", async (t) => {
  const file = path.join(temporaryHome(t), "audit.log");
  const since = begin;
  const denied = { more: { decision: "deny", reason: "no_grant" } };
  const wide = { more: { path: "x".repeat(4000) } };
  for (const [hour, count] of [7000, 40, 7000].entries()) {
    const of = (at: number) =>
      line(hour * 60 + (60 * at) / count, at % 10 === 0 ? { ...denied, user: "bob" } : wide);
    writeFileSync(file, Array.from({ length: count }, (_, at) => of(at)).join(""), { flag: "a" });
  }
  const question = { file, since, hours: 3, top: 2, shown: undefined, patience: 60_000 };
  const { hours, users, isSampled } = await summarizeAudit(question);
  t.equal(isSampled, true);
  t.strictSame(hours[1], { queries: 40, denials: 4 }, "a quiet hour is counted");
  for (const at of [0, 2]) {
    const { queries = 0, denials = 0 } = hours[at] ?? {};
    t.ok(Math.abs(queries - 7000) < 1000, `about 7000: ${queries}`);
    t.ok(Math.abs(denials - 700) < 150, `about 700: ${denials}`);
  }
  t.match(users, [{ name: "bob" }]);
});
