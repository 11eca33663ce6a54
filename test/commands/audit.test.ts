import { readFileSync, renameSync, statSync, utimesSync, writeFileSync } from "node:fs";
import path from "node:path";
import { gzipSync } from "node:zlib";
import t, { type Test } from "tap";
import { parseLine } from "../../src/core/observe/audit-filter.ts";
import { visibilityFilter } from "../../src/core/observe/audit-search.ts";
import { grant, user } from "../access/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { startGateway, temporaryHome } from "../kit/gateway.ts";
import { runWarm } from "../kit/warm-command.ts";

const HOUR_MS = 3_600_000;

interface Line {
  user?: string;
  ago?: number;
  operation?: string;
  table?: string;
  entry?: string;
  deny?: boolean;
  more?: object;
}

/** @param made.ago hours */
function line({
  user = "rita",
  ago = 1,
  operation = "Select",
  table = "t",
  ...made
}: Line): string {
  const { entry = "main", deny = false, more = {} } = made;
  const one = { operation, database: "main", tables: [table], role: "ReadWrite", entry };
  return `${JSON.stringify({
    level: "info",
    time: new Date(Date.now() - ago * HOUR_MS).toISOString(),
    requestId: "r",
    address: "::1",
    method: "POST",
    path: "/query",
    user,
    via: "query",
    operations: [one],
    operationCount: 1,
    decision: deny ? "deny" : "allow",
    ...(deny ? { reason: "no_grant" } : {}),
    ...more,
    accessVersion: "abc",
    status: deny ? 403 : 200,
    ms: 1,
    bytes: 9,
    msg: "request",
  })}\n`;
}

/** @param files of the audit, oldest first */
function auditHome(t: Test, files: Record<string, string | Buffer>, access = ""): string {
  const home = temporaryHome(t);
  writeFileSync(path.join(home, "gateway.toml"), '[audit]\nfile = "audit.log"\n');
  writeFileSync(path.join(home, "access_control.toml"), access, { mode: 0o600 });
  const names = Object.keys(files);
  for (const [at, name] of names.entries()) {
    const file = path.join(home, name);
    writeFileSync(file, files[name] ?? "");
    const written = Date.now() / 1000 - (names.length - 1 - at);
    utimesSync(file, written, written);
  }
  return home;
}

const linesOf = async (home: string, ...flags: string[]) => {
  const result = await runWarm(home, ["audit", "--json", ...flags]);
  if (result.code !== 0) throw new Error(result.stderr);
  return result.stdout
    .split("\n")
    .filter(Boolean)
    .map((text): Record<string, unknown> => JSON.parse(text));
};
const usersOf = (lines: Record<string, unknown>[]) => lines.map(({ user }) => user).join();

t.test("audit --table finds tables that have dots in their names", async (t) => {
  const home = auditHome(t, {
    "audit.log":
      line({ user: "a", table: "logs-2026.11.28" }) + line({ user: "b", table: "11.28" }),
  });
  t.equal(usersOf(await linesOf(home, "--table", "logs-2026.11.28")), "a");
  t.equal(usersOf(await linesOf(home, "--table", "main.logs-2026.11.28")), "a");
  t.equal(usersOf(await linesOf(home, "--table", "11.28")), "b");
  t.equal(usersOf(await linesOf(home, "--table", "main.11.28")), "b");
  t.equal(usersOf(await linesOf(home, "--table", "2026.11.28")), "");
});

