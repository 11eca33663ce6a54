import t from "tap";
import { grantOn } from "../../src/access/snapshot.ts";
import { grant } from "../access/kit.ts";
import { done, install, people } from "./kit.ts";

t.test("access grant gives, raises and lowers a role", async (t) => {
  const gatehouse = install(t);
  const roleOf = (database: string) => grantOn(gatehouse.snapshot, "alice", database)?.role;
  t.strictSame(
    await gatehouse.run("access grant alice logs DbAdmin"),
    done("alice is DbAdmin on logs."),
  );
  t.equal(roleOf("logs"), "DbAdmin");
  t.strictSame(
    await gatehouse.run("access grant alice main ReadOnly"),
    done("alice is ReadOnly on main."),
  );
  t.equal(roleOf("main"), "ReadOnly");
  const before = gatehouse.text;
  t.strictSame(
    await gatehouse.run("access grant alice * ReadOnly"),
    done("alice is ReadOnly on *."),
  );
  t.equal(gatehouse.text, before, "what is held already is not written again");
});

t.test("access grant knows external users without a record", async (t) => {
  const gatehouse = install(t);
  t.equal((await gatehouse.run("access grant github:carol main ReadOnly")).code, 0);
  t.equal(grantOn(gatehouse.snapshot, "github:carol", "main")?.role, "ReadOnly");
});

t.test("access revoke takes an entry, and says what is left", async (t) => {
  const gatehouse = install(t);
  t.strictSame(
    await gatehouse.run("access revoke alice main"),
    done("alice has no entry for main any more; what is left: *:ReadOnly"),
  );
  t.strictSame(
    await gatehouse.run("access revoke alice *"),
    done("alice has no entry for * any more; what is left: -"),
  );
  t.notOk(gatehouse.snapshot.grants.has("alice"));
});

const refused: [flags: string, code: number, stderr: RegExp][] = [
  [
    "access grant nobody main ReadOnly",
    1,
    /^gatehouse: User not found: nobody \(`\S+ user list` shows all\)\n$/,
  ],
  ["access grant alice ma/in ReadOnly", 1, /^gatehouse: Invalid database/],
  ["access grant alice MAIN ReadOnly", 1, /^gatehouse: A database whose name differs only by case/],
  ["access grant alice main Writer", 2, /Allowed: Owner, DbAdmin, ReadWrite, ReadOnly, None\./],
  ["access grant alice main readonly", 2, /\(did you mean ReadOnly\?\)/],
  ["access grant alice main ReadWrit", 2, /'ReadWrit' is invalid .*\(did you mean ReadWrite\?\)/],
  ["access check alice Slect main", 2, /GRANT \(did you mean Select\?\)\n/],
  ["access grant alice main", 2, /missing required argument 'role'/],
  ["access grant root * DbAdmin", 1, /^gatehouse: The last administrator cannot be/],
  ["access revoke root *", 1, /^gatehouse: The last administrator cannot be/],
  [
    "access revoke alice other",
    1,
    /^gatehouse: Grant not found: alice on other \(alice has main:ReadWrite \*:ReadOnly\)\n$/,
  ],
  ["access grant alcie main ReadOnly", 1, /User not found: alcie \(did you mean alice\?\)\n$/],
  [
    "access revoke nobody main",
    1,
    /^gatehouse: User not found: nobody \(`\S+ user list` shows all\)\n$/,
  ],
  ["access revoke alice ma/in", 1, /^gatehouse: Invalid database/],
  [
    "access check alice Explode main",
    2,
    /^gatehouse: unknown operation "Explode"; allowed: Select, Insert/,
  ],
  ["access check alice Select ma/in", 1, /^gatehouse: Invalid database/],
  ["access check alice Select", 2, /missing required argument 'place'/],
];
t.test("what may not be is refused with a reason, and nothing is written", async (t) => {
  const gatehouse = install(t);
  const results = await gatehouse.runAll(refused.map(([flags]) => flags));
  for (const [index, [flags, code, stderr]] of refused.entries()) {
    t.match(results[index], { code, stdout: "", stderr }, flags);
  }
  t.equal(gatehouse.text, people);
});

t.test("access list shows every entry", async (t) => {
  const gatehouse = install(t);
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
  t.strictSame(JSON.parse(stdout)[1], { username: "alice", database: "main", role: "ReadWrite" });
  t.equal(JSON.parse(stdout).length, 4);
});

t.test("access list shows a file of any length", async (t) => {
  const count = 150_000;
  const entries = Array.from({ length: count }, (_, n) => grant("alice", `d${n}`, "ReadOnly"));
  const gatehouse = install(t, people + entries.join(""));
  const { code, stdout, stderr } = await gatehouse.run("access list");
  t.strictSame([code, stderr], [0, ""]);
  t.equal(stdout.trimEnd().split("\n").length, count + 5);
});
