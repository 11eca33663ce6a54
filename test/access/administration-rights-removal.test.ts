import t from "tap";
import { type Actor, planRemoveUser, requireMayRevoke } from "../../src/access/administration.ts";
import { entriesAt } from "../../src/access/entries.ts";
import { grantsOf, type Snapshot } from "../../src/access/snapshot.ts";
import { refusalOf, snapshotOf } from "./kit.ts";

function mayRevoke(snapshot: Snapshot, actor: Actor, username: string, database: string): void {
  const held = entriesAt(grantsOf(snapshot, username), database, undefined);
  requireMayRevoke(snapshot, actor, { username, database }, held);
}

const staff = [
  "root * Owner",
  "olga main Owner",
  "otto main Owner",
  "dora main DbAdmin",
  "dirk main DbAdmin",
  "wim main ReadWrite",
  "rita main ReadOnly",
];

interface Case {
  rule: string;
  given?: string[];
  /** Who, whose, where. */
  act: [actor: string, target: string, database: string];
  allowed: boolean;
}

const revocations: Case[] = [
  { rule: "an administrator takes an Owner's grant", act: ["root", "olga", "main"], allowed: true },
  { rule: "an Owner takes a DbAdmin's", act: ["olga", "dora", "main"], allowed: true },
  { rule: "an Owner takes no other Owner's", act: ["olga", "otto", "main"], allowed: false },
  { rule: "a DbAdmin takes a ReadWrite's", act: ["dora", "wim", "main"], allowed: true },
  { rule: "a DbAdmin takes no DbAdmin's", act: ["dora", "dirk", "main"], allowed: false },
  { rule: "a DbAdmin takes no Owner's", act: ["dora", "olga", "main"], allowed: false },
  { rule: "a ReadWrite takes nobody's", act: ["wim", "rita", "main"], allowed: false },
  { rule: "who has no grant takes nobody's", act: ["nobody", "rita", "main"], allowed: false },
  { rule: "one's own may be given up", act: ["rita", "rita", "main"], allowed: true },
  { rule: "an Owner gives up its own", act: ["olga", "olga", "main"], allowed: true },
  {
    rule: "one's own narrowing entry may not",
    given: ["dan * DbAdmin", "dan main ReadOnly"],
    act: ["dan", "dan", "main"],
    allowed: false,
  },
  {
    rule: "one's own widening entry may",
    given: ["dan * ReadOnly", "dan main DbAdmin"],
    act: ["dan", "dan", "main"],
    allowed: true,
  },
  {
    rule: "a DbAdmin undoes a narrowing to what it may give",
    given: [...staff, "nora * ReadWrite", "nora main ReadOnly"],
    act: ["dora", "nora", "main"],
    allowed: true,
  },
  {
    rule: "a DbAdmin undoes no narrowing of a DbAdmin of *",
    given: [...staff, "nora * DbAdmin", "nora main ReadOnly"],
    act: ["dora", "nora", "main"],
    allowed: false,
  },
  {
    rule: "a DbAdmin undoes no narrowing of an administrator",
    given: [...staff, "nora * Owner", "nora main ReadOnly"],
    act: ["dora", "nora", "main"],
    allowed: false,
  },
  {
    rule: "a DbAdmin of one database takes nothing on *",
    given: [...staff, "nora * ReadOnly"],
    act: ["dora", "nora", "*"],
    allowed: false,
  },
];

for (const { rule, given = staff, act, allowed } of revocations) {
  t.test(rule, (t) => {
    const [username, target, database] = act;
    const actor = { username, tokenDatabase: "*" };
    const refusal = refusalOf(() => mayRevoke(snapshotOf(...given), actor, target, database));
    t.equal(refusal === undefined, allowed, `refusal: ${refusal}`);
    t.end();
  });
}

t.test("a token for one database takes grants on that one alone", (t) => {
  const snapshot = snapshotOf(
    ...staff,
    "olga other Owner",
    "wim other ReadOnly",
    "olga * ReadOnly",
  );
  const actor = { username: "olga", tokenDatabase: "main" };
  const code = (target: string, database: string) =>
    refusalOf(() => mayRevoke(snapshot, actor, target, database));
  t.equal(code("wim", "main"), undefined);
  t.equal(code("wim", "other"), "token_database");
  t.equal(code("olga", "other"), "token_database");
  t.equal(code("olga", "*"), "token_database");
  t.end();
});

t.test("a user's record is removed by administrators and the operator alone", (t) => {
  const snapshot = snapshotOf(...staff, "dirk * DbAdmin", "new * ReadOnly");
  const code = (actor: Actor, target: string) =>
    refusalOf(() => planRemoveUser(snapshot, actor, target));
  for (const target of ["olga", "rita", "new", "root"]) {
    t.equal(code({ username: "root", tokenDatabase: "*" }, target), undefined, target);
    t.equal(code({ username: "root", tokenDatabase: "main" }, target), "token_database");
    t.equal(code("operator", target), undefined);
    for (const username of ["olga", "dirk", "dora", "rita", "nobody"]) {
      t.equal(code({ username, tokenDatabase: "*" }, target), "role_insufficient", username);
    }
  }
  t.end();
});