t.test("audit filters by user, table, operation, outcome and time, over all files", async (t) => {
  const home = auditHome(t, {
    "audit.log-20200101.gz": gzipSync(line({ user: "old", ago: 900, table: "gone" })),
    "audit.log.2.gz": gzipSync(
      line({ user: "a", ago: 50 }) + line({ user: "b", ago: 49, deny: true }),
    ),
    "audit.log.1": line({ user: "c", ago: 30, operation: "Delete", table: "x" }),
    "audit.logs": line({ user: "another file" }),
    "audit.log": `${line({ user: "d" })}{"broken\n${line({ user: "e", table: "x", ago: 0 })}`,
  });
  t.equal(usersOf(await linesOf(home)), "old,a,b,c,d,e");
  t.equal(usersOf(await linesOf(home, "--user", "c")), "c");
  t.equal(usersOf(await linesOf(home, "--table", "x")), "c,e");
  t.equal(usersOf(await linesOf(home, "--table", "main.x", "--operation", "Delete")), "c");
  t.equal(usersOf(await linesOf(home, "--table", "other.x")), "");
  t.equal(usersOf(await linesOf(home, "--database", "main", "--since", "40h")), "c,d,e");
  t.equal(usersOf(await linesOf(home, "--denied")), "b");
  t.equal(usersOf(await linesOf(home, "--since", "60h", "--until", "20h")), "a,b,c");
  t.match(usersOf(await linesOf(home, "--since", "yesterday")), /^(c,)?d,e$/);
  t.equal(usersOf(await linesOf(home, "--since", "2020-01-01", "--user", "c")), "c");
});

t.test("a compressed file that is damaged or unfinished hides no lines of others", async (t) => {
  const gone = gzipSync(line({ user: "gone", ago: 60 })).subarray(0, 20);
  const home = auditHome(
    t,
    {
      "audit.log.3.gz": gone,
      "audit.log.2": line({ user: "a", ago: 50 }),
      "audit.log.2.gz": gzipSync(line({ user: "a", ago: 50 })).subarray(0, 20),
      "audit.log": line({ user: "b" }),
    },
    grant("b", "main", "ReadOnly"),
  );
  const shown = await runWarm(home, ["audit"]);
  t.match(shown.stdout, /^\S+ {2}a {2}.*\n\S+ {2}b {2}.*\n$/);
  t.equal(shown.code, 1);
  const problem =
    /^gatehouse: \S+audit\.log\.3\.gz cannot be read to its end: unexpected end of file\n$/;
  t.match(shown.stderr, problem);
  const unused = await runWarm(home, ["audit", "unused", "--since", "90d"]);
  t.equal(unused.code, 1);
  t.match(unused.stderr, /audit\.log\.3\.gz cannot be read to its end/);
});

t.test("audit prints short lines and escapes control characters", async (t) => {
  const change = {
    author: { kind: "api", name: "admin" },
    changes: [{ change: "grant added", user: "z", entry: "main", role: "ReadOnly" }],
  };
  const home = auditHome(t, {
    "audit.log":
      line({
        user: "rita",
        operation: "Delete",
        table: "x",
        more: { affected: 12, client: "a\u001b[31m" },
      }) +
      line({
        user: "admin",
        more: { operations: [], path: "/api/access/z/main", method: "PUT", ...change },
      }),
  });
  const { stdout } = await runWarm(home, ["audit"]);
  t.match(stdout, /^\S+Z {2}rita {2}.*Delete main\.x {2}allow {2}200 {2}affected 12 {2}by main$/m);
  t.notMatch(stdout, "\u001b");
  const about = await runWarm(home, ["audit", "--user", "z"]);
  t.match(
    about.stdout,
    /admin {2}PUT \/api\/access\/z\/main {2}allow .*grant added z main ReadOnly/,
  );
});

t.test("audit without a file or with an invalid time says what is needed", async (t) => {
  const home = temporaryHome(t);
  const none = await runWarm(home, ["audit"]);
  t.equal(none.code, 1);
  t.match(none.stderr, '[audit] file = "audit.log"');
  const wrong = await runWarm(home, ["audit", "--since", "lately"]);
  t.equal(wrong.code, 2);
  t.match(wrong.stderr, /Allowed: 24h/);
});

t.test("--since skips older lines and keeps the order in long files", async (t) => {
  const many = Array.from({ length: 9000 }, (_, at) =>
    line({ user: `u${at}`, ago: 200 - at / 50 }),
  );
  const home = auditHome(t, { "audit.log": many.join("") });
  t.ok(statSync(path.join(home, "audit.log")).size > 2 * 1024 * 1024);
  const found = await linesOf(home, "--since", "30h");
  t.equal(found.at(-1)?.user, "u8999");
  const first = Number(String(found[0]?.user).slice(1));
  t.ok(Math.abs(first - 8500) <= 2, `u${first} is 30 hours old`);
  t.equal(found.length, 9000 - first, "no line is missing");
});

