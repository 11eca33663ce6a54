import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { entriesIn } from "../../src/core/access/entries.ts";
import { readHolder } from "../../src/core/access/grant.ts";
import { ownGrants } from "../../src/core/access/snapshot.ts";
import { grant, grantOn, groupGrant, user } from "../access/kit.ts";
import {
  checkRefusals,
  done,
  failed,
  type Installation,
  install,
  installed,
  people,
  type Refused,
} from "./kit.ts";
import { policy } from "./policy.ts";

t.test("access grant and revoke change one entry and report the result", async (t) => {
  const gatehouse = install(t);
  const steps: [command: string, stdout: string, role?: string][] = [
    [
      "grant alice logs DbAdmin",
      "alice can read, change, create and drop every table of logs, and grant roles up to ReadWrite.",
      "DbAdmin",
    ],
    ["grant alice main ReadOnly", "alice can read every table of main.", "ReadOnly"],
    ["grant alice * ReadOnly", "alice can read every table of every database.", "ReadOnly"],
    ["grant github:carol main ReadOnly", "github:carol can read every table of main.", "ReadOnly"],
    [
      "revoke alice logs",
      "Removed the entry of alice for logs. Remaining entries: main:ReadOnly *:ReadOnly",
    ],
    ["revoke alice main", "Removed the entry of alice for main. Remaining entries: *:ReadOnly"],
    ["revoke alice *", "Removed the entry of alice for *. Remaining entries: none"],
  ];
  for (const [command, stdout, role] of steps) {
    const [, username = "", database = ""] = command.split(" ");
    const before = gatehouse.text;
    t.strictSame(await gatehouse.run(`access ${command}`), done(stdout));
    t.equal(grantOn(gatehouse.snapshot, username, database)?.role, role, command);
    if (command === "grant alice * ReadOnly") t.equal(gatehouse.text, before, "nothing to write");
  }
  t.notOk(gatehouse.snapshot.grants.has(readHolder("alice")));
});

installed("quotes tell a database of two names from a table", async (t, gatehouse) => {
  const check = async (place: string) =>
    (await gatehouse.run(`access check github:carol Select ${place}`)).code;
  const granted = await gatehouse.run("access grant github:carol 'acme.shop' ReadOnly");
  t.match(granted, { code: 0, stdout: /github:carol can read every table of 'acme\.shop'\.\n/ });
  t.equal((await gatehouse.run('access grant github:carol "acme.logs".orders ReadOnly')).code, 0);
  t.equal((await gatehouse.run("access grant github:carol acme.items ReadOnly")).code, 0);
  const databases = ["acme.shop", "acme.logs", "acme"];
  t.strictSame([...ownGrants(gatehouse.snapshot, readHolder("github:carol")).keys()], databases);
  const allowed = ["'acme.shop'", "'acme.shop'.any", "'acme.logs'.orders", "acme.items"];
  for (const place of allowed) t.equal(await check(place), 0, place);
  for (const place of ["acme.shop", "acme", "'acme.logs'", "'acme.items'"]) {
    t.equal(await check(place), 1, place);
  }
  for (const place of ["'a.b.c'", "'acme.shop", "'acme.shop'x", "''"]) {
    t.match(await gatehouse.run(`access check github:carol Select ${place}`), {
      code: 1,
      stderr: /Invalid/,
    });
  }
  t.equal((await gatehouse.run("access revoke github:carol 'acme.shop'")).code, 0);
  t.equal(await check("'acme.shop'"), 1);
});

t.test("three names without quotes are refused where a database may have two", async (t) => {
  const gatehouse = install(t);
  const file = `${gatehouse.home}/gateway.toml`;
  const usual = readFileSync(file, "utf8");
  const route = `
[[routes]]
path = "/:tenant/:database/:table"
access = "SELECT"
database = ":tenant.:database"
`;
  const others = "access check alice Select acme.shop.docs";
  t.match(await gatehouse.run(others), { code: 0, stdout: /alice SELECT on acme\.shop\.docs/ });
  for (const more of ['[upstream]\nurl = "http://127.0.0.1:1"\npreset = "chroma"\n', route]) {
    writeFileSync(file, `${usual}\n${more}`);
    for (const command of [
      "access check alice Select",
      "access who Select",
      "access revoke alice",
      "access grant alice",
    ]) {
      const role = command.includes("grant") ? " ReadOnly" : "";
      const result = await gatehouse.run(`${command} acme.shop.docs.v1${role}`);
      t.match(result, { code: 2, stderr: `write '"acme.shop".docs.v1', or '"acme".shop.docs.v1'` });
    }
    t.equal((await gatehouse.run("access grant alice 'acme.shop'.docs ReadOnly")).code, 0);
    const { stderr } = await gatehouse.run("access explain alice --json", "{}");
    t.equal(/^warning: With preset chroma, .* no \/query/.test(stderr), more !== route);
    for (const place of ["'acme'.shop.docs", "acme.docs"]) {
      t.equal((await gatehouse.run(`access check alice Select ${place}`)).code, 0, place);
    }
  }
});

