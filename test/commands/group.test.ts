import { appendFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { grant, groupGrant, user } from "../access/kit.ts";
import { checkRefusals, done, failed, install, installed, people, type Refused } from "./kit.ts";

installed("groups are made, given entries, changed and removed", async (t, gatehouse) => {
  const before = gatehouse.text;
  const run = (command: string, more: string[] = []) => gatehouse.run(command, more);
  t.strictSame(
    await run("group set analysts --add alice --add", ["staff:Jürgen Ö#1"]),
    done("The group analysts has alice, staff:Jürgen Ö#1."),
  );
  t.strictSame(
    await run("access grant --group analysts main ReadOnly --max-rows 5"),
    done("Members of the group analysts can read every table of main, at most 5 rows."),
  );
  await run("access grant main ReadWrite --group staff:engineering");
  t.match(gatehouse.text, /^group = "analysts"$/m);
  const groups = [
    {
      name: "analysts",
      members: ["alice", "staff:Jürgen Ö#1"],
      access: [{ database: "main", role: "ReadOnly", max_rows: 5 }],
    },
    { name: "staff:engineering", access: [{ database: "main", role: "ReadWrite" }] },
  ];
  t.strictSame(JSON.parse((await run("group list --json")).stdout), groups);
  const listed = JSON.parse((await run("access list --json")).stdout);
  t.match(listed.at(-2), { group: "analysts", database: "main", username: undefined });
  const who = await run("access who Select main");
  t.match(who.stdout, /^group:analysts \(staff:Jürgen Ö#1\) +ReadOnly +main/m);
  const ways = JSON.parse((await run("access who Select main --json")).stdout);
  t.match(ways.at(-2), { group: "analysts", members: ["staff:Jürgen Ö#1"] });
  t.strictSame(
    await run("group set analysts --add bob --remove alice"),
    done("The group analysts has staff:Jürgen Ö#1, bob."),
  );
  t.strictSame(
    await run("access revoke --group staff:engineering main"),
    done("Removed the entry of group staff:engineering for main. Remaining entries: none"),
  );
  t.strictSame(
    await run("group remove analysts"),
    done("Removed the group analysts and its entries."),
  );
  t.equal(gatehouse.text.trimEnd(), before.trimEnd());
});

t.test("access who lists the members of a group for whom its entry decides", async (t) => {
  const groups = [
    ...["off", "closed", "both"].map((name) => user(name, name === "off" ? "disabled = true" : "")),
    '[[groups]]\nname = "crew"\nmembers = ["off", "closed", "both", "ghost", "staff:zed"]\n\n',
    '[[groups]]\nname = "team"\nmembers = ["both"]\n\n',
    groupGrant("crew", "main", "ReadOnly"),
    groupGrant("team", "main", "ReadOnly", "max_rows = 5"),
    grant("closed", "main", "None"),
  ];
  const gatehouse = install(t, groups.join(""));
  const { stdout } = await gatehouse.run("access who Select main --json");
  t.match(JSON.parse(stdout), [
    { group: "crew", members: ["staff:zed"], entry: "main (group crew)" },
  ]);
  t.equal(JSON.parse(stdout).length, 1, "no one by the entry of team, which differs");
});

t.test("an entry for a group without --group is refused with that flag", async (t) => {
  const gatehouse = install(t);
  t.equal((await gatehouse.run("group set crew --add bob")).code, 0);
  t.strictSame(
    await gatehouse.run("access grant crew main ReadOnly"),
    failed(1, "User not found: crew is a group; for its entries, use --group crew"),
  );
});

installed("an entry of an unknown local group is a warning", async (t, gatehouse) => {
  const { code, stderr } = await gatehouse.run("access grant --group ghosts main ReadOnly");
  t.equal(code, 0);
  t.match(stderr, /entry of group ghosts for main: there is no such group/);
  t.equal((await gatehouse.run("group remove ghosts")).code, 0);
  t.notMatch(gatehouse.text, /ghosts/);
});

t.test("the last administrator by a group is protected, unless forced", async (t) => {
  const byGroup = `[[groups]]\nname = "admins"\nmembers = ["alice"]\n\n[[acl]]\ngroup = "admins"\ndatabase = "*"\nrole = "Owner"\n`;
  const others = people
    .replace(grant("root", "*", "Owner"), "")
    .replace(grant("alice", "*", "ReadOnly"), "");
  const gatehouse = install(t, others + byGroup);
  const sentence =
    "The last administrator cannot be removed, lowered or disabled; --force allows it";
  t.strictSame(await gatehouse.run("group remove admins"), failed(1, sentence));
  const { stderr } = await gatehouse.run("config check");
  t.match(stderr, /by an entry of their own; administrators are only members of groups: admins$/m);
  t.equal((await gatehouse.run("group set admins --remove alice --force")).code, 0);
  t.match((await gatehouse.run("config check")).stderr, /^warning: no administrator can log in/m);
  await gatehouse.run("access grant --group staff:ops * Owner");
  t.match((await gatehouse.run("config check")).stderr, /^warning: no administrator can log in/m);
  const issuer =
    '[[issuers]]\nissuer = "https://login.example"\nprefix = "staff"\nopens = ["mcp"]\ngroups_claim = "groups"\n';
  appendFileSync(path.join(gatehouse.home, "gateway.toml"), issuer);
  t.match((await gatehouse.run("config check")).stderr, /members of groups: staff:ops$/m);
  await gatehouse.run("access grant root * Owner");
  t.notMatch((await gatehouse.run("config check")).stderr, /administrator/);
  t.equal((await gatehouse.run("group remove admins")).code, 0);
});

t.test("lists show what a user has by groups", async (t) => {
  const gatehouse = install(t, people.replace(grant("bob", "main", "ReadOnly"), ""));
  await gatehouse.run("group set analysts --add bob --add alice");
  await gatehouse.run("access grant --group analysts side ReadOnly --max-rows 5");
  const { stdout } = await gatehouse.run("user list");
  t.match(stdout, /^bob .* side:ReadOnly \(group analysts\)$/m);
  t.match(stdout, /^alice .* main:ReadWrite \*:ReadOnly side:ReadOnly \(group analysts\)$/m);
  const [, , bob] = JSON.parse((await gatehouse.run("user list --json")).stdout);
  const entry = { group: "analysts", database: "side", role: "ReadOnly", max_rows: 5 };
  t.strictSame(bob.access, [entry]);
  const own = (await gatehouse.run("access list --user bob")).stdout;
  t.match(own, /^group:analysts +side +ReadOnly/m);
  t.strictSame(JSON.parse((await gatehouse.run("access list --user bob --json")).stdout), [entry]);
  const alice = JSON.parse((await gatehouse.run("access list --user alice --json")).stdout);
  t.equal(alice.length, 3);
  t.strictSame(
    JSON.parse((await gatehouse.run("access list --user bob --database main --json")).stdout),
    [],
  );
  const revoked = await gatehouse.run("access revoke alice main");
  t.match(revoked.stdout, "Remaining entries: *:ReadOnly side:ReadOnly (group analysts)");
});

const refused: Refused[] = [
  ["group set a:b --add alice", 1, /^gatehouse: Invalid group/],
  ["group set analysts --add a!", 1, /^gatehouse: Invalid username/],
  ["group set analysts --add alic", 1, /^gatehouse: User not found: alic \(did you mean alice\?\)/],
  ["group set analysts --remove alice", 1, /^gatehouse: alice is not a member of analysts/],
  ["group set analysts --add alice --remove alice", 2, /alice cannot be both added and removed/],
  ["group remove analysts", 1, /^gatehouse: Group not found: analysts \(`.*group list` lists all/],
  ["access grant --group a! main ReadOnly", 1, /^gatehouse: Invalid group/],
  ["access grant --group a main", 2, /missing required argument 'role'/],
  ["access revoke --group a main", 1, /^gatehouse: Grant not found: group a on main/],
];

t.test("what a group command cannot do is refused", (t) => checkRefusals(t, install(t), refused));

installed("a difference tells who joins and leaves a group", async (t, gatehouse) => {
  await gatehouse.run("group set analysts --add alice");
  const old = install(t, gatehouse.text).accessFile;
  await gatehouse.run("group set analysts --add bob --remove alice");
  await gatehouse.run("access grant --group analysts main ReadOnly");
  const { stdout } = await gatehouse.run(`access diff ${old} ${gatehouse.accessFile}`);
  t.equal(
    stdout,
    "group analysts gains SELECT on main (None to ReadOnly)\nbob joins the group analysts\nalice leaves the group analysts\n",
  );
});

t.test("groups of an issuer with commas and quotes can be named everywhere", async (t) => {
  const gatehouse = install(t);
  const before = gatehouse.text;
  const run = (...words: string[]) => gatehouse.run(words.slice(0, 1).join(), words.slice(1));
  const [sales, quoted] = ["staff:Sales, EU", 'staff:the "A" team'];
  t.strictSame(
    await run("access grant main ReadOnly --group", sales),
    done(`Members of the group ${sales} can read every table of main.`),
  );
  await run(
    "access grant archive ReadOnly --require-approval SELECT --group",
    quoted,
    "--approvers",
    `alice,"group:${sales}"`,
  );
  t.match(gatehouse.text, `group = "${sales}"`);
  t.match(gatehouse.text, 'group = "staff:the \\"A\\" team"');
  t.match(gatehouse.text, `approvers = ["alice", "group:${sales}"]`);
  const explained = await run("access check staff:bob Select main --groups", `"${sales}",staff:b`);
  t.strictSame(
    explained,
    done(`allowed: staff:bob SELECT on main: ReadOnly by the entry for main (group ${sales})`),
  );
  const both = ["--groups", `"${quoted.replaceAll('"', '""')}"`, "--groups", `"${sales}"`];
  const archived = await run("access check staff:bob Select archive", ...both);
  t.match(archived, { code: 0 }, "repeated options add up");
  const refused = await run("access check staff:bob Select main --groups", sales);
  t.match(refused, { code: 2, stderr: /"staff:Sales, EU"/ });
  const listed = JSON.parse((await run("group list --json")).stdout);
  t.strictSame(
    listed.map(({ name }: { name: string }) => name),
    [sales, quoted],
  );
  const granted = await run("access grant main ReadOnly --group", "staff:a\u202eb");
  t.match(granted.stdout, "staff:a\\u{202e}b");
  t.notMatch(granted.stdout, "\u202e");
  t.match((await run("group list")).stdout, /^staff:a\\u\{202e\}b +-/m);
  for (const [group, database] of [
    [sales, "main"],
    ["staff:a\u202eb", "main"],
    [quoted, "archive"],
  ] as const) {
    t.equal((await run(`access revoke ${database} --group`, group)).code, 0);
  }
  t.equal(gatehouse.text.trimEnd(), before.trimEnd());
});

installed("check, explain and test take the groups of a token", async (t, gatehouse) => {
  await gatehouse.run("access grant --group staff:a main ReadOnly");
  const bob = ["access check staff:bob Select main", "--groups", "staff:a,staff:b"];
  t.equal((await gatehouse.run(bob[0] ?? "")).code, 1);
  const checked = await gatehouse.run(bob.join(" "));
  t.strictSame(
    checked,
    done("allowed: staff:bob SELECT on main: ReadOnly by the entry for main (group staff:a)"),
  );
  const query = '{"Select": {"database": "main", "from": "t", "columns": ["*"]}}';
  const explained = await gatehouse.run("access explain staff:bob --groups staff:a", query);
  t.match(explained, { code: 0, stdout: /^allowed: staff:bob\n/ });
  t.match(await gatehouse.run("access check staff:bob Select main --groups a"), { code: 2 });
  const expectation = (groups: string, allowed: boolean) =>
    `[[expect]]\nuser = "staff:bob"\ngroups = ["${groups}"]\nquery = '${query}'\nallowed = ${allowed}\n`;
  const file = path.join(gatehouse.home, "expected.toml");
  writeFileSync(file, `${expectation("staff:a", true)}${expectation("staff:b", false)}`);
  t.strictSame(await gatehouse.run(`access test ${file}`), done("2 expectations, 0 failed"));
});