const access = `
[[users]]
username = "rita"
[[users]]
username = "max"
[[users]]
username = "boss"
[[users]]
username = "batch"
${grant("batch", "main", "ReadOnly")}
${grant("rita", "main", "ReadOnly")}
${grant("rita", "main", "ReadWrite", 'tables = ["a", "b_*"]')}
${grant("rita", "other", "ReadOnly")}
${grant("max", "main", "ReadOnly")}
${grant("boss", "*", "Owner")}
`;

t.test("audit unused lists entries that allowed no request", async (t) => {
  const files = {
    "audit.log":
      line({ user: "max", ago: 800 }) +
      line({ user: "rita", entry: "main.z, main.b_*" }) +
      line({ user: "batch", entry: "side", more: { operationCount: 17 } }) +
      line({ user: "max", deny: true }) +
      line({ user: "boss", more: { operations: [], path: "/api/users", method: "POST" } }),
  };
  const home = auditHome(t, files, access);
  const { stdout, stderr } = await runWarm(home, ["audit", "unused", "--since", "30d", "--json"]);
  t.strictSame(JSON.parse(stdout), [
    { username: "rita", entry: "main", role: "ReadOnly" },
    { username: "rita", entry: "other", role: "ReadOnly" },
    { username: "max", entry: "main", role: "ReadOnly" },
  ]);
  t.equal(stderr, "");
  const further = await runWarm(home, ["audit", "unused", "--since", "90d"]);
  t.match(further.stderr, /warning: the audit begins \d{4}-/);
  t.notMatch(further.stdout, "max");
});

