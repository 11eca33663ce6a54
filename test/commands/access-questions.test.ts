import t from "tap";
import { grant } from "../access/kit.ts";
import { install } from "./kit.ts";
import { policy } from "./policy.ts";

const answers: [question: string, code: number, answer: string][] = [
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
  ["rita Insert main.notes", 1, "the role is not enough: ReadOnly by the entry for main"],
  [
    "alice Insert main --via mcp",
    1,
    "INSERT is not among the rights of ReadOnly on what comes by mcp (a boundary)",
  ],
  ["rita Select side.t", 1, "the entry has expired"],
  [
    "tom Select main",
    1,
    "there is no entry for this database, and none for *; there are entries for tables: main.notes, main.log_*",
  ],
  ["tom Select main.notes", 0, "ReadOnly by the entry for main.notes"],
  [
    "rita Select main.Tickets",
    1,
    "The table Tickets differs by case alone from tickets: write it so",
  ],
  ["rita Grant main", 1, "the role is not enough: ReadOnly by the entry for main"],
];
t.test("access check says by which entry of a table, and within which limits", async (t) => {
  const gatehouse = install(t, policy);
  const results = await gatehouse.runAll(answers.map(([question]) => `access check ${question}`));
  for (const [index, [question, code, answer]] of answers.entries()) {
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
    ...{ username: "rita", permission: "DELETE", database: "main", table: "tickets" },
    ...{ allowed: true, reason: "allowed", role: "ReadWrite", entry: "main.tickets" },
    ...{ columns: ["id", "tenant", "status"], expires: "2126-01-01T00:00:00Z", approvals },
    row_filter: [{ column: "tenant", cmp: "=", value: "@tenant" }],
  });
});

t.test("access who names everybody who may, by which entry and within which limits", async (t) => {
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
    "without a table, by every entry; not who is disabled or has no record",
  );
  t.strictSame(await who("Insert main"), ["root *", "alice main", "rita main.tickets"]);
  t.strictSame(await who("Insert main --via mcp"), []);
  t.strictSame(await who("Select side.t"), ["root *", "alice *"], "not who has lapsed");
  t.strictSame(await who("DropDatabase main"), ["root *"]);
  const expiring = "access grant alice other Owner --expires 2126-01-02T03:04:05Z";
  t.match(await gatehouse.run(expiring), { code: 0 });
  const until = /Owner.* by the entry for other; until 2126-01-02T03:04:05Z/;
  t.match((await gatehouse.run("access check alice Drop other")).stdout, until, "and until when");
  t.match((await gatehouse.run("access who Drop other")).stdout, /alice .*until 2126-01-02T/);
  const json = JSON.parse((await gatehouse.run("access who Select main --json")).stdout);
  t.match(json[2], { username: "rita", role: "ReadOnly", max_rows: 100 });
});
