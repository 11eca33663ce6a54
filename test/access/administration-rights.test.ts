import t from "tap";
import { planGrant } from "../../src/access/administration.ts";
import {
  type Actor,
  requireAdministrator,
  requireMayGrant,
  requireUnlimitedToken,
} from "../../src/access/administration-rights.ts";
import { type Role, roles } from "../../src/access/roles.ts";
import { type Grant, grantsOf, type Snapshot } from "../../src/access/snapshot.ts";
import { entriesAt } from "../../src/access/user-grants.ts";
import { refusalOf, snapshotOf } from "./kit.ts";

function mayGrant(snapshot: Snapshot, actor: Actor, grant: Grant): void {
  const held = entriesAt(grantsOf(snapshot, grant.username), grant.database, undefined);
  requireMayGrant(snapshot, actor, grant, held);
}

/** What comes of `actor` giving the target each role in turn, widest first: `+` is allowed. */
function grants(
  grantsInForce: string[],
  [actor = "", target = "", database = ""]: string[],
  tokenDatabase = "*",
): string {
  const snapshot = snapshotOf(...grantsInForce);
  return roles
    .map((role) => {
      const grant = { username: target, database, role };
      const code = refusalOf(() => mayGrant(snapshot, { username: actor, tokenDatabase }, grant));
      return code === undefined ? "+" : "-";
    })
    .join("");
}

interface Case {
  rule: string;
  given: string[];
  act: string;
  /** Owner, DbAdmin, ReadWrite, ReadOnly. */
  expected: string;
}

const own = ["root * Owner", "olga main Owner", "dora main DbAdmin", "wim main ReadWrite"];
const staff = [...own, "rita main ReadOnly"];

const cases: Case[] = [
  { rule: "an administrator gives any role", given: staff, act: "root new main", expected: "++++" },
  {
    rule: "an administrator gives any role on *",
    given: staff,
    act: "root new *",
    expected: "++++",
  },
  {
    rule: "an administrator gives any role on a new database",
    given: staff,
    act: "root new fresh",
    expected: "++++",
  },
  {
    rule: "an Owner gives any role on its database",
    given: staff,
    act: "olga new main",
    expected: "++++",
  },
  { rule: "an Owner gives none on another", given: staff, act: "olga new other", expected: "----" },
  { rule: "an Owner gives none on *", given: staff, act: "olga new *", expected: "----" },
  {
    rule: "a DbAdmin gives the roles below its own",
    given: staff,
    act: "dora new main",
    expected: "--++",
  },
  {
    rule: "a DbAdmin gives none on another",
    given: staff,
    act: "dora new other",
    expected: "----",
  },
  { rule: "a DbAdmin gives none on *", given: staff, act: "dora new *", expected: "----" },
  { rule: "a ReadWrite gives none", given: staff, act: "wim new main", expected: "----" },
  { rule: "a ReadOnly gives none", given: staff, act: "rita new main", expected: "----" },
  { rule: "who has no grant gives none", given: staff, act: "nobody new main", expected: "----" },

  {
    rule: "an administrator lowers an Owner",
    given: staff,
    act: "root olga main",
    expected: "++++",
  },
  {
    rule: "an Owner changes no other Owner",
    given: [...staff, "otto main Owner"],
    act: "olga otto main",
    expected: "----",
  },
  {
    rule: "an Owner changes no administrator",
    given: staff,
    act: "olga root main",
    expected: "----",
  },
  { rule: "an Owner changes a DbAdmin", given: staff, act: "olga dora main", expected: "++++" },
  { rule: "a DbAdmin changes no Owner", given: staff, act: "dora olga main", expected: "----" },
  {
    rule: "a DbAdmin changes no other DbAdmin",
    given: [...staff, "dirk main DbAdmin"],
    act: "dora dirk main",
    expected: "----",
  },
  {
    rule: "a DbAdmin changes those below it",
    given: staff,
    act: "dora wim main",
    expected: "--++",
  },
  {
    rule: "a DbAdmin narrows no DbAdmin of *",
    given: [...staff, "dirk * DbAdmin"],
    act: "dora dirk main",
    expected: "----",
  },
  {
    rule: "a DbAdmin narrows a ReadWrite of *",
    given: [...staff, "wide * ReadWrite"],
    act: "dora wide main",
    expected: "--++",
  },

  {
    rule: "an Owner gives up some of its own",
    given: staff,
    act: "olga olga main",
    expected: "++++",
  },
  {
    rule: "a DbAdmin gives up its own, and does not raise itself",
    given: staff,
    act: "dora dora main",
    expected: "--++",
  },
  { rule: "a ReadWrite gives up writing", given: staff, act: "wim wim main", expected: "---+" },
  {
    rule: "a ReadOnly changes nothing of its own",
    given: staff,
    act: "rita rita main",
    expected: "----",
  },

  {
    rule: "a DbAdmin of * gives the roles below it everywhere",
    given: ["dirk * DbAdmin", "wim any ReadOnly"],
    act: "dirk new any",
    expected: "--++",
  },
  {
    rule: "but brings no new name into the file",
    given: ["dirk * DbAdmin", "wim any ReadOnly"],
    act: "dirk new other",
    expected: "----",
  },
  {
    rule: "not for itself either",
    given: ["dirk * DbAdmin", "wim any ReadOnly"],
    act: "dirk dirk other",
    expected: "----",
  },
  {
    rule: "a DbAdmin of * gives them on * too",
    given: ["dirk * DbAdmin"],
    act: "dirk new *",
    expected: "--++",
  },
  {
    rule: "a narrowed DbAdmin of * gives none where it is narrowed",
    given: ["dirk * DbAdmin", "dirk main ReadOnly"],
    act: "dirk new main",
    expected: "----",
  },
  {
    rule: "nor on *, which reaches there",
    given: ["dirk * DbAdmin", "dirk main ReadOnly"],
    act: "dirk new *",
    expected: "----",
  },
  {
    rule: "but elsewhere",
    given: ["dirk * DbAdmin", "dirk main ReadOnly", "wim other ReadOnly"],
    act: "dirk new other",
    expected: "--++",
  },
  {
    rule: "nor does it undo its narrowing",
    given: ["dirk * DbAdmin", "dirk main ReadOnly"],
    act: "dirk dirk main",
    expected: "----",
  },
  {
    rule: "an Owner of one database does not widen * by it",
    given: ["dirk * DbAdmin", "dirk main Owner"],
    act: "dirk new *",
    expected: "--++",
  },
  {
    rule: "a narrowed administrator is one all the same on *",
    given: ["root * Owner", "root main ReadOnly"],
    act: "root new *",
    expected: "++++",
  },
];

