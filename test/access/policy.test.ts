import t from "tap";
import { collectGrants, GrantCollection } from "../../src/core/access/entries.ts";
import { type Grant, userHolder } from "../../src/core/access/grant.ts";
import { decide, decideQuery, isAdministrator } from "../../src/core/access/policy.ts";
import { type Decision, findOtherSpelling } from "../../src/core/access/rights.ts";
import { isRole, mayGrant, outranks, roles, widestRole } from "../../src/core/access/roles.ts";
import { emptySnapshot, ownGrants } from "../../src/core/access/snapshot.ts";
import { createGrammar } from "../../src/core/query/grammar.ts";
import { parseQuery } from "../../src/core/query/parse.ts";
import { type PermissionClass, permissionClasses } from "../../src/core/query/permissions.ts";
import { ParsedOperations, type Query } from "../../src/core/query/query.ts";
import { snapshotOf } from "./kit.ts";

/** The documented rights of each role, in the order of `columns`. */
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

t.test("each role has exactly its rights", async (t) => {
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
});

const context = { via: "query", now: 0, isEngine: false } as const;
const grammar = createGrammar({ extraFields: [], operations: {} });
const reading = (database: string) => ({ Select: { database, from: "a", columns: ["*"] } });
const adding = (database: string) => ({ Insert: { database, table: "a", values: [{ id: 1 }] } });

t.test("a query is allowed only if every access in it is", async (t) => {
  const snapshot = snapshotOf("alice main ReadWrite", "alice logs ReadOnly");
  const ask = (query: Query) => decideQuery(snapshot, unlimited("alice"), query, context);
  const asking = (...Batch: object[]) =>
    ask(parseQuery(Buffer.from(JSON.stringify({ Batch })), grammar));
  t.ok(asking(adding("main"), reading("logs")).allowed);
  const denied = asking(reading("main"), adding("logs"), reading("main"));
  t.notOk(denied.allowed);
  t.strictSame(
    denied.decisions.map(({ reason }) => reason),
    ["allowed", "role_insufficient"],
    "it stops at the first that is denied",
  );
  const nothing = new ParsedOperations(Buffer.from("{}"), true, []);
  t.notOk(
    ask({ batch: true, accesses: [], operations: nothing }).allowed,
    "to ask for nothing allows nothing",
  );
});

t.test("roles are ordered, and only their exact spelling is known", async (t) => {
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
});

t.test("an Owner grants any role, a DbAdmin the two below it, others none", async (t) => {
  const granted = roles.map((role) => roles.filter((target) => mayGrant(role, target)));
  t.strictSame(granted, [[...roles], ["ReadWrite", "ReadOnly"], [], []]);
});

type Written = Omit<Grant, "holder">;

function snapshotWith(...entries: Written[]) {
  const holder = userHolder("rita");
  const grants = entries.map((entry) => ({ holder, ...entry }));
  return { ...emptySnapshot, grants: new Map([[holder, collectGrants(grants)]]) };
}

const now = Date.UTC(2026, 0, 1);

t.test("conflicting entries are found in any order", async (t) => {
  const pairs: [string, Partial<Grant>, Partial<Grant>][] = [
    ["database_taken", {}, {}],
    ["database_taken", { expires: 1 }, { expires: 2 }],
    ["table_taken", { tables: ["a", "b"] }, { tables: ["b"] }],
    ["table_taken", { tables: ["a*"] }, { tables: ["a*"] }],
    ["patterns_overlap", { tables: ["ab*"] }, { tables: ["a*"] }],
    ["patterns_overlap", { tables: ["ab*"] }, { tables: ["x", "abc*"] }],
    ["none", {}, { expires: 1 }],
    ["none", { tables: ["a"] }, { tables: ["a"], expires: 1 }],
    ["none", { tables: ["a*"] }, { tables: ["a"] }],
    ["none", { tables: ["ab*"] }, { tables: ["ac*", "b*"] }],
    ["none", { tables: ["a"] }, {}],
  ];
  const base: Grant = { holder: userHolder("rita"), database: "main", role: "ReadOnly" };
  for (const [expected, one, other] of pairs) {
    for (const [first, second] of [
      [one, other],
      [other, one],
    ]) {
      const collection = new GrantCollection();
      t.equal(collection.add({ ...base, ...first }), undefined);
      t.equal(
        collection.add({ ...base, ...second }) ?? "none",
        expected,
        JSON.stringify([first, second]),
      );
    }
  }
});

t.test("another spelling of a table is found by name and by pattern", async (t) => {
  const grants = ownGrants(
    snapshotWith(
      { database: "main", role: "ReadOnly", tables: ["Tickets", "customer_*"] },
      { database: "*", role: "ReadOnly", tables: ["logs", "LOGS2"] },
    ),
    userHolder("rita"),
  );
  const other = (table: string) => findOtherSpelling(grants, "main", table, now)?.spelling;
  t.equal(other("tickets"), "Tickets");
  t.equal(other("TICKETS"), "Tickets");
  t.equal(other("Customer_a"), "customer_*");
  t.equal(other("LOGS"), "logs");
  t.equal(other("logs2"), "LOGS2");
  for (const table of ["Tickets", "customer_A", "logs", "LOGS2", "custom"]) {
    t.equal(other(table), undefined, table);
  }
});

t.test("narrowing or temporary entries do not make an administrator", async (t) => {
  const subject = { username: "rita", tokenDatabase: "*" };
  const plain: Written = { database: "*", role: "Owner" };
  t.ok(isAdministrator(snapshotWith(plain), { username: "rita" }));
  const beside: Written[] = [
    { database: "*", role: "None", tables: ["salaries"] },
    { database: "*", role: "Owner", expires: Number.MAX_SAFE_INTEGER },
  ];
  for (const entry of beside) {
    const snapshot = snapshotWith(plain, entry);
    t.notOk(isAdministrator(snapshot, { username: "rita" }));
    t.notOk(decide(snapshot, subject, "GRANT", "main").allowed);
    t.ok(decide(snapshot, subject, "SELECT", "main").allowed);
  }
  const lapsed = snapshotWith(plain, { database: "*", role: "ReadOnly", expires: 1 });
  t.ok(isAdministrator(lapsed, { username: "rita" }), "what has given way is absent");
  t.ok(decide(lapsed, subject, "GRANT", "main").allowed);
  const asks = snapshotWith({ ...plain, requireApproval: ["DELETE"] });
  t.notOk(decide(asks, subject, "GRANT", "main").allowed);
});
