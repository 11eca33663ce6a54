import t from "tap";
import { entriesIn } from "../../src/access/entries.ts";
import { grantsOf } from "../../src/access/snapshot.ts";
import { done, type Installation, install, people } from "./kit.ts";

const narrowed = `[[acl]]
username = "bob"
database = "main"
tables = ["a", "b_*"]
role = "None"

[[acl]]
username = "alice"
database = "main"
role = "Owner"
expires = 2126-01-01T00:00:00Z
`;

function heldBy(gatehouse: Installation, username: string) {
  return [...entriesIn(grantsOf(gatehouse.snapshot, username))];
}

t.test("access grant sets whole entries, in the file as they were said", async (t) => {
  const gatehouse = install(t);
  const flags = [
    ...["--columns", "id, tenant,status", "--writable-columns", "status"],
    ...["--row-filter", "tenant = @tenant", "--row-filter", "region IN (eu, 'us')"],
    ...["--require-where", "id", "--max-rows", "200", "--max-changes", "20"],
    ...["--require-approval", "delete,UPDATE", "--approvers", "root,idp:ann"],
    ...["--expires", "2126-12-24T18:00:00+01:00"],
  ];
  const words =
    "columns id, tenant, status; writes status; rows where tenant = @tenant and region IN (eu, us); " +
    "where pins id; at most 200 rows; at most 20 changes; DELETE, UPDATE after approval by root or idp:ann; " +
    "until 2126-12-24T17:00:00Z";
  t.strictSame(
    await gatehouse.run("access grant alice main.tickets ReadWrite", undefined, ...flags),
    {
      ...done(`alice is ReadWrite on main.tickets: ${words}.`),
      stderr:
        "warning: the entry of alice for main.tickets: `row_filter` refers to @tenant, which the record has not: every query is denied\n",
    },
  );
  t.strictSame(heldBy(gatehouse, "alice")[1], {
    ...{ username: "alice", database: "main", role: "ReadWrite", tables: ["tickets"] },
    ...{ columns: ["id", "tenant", "status"], writableColumns: ["status"] },
    rowFilter: [
      { column: "tenant", cmp: "=", value: "@tenant" },
      { column: "region", cmp: "IN", value: ["eu", "us"] },
    ],
    ...{ requireWhere: ["id"], maxRows: 200, maxChanges: 20 },
    ...{ requireApproval: ["DELETE", "UPDATE"], approvers: ["root", "idp:ann"] },
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
  t.match(heldBy(gatehouse, "alice").at(-1), { database: "*", tables: ["log_*"], role: "None" });
  t.strictSame(
    await gatehouse.run("access revoke alice main.tickets"),
    done(
      "alice has no entry for main.tickets any more; what is left: main:ReadWrite *:ReadOnly *.log_*:None",
    ),
  );
});

t.test(
  "access grant --beside leaves the lasting entry, and without it replaces both",
  async (t) => {
    const gatehouse = install(t);
    const before = Date.now();
    const given = await gatehouse.run("access grant alice main DbAdmin --expires 2h --beside");
    t.match(given, { code: 0, stdout: /^alice is DbAdmin on main: until \d{4}-/ });
    const [lasting, temporary] = heldBy(gatehouse, "alice");
    t.match(lasting, { role: "ReadWrite", expires: undefined });
    t.equal(temporary?.role, "DbAdmin");
    const left = Number(temporary?.expires) - before;
    t.ok(left > 7_199_000 && left < 7_800_000, "in two hours");
    const dated = await gatehouse.run(
      "access grant alice main DbAdmin --expires 2126-12-24 --beside",
    );
    t.match(dated, { code: 0, stdout: "until 2126-12-24T00:00:00Z" });
    t.equal((await gatehouse.run("access grant alice main ReadOnly --max-rows 5")).code, 0);
    t.match(heldBy(gatehouse, "alice"), [{ maxRows: 5 }, { database: "*" }]);
    t.equal(heldBy(gatehouse, "alice").length, 2);
  },
);

const refused: [flags: string, code: number, stderr: RegExp][] = [
  ["access grant alice main ReadOnly", 1, /^gatehouse: The entry says more than a role/],
  ["access grant bob main.a ReadOnly", 1, /^gatehouse: The entry lists several tables/],
  ["access revoke bob main.b_*", 1, /^gatehouse: The entry lists several tables/],
  [
    "access revoke alice main.c",
    1,
    /^gatehouse: Grant not found: alice on main\.c \(alice has .*\)\n$/,
  ],
  ["access grant alice main.t Owner", 1, /Invalid entry: `tables` goes with the role ReadWrite/],
  ["access grant alice main Owner --columns a", 1, /Invalid entry: `columns` goes with/],
  ["access grant alice main.a*b ReadOnly", 1, /^gatehouse: Invalid table/],
  ["access grant alice main.t ReadOnly --expires soon", 2, /allowed: such as 2h, 90d, tomorrow/],
  ["access grant alice main.t ReadOnly --require-approval GRANT", 1, /`require_approval` must be/],
  ["access grant alice main.t ReadOnly --expires 5y", 2, /allowed: such as 90d/],
  ["access grant alice main.t ReadOnly --max-rows 0", 2, /a whole number from 1/],
  ["access grant alice main.t ReadOnly --row-filter tenant", 2, /such as 'tenant = @tenant'/],
  ["access grant alice main.t ReadOnly --row-filter a<x", 1, /`row_filter` must be/],
  ["access grant alice main.t ReadOnly --row-filter a==x", 2, /a further one takes a --row-filter/],
  ["access grant alice main.t ReadOnly --expires 2020-01-01T00:00:00Z", 2, /has passed/],
  ["access grant alice main.t ReadOnly --expires yesterday", 2, /has passed/],
  ["access grant alice main ReadOnly --beside", 2, /say by --expires when this one ends/],
  ["access grant root * Owner --expires 2h", 1, /^gatehouse: The last administrator/],
];
t.test("what may not be is refused with a reason, and nothing is written", async (t) => {
  const gatehouse = install(t, people + narrowed);
  const results = await gatehouse.runAll(refused.map(([flags]) => flags));
  for (const [index, [flags, code, stderr]] of refused.entries()) {
    t.match(results[index], { code, stdout: "", stderr }, flags);
  }
  t.equal(gatehouse.text, people + narrowed);
});

t.test("access list shows those of a user, a database, a table", async (t) => {
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

t.test("a filter on the command line may say any value of the file's", async (t) => {
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
  const { stdout } = await gatehouse.run("access grant alice main.t ReadOnly", undefined, ...flags);
  const filter = heldBy(gatehouse, "alice")[1]?.rowFilter;
  t.strictSame(
    filter?.map(({ value }) => value),
    written.map(([, value]) => value),
  );
  t.equal(filter?.at(-1)?.column, "some column");
  const shown = written
    .map(([text]) => text.replace(" in ", " IN "))
    .join(" and ")
    .replace('"acme, ""so"""', `'acme, "so"'`);
  t.strictSame(stdout, `alice is ReadOnly on main.t: rows where ${shown}.\n`);
});

t.test("what may be two conditions, or half of one, is no value", async (t) => {
  const gatehouse = install(t, people);
  for (const text of [
    ...["a !== x", "a = b AND c = d", "a = 'b' or c = 'd'", "a = b c", "a = 'b", "a = b'c'"],
    ...["a IN (b c)", "a IN ('b'c)", "a IN (b, c) AND d = e", "a != x OR 1=1", "a = (b)"],
  ]) {
    const flags = ["--row-filter", text];
    const { code } = await gatehouse.run("access grant alice main.t ReadOnly", undefined, ...flags);
    t.equal(code, 2, text);
  }
  t.equal(gatehouse.text, people);
});

t.test("access list --json has whole numbers to the last digit", async (t) => {
  const gatehouse = install(t);
  const filter = ["--row-filter", "id = 9007199254740993"];
  await gatehouse.run("access grant alice main.t ReadOnly", undefined, ...filter);
  const { stdout } = await gatehouse.run("access list --user alice --json");
  t.match(stdout, /"value": 9007199254740993\n/);
});
