import t from "tap";
import { decide, decideQuery } from "../../src/access/policy.ts";
import type { Decision } from "../../src/access/rights.ts";
import { isRole, mayGrant, outranks, roles, widestRole } from "../../src/access/roles.ts";
import { type Access, type PermissionClass, permissionClasses } from "../../src/query/query.ts";
import { snapshotOf } from "./kit.ts";

/** Who may do what, as it is promised; a column a right, in the order of `columns`. */
const columns: PermissionClass[] = [
  ...(["SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP"] as const),
  ...(["CREATE DATABASE", "DROP DATABASE", "GRANT"] as const),
];
const promised = {
  Owner: "yes yes yes yes yes yes yes yes yes",
  DbAdmin: "yes yes yes yes yes yes no no yes",
  ReadWrite: "yes yes yes yes no no no no no",
  ReadOnly: "yes no no no no no no no no",
} as const;

function unlimited(username: string) {
  return { username, tokenDatabase: "*" };
}

function allowed(role: string, reason: Decision["reason"] = "allowed", entry = "main") {
  return { allowed: reason === "allowed", reason, role, entry };
}

const nothing = { role: undefined, entry: undefined };

t.test("each role has the rights that are promised, and no other", (t) => {
  t.strictSame([...columns].sort(), [...permissionClasses].sort(), "every right has a column");
  t.strictSame(Object.keys(promised), [...roles], "every role has a row");
  for (const role of roles) {
    const row = promised[role].split(" ");
    for (const database of ["main", "*"]) {
      const snapshot = snapshotOf(`alice ${database} ${role}`);
      for (const [index, permission] of columns.entries()) {
        const decision = decide(snapshot, unlimited("alice"), permission, "main");
        const reason = row[index] === "yes" ? "allowed" : "role_insufficient";
        t.strictSame(decision, allowed(role, reason, database), `${role} ${permission}`);
      }
    }
  }
  t.end();
});

t.test("the entry for the named database wins over the one for *", (t) => {
  const snapshot = snapshotOf(
    "alice * Owner",
    "alice main ReadOnly",
    "bob main Owner",
    "bob * ReadOnly",
  );
  const ask = (name: string, database: string) =>
    decide(snapshot, unlimited(name), "INSERT", database);
  t.strictSame(ask("alice", "main"), allowed("ReadOnly", "role_insufficient"), "narrowed");
  t.strictSame(ask("alice", "other"), allowed("Owner", "allowed", "*"));
  t.strictSame(ask("bob", "main"), allowed("Owner"), "widened");
  t.strictSame(ask("bob", "other"), allowed("ReadOnly", "role_insufficient", "*"));
  t.end();
});

t.test("who has no entry is denied, whatever is asked", (t) => {
  const snapshot = snapshotOf("alice main Owner");
  for (const permission of permissionClasses) {
    const denied = { allowed: false, reason: "no_grant", ...nothing };
    t.strictSame(decide(snapshot, unlimited("alice"), permission, "other"), denied);
    t.strictSame(decide(snapshot, unlimited("bob"), permission, "main"), denied);
    t.strictSame(decide(snapshot, unlimited("constructor"), permission, "main"), denied);
  }
  t.end();
});

t.test("a database in another case than the file's is denied, also to an administrator", (t) => {
  const snapshot = snapshotOf("root * Owner", "alice Main Owner");
  const mismatch = { allowed: false, reason: "database_case_mismatch", ...nothing };
  for (const spelling of ["main", "MAIN", "mAIN"]) {
    t.strictSame(decide(snapshot, unlimited("root"), "SELECT", spelling), mismatch);
    t.strictSame(decide(snapshot, unlimited("alice"), "SELECT", spelling), mismatch);
  }
  t.ok(decide(snapshot, unlimited("root"), "SELECT", "Main").allowed);
  t.ok(decide(snapshot, unlimited("root"), "SELECT", "Other").allowed, "the file does not name it");
  t.end();
});

t.test("a token opens its own database alone, whatever the file grants", (t) => {
  const snapshot = snapshotOf("alice * Owner", "bob main ReadOnly");
  const limited = { username: "alice", tokenDatabase: "main" };
  t.strictSame(decide(snapshot, limited, "GRANT", "main"), allowed("Owner", "allowed", "*"));
  for (const database of ["other", "Main", "*"]) {
    const denied = { allowed: false, reason: "token_database", ...nothing };
    t.strictSame(decide(snapshot, limited, "SELECT", database), denied);
  }
  const wide = { username: "bob", tokenDatabase: "main" };
  t.notOk(decide(snapshot, wide, "INSERT", "main").allowed, "and gives nothing beyond the file");
  t.end();
});

const context = { via: "query", now: 0, isEngine: false } as const;

function access(permission: PermissionClass, database: string): Access {
  return {
    operation: "X",
    permissions: [permission],
    reads: false,
    database,
    tables: [],
    start: 0,
    end: 0,
  };
}

t.test("a query is allowed only if every access in it is", (t) => {
  const snapshot = snapshotOf("alice main ReadWrite", "alice logs ReadOnly");
  const ask = (...accesses: Access[]) =>
    decideQuery(snapshot, unlimited("alice"), { batch: true, accesses }, context);
  t.ok(ask(access("INSERT", "main"), access("SELECT", "logs")).allowed);
  const denied = ask(access("SELECT", "main"), access("INSERT", "logs"), access("SELECT", "main"));
  t.notOk(denied.allowed);
  t.strictSame(
    denied.decisions.map(({ reason }) => reason),
    ["allowed", "role_insufficient"],
    "it stops at the first that is denied",
  );
  t.notOk(ask().allowed, "to ask for nothing allows nothing");
  t.end();
});

t.test("roles are ordered, and known in their exact spelling alone", (t) => {
  t.strictSame(roles, ["Owner", "DbAdmin", "ReadWrite", "ReadOnly"]);
  for (const [index, role] of roles.entries()) {
    for (const [other, below] of roles.entries()) t.equal(outranks(role, below), index < other);
  }
  for (const odd of ["owner", "Owner ", "", undefined, 1, ["Owner"]]) t.notOk(isRole(odd));
  t.equal(
    widestRole([{ role: "ReadOnly" }, { role: "DbAdmin" }, { role: "ReadWrite" }]),
    "DbAdmin",
  );
  t.equal(widestRole([]), undefined);
  t.end();
});

t.test("an Owner grants any role, a DbAdmin the two below it, others none", (t) => {
  const granted = roles.map((role) => roles.filter((target) => mayGrant(role, target)));
  t.strictSame(granted, [[...roles], ["ReadWrite", "ReadOnly"], [], []]);
  t.end();
});