for (const { rule, given, act, expected } of cases) {
  t.test(rule, (t) => {
    t.equal(grants(given, act.split(" ")), expected, `${act}: Owner DbAdmin ReadWrite ReadOnly`);
    t.end();
  });
}

t.test("a token for one database changes that one alone, also what is one's own", (t) => {
  const given = [...staff, "olga other Owner", "olga * DbAdmin"];
  t.equal(grants(given, ["olga", "new", "main"], "main"), "++++");
  t.equal(grants(given, ["olga", "new", "other"], "main"), "----");
  t.equal(grants(given, ["olga", "new", "*"], "main"), "----");
  t.equal(grants(given, ["olga", "olga", "main"], "main"), "++++");
  t.equal(grants(given, ["olga", "olga", "other"], "main"), "----");
  t.equal(grants(given, ["olga", "olga", "*"], "main"), "----");
  t.end();
});

t.test("a refusal says whether the token or the standing is too small", (t) => {
  const snapshot = snapshotOf(...staff, "mia Mixed Owner");
  const code = (actor: Actor, database: string, role: Role = "ReadOnly") =>
    refusalOf(() => mayGrant(snapshot, actor, { username: "new", database, role }));
  t.equal(code({ username: "olga", tokenDatabase: "main" }, "other"), "token_database");
  t.equal(code({ username: "olga", tokenDatabase: "main" }, "*"), "token_database");
  t.equal(code({ username: "olga", tokenDatabase: "*" }, "other"), "no_grant");
  t.equal(code({ username: "wim", tokenDatabase: "*" }, "main"), "role_insufficient");
  t.equal(code({ username: "dora", tokenDatabase: "*" }, "main", "DbAdmin"), "role_insufficient");
  t.end();
});

t.test("the operator at the command line may grant everything", (t) => {
  const snapshot = snapshotOf(...staff);
  for (const role of roles) {
    for (const database of ["main", "*", "new"]) {
      const grant = { username: "olga", database, role };
      t.equal(
        refusalOf(() => mayGrant(snapshot, "operator", grant)),
        undefined,
      );
    }
  }
  t.end();
});

t.test("only administrators with an unlimited token, and the operator, pass as such", (t) => {
  const snapshot = snapshotOf(...staff, "dirk * DbAdmin");
  const code = (actor: Actor) => refusalOf(() => requireAdministrator(snapshot, actor));
  t.equal(code({ username: "root", tokenDatabase: "*" }), undefined);
  t.equal(code("operator"), undefined);
  t.equal(code({ username: "root", tokenDatabase: "main" }), "token_database");
  for (const username of ["olga", "dirk", "nobody"]) {
    t.equal(code({ username, tokenDatabase: "*" }), "role_insufficient", username);
  }
  t.equal(
    refusalOf(() => requireUnlimitedToken("operator")),
    undefined,
  );
  t.end();
});

t.test("a grant for a database in another case than the file's is a conflict", (t) => {
  const snapshot = snapshotOf(...staff);
  const root = { username: "root", tokenDatabase: "*" };
  for (const actor of [root, "operator"] as const) {
    const grant = { username: "wim", database: "MAIN", role: "ReadOnly" } as const;
    t.equal(
      refusalOf(() => planGrant(snapshot, actor, grant)),
      "database_case_conflict",
    );
  }
  t.end();
});
