import { PassThrough } from "node:stream";
import { text } from "node:stream/consumers";
import t from "tap";
import { terminalStream } from "../../src/core/observe/terminal.ts";

const time = "2026-03-04T12:03:04.000Z";
const request = {
  level: "info",
  time,
  audit: true,
  requestId: "r",
  address: "127.0.0.1",
  method: "POST",
  path: "/query",
  user: "rita",
  operations: [{ operation: "Delete", database: "main", tables: ["users"], role: "ReadOnly" }],
  operationCount: 1,
  decision: "deny",
  reason: "role_insufficient",
  accessVersion: "abc",
  status: 403,
  ms: 1.234,
  bytes: 300,
  msg: "request",
};

/** The lines on a terminal, without the time. */
async function rendered(lines: readonly object[], hasColors = false): Promise<string[]> {
  const destination = new PassThrough();
  const stream = terminalStream(hasColors, destination);
  for (const line of lines) stream.write(`${JSON.stringify(line)}\n`);
  setImmediate(() => destination.end());
  const all = await text(destination);
  return all
    .trimEnd()
    .split("\n")
    .map((line) => line.replace(/^\d\d:\d\d:\d\d /, ""));
}

t.test("a request is one short line", async (t) => {
  const { reason: _, ...allowed } = { ...request, decision: "allow", status: 200, ms: 0.2 };
  const [operation] = request.operations;
  const lines = [
    request,
    allowed,
    { ...allowed, operationCount: 100, operations: [operation, operation] },
    { ...allowed, operations: [{ ...operation, tables: ["users", "orders"] }] },
    { ...allowed, operations: [{ operation: "login", database: "", tables: [] }] },
    { ...allowed, operations: [], operationCount: 0, method: "GET", path: "/api/me" },
    { ...request, operations: [], path: undefined, reason: "not_found", status: 404 },
    { ...request, operations: [], user: undefined, decision: undefined, status: 502 },
  ];
  t.strictSame(await rendered(lines), [
    "rita Delete main.users deny role_insufficient 403 2ms",
    "rita Delete main.users allow 200 1ms",
    "rita Delete main.users and 99 more allow 200 1ms",
    "rita Delete main.users,main.orders allow 200 1ms",
    "rita login allow 200 1ms",
    "rita GET /api/me allow 200 1ms",
    "rita POST unknown path deny not_found 404 2ms",
    "- POST /query role_insufficient 502 2ms",
  ]);
});

t.test("a reload is shown once, though log and audit both report it", async (t) => {
  const reload = { time, version: "abc", grantsRaised: ["rita main ReadWrite"] };
  const msg = "access file reloaded";
  const many = Array.from({ length: 7 }, (_, at) => `user${at}`);
  const refused = { time, file: "/f", line: 3, reason: "no value" };
  const change = (kind: string) => {
    const changes = [{ change: kind }];
    return { level: "info", audit: true, time, changes, accessVersion: "abe", msg: "change" };
  };
  const author = { kind: "cli", name: "root" };
  const operations = [{ operation: "Delete", database: "main", tables: ["orders"] }];
  const about = { approval: "7c1d", user: "bot", operations, operationCount: 1 };
  const approval = { level: "info", audit: true, time, ...about };
  const issued = {
    author: { kind: "cli", name: "root\n" },
    changes: [{ change: "token issued", user: "zoe", token: "5d93" }, { change: "key added" }],
  };
  const lines = [
    { level: "info", ...reload, msg },
    { level: "info", audit: true, ...reload, msg },
    { level: "info", time, version: "abd", usersAdded: many, msg },
    { level: "info", audit: true, time, version: "abe", msg },
    { level: "error", ...refused, msg: "access file refused: the last good state stays" },
    { level: "info", audit: true, ...refused, accessVersion: "abe", msg: "access file refused" },
    change("grant raised"),
    change("key added"),
    { ...change("token issued"), ...issued },
    { ...change("key added"), author, changes: Array(8).fill({ change: "key added" }) },
    { ...approval, msg: "approval_asked" },
    { ...approval, msg: "approval_approved", author },
  ];
  t.strictSame(await rendered(lines), [
    "access file reloaded (version: abc; grants raised: rita main ReadWrite)",
    "access file reloaded (version: abd; users added: user0, user1, user2, user3, user4 and 2 more)",
    "access file reloaded (version: abe)",
    "ERROR access file refused: the last good state stays (file: /f; line: 3; reason: no value)",
    "key added",
    "root\\u{a} (cli)  token issued zoe 5d93  key added",
    "root (cli)  key added  key added  key added  key added  key added  and 3 more",
    "approval_asked  7c1d  bot  Delete main.orders",
    "root (cli)  approval_approved  7c1d  bot  Delete main.orders",
  ]);
});

t.test("an error is followed by its stack, and lines of the engine are marked", async (t) => {
  const err = { type: "Error", code: "ENOSPC", stack: "    at write\n    at f" };
  const lines = [
    { level: "error", time, name: "engine", err, msg: "a query failed" },
    { level: "error", time, requestId: "r", err: { type: "string" }, msg: "unexpected error" },
    { level: "warn", time, msg: "put TLS in front of it" },
  ];
  t.strictSame(await rendered(lines), [
    "ERROR engine: a query failed (Error ENOSPC)",
    "      at write",
    "      at f",
    "ERROR unexpected error (string; request id: r)",
    "WARN put TLS in front of it",
  ]);
});

t.test("control characters in requests are escaped", async (t) => {
  const path = "/\x1b[2J\x9b31m\n12:00:00 root\u202e";
  const lines = [
    { ...request, operations: [], path },
    { level: "warn", time, path, msg: "odd" },
  ];
  t.strictSame(await rendered(lines), [
    "rita POST /\\u{1b}[2J\\u{9b}31m\\u{a}12:00:00 root\\u{202e} deny role_insufficient 403 2ms",
    "WARN odd (path: /\\u{1b}[2J\\u{9b}31m\\u{a}12:00:00 root\\u{202e})",
  ]);
});

t.test("colors appear only on request", async (t) => {
  t.match((await rendered([request], true)).join(), "\x1b[31mdeny\x1b[");
  t.notMatch((await rendered([request])).join(), "\x1b");
});
