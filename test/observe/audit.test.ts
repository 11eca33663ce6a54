import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { mock } from "node:test";
import { setTimeout as delay, setImmediate as nextTurn } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import fc from "fast-check";
import t, { type Test } from "tap";
import { z } from "zod";
import { auditPage, withAuditFields } from "../../generate/audit-fields.ts";
import { diffSteps } from "../../src/core/access/diff.ts";
import { emptySnapshot } from "../../src/core/access/snapshot.ts";
import { runCooperatively } from "../../src/core/base/cooperative-scheduling.ts";
import { lockFilePath } from "../../src/core/base/files/lock.ts";
import {
  changeNotesPath,
  openChangeJournal,
  recordCommand,
} from "../../src/core/http/change-records.ts";
import { createAudit } from "../../src/core/observe/audit.ts";
import { type Author, auditLines } from "../../src/core/observe/audit-line.ts";
import { type AuditQuestion, searchAudit } from "../../src/core/observe/audit-search.ts";
import { createLog, LineWriter } from "../../src/core/observe/log.ts";
import { createGrammar } from "../../src/core/query/grammar.ts";
import { describeShape, positions } from "../../src/core/query/node.ts";
import { parseQuery } from "../../src/core/query/parse.ts";
import { openApprovalsIn } from "../../src/features/approvals/approval-file.ts";
import { summarizeAudit } from "../../src/features/console/audit-summary.ts";
import { openGatewaySetup, select } from "../gateway/kit.ts";
import { decodePart } from "../identity/forge.ts";
import { callTool } from "../journeys/mcp.ts";
import { eventually } from "../kit/eventually.ts";
import { auditOf, startGateway, temporaryHome } from "../kit/gateway.ts";

const { gateway, upstream } = await openGatewaySetup(t);
const passOn = upstream.answer;

t.test("each decision leaves one line that says who, what, why and by which entry", async (t) => {
  const token = await gateway.addUser("bob", "ReadOnly");
  const version = (await gateway.request("/readyz")).body.access_version;

  const allowed = await gateway.query(select, token);
  t.match(await auditOf(gateway, allowed), {
    msg: "request",
    time: /^\d{4}-\d\d-\d\dT/,
    address: "127.0.0.1",
    method: "POST",
    path: "/query",
    user: "bob",
    tokenId: decodePart(token, 1).jti,
    decision: "allow",
    status: 200,
    accessVersion: version,
    operations: [
      { operation: "Select", database: "main", tables: ["t"], role: "ReadOnly", entry: "main" },
    ],
    ms: Number,
    bytes: Number,
  });

  const drop = { DropTable: { database: "main", table: "t" } };
  const denied = await gateway.query(drop, token);
  t.match(await auditOf(gateway, denied), {
    user: "bob",
    decision: "deny",
    reason: "role_insufficient",
    status: 403,
    operations: [{ operation: "DropTable", role: "ReadOnly", entry: "main" }],
  });

  const login = await gateway.send("POST", "/login", { username: "bob", password: "wrong one" });
  t.match(await auditOf(gateway, login), {
    path: "/login",
    user: "bob",
    reason: "credentials_invalid",
    operations: [{ operation: "login" }],
  });
});

t.test("a long Batch names its first operations and counts them all", async (t) => {
  const answer = await gateway.query({ Batch: Array(100).fill(select) }, await gateway.login());
  const line = await auditOf(gateway, answer);
  t.equal(line.operationCount, 100);
  t.equal(Array.isArray(line.operations) && line.operations.length, 16);
});

t.test("requests of monitors leave no line", async (t) => {
  const ids = [];
  for (const path of ["/healthz", "/readyz", "/.well-known/jwks.json"]) {
    ids.push((await gateway.request(path)).headers.get("x-request-id"));
  }
  const last = (await gateway.request("/nowhere")).headers.get("x-request-id");
  await gateway.service.logged(({ requestId }) => requestId === last);
  for (const id of ids) t.notOk(gateway.service.log.some(({ requestId }) => requestId === id));
});