const nobody = /^gatehouse: User not found: nobody \(`\S+ user list` lists all users\)\n$/;
const refused: Refused[] = [
  ["access grant nobody main ReadOnly", 1, nobody],
  [
    "access grant alice ma/in ReadOnly",
    1,
    /^gatehouse: Invalid database: .*; write main, main.users or /,
  ],
  [
    "access grant alice MAIN ReadOnly",
    1,
    /^gatehouse: The access rules already name this database/,
  ],
  ["access grant alice main Writer", 2, /Allowed: Owner, DbAdmin, ReadWrite, ReadOnly, None\./],
  ["access grant alice main readonly", 2, /\(did you mean ReadOnly\?\)/],
  ["access grant alice main ReadWrit", 2, /'ReadWrit' is invalid .*\(did you mean ReadWrite\?\)/],
  ["access check alice Slect main", 2, /GRANT \(did you mean Select\?\)\n/],
  ["access grant alice main", 2, /missing required argument 'role'/],
  ["access grant root * DbAdmin", 1, /^gatehouse: The last administrator .*; --force allows it\n$/],
  ["access revoke root *", 1, /^gatehouse: The last administrator cannot be/],
  [
    "access revoke alice other",
    1,
    /not found: alice on other \(alice has main:R.* \*:ReadOnly\)\n$/,
  ],
  ["access grant alcie main ReadOnly", 1, /User not found: alcie \(did you mean alice\?\)\n$/],
  ["access revoke nobody main", 1, nobody],
  ["access revoke alice ma/in", 1, /^gatehouse: Invalid database/],
  [
    "access check alice Explode main",
    2,
    /^gatehouse: unknown operation "Explode"; allowed: Select/,
  ],
  ["access check alice batch main", 2, /a Batch needs the rights of its elements; check each/],
  ["access check alice Select ma/in", 1, /^gatehouse: Invalid database: .*; write main, /],
  ["access check alice Select", 2, /missing required argument 'place'/],
];
t.test("access commands refuse unknown users, names and roles, and change nothing", async (t) => {
  await checkRefusals(t, install(t), refused);
});

installed("access list shows every entry", async (t, gatehouse) => {
  t.strictSame(
    await gatehouse.run("access list"),
    done(
      "USERNAME  DATABASE  ROLE",
      "root      *         Owner",
      "alice     main      ReadWrite",
      "alice     *         ReadOnly",
      "bob       main      ReadOnly",
    ),
  );
  const { code, stdout } = await gatehouse.run("access list --json");
  t.equal(code, 0);
  t.strictSame(JSON.parse(stdout)[1], {
    username: "alice",
    database: "main",
    role: "ReadWrite",
  });
  t.equal(JSON.parse(stdout).length, 4);
});

t.test("access list prints 150,000 entries", async (t) => {
  const count = 150_000;
  const entries = Array.from({ length: count }, (_, n) => grant("alice", `d${n}`, "ReadOnly"));
  const gatehouse = install(t, people + entries.join(""));
  const { code, stdout, stderr } = await gatehouse.run("access list");
  t.strictSame([code, stderr], [0, ""]);
  t.equal(stdout.trimEnd().split("\n").length, count + 5);
});

const narrowed = `[[acl]]
username = "bob"
database = "main"
tables = ["a", "b_*"]
role = "None"

${grant("alice", "main", "Owner", "expires = 2126-01-01T00:00:00Z")}
`;

function entriesOf(gatehouse: Installation, username: string) {
  return [...entriesIn(ownGrants(gatehouse.snapshot, readHolder(username)))];
}

installed("access grant writes all limits of an entry", async (t, gatehouse) => {
  const flags = [
    "--columns",
    "id, tenant,status",
    "--writable-columns",
    "status",
    "--row-filter",
    "tenant = @tenant",
    "--row-filter",
    "region IN (eu, 'us')",
    "--require-where",
    "id",
    "--max-rows",
    "200",
    "--max-changes",
    "20",
    "--require-approval",
    "delete",
    "--require-approval",
    "UPDATE",
    "--approvers",
    "root,idp:ann",
    "--expires",
    "2126-12-24T18:00:00+01:00",
  ];
  const words =
    "columns id, tenant, status; writes status; rows where tenant = @tenant and region IN (eu, us); " +
    "where pins id; at most 200 rows; at most 20 changes; DELETE, UPDATE after approval by root or idp:ann; " +
    "until 2126-12-24T17:00:00Z";
  t.strictSame(await gatehouse.run("access grant alice main.tickets ReadWrite", flags), {
    ...done(
      "alice can read and change main.tickets, 3 columns (id, tenant and status), writing only status, " +
        "only rows where tenant = @tenant and region IN (eu, us), updating and deleting only by id, " +
        "at most 200 rows, at most 20 changes, DELETE and UPDATE only after approval by root or idp:ann, " +
        "until 24 Dec 2126, 17:00 UTC.",
    ),
    stderr:
      "warning: the entry of alice for main.tickets: `row_filter` refers to @tenant, which the user's record lacks: every query is denied\n",
  });
  t.strictSame(entriesOf(gatehouse, "alice")[1], {
    holder: readHolder("alice"),
    database: "main",
    role: "ReadWrite",
    tables: ["tickets"],
    columns: ["id", "tenant", "status"],
    writableColumns: ["status"],
    rowFilter: [
      { column: "tenant", cmp: "=", value: "@tenant" },
      { column: "region", cmp: "IN", value: ["eu", "us"] },
    ],
    requireWhere: ["id"],
    maxRows: 200,
    maxChanges: 20,
    requireApproval: ["DELETE", "UPDATE"],
    approvers: ["root", "idp:ann"],
    expires: Date.UTC(2126, 11, 24, 17),
  });
  t.strictSame(
    await gatehouse.run("access list --user alice --table tickets"),
    done(
      "USERNAME  DATABASE  ROLE       TABLES   LIMITS",
      `alice     main      ReadWrite  tickets  ${words}`,
    ),
  );
  t.equal((await gatehouse.run("access grant alice *.log_* None")).code, 0);
  t.match(entriesOf(gatehouse, "alice").at(-1), { database: "*", tables: ["log_*"], role: "None" });
  t.strictSame(
    await gatehouse.run("access revoke alice main.tickets"),
    done(
      "Removed the entry of alice for main.tickets. Remaining entries: main:ReadWrite *:ReadOnly *.log_*:None",
    ),
  );
});