t.test("a database of two names is not taken for a table, nor its entry for unused", async (t) => {
  const acl = (database: string, more = "") =>
    `[[acl]]\nusername = "rita"\ndatabase = "${database}"\nrole = "ReadOnly"\n${more}`;
  const rules = `[[users]]\nusername = "rita"\n${acl("acme.shop")}${acl("acme", 'tables = ["shop"]\n')}`;
  const used = (database: string, table: string, entry: string) =>
    line({ more: { operations: [{ operation: "SELECT", database, tables: [table], entry }] } });
  const files = {
    "audit.log": used("acme.shop", "orders", "'acme.shop'") + used("acme", "orders", "*"),
  };
  const home = auditHome(t, files, rules);
  const unused = await runWarm(home, ["audit", "unused", "--since", "30d", "--json"]);
  t.match(JSON.parse(unused.stdout), [{ username: "rita", entry: "acme.shop" }]);
  const found = async (table: string) => {
    const { stdout } = await runWarm(home, ["audit", "--table", table]);
    return stdout.match(/SELECT \S+/g);
  };
  t.strictSame(await found("'acme.shop'.orders"), ["SELECT 'acme.shop'.orders"]);
  t.strictSame(await found("acme.shop.orders"), ["SELECT 'acme.shop'.orders"]);
  t.strictSame(await found("acme.orders"), ["SELECT acme.orders"]);
  t.equal((await found("orders"))?.length, 2);
  const isVisible = visibilityFilter({ named: new Map([["acme", true]]), others: false });
  const changed = (entry: string) => {
    const changes = [{ change: "grant_added", user: "rita", entry, role: "ReadOnly" }];
    const read = parseLine(line({ more: { operations: [], changes } }));
    return read !== undefined && isVisible(read);
  };
  t.strictSame(
    [changed("acme.shop"), changed("'acme.shop'"), changed("'acme.shop'.a")],
    [true, false, false],
  );
});
t.test("audit unused counts uses of a group's entries by any of its members", async (t) => {
  const entryOf = (holder: string, place: string, role = "ReadOnly") =>
    `[[acl]]\n${holder}\n${place}\nrole = "${role}"\n`;
  const main = 'database = "main"';
  const text = [
    '[[groups]]\nname = "readers"\nmembers = ["rita", "staff:Jörg"]\n',
    '[[groups]]\nname = "leads"\nmembers = ["boss"]\n',
    entryOf('group = "readers"', main),
    entryOf('group = "readers"', `${main}\ntables = ["a", "b"]`),
    entryOf('group = "readers"', 'database = "side"'),
    entryOf('group = "staff:R/D Süd"', main),
    entryOf('group = "staff:idle"', main),
    entryOf('group = "staff:admins"', main, "DbAdmin"),
    entryOf('group = "leads"', 'database = "*"', "Owner"),
    entryOf('group = "ghosts"', main),
    entryOf('username = "rita"', main),
    entryOf('username = "staff:Jörg"', main),
    entryOf('username = "chef"', 'database = "*"', "Owner"),
  ].join("\n");
  const login = (user: string, outcome: string) =>
    `${JSON.stringify({ level: "info", time: new Date().toISOString(), user, outcome, msg: "console_login" })}\n`;
  const files = {
    "audit.log": [
      line({ user: "rita", entry: "main (group readers)" }),
      line({ user: "staff:Jörg", entry: "main.b (group readers), main (group staff:R/D Süd)" }),
      line({ user: "staff:Jörg" }),
      line({ user: "boss", more: { operations: [], path: "/api/groups", method: "GET" } }),
      line({ user: "staff:eve", more: { operations: [], path: "/api/users", method: "GET" } }),
      login("chef", "allowed"),
    ].join(""),
  };
  const unusedIn = async (home: string) => {
    const { stdout } = await runWarm(home, ["audit", "unused", "--since", "30d", "--json"]);
    return JSON.parse(stdout);
  };
  const idle = [
    { group: "readers", entry: "side", role: "ReadOnly" },
    { group: "staff:idle", entry: "main", role: "ReadOnly" },
    { group: "ghosts", entry: "main", role: "ReadOnly" },
    { username: "rita", entry: "main", role: "ReadOnly" },
  ];
  t.strictSame(await unusedIn(auditHome(t, files, text)), idle);
  const refused = {
    "audit.log": files["audit.log"].replace(
      '"outcome":"allowed"',
      '"outcome":"credentials_invalid"',
    ),
  };
  t.match((await unusedIn(auditHome(t, refused, text))).at(-1), { username: "chef" });
});

t.test("audit finds the changes of a group by those who join and leave it", async (t) => {
  const change = (fields: object) =>
    `${JSON.stringify({
      level: "info",
      time: new Date().toISOString(),
      msg: "change",
      author: { kind: "cli", name: "root" },
      changes: [fields],
    })}\n`;
  const home = auditHome(t, {
    "audit.log": [
      change({ change: "group added", group: "a", members: ["rita"] }),
      change({ change: "group changed", group: "a", members: ["max"], left: ["rita", "al c"] }),
      change({ change: "group removed", group: "a", left: ["max"] }),
      change({ change: "grant added", group: "rita", entry: "main", role: "ReadOnly" }),
    ].join(""),
  });
  const found = async (user: string) =>
    (await runWarm(home, ["audit", "--user", user])).stdout
      .trim()
      .split("\n")
      .map((text) => text.split("  ").at(-1));
  t.strictSame(await found("rita"), [
    "group added a rita",
    'group changed a max without rita "al c"',
  ]);
  t.strictSame(await found("max"), [
    'group changed a max without rita "al c"',
    "group removed a without max",
  ]);
});