t.test("the fields of docs/audit.md are those of the schema", async (t) => {
  const page = readFileSync(auditPage, "utf8");
  t.equal(withAuditFields(page), page, "npm run docs writes them");
});

t.test("docs/audit.md lists every position of a shape", async (t) => {
  const page = readFileSync(auditPage, "utf8");
  t.match(page, `: ${positions.map((one) => `\`${one}\``).join(", ")}. `);
});

const anyLine = z.union(Object.values(auditLines));

const people = {
  CreateTable: {
    database: "main",
    table: "people",
    columns: [
      { name: "id", type: "int", primary_key: true },
      { name: "name", type: "text", nullable: true },
    ],
  },
};
const values = [1, 2, 3].map((id) => ({ id, name: `n${id}` }));
const place = { database: "main", table: "people" };

const engine = startGateway(t);

t.test("the audit counts changed and returned rows", async (t) => {
  const gateway = await engine;
  const token = await gateway.login();
  const ask = async (query: object) => {
    const answer = await gateway.query(query, token);
    t.equal(answer.headers.get("x-gatehouse-affected"), null, "no client sees it");
    t.equal(answer.headers.get("x-gatehouse-rows"), null);
    const { affected, rows } = await auditOf(gateway, answer);
    return { affected, rows };
  };
  const none = { affected: undefined, rows: undefined };
  t.strictSame(await ask(people), none);
  t.strictSame(await ask({ Insert: { ...place, values } }), { ...none, affected: 3 });
  const where = { column: "id", cmp: ">", value: 1 };
  const read = { Select: { database: "main", from: "people", columns: ["*"], where } };
  t.strictSame(await ask(read), { ...none, rows: 2 });
  t.strictSame(await ask({ Preview: { Delete: { ...place, where } } }), { ...none, rows: 2 });
  const change = { Update: { ...place, set: { name: "x" }, where, returning: ["id"] } };
  t.strictSame(await ask(change), { affected: 2, rows: 2 });
  const batch = {
    Batch: [{ Delete: { ...place, where } }, read, { Insert: { ...place, values: [{ id: 9 }] } }],
  };
  t.strictSame(await ask(batch), { affected: 3, rows: 0 });
  t.strictSame(await ask({ Insert: { ...place, values: [{ id: 9 }] } }), none, "a failure");
  const tool = await callTool(
    gateway,
    "select",
    { database: "main", from: "people", columns: ["id"] },
    token,
  );
  t.match(await auditOf(gateway, tool), { via: "mcp", rows: 2, level: "info" });
});

t.test("row counts of an upstream other than the engine are ignored", async (t) => {
  upstream.answer = (_request, response) =>
    response.writeHead(200, { "x-gatehouse-affected": "7", "X-Gatehouse-Rows": "7" }).end("{}");
  t.teardown(() => {
    upstream.answer = passOn;
  });
  const answer = await gateway.query({ Delete: { ...place, where: null } }, await gateway.login());
  t.equal(answer.headers.get("x-gatehouse-affected"), null);
  const { affected, rows } = await auditOf(gateway, answer);
  t.strictSame([affected, rows], [undefined, undefined]);
});

t.test("the level distinguishes denials and failures", async (t) => {
  const reader = await gateway.addUser("rita", "ReadOnly");
  const read = { Select: { database: "main", from: "people", columns: ["id"] } };
  t.match(await auditOf(gateway, await gateway.query(read, reader)), {
    level: "info",
    via: "query",
  });
  const denied = await auditOf(gateway, await gateway.query({ DropTable: place }, reader));
  t.match(denied, { level: "warn", decision: "deny" });
  upstream.answer = (_request, response) => response.destroy();
  t.match(await auditOf(gateway, await gateway.query(people, await gateway.login())), {
    level: "error",
    status: 502,
  });
  const login = await gateway.send("POST", "/login", { username: "rita", password: "wrong one" });
  t.strictSame((await auditOf(gateway, login)).via, undefined);
});

const full = createGrammar({ extraFields: [], operations: {}, level: "full" });
function shapeIn(body: object, most = 2048, element = 0): string | undefined {
  const access = parseQuery(Buffer.from(JSON.stringify(body)), full).accesses[element];
  return access && describeShape(access.node, most);
}

t.test("a shape has columns by position and comparisons", async (t) => {
  const where = {
    and: [
      { column: "people.age", cmp: ">", value: 18 },
      {
        or: [
          { column: "people.age", cmp: ">", value: 20 },
          { value: "A%", cmp: "LIKE", column: "people.name" },
        ],
      },
    ],
  };
  const from = { database: "main", from: "people", columns: ["people.id", "people.id", "*"] };
  const join = { table: "orders", on: "people.id = orders.person", join_type: "INNER" };
  const order = { column: "people.name" };
  t.equal(
    shapeIn({ Select: { ...from, join, where, order_by: order } }),
    "columns(people.id, *) on(people.id, orders.person) order_by(people.name) where(people.age >, people.name LIKE)",
  );
  const rows = [
    { id: 1, name: "a" },
    { name: "b", id: 2, age: 3 },
  ];
  t.equal(shapeIn({ Insert: { ...place, values: rows } }), "values(id, name, age)");
  const batch = {
    Batch: [{ Insert: { ...place, values: rows } }, { Insert: { ...place, values: rows } }],
  };
  t.equal(shapeIn(batch, 99, 1), "values(id, name, age)", "the same for the second");
  t.equal(shapeIn({ Delete: { ...place, where: null } }), "");
});

t.test("a long shape is truncated between characters", async (t) => {
  for (const letter of ["a", "é", "𝒳"]) {
    const columns = Array.from({ length: 60 }, (_, at) => letter.repeat(40) + at);
    const shape = shapeIn({ Select: { database: "main", from: "t", columns } }) ?? "";
    t.ok(Buffer.byteLength(shape) <= 2048 && Buffer.byteLength(shape) > 2040, letter);
    t.match(shape, /\.\.\.$/);
    t.notMatch(shape, /\ufffd/);
  }
  const columns = Array.from({ length: 30 }, (_, at) => "c".repeat(90) + at);
  const one = { Select: { database: "main", from: "t", columns } };
  const answer = await gateway.query({ Batch: [one, one, one] }, await gateway.login());
  const { operations } = await auditOf(gateway, answer);
  const shapes = Array.isArray(operations) ? operations.map(({ shape = "" }) => shape) : [];
  t.ok(shapes.join("").length <= 2048, "the limit is for the whole query");
});

/** Part of every value, and of nothing else. */
const marker = "xMARKERx";
const cell: fc.Arbitrary<unknown> = fc.oneof(
  fc.string().map((text) => `${text}${marker}`),
  fc.constant(77_190_277),
  fc.array(fc.constant(marker), { maxLength: 2 }),
);
const column = fc.constantFrom("id", "name", "note", "people.id");
const comparison = fc.oneof(
  fc.record({ column, cmp: fc.constantFrom("=", "!=", ">", "<="), value: cell }),
  fc.record({ column, cmp: fc.constant("LIKE"), value: fc.constant(`%${marker}`) }),
  fc.record({
    column,
    cmp: fc.constantFrom("IN", "NOT IN"),
    value: fc.array(cell, { minLength: 1 }),
  }),
);
const condition = fc.oneof(
  comparison,
  fc.record({ and: fc.array(comparison, { minLength: 1, maxLength: 3 }) }),
  fc.record({ not: comparison }),
  fc.constant(null),
);
const row = fc.dictionary(fc.constantFrom("id", "name", "note"), cell, { minKeys: 1 });
const operation = fc.oneof(
  fc.record({ where: condition }).map(({ where }) => ({
    Select: { database: "main", from: "people", columns: ["id"], where },
  })),
  row.map((one) => ({ Insert: { ...place, values: [one] } })),
  fc.tuple(row, condition).map(([set, where]) => ({ Update: { ...place, set, where } })),
  condition.map((where) => ({ Delete: { ...place, where } })),
  cell.map((after) => ({
    Select: {
      database: "main",
      from: "people",
      columns: ["id"],
      order_by: [{ column: "id" }],
      after: [after],
      limit: 2,
    },
  })),
  // Not in the grammar.
  cell.map((value) => ({ Delete: { ...place, where: { column: "id", cmp: "~", value } } })),
  cell.map((value) => ({ Insert: { ...place, values: [{ id: 1 }], more: value } })),
);
const query = fc.oneof(
  operation,
  fc.array(operation, { minLength: 1, maxLength: 3 }).map((Batch) => ({ Batch })),
);

t.test("no audit line contains a value, and every line matches the schema", async (t) => {
  const gateway = await engine;
  const tokens = [await gateway.login(), await gateway.addUser("rita", "ReadOnly")];
  const sent: Promise<Record<string, unknown>>[] = [];
  await fc.assert(
    fc.asyncProperty(query, fc.constantFrom(...tokens), async (body, token) => {
      sent.push(auditOf(gateway, await gateway.query(body, token)));
    }),
    { numRuns: 150 },
  );
  await Promise.all(sent);
  await gateway.service.stop();
  const lines = gateway.service.log.filter(({ audit }) => audit === true);
  t.ok(lines.length > 150);
  for (const { audit: _, ...line } of lines) {
    const { success, error } = anyLine.safeParse(line);
    if (!success) t.fail(`${error.message}: ${JSON.stringify(line)}`);
  }
  t.ok(lines.some(({ operations }) => JSON.stringify(operations ?? []).includes("where(")));
  const text = gateway.service.output;
  t.notMatch(text, marker);
  t.notMatch(text, "77190277");
  for (const token of tokens) t.notOk(text.includes(token.split(".")[2] ?? ""));
});

const MINUTE_MS = 60_000;
const begin = Date.now() - 3_600_000 * 24 * 30;

/** @param at minutes after the first line */
function line(at: number, { user = `u${at}`, database = "main", more = {} } = {}): string {
  const operations = [{ operation: "Select", database, tables: ["t"] }];
  const time = new Date(begin + at * MINUTE_MS).toISOString();
  return `${JSON.stringify({ level: "info", time, user, operations, operationCount: 1, decision: "allow", ...more, msg: "request" })}\n`;
}

const lines = (from: number, to: number) =>
  Array.from({ length: to - from }, (_, at) => line(from + at)).join("");

const all = {
  filter: { since: 0, until: Number.POSITIVE_INFINITY },
  visible: undefined,
  from: undefined,
  limit: 50,
  timeoutMs: 60_000,
};

/** The users of all pages. */
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

t.test("pages of a search cover rotated and compressed files without gaps", async (t) => {
  const file = path.join(temporaryHome(t), "audit.log");
  writeFileSync(`${file}.2.gz`, gzipSync(lines(0, 130)));
  writeFileSync(`${file}.1`, lines(130, 9000));
  // A program compresses it now.
  writeFileSync(`${file}.1.gz`, gzipSync(lines(130, 9000)).subarray(0, 100));
  // A full disk has cut off what is before the first line, and a crash the last one.
  writeFileSync(file, `{"level":"info","time":"20${lines(9000, 9070)}{"cut`);
  for (const [at, name] of [`${file}.2.gz`, `${file}.1`, file].entries()) {
    utimesSync(name, Date.now() / 1000 - 10 + at, Date.now() / 1000 - 10 + at);
  }
  for (const limit of [1000, 4435]) {
    t.strictSame(await pages({ ...all, file, limit }), names(9070, 0), `${limit} a page`);
  }
  t.strictSame(await pages({ ...all, file, limit: 1000, timeoutMs: 0 }), names(9070, 0));
  const rare = { ...all, file, filter: { ...all.filter, user: "u5" }, timeoutMs: 0 };
  t.match(
    await searchAudit(rare),
    { lines: { length: 0 }, next: {}, reached: JSON.parse(line(9000)).time },
    "a search that runs out of time reports how far back it searched",
  );
  t.strictSame(await pages(rare), ["u5"], "the next pages find older lines");
  const filter = { ...all.filter, since: begin + 100 * MINUTE_MS, until: begin + 199 * MINUTE_MS };
  t.strictSame(await pages({ ...all, file, filter }), names(200, 100));
  const some = { ...all.filter, user: "u77" };
  t.strictSame(await pages({ ...all, file, filter: some }), ["u77"]);
  const late = { ...all.filter, since: begin + 9060 * MINUTE_MS };
  const { bytesRead } = await searchAudit({ ...all, file, filter: late });
  t.ok(bytesRead < 2 * 1024 * 1024, "older parts are not read");
});

t.test("the next page continues at the right line after a rotation", async (t) => {
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

t.test("lines about hidden databases, or about none, are left out", async (t) => {
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
  t.strictSame(await pages({ ...all, file, visible: { named, others: false } }), ["entry", "main"]);
  t.strictSame(await pages({ ...all, file, visible: { named, others: true } }), [
    "new",
    "entry",
    "main",
  ]);
});

t.test("overlong and malformed lines are skipped", async (t) => {
  const file = path.join(temporaryHome(t), "audit.log");
  const long = `${"x".repeat(5 * 1024 * 1024)}\n`;
  const odd = ["\n", "nothing\n", long, "{}\n", long, "\n\n"];
  writeFileSync(file, odd.map((text, at) => line(at) + text).join(""));
  t.strictSame(await pages({ ...all, file, limit: 2 }), names(6, 0));
});

t.test("queries and denials are counted per hour over all files", async (t) => {
  const file = path.join(temporaryHome(t), "audit.log");
  const denied = { more: { decision: "deny", reason: "no_grant", status: 403 } };
  const pending = { more: { decision: "deny", reason: "approval_required", status: 202 } };
  writeFileSync(`${file}.2.gz`, gzipSync(lines(0, 61)));
  writeFileSync(`${file}.1`, lines(61, 120));
  const hidden = line(125, { database: "payroll", ...denied });
  const login = JSON.stringify({ time: new Date(begin + 121 * MINUTE_MS), decision: "deny" });
  const last = [
    line(122, { user: "bob", ...denied }),
    line(123, { user: "bob", ...denied }),
    line(124, { user: "eve", ...denied }),
    line(126, pending),
    line(-1),
    line(180),
  ];
  writeFileSync(file, `${hidden}${login}\n${last.join("")}{"cut`);
  const edges = [0, 1, 2, 3].map((hour) => begin + hour * 60 * MINUTE_MS);
  const question = { file, edges, top: 2, timeoutMs: 60_000 };
  const visible = { named: new Map([["payroll", false]]), others: true };
  const { periods, users, tables, ...rest } = await summarizeAudit({ ...question, visible });
  const [first, second, third] = periods;
  t.match([first, second], [{ queries: 60, denials: 0 }, { queries: 60 }]);
  t.strictSame(third, { queries: 4, denials: 3, p50: undefined, p95: undefined });
  t.match(users.denied, [
    { name: "bob", denials: 2, lastDenial: { reason: "no_grant" } },
    { name: "eve", denials: 1 },
  ]);
  t.match(tables.denied, [{ name: "main.t", denials: 3 }]);
  t.match(tables.busiest, [{ name: "main.t", queries: 124 }]);
  t.match(rest, { isSampled: false, isPartial: false });
  const all = await summarizeAudit({ ...question, visible: undefined });
  t.match(all.periods[2], { queries: 5, denials: 4 });
  const late = await summarizeAudit({ ...question, visible, timeoutMs: 0 });
  t.equal(late.isPartial, true);
});

t.test("a summary samples each hour of a large file and estimates the rest", async (t) => {
  const file = path.join(temporaryHome(t), "audit.log");
  const denied = { more: { decision: "deny", reason: "no_grant", status: 403 } };
  const wide = { more: { path: "x".repeat(4000) } };
  for (const [hour, count] of [7000, 40, 7000].entries()) {
    const of = (at: number) =>
      line(hour * 60 + (60 * at) / count, at % 10 === 0 ? { ...denied, user: "bob" } : wide);
    writeFileSync(file, Array.from({ length: count }, (_, at) => of(at)).join(""), { flag: "a" });
  }
  const edges = [0, 1, 2, 3].map((hour) => begin + hour * 60 * MINUTE_MS);
  const question = { file, edges, top: 2, visible: undefined, timeoutMs: 60_000 };
  const { periods, users, isSampled } = await summarizeAudit(question);
  t.equal(isSampled, true);
  t.match(periods[1], { queries: 40, denials: 4 }, "a quiet hour is counted");
  for (const at of [0, 2]) {
    const { queries = 0, denials = 0 } = periods[at] ?? {};
    t.ok(Math.abs(queries - 7000) < 1000, `about 7000: ${queries}`);
    t.ok(Math.abs(denials - 700) < 150, `about 700: ${denials}`);
  }
  t.match(users.denied, [{ name: "bob" }]);
});

t.test("a summary knows the latency of allowed queries to within five percent", async (t) => {
  const file = path.join(temporaryHome(t), "audit.log");
  const took = (at: number, ms: number, more = {}) => line(at / 10, { more: { ms, ...more } });
  const denied = { decision: "deny", reason: "no_grant", status: 403 };
  const made = Array.from({ length: 100 }, (_, at) => took(at, at + 1));
  made.push(took(100, 3_000_000, denied), ...Array.from({ length: 9 }, () => took(700, 0.01)));
  writeFileSync(file, made.join(""));
  const edges = [begin, begin + 60 * MINUTE_MS, begin + 90 * MINUTE_MS];
  const question = { file, edges, top: 2, visible: undefined, timeoutMs: 60_000 };
  const { periods } = await summarizeAudit(question);
  const { p50 = 0, p95 = 0 } = periods[0] ?? {};
  t.ok(Math.abs(p50 / 50 - 1) < 0.05, `p50: ${p50}`);
  t.ok(Math.abs(p95 / 95 - 1) < 0.05, `p95: ${p95}`);
  t.ok((periods[1]?.p95 ?? 1) < 0.2, "short ones count as the least");
});

function openLogged(t: Test) {
  const directory = temporaryHome(t);
  const file = path.join(directory, "log");
  const log = createLog(new LineWriter(file, 1024 * 1024));
  return { directory, file, audit: createAudit(undefined, log, () => "abc"), log };
}

t.test("an audit file on a full disk is not written again once it is closed", async (t) => {
  const audit = createAudit("/dev/full", openLogged(t).log, () => "abc");
  audit.event("one", {});
  await audit.flush();
  audit.event("two", {});
  audit.close();
  await t.resolves(delay(1500), "no exception");
});

function openJournal({ audit, log, directory }: ReturnType<typeof openLogged>) {
  const notes = changeNotesPath(directory);
  const place = { accessFile: directory, notes };
  return openChangeJournal({ audit, log, ...place, isFirst: true, unlock: () => {} });
}

t.test("a version that a program wrote is audited when an edit restores it", async (t) => {
  const logged = openLogged(t);
  const diff = await runCooperatively(diffSteps(emptySnapshot, emptySnapshot));
  const at = (version: string) => ({ ...emptySnapshot, version });
  const reload = { kind: "loaded", previous: at("a"), snapshot: at("c"), diff } as const;
  const linesAfter = async (seconds: number, ...steps: string[]) => {
    const journal = openJournal(logged);
    for (const [from = "", to = ""] of steps) await journal.noteStep({ from, to });
    const now = performance.now() + 1000 * seconds;
    const clock = mock.method(performance, "now", () => now);
    journal.onReload(reload);
    await journal.close();
    clock.mock.restore();
    await logged.audit.flush();
    return readFileSync(logged.file, "utf8");
  };
  t.equal(await linesAfter(1, "ab", "bc"), "", "programs report their own changes");
  t.equal(await linesAfter(1, "ac", "ca"), "", "and may undo them");
  const edited = /"author":{"kind":"file",.*"changes":\[\],.*"msg":"change"/;
  const linesOf = (text: string) => text.match(RegExp(edited, "g"))?.length ?? 0;
  t.equal(linesOf(await linesAfter(10, "ab", "bc")), 1);
  t.equal(linesOf(await linesAfter(1, "bc")), 2, "an edit came before the program's change");
  t.equal(linesOf(await linesAfter(1, "bc", "cb")), 3);
});

t.test("the note of a command is removed only once its line is written", async (t) => {
  const logged = openLogged(t);
  const { directory, file } = logged;
  const notes = changeNotesPath(directory);
  const change = { change: "user added", user: "rita" };
  const writer: Author = { kind: "cli", name: "ann" };
  await recordCommand({ audit: undefined, notes }, writer, [change]);
  const journal = openJournal(logged);
  t.teardown(() => journal.close());
  while (existsSync(notes)) await nextTurn();
  t.match(
    readFileSync(file, "utf8"),
    /"accessVersion":"abc",.*"author":{"kind":"cli","name":"ann"},"changes":\[{"change":"user added"/,
  );
});

t.test("notes that could not be read for a moment are written soon after", async (t) => {
  const logged = openLogged(t);
  const notes = changeNotesPath(logged.directory);
  const lock = lockFilePath(notes);
  mkdirSync(lock);
  writeFileSync(notes, `${JSON.stringify({ at: new Date().toISOString(), unlocked: "rita" })}\n`);
  const journal = openJournal(logged);
  t.teardown(() => journal.close());
  await delay(1200);
  const failures = readFileSync(logged.file, "utf8").match(/not in the audit yet/g);
  t.equal(failures?.length, 1, "a known failure is not repeated");
  rmdirSync(lock);
  await eventually("the notes are taken", () => !existsSync(notes));
});

t.test("the step of an approval is removed only once its line is written", async (t) => {
  const { directory, file, audit } = openLogged(t);
  const store = await openApprovalsIn(directory, 30);
  t.teardown(() => store.close());
  const binding = {
    username: "bot",
    asker: { username: "bot", tokenDatabase: "*" },
    via: "query",
    client: undefined,
    bodyHash: "",
    basisHash: "",
  } as const;
  const asked = { body: Buffer.from("{}"), operations: [], operationCount: 0, rules: [] };
  await store.ask({ ...binding, ...asked, requestId: "first" }, 60_000);
  const failed = store.takeSteps(
    () => {},
    () => Promise.reject(new Error("the process ends here")),
  );
  await t.rejects(failed, /ends here/);
  const isWritten: boolean[] = [];
  await store.takeSteps(audit.event, async () => {
    await audit.flush();
    isWritten.push(readFileSync(file, "utf8").includes('"requestId":"first"'));
  });
  t.strictSame(isWritten, [true], "it is passed again, and is in the file when it is removed");
  await store.takeSteps(() => t.fail("no step is left"), audit.flush);
});