t.test("--beside adds a temporary entry; without it, a grant replaces both", async (t) => {
  const gatehouse = install(t);
  const before = Date.now();
  const given = await gatehouse.run("access grant alice main DbAdmin --expires 2h --beside");
  t.match(given, {
    code: 0,
    stdout: /^alice can read, change, create and drop every table of main, until /,
  });
  const [permanent, temporary] = entriesOf(gatehouse, "alice");
  t.match(permanent, { role: "ReadWrite", expires: undefined });
  t.equal(temporary?.role, "DbAdmin");
  const left = Number(temporary?.expires) - before;
  t.ok(left > 7_199_000 && left < 7_800_000, "in two hours");
  const dated = await gatehouse.run(
    "access grant alice main DbAdmin --expires 2126-12-24 --beside",
  );
  t.match(dated, { code: 0, stdout: "until 24 Dec 2126, 00:00 UTC" });
  t.equal((await gatehouse.run("access grant alice main ReadOnly --max-rows 5")).code, 0);
  t.match(entriesOf(gatehouse, "alice"), [{ maxRows: 5 }, { database: "*" }]);
  t.equal(entriesOf(gatehouse, "alice").length, 2);
});

const refusedEntries: Refused[] = [
  [
    "access grant alice main ReadOnly",
    1,
    /^gatehouse: The entry has limits .* remove it first with `.*access revoke`\n$/,
  ],
  ["access grant bob main.a ReadOnly", 1, /^gatehouse: The entry lists several tables/],
  ["access revoke bob main.b_*", 1, /^gatehouse: The entry lists several tables/],
  ["access revoke alice main.c", 1, /^gatehouse: Grant not found: alice on main\.c \(alice has /],
  [
    "access grant alice main.t Owner",
    1,
    /Invalid entry: `tables` is allowed only with the role ReadWrite/,
  ],
  ["access grant alice main Owner --columns a", 1, /Invalid entry: `columns` is allowed only with/],
  ["access grant alice main.a*b ReadOnly", 1, /^gatehouse: Invalid table/],
  ["access grant alice main.t ReadOnly --expires soon", 2, /Allowed: 2h, 90d, tomorrow/],
  ["access grant alice main.t ReadOnly --require-approval GRANT", 1, /`require_approval` must be/],
  ["access grant alice main.t ReadOnly --expires 5y", 2, /Allowed: 1s to 366d/],
  ["access grant alice main.t ReadOnly --max-rows 0", 2, /a whole number from 1/],
  ["access grant alice main.t ReadOnly --row-filter tenant", 2, /such as 'tenant = @tenant'/],
  ["access grant alice main.t ReadOnly --row-filter a<x", 1, /`row_filter` must be/],
  ["access grant alice main.t ReadOnly --row-filter a==x", 2, /Repeat --row-filter/],
  ["access grant alice main.t ReadOnly --expires 2020-01-01T00:00:00Z", 2, /in the past/],
  ["access grant alice main.t ReadOnly --expires yesterday", 2, /in the past/],
  ["access grant alice main ReadOnly --beside", 2, /so it needs --expires/],
  ["access grant root * Owner --expires 2h", 1, /^gatehouse: The last administrator/],
];
t.test("access commands refuse invalid limits and ambiguous places", async (t) => {
  await checkRefusals(t, install(t, people + narrowed), refusedEntries);
});

t.test("access list filters by user, database and table", async (t) => {
  const gatehouse = install(t, people + narrowed);
  const lists: [flags: string, places: string[]][] = [
    ["--user alice", ["alice main", "alice main", "alice *"]],
    ["--database *", ["root *", "alice *"]],
    ["--database main --user bob", ["bob main", "bob main"]],
    ["--table b_1", ["bob main"]],
    ["--table b_*", ["bob main"]],
    ["--table main.b_1", ["bob main"]],
    ["--table other.b_1", []],
    ["--table c", []],
    ["--user nobody", []],
  ];
  for (const [flags, places] of lists) {
    const { stdout } = await gatehouse.run(`access list ${flags} --json`);
    const found = JSON.parse(stdout).map(
      ({ username, database }: Record<string, string>) => `${username} ${database}`,
    );
    t.strictSame(found.sort(), places.sort(), flags);
  }
  const { stdout } = await gatehouse.run("access list --user alice --json");
  t.match(JSON.parse(stdout), [{}, { expires: "2126-01-01T00:00:00Z" }, {}]);
});

t.test("lists say that a user or database is unknown", async (t) => {
  const gatehouse = install(t, people + narrowed);
  const unknown = /^warning: User not found: alcie \(did you mean alice\?\)\n$/;
  for (const [command, stdout, stderr] of [
    ["access list --user alcie", "[]\n", unknown],
    ["token list --user alcie", /"apps": \[\]/, unknown],
    ["access list --user staff:ann", "[]\n", ""],
    [
      "access list --database mian",
      "[]\n",
      /^warning: no entry names mian \(did you mean main\?\)\n$/,
    ],
  ] as const) {
    t.match(await gatehouse.run(`${command} --json`), { code: 0, stdout, stderr }, command);
  }
});

t.test("access list --table takes a name with a dot as both things that it can mean", async (t) => {
  const gatehouse = install(t, people);
  for (const place of ["main.logs-2026.11", "logs-2026.11", "main.other"]) {
    await gatehouse.run(`access grant bob ${place} ReadOnly`);
  }
  const lists: [table: string, databases: string[]][] = [
    ["logs-2026.11", ["logs-2026", "main"]],
    ["main.logs-2026.11", ["main"]],
    ["11", ["logs-2026"]],
  ];
  for (const [table, databases] of lists) {
    const { stdout } = await gatehouse.run(`access list --json --table ${table}`);
    const found = JSON.parse(stdout).map(({ database }: { database: string }) => database);
    t.strictSame(found.sort(), databases, table);
  }
});

t.test("--row-filter accepts every kind of value that the access file does", async (t) => {
  const gatehouse = install(t);
  const written: [text: string, value: unknown][] = [
    ["a = 5", 5],
    ["a != '5'", "5"],
    ["a = true", true],
    ["a = 'true'", "true"],
    ["a = '@tenant'", "@@tenant"],
    ["a = @tenant", "@tenant"],
    ["a = 'O''Hara, or = so'", "O'Hara, or = so"],
    ['a = "acme, ""so"""', 'acme, "so"'],
    ["a = 9007199254740993", 9007199254740993n],
    ["a IN (1, 'x, y', z)", [1, "x, y", "z"]],
    ["a in @regions", "@regions"],
    ["some column >= -3", -3],
  ];
  const flags = written.flatMap(([text]) => ["--row-filter", text]);
  const { stdout } = await gatehouse.run("access grant alice main.t ReadOnly", flags);
  const filter = entriesOf(gatehouse, "alice")[1]?.rowFilter;
  t.strictSame(
    filter?.map(({ value }) => value),
    written.map(([, value]) => value),
  );
  t.equal(filter?.at(-1)?.column, "some column");
  const listed = await gatehouse.run("access list --user alice --json");
  t.match(listed.stdout, /"value": 9007199254740993\n/, "every digit is kept");
  const shown = written
    .map(([text]) => text.replace(" in ", " IN "))
    .join(" and ")
    .replace('"acme, ""so"""', `'acme, "so"'`);
  t.strictSame(stdout, `alice can read main.t, only rows where ${shown}.\n`);
});

t.test("--row-filter refuses two conditions, and half of one", async (t) => {
  const gatehouse = install(t, people);
  for (const text of [
    "a !== x",
    "a = b AND c = d",
    "a = 'b' or c = 'd'",
    "a = b c",
    "a = 'b",
    "a = b'c'",
    "a IN (b c)",
    "a IN ('b'c)",
    "a IN (b, c) AND d = e",
    "a != x OR 1=1",
    "a = (b)",
  ]) {
    const flags = ["--row-filter", text];
    const { code } = await gatehouse.run("access grant alice main.t ReadOnly", flags);
    t.equal(code, 2, text);
  }
  t.equal(gatehouse.text, people);
});

installed("user remove removes the user with all grants", async (t, gatehouse) => {
  t.strictSame(
    await gatehouse.run("user remove alice"),
    done("Removed alice and all their grants."),
  );
  t.notMatch(gatehouse.text, /alice/);
  t.match(gatehouse.text, /^# who may do what\n/);
});

t.test("the last Owner and administrator can be removed or lowered only by force", async (t) => {
  const gatehouse = install(t, people + grant("alice", "sales", "Owner"));
  const sentence = "The last Owner of a database cannot be removed or lowered; --force allows it";
  const refused = { code: 1, stderr: /The last (?:Owner|administrator) .*cannot be/ };
  t.strictSame(await gatehouse.run("access revoke alice sales"), failed(1, sentence));
  for (const act of ["grant alice sales DbAdmin", "revoke root *"]) {
    t.match(await gatehouse.run(`access ${act}`), refused);
    t.equal((await gatehouse.run(`access ${act} --force`)).code, 0, act);
  }
  t.equal(grantOn(gatehouse.snapshot, "alice", "sales")?.role, "DbAdmin");
  t.notOk(gatehouse.snapshot.grants.has(readHolder("root")));
  t.equal((await gatehouse.run("access grant root * Owner")).code, 0);
  t.match(await gatehouse.run("user remove root"), refused);
  t.equal((await gatehouse.run("user remove root --force")).code, 0);
  t.notOk(gatehouse.snapshot.users.has("root"));
});

const all = "SELECT and INSERT and UPDATE and DELETE";
const tooLittle = "the role does not include this";
const answers: [question: string, code: number, right: string, why: string][] = [
  ["alice Select main", 0, "SELECT", "ReadWrite by the entry for main"],
  ["alice insert main", 0, "INSERT", "ReadWrite by the entry for main"],
  ["alice SELECT other", 0, "SELECT", "ReadOnly by the entry for *"],
  ["alice Insert other", 1, "INSERT", `${tooLittle}: ReadOnly by the entry for *`],
  ["alice Preview main", 0, all, "ReadWrite by the entry for main"],
  ["alice Preview other", 1, all, `${tooLittle}: ReadOnly by the entry for *`],
  ["alice CreateTable main", 1, "CREATE", `${tooLittle}: ReadWrite by the entry for main`],
  ["alice Select MAIN", 1, "SELECT", "the access file spells this database in another case"],
  ["root CreateDatabase new", 0, "CREATE DATABASE", "Owner by the entry for *"],
  ["bob Select main", 1, "SELECT", "the user is disabled"],
  ["bob Select other", 1, "SELECT", "the user is disabled"],
  ["nobody Select main", 1, "SELECT", "the user does not exist"],
  ["ghost Select main", 1, "SELECT", "the user does not exist"],
  ["github:eve Select main", 0, "SELECT", "ReadOnly by the entry for main"],
  ["github:eve Select other", 1, "SELECT", "there is no entry for this place or for *"],
];

t.test("access check prints allowed or denied, with the reason", async (t) => {
  const gatehouse = install(
    t,
    people + grant("ghost", "main", "Owner") + grant("github:eve", "main", "ReadOnly"),
  );
  for (const [question, code, right, why] of answers) {
    const [username, , database] = question.split(" ");
    const answer = `${code === 0 ? "allowed" : "denied"}: ${username} ${right} on ${database}: ${why}`;
    t.strictSame(await gatehouse.run(`access check ${question}`), { ...done(answer), code });
  }
  const right = await gatehouse.run("access check root", ["drop database", "main"]);
  t.match(right, { code: 0, stdout: /^allowed: root DROP DATABASE on main/ });
});

installed("access check --json prints the decision as data", async (t, gatehouse) => {
  const insert = await gatehouse.run("access check alice Insert other --json");
  t.match(JSON.parse(insert.stdout), {
    username: "alice",
    permission: "INSERT",
    database: "other",
    allowed: false,
    reason: "role_insufficient",
    role: "ReadOnly",
    entry: "*",
  });
  const disabled = await gatehouse.run("access check bob Select main --json");
  t.match(JSON.parse(disabled.stdout), {
    allowed: false,
    reason: "user_disabled",
    explanation: "the user is disabled",
  });
  t.strictSame([insert.code, disabled.code], [1, 1]);
});

installed("access check accepts operations from the configuration", async (t, gatehouse) => {
  const configuration = path.join(gatehouse.home, "gateway.toml");
  appendFileSync(configuration, '[query]\noperations = { Truncate = "DELETE" }\n');
  const result = await gatehouse.run("access check alice truncate main");
  t.match(result, { code: 0, stdout: /^allowed: alice DELETE on main/ });
  writeFileSync(configuration, "");
  t.equal((await gatehouse.run("access check alice truncate main")).code, 2);
});

const narrowedAnswers: [question: string, code: number, answer: string][] = [
  ["rita Select main", 0, "ReadOnly by the entry for main; at most 100 rows"],
  [
    "rita update main.tickets",
    0,
    "ReadWrite by the entry for main.tickets; columns id, tenant, status; rows where tenant = @tenant; DELETE after approval by alice; until 2126-01-01T00:00:00Z",
  ],
  [
    "rita Select main.tickets --via mcp",
    0,
    "ReadOnly by the entry for main.tickets; columns id, tenant, status; rows where tenant = @tenant; at most 10 rows; DELETE after approval by alice; until 2126-01-01T00:00:00Z",
  ],
  ["rita Select main --via mcp", 0, "ReadOnly by the entry for main; at most 10 rows"],
  ["rita Insert main.notes", 1, "the role does not include this: ReadOnly by the entry for main"],
  [
    "alice Insert main --via mcp",
    1,
    "INSERT is not among the rights of ReadOnly under the boundary mcp (a boundary)",
  ],
  ["rita Select side.t", 1, "the entry has expired"],
  [
    "tom Select main",
    1,
    "there is no entry for this place or for *; there are entries for tables: main.notes, main.log_*",
  ],
  ["tom Select main.notes", 0, "ReadOnly by the entry for main.notes"],
  [
    "rita Select main.Tickets",
    1,
    "The table Tickets differs only by case from tickets: use that spelling",
  ],
  ["rita Grant main", 1, "the role does not include this: ReadOnly by the entry for main"],
];
installed(
  "access check names the entry for a table and its limits",
  async (t, gatehouse) => {
    const results = await gatehouse.runAll(
      narrowedAnswers.map(([question]) => `access check ${question}`),
    );
    for (const [index, [question, code, answer]] of narrowedAnswers.entries()) {
      t.equal(results[index]?.code, code, question);
      t.ok(
        results[index]?.stdout.endsWith(`: ${answer}\n`),
        `${question}: ${results[index]?.stdout}`,
      );
    }
    const { stdout } = await gatehouse.run("access check rita Delete main.tickets --json");
    const approvals = [
      { entry: "main.tickets", database: "main", permissions: ["DELETE"], approvers: ["alice"] },
    ];
    t.match(JSON.parse(stdout), {
      username: "rita",
      permission: "DELETE",
      database: "main",
      table: "tickets",
      allowed: true,
      reason: "allowed",
      role: "ReadWrite",
      entry: "main.tickets",
      columns: ["id", "tenant", "status"],
      expires: "2126-01-01T00:00:00Z",
      approvals,
      row_filter: [{ column: "tenant", cmp: "=", value: "@tenant" }],
    });
  },
  policy,
);

t.test("a user without an attribute of the row filter is denied, by check and who", async (t) => {
  const filtered = (name: string) =>
    grant(name, "main", "ReadOnly", 'row_filter = [{ column = "t", cmp = "=", value = "@team" }]');
  const users = [
    user("bare"),
    user("lists", 'attributes = { team = ["a"] }'),
    user("fit", 'attributes = { team = "a" }'),
  ];
  const names = ["bare", "lists", "fit", "staff:eve"];
  const gatehouse = install(t, [...users, ...names.map(filtered)].join(""));
  const answers = await gatehouse.runAll(names.map((name) => `access check ${name} Select main.t`));
  t.strictSame(
    answers.map(({ code }) => code),
    [1, 1, 0, 0],
    "attributes of an issuer's users are in their tokens",
  );
  t.match(
    answers[0]?.stdout,
    /^denied: bare SELECT on main\.t: .* but bare has no such attribute that is a single value/,
  );
  const { stdout } = await gatehouse.run("access who Select main.t --json");
  const who = JSON.parse(stdout).map(({ username }: { username: string }) => username);
  t.strictSame(who, ["fit", "staff:eve"]);

  const group = filtered("").replace(/username = .*/, 'group = "crew"');
  const crew = `[[groups]]\nname = "crew"\nmembers = ${JSON.stringify(names)}\n`;
  const grouped = install(t, [...users, crew, group].join(""));
  const members = JSON.parse((await grouped.run("access who Select main.t --json")).stdout);
  t.match(members, [{ group: "crew", members: ["fit", "staff:eve"] }]);
  const own = (await grouped.run("access list --effective group:crew")).stdout;
  t.match(own, /^main +SELECT +rows where t = @team/m, "attributes are its members'");
});

t.test("access who lists every user who may, with entry and limits", async (t) => {
  const gatehouse = install(t, policy + grant("ghost", "main", "Owner"));
  const { stdout, code } = await gatehouse.run("access who Delete main.tickets");
  t.equal(code, 0);
  t.strictSame(
    stdout.split("\n").map((line) => line.replace(/ {2,}.*/, "")),
    ["USERNAME", "root", "alice", "rita", ""],
  );
  t.match(
    stdout,
    /rita +ReadWrite +main\.tickets +columns .*; rows where tenant = @tenant; DELETE after approval by alice; until 2126/,
  );
  const who = async (question: string) => {
    const answer = await gatehouse.run(`access who ${question} --json`);
    return JSON.parse(answer.stdout).map(
      ({ username, entry }: Record<string, string>) => `${username} ${entry}`,
    );
  };
  t.strictSame(
    await who("Select main"),
    ["root *", "alice main", "rita main", "rita main.tickets", "tom main.notes", "tom main.log_*"],
    "without a table, every entry counts; disabled users and users without a record do not",
  );
  t.strictSame(await who("Insert main"), ["root *", "alice main", "rita main.tickets"]);
  t.strictSame(await who("Insert main --via mcp"), []);
  t.strictSame(await who("Select side.t"), ["root *", "alice *"], "expired entries do not count");
  const listed = await gatehouse.run("access list --user rita");
  t.match(listed.stdout, /^rita +side +ReadWrite \(expired\)/m);
  t.strictSame(await who("DropDatabase main"), ["root *"]);
  const expiring = "access grant alice other Owner --expires 2126-01-02T03:04:05Z";
  t.match(await gatehouse.run(expiring), { code: 0 });
  const until = /Owner.* by the entry for other; until 2126-01-02T03:04:05Z/;
  t.match((await gatehouse.run("access check alice Drop other")).stdout, until, "and until when");
  t.match((await gatehouse.run("access who Drop other")).stdout, /alice .*until 2126-01-02T/);
  const json = JSON.parse((await gatehouse.run("access who Select main --json")).stdout);
  t.match(json[2], { username: "rita", role: "ReadOnly", max_rows: 100 });
});

const select = (columns: string, more = "") =>
  `{"Select": {"database": "main", "from": "tickets", "columns": ${columns}${more}}}`;

function explain(gatehouse: Installation, flags: string, query: string) {
  return gatehouse.run(`access explain ${flags}`, query);
}

t.test("access explain names the deciding entry and prints the forwarded bytes", async (t) => {
  const gatehouse = install(t, policy);
  const query = select('["id"]', ', "where": {"column": "id", "cmp": "=", "value": 1.0}');
  const filter = '{"column":"tenant","cmp":"=","value":"acme"}';
  const up = query.replace(
    '{"column": "id", "cmp": "=", "value": 1.0}',
    (own) => `{"and":[${filter},${own}]}`,
  );
  const allowed = await explain(gatehouse, "rita", query);
  t.strictSame(allowed, {
    code: 0,
    stdout: `allowed: rita\nSelect on main.tickets: ReadWrite by the entry for main.tickets; added: ${filter}\n\n${up}\n`,
    stderr: "",
  });
  const json = JSON.parse((await explain(gatehouse, "rita --json", query)).stdout);
  t.match(json, { user: "rita", via: "query", allowed: true, code: "allowed", body: up });
  t.match(json.decisions, [{ operation: "Select", added: [JSON.parse(filter)] }]);

  const star = await explain(gatehouse, "rita", select('["*"]'));
  t.equal(star.code, 1);
  t.match(star.stdout, /^denied: rita: columns_required: .*"id", "tenant", "status"/);
  const limit = await explain(gatehouse, "rita --via mcp --json", query);
  t.match(JSON.parse(limit.stdout), {
    allowed: false,
    code: "limit_required",
    decisions: [{ boundary: "mcp" }],
  });
  const plain = select('["*"]');
  t.equal((await explain(gatehouse, "alice", plain)).stdout.split("\n\n")[1], `${plain}\n`);
});

t.test("access explain prints the form that the configured upstream takes", async (t) => {
  const gatehouse = install(t, policy);
  const url = "http://127.0.0.1:9";
  const section = `[upstream]\nurl = "${url}"\nquery_form = "op"\n`;
  appendFileSync(path.join(gatehouse.home, "gateway.toml"), section);
  const { stdout } = await explain(gatehouse, "alice --json", select('["id"]'));
  const { body } = JSON.parse(stdout);
  t.strictSame(JSON.parse(body), {
    op: "select",
    database: "main",
    from: "tickets",
    columns: ["id"],
  });
  const full = select('["id"]', ', "distinct": true');
  t.match((await explain(gatehouse, "alice", full)).stdout, /^denied: alice: unknown_field/);
});

t.test("access explain names invalid queries, unknown users and needed approvals", async (t) => {
  const gatehouse = install(t, policy);
  t.match(
    (await explain(gatehouse, "rita", '{"Select": {}}')).stdout,
    /^denied: rita: missing_field/,
  );
  t.match(await explain(gatehouse, "nobody", select('["id"]')), {
    code: 1,
    stdout: /^denied: nobody: user_not_found: the user does not exist$/m,
  });
  t.match((await explain(gatehouse, "bob", select('["id"]'))).stdout, /user_disabled/);
  const remove = '{"Delete": {"database": "main", "table": "tickets", "where": null}}';
  t.match(await explain(gatehouse, "rita", remove), {
    code: 1,
    stdout:
      /^denied: rita: approval_required\n.*\nDELETE needs approval by alice \(main\.tickets\)\n$/,
  });
  const batch = `{"Batch": [${select('["id"]')}, ${select('["secret"]')}]}`;
  t.match(
    (await explain(gatehouse, "rita", batch)).stdout,
    /^denied: rita: batch_member_denied \(element 1: column_denied\): /,
  );
});

const expectations = `# What support may do.
[[expect]]
user = "rita"
query = '${select('["id"]')}'
allowed = true

[[expect]]
user = "rita"
query = '${select('["*"]')}'
allowed = false
code = "columns_required"

[[expect]]
user = "rita"
via = "mcp"
query = '${select('["id"]', ', "limit": 10')}'
allowed = true
`;

installed(
  "access test checks a policy against its expectations",
  async (t, gatehouse) => {
    const file = path.join(gatehouse.home, "policy.test.toml");
    writeFileSync(file, expectations);
    t.strictSame(await gatehouse.run("access test", [file]), {
      code: 0,
      stdout: "3 expectations, 0 failed\n",
      stderr: "",
    });
    const proposed = path.join(gatehouse.home, "proposed.toml");
    writeFileSync(proposed, policy.replace('columns = ["id", "tenant", "status"]\n', ""), {
      mode: 0o664,
    });
    const differing = await gatehouse.run("access test", [file, "--file", proposed]);
    t.strictSame(differing, {
      code: 1,
      stdout: `${file}:7: rita: expected denied with columns_required, found allowed\n3 expectations, 1 failed\n`,
      stderr: "",
    });
    writeFileSync(file, `${expectations}[[expect]]\nuser = "rita"\nquery = "{}"\nallowed = true\n`);
    const json = await gatehouse.run("access test --json", [file]);
    t.equal(json.code, 1);
    t.match(JSON.parse(json.stdout), [
      {
        line: 18,
        expected: { user: "rita", allowed: true },
        found: { allowed: false, code: "no_operation" },
      },
    ]);
    writeFileSync(file, '[[expect]]\nuser = "rita"\nquery = "{}"\nallowed = false\n');
    const { stdout } = await gatehouse.run("access test", [file]);
    t.equal(stdout, "1 expectation, 0 failed\n");
    const allowed = expectations.slice(0, expectations.indexOf("allowed = true") + 14);
    for (const [code, answer] of [
      ["x", `${file}:2: rita: expected allowed with x, found allowed\n1 expectation, 1 failed\n`],
      ["allowed", "1 expectation, 0 failed\n"],
    ]) {
      writeFileSync(file, `${allowed}\ncode = "${code}"\n`);
      t.equal((await gatehouse.run("access test", [file])).stdout, answer);
    }
  },
  policy,
);

installed(
  "an invalid file of expectations is refused with its line",
  async (t, gatehouse) => {
    const file = path.join(gatehouse.home, "policy.test.toml");
    const bad: [text: string, stderr: RegExp][] = [
      ["[[expect]]\nuser = 1\n", /policy\.test\.toml:1: \[\[expect\]\]: `user`: a text is needed/],
      ["[[expect]]\n", /\[\[expect\]\]: `user`: a text is needed; allowed keys: user, via/],
      [
        '[[expect]]\nuser = "rita"\nquery = "{}"\n',
        /\[\[expect\]\]: `allowed`: true or false is needed; allowed keys/,
      ],
      [
        '[[expect]]\nuser = "rita"\nvia = "http"\nquery = "{}"\nallowed = true\n',
        /`via`: "query" or "mcp" is needed/,
      ],
      [
        `${expectations}[[expect]]\nusr = "x"\n`,
        /policy\.test\.toml:18: \[\[expect\]\]: `usr`: unknown key; allowed keys: user, .* \(did you mean user\?\)/,
      ],
      ["[[expect]\n", /policy\.test\.toml:1: /],
      ["", /policy\.test\.toml: \[\[expect]]: at least one is needed; allowed keys/],
      ["expect = []\n", /policy\.test\.toml: \[\[expect]]: at least one is needed; allowed keys/],
    ];
    for (const [text, stderr] of bad) {
      writeFileSync(file, text);
      t.match(await gatehouse.run("access test", [file]), { code: 1, stdout: "", stderr });
    }
  },
  policy,
);

installed(
  "access diff shows who gains and loses what",
  async (t, gatehouse) => {
    const file = path.join(gatehouse.home, "new.toml");
    const changed = policy
      .replace('role = "ReadWrite"\ncolumns', 'role = "ReadOnly"\ncolumns')
      .replace("max_rows = 100", "max_rows = 50")
      .replace('tenant = "acme"', 'tenant = "globex"')
      .replace('via = "mcp"', 'via = "mcp"\ndatabase = "main"')
      .replace(grant("alice", "*", "ReadOnly"), "");
    writeFileSync(file, changed + user("carol") + grant("carol", "main", "ReadOnly"));
    const files = [gatehouse.accessFile, file];
    t.strictSame(await gatehouse.run("access diff", files), {
      code: 0,
      stdout: [
        "alice loses SELECT on * (ReadOnly to None)",
        "rita on main: max_rows from 100 to 50",
        "rita loses INSERT, UPDATE, DELETE on main.tickets (ReadWrite to ReadOnly)",
        "carol gains SELECT on main (None to ReadOnly)",
        "rita: attributes changed, which may affect row filters",
        "boundary removed: mcp",
        "boundary added: mcp database=main",
        "",
      ].join("\n"),
      stderr: "",
    });
    const { stdout } = await gatehouse.run("access diff --json", files.toReversed());
    t.match(JSON.parse(stdout), {
      access: [{}, {}, {}, {}],
      attributesChanged: ["rita"],
      boundariesAdded: ["mcp"],
    });
    const same = [gatehouse.accessFile, gatehouse.accessFile];
    t.match(await gatehouse.run("access diff", same), {
      code: 0,
      stdout: "no user gains or loses anything\n",
    });
    writeFileSync(
      file,
      policy.replace('role = "ReadOnly"\nmax_rows', 'role = "ReadWrite"\nmax_rows'),
    );
    t.match(await gatehouse.run("access diff", files), {
      stdout: "rita gains INSERT, UPDATE, DELETE on main (ReadOnly to ReadWrite)\n",
    });
    t.match(await gatehouse.run("access diff nothing nowhere"), {
      code: 1,
      stderr: "gatehouse: nothing does not exist\n",
    });
    t.match(await gatehouse.run("access test", [gatehouse.home]), {
      code: 1,
      // Node 24 does not say which.
      stderr: /^gatehouse: .* directory/,
    });
  },
  policy,
);

t.test("access list --effective lists what entries, groups and boundaries allow", async (t) => {
  const text = [
    people,
    '[[groups]]\nname = "analysts"\nmembers = ["alice", "staff:ann"]\n\n',
    groupGrant("analysts", "logs", "ReadOnly", "max_rows = 5"),
    groupGrant("staff:eng", "logs", "DbAdmin"),
    '[[boundaries]]\nvia = "mcp"\ndatabase = "main"\nrequire_approval = ["UPDATE"]\n',
  ].join("");
  const gatehouse = install(t, text);
  const lines = async (command: string) => {
    const { stdout } = await gatehouse.run(`access list --effective ${command}`);
    return stdout
      .split("\n")
      .slice(1, -1)
      .map((line) => line.split(/ {2,}/));
  };
  const written = "SELECT, INSERT, UPDATE, DELETE";
  t.strictSame(await lines("alice"), [
    ["main", written, "-", "query", "main"],
    ["main", written, "UPDATE after approval", "mcp", "main"],
    ["*", "SELECT", "-", "any", "*"],
    ["logs", "SELECT", "at most 5 rows", "any", "logs (group analysts)"],
  ]);
  const required = /alice .* UPDATE after approval \(boundary mcp database=main\)/;
  for (const question of ["check alice Update main", "who Update main"]) {
    const { stdout } = await gatehouse.run(`access ${question} --via mcp`);
    t.match(stdout, required, question);
  }
  t.strictSame(await lines("alice --database logs"), [
    ["logs", "SELECT", "at most 5 rows", "any", "logs (group analysts)"],
  ]);
  t.match(await lines("bob"), [["main", "none (user_disabled)"]]);
  t.match(await lines("staff:ann"), [["logs", "SELECT"]]);
  t.match(await lines("staff:ann --groups staff:eng"), [["logs", "none (group_conflict)"]]);
  const json = await gatehouse.run("access list --json --effective staff:bo --groups staff:eng");
  const operations = ["SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "GRANT"];
  t.strictSame(JSON.parse(json.stdout), [
    { database: "logs", operations, entry: "logs (group staff:eng)" },
  ]);
  await checkRefusals(t, gatehouse, [
    ["access list --effective nobody", 1, nobody],
    ["access list --groups staff:eng", 2, /--groups needs --effective <user>/],
    ["access list --effective alice --user bob", 2, /takes only --database/],
  ]);
});