t.test("audit reads the file that a gateway writes", async (t) => {
  const gateway = await startGateway(t, { config: '[audit]\nfile = "audit.log"\n' });
  const token = await gateway.login();
  const place = { database: "main", table: "t" };
  const columns = [{ name: "id", type: "int", primary_key: true }];
  await gateway.query({ CreateTable: { ...place, columns } }, token);
  await gateway.query({ Insert: { ...place, values: [{ id: 1 }, { id: 2 }] } }, token);
  await gateway.query({ Delete: { ...place, where: null } }, token);
  const file = path.join(gateway.home, "audit.log");
  await eventually("the line is written", () => readFileSync(file, "utf8").includes("Delete"));
  writeFileSync(gateway.accessFile, "[[users]]\nname = 1\n");
  await eventually("that is written", () => /refused/.test(readFileSync(file, "utf8")));
  renameSync(file, `${file}.1`);
  const refused = await runWarm(gateway.home, ["audit"]);
  t.match(refused.stdout, /Z {2}access file refused {2}\S+access_control\.toml:\d+ {2}"/);
  const flags = ["audit", "--operation", "delete", "--table", "t"];
  const { stdout } = await runWarm(gateway.home, flags);
  t.match(stdout, /admin {2}Delete main\.t {2}allow {2}200 {2}affected 2 {2}by \*\n$/);
  const none = await runWarm(gateway.home, ["audit", "--operation", "Delte"]);
  t.match(none, {
    code: 0,
    stdout: "",
    stderr: /^no matching lines in \S+audit\.log and its rotated files\n$/,
  });
});

t.test("outcomes are judged by the status, also of a tool's query", async (t) => {
  const statuses = [200, 202, 400, 401, 403, 404, 409, 413, 429, 499, 500, 503];
  const files = statuses
    .map((status) =>
      line({ user: `u${status}`, deny: status !== 200 }).replace(
        /"status":\d+/,
        `"status":${status}`,
      ),
    )
    .concat(
      [202, 403, 409].map((toolStatus) =>
        line({ user: `mcp${toolStatus}`, deny: true, more: { via: "mcp", toolStatus } }),
      ),
    );
  const home = auditHome(t, { "audit.log": files.join("") });
  t.equal(usersOf(await linesOf(home, "--denied")), "u403,mcp403");
  t.equal(
    usersOf(await linesOf(home, "--failed")),
    "u400,u404,u409,u413,u429,u499,u500,u503,mcp409",
  );
  t.match(await runWarm(home, ["audit", "--denied", "--failed"]), { code: 2 });
});

t.test("audit --from includes its moment and --to does not", async (t) => {
  const at = (time: string) => line({ user: time }).replace(/"time":"[^"]+"/, `"time":"${time}"`);
  const times = [
    "2026-11-26T23:59:59.999Z",
    "2026-11-27T00:00:00.000Z",
    "2026-11-27T23:59:59.999Z",
    "2026-11-28T00:00:00.000Z",
  ];
  const home = auditHome(t, { "audit.log": times.map(at).join("") });
  const day = ["--from", "2026-11-27", "--to", "2026-11-28"];
  t.equal(usersOf(await linesOf(home, ...day)), [times[1], times[2]].join());
  t.equal(usersOf(await linesOf(home, "--since", "2026-11-28")), times[3]);
  t.equal(usersOf(await linesOf(home, "--limit", "2")), [times[2], times[3]].join());
  t.equal(usersOf(await linesOf(home, ...day, "--limit", "1")), times[2]);
  t.equal(
    usersOf(await linesOf(home, "--since", times[2] ?? "", "--until", times[2] ?? "")),
    times[2],
  );
  const [start, end] = ["2026-11-28T00:00:00Z", "2026-11-27T00:00:00Z"];
  const unmatched = `no line can match: the end, ${end}, is not after the start, ${start}`;
  for (const flags of [
    ["--from", "2026-11-28", "--to", "2026-11-27"],
    ["--since", "2026-11-28", "--until", "2026-11-27"],
    ["--since", "2026-11-28", "--to", "2026-11-27", "--csv"],
  ]) {
    t.match(await runWarm(home, ["audit", ...flags]), { code: 2, stdout: /^$/, stderr: unmatched });
  }
  const nothing = ["audit", "--from", "2026-11-27", "--to", "2026-11-27"];
  t.match(await runWarm(home, nothing), { code: 2, stderr: "is not after the start" });
  for (const command of [["audit"], ["audit", "unused"]]) {
    const future = await runWarm(home, [...command, "--since", "2199-01-01"]);
    t.match(future, { code: 2, stderr: "This time is in the future." });
  }
  for (const flags of [
    ["--limit", "0"],
    ["--from", "x"],
    [...day, "--since", "1h"],
    ["--csv", "--json"],
  ]) {
    t.match(await runWarm(home, ["audit", ...flags]), { code: 2 }, flags.join(" "));
  }
});

t.test("audit --group finds lines of the members, and lines that the group decided", async (t) => {
  const access =
    '[[groups]]\nname = "analysts"\nmembers = ["rita", "staff:bo"]\n\n' +
    grant("rita", "main", "ReadOnly") +
    user("rita");
  const change = {
    level: "info",
    time: new Date().toISOString(),
    author: { kind: "cli", name: "ops" },
    changes: [{ change: "group changed", group: "analysts", members: ["rita"], left: ["eve"] }],
    msg: "change",
  };
  const lines = [
    line({ user: "rita" }),
    line({ user: "staff:bo" }),
    line({ user: "gone", entry: "main (group analysts)" }),
    line({ user: "both", entry: "main, main.t (group analysts)" }),
    line({ user: "torn", entry: "main (groups analysts, staff:eng)" }),
    line({ user: "eng", entry: "main (group staff:eng)" }),
    line({ user: "trick", entry: "main (group staff:y (group analysts))" }),
    line({ user: "other", entry: "main (group analysts2)" }),
    `${JSON.stringify(change)}\n`,
  ];
  const home = auditHome(t, { "audit.log": lines.join("") }, access);
  t.equal(usersOf(await linesOf(home, "--group", "analysts")), "rita,staff:bo,gone,both,torn,");
  t.equal(usersOf(await linesOf(home, "--group", "staff:eng")), "torn,eng");
  const unknown = await runWarm(home, ["audit", "--group", "unknown"]);
  t.match(unknown, { code: 0, stderr: /there is no local group unknown/ });
});

t.test("audit --request-id finds the lines of one request", async (t) => {
  const home = auditHome(t, {
    "audit.log":
      line({ user: "a", more: { requestId: "5f0c" } }) + line({ user: "b", table: "5f0c" }),
  });
  t.equal(usersOf(await linesOf(home, "--request-id", "5f0c")), "a");
  t.equal(usersOf(await linesOf(home, "--request-id", "5f0")), "");
});

t.test("audit --csv is quoted, and no cell begins a formula", async (t) => {
  const hostile = {
    client: "=cmd|' /C calc'!A0",
    reason: 'say "hi", all\r\nnow',
    approval: "+1",
    address: "-1",
    requestId: "@SUM(1)",
    format: "csv",
    rows: 3,
  };
  const parts = { client: "app;=cmd|' /C calc'!A0", reason: 'a; "=1|\t-2', approval: "a;b-c|d=e" };
  const two = line({ user: "\t=1+1", more: parts });
  const home = auditHome(t, { "audit.log": line({ user: "rita", more: hostile }) + two });
  const { stdout } = await runWarm(home, ["audit", "--csv"]);
  const [head = "", first = "", second = "", ...rest] = stdout.split("\r\n");
  t.strictSame(rest, [""]);
  const names = head.slice(1, -1).split('","');
  t.match(names, ["time", "event", "user"]);
  const cells = Array.from(first.matchAll(/"((?:[^"]|"")*)"(?:,|$)/g), ([, cell = ""]) =>
    cell.replaceAll('""', '"'),
  );
  const row = new Map(names.map((name, at) => [name, cells[at]]));
  t.equal(cells.length, names.length);
  t.strictSame(
    ["user", "tables", "rows", "format", "reason", "client", "approval", "request"].map((name) =>
      row.get(name),
    ),
    ["rita", "main.t", "3", "csv", 'say "hi", all  now', "'=cmd|' /C calc'!A0", "'+1", "'@SUM(1)"],
  );
  t.match(second, `"' =1+1"`);
  for (const cell of ["app;'=cmd|' /C calc'!A0", `a;' ""=1|' -2`, "a;b-c|d=e"]) {
    t.match(second, `"${cell}"`, "other separators also begin a cell");
  }
  for (const text of [head, first, second]) t.notMatch(text, /(?:^|,)"\s*[=+\-@]/);
});
