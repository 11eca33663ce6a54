import t from "tap";
import {
  type Actor,
  planGrant,
  requireAdministrator,
  requireMayGrant,
  requireUnlimitedToken,
} from "../../src/access/administration.ts";
import { entriesAt } from "../../src/access/entries.ts";
import { type Role, roles } from "../../src/access/roles.ts";
import { type Grant, grantsOf, type Snapshot } from "../../src/access/snapshot.ts";
import { cases, staff } from "./administration-cases.ts";
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
