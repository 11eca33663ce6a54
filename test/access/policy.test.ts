import t from "tap";
import { collectGrants, GrantCollection } from "../../src/core/access/entries.ts";
import type { Grant } from "../../src/core/access/grant.ts";
import { userHolder } from "../../src/core/access/holder.ts";
import { parseAccessFile } from "../../src/core/access/parse.ts";
import {
  decide,
  decideQuery,
  explainAccess,
  isAdministrator,
} from "../../src/core/access/policy.ts";
import { type Decision, decidingEntry, findOtherSpelling } from "../../src/core/access/rights.ts";
import { isRole, mayGrant, outranks, roles, widestRole } from "../../src/core/access/roles.ts";
import { emptySnapshot, ownGrants, type Snapshot } from "../../src/core/access/snapshot.ts";
import { createGrammar } from "../../src/core/query/grammar.ts";
import { parseQuery } from "../../src/core/query/parse.ts";
import { type PermissionClass, permissionClasses } from "../../src/core/query/permissions.ts";
import { ParsedOperations, type Query } from "../../src/core/query/query.ts";
import { grant, snapshotOf, user } from "./kit.ts";

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

const nothing = { role: undefined, entry: undefined };

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

t.test("the entry for the named database wins over the one for *", async (t) => {
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
});

t.test("a user without an entry is denied everything", async (t) => {
  const snapshot = snapshotOf("alice main Owner");
  for (const permission of permissionClasses) {
    const denied = { allowed: false, reason: "no_grant", ...nothing };
    t.strictSame(decide(snapshot, unlimited("alice"), permission, "other"), denied);
    t.strictSame(decide(snapshot, unlimited("bob"), permission, "main"), denied);
    t.strictSame(decide(snapshot, unlimited("constructor"), permission, "main"), denied);
  }
});

t.test("a database in another case than in the file is denied to everyone", async (t) => {
  const snapshot = snapshotOf("root * Owner", "alice Main Owner");
  const mismatch = { allowed: false, reason: "database_case_mismatch", ...nothing };
  for (const spelling of ["main", "MAIN", "mAIN"]) {
    t.strictSame(decide(snapshot, unlimited("root"), "SELECT", spelling), mismatch);
    t.strictSame(decide(snapshot, unlimited("alice"), "SELECT", spelling), mismatch);
  }
  t.ok(decide(snapshot, unlimited("root"), "SELECT", "Main").allowed);
  t.ok(decide(snapshot, unlimited("root"), "SELECT", "Other").allowed, "the file does not name it");
});

t.test("a token for one database is denied on all others", async (t) => {
  const snapshot = snapshotOf("alice * Owner", "bob main ReadOnly");
  const limited = { username: "alice", tokenDatabase: "main" };
  t.strictSame(decide(snapshot, limited, "GRANT", "main"), allowed("Owner", "allowed", "*"));
  for (const database of ["other", "Main", "*"]) {
    const denied = { allowed: false, reason: "token_database", ...nothing };
    t.strictSame(decide(snapshot, limited, "SELECT", database), denied);
  }
  const wide = { username: "bob", tokenDatabase: "main" };
  t.notOk(decide(snapshot, wide, "INSERT", "main").allowed, "and gives nothing beyond the file");
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

t.test("the most specific entry decides", async (t) => {
  const snapshot = snapshotWith(
    { database: "*", role: "ReadOnly" },
    { database: "*", role: "None", tables: ["salaries", "log_*"] },
    { database: "main", role: "ReadWrite", tables: ["tickets", "customer_*"] },
    { database: "main", role: "None", tables: ["customer_vip"] },
    { database: "shop", role: "DbAdmin" },
  );
  const named = (database: string, table?: string) =>
    decidingEntry(snapshot, { username: "rita" }, database, table, now)?.name;
  t.equal(named("main", "tickets"), "main.tickets");
  t.equal(named("main", "customer_a"), "main.customer_*");
  t.equal(named("main", "customer_vip"), "main.customer_vip");
  t.equal(named("main", "salaries"), "*.salaries", "nothing for main fits");
  t.equal(named("main", "log_1"), "*.log_*");
  t.equal(named("main", "other"), "*");
  t.equal(named("main"), "*");
  t.equal(named("shop", "salaries"), "shop", "an entry for the whole database ends the search");
  t.equal(decidingEntry(snapshot, { username: "bob" }, "main", "tickets", now), undefined);
});

t.test("a temporary entry wins until it expires", async (t) => {
  const snapshot = snapshotWith(
    { database: "main", role: "ReadOnly" },
    { database: "main", role: "Owner", expires: now + 1000 },
    { database: "main", role: "ReadWrite", tables: ["tickets"], expires: now + 1000 },
  );
  const at = (table: string | undefined, later: number) => {
    const entry = decidingEntry(snapshot, { username: "rita" }, "main", table, now + later);
    return [entry?.grant.role, entry?.isExpired];
  };
  t.strictSame(at(undefined, 999), ["Owner", false]);
  t.strictSame(at(undefined, 1000), ["ReadOnly", false]);
  t.strictSame(at("tickets", 999), ["ReadWrite", false]);
  t.strictSame(at("tickets", 1000), ["ReadWrite", true], "nothing else holds the place");
});

t.test("an expired entry without a permanent one denies", async (t) => {
  const snapshot = snapshotWith(
    { database: "*", role: "Owner" },
    { database: "main", role: "Owner", expires: 1 },
  );
  const subject = { username: "rita", tokenDatabase: "*" };
  const { allowed, reason, entry } = decide(snapshot, subject, "SELECT", "main");
  t.strictSame([allowed, reason, entry], [false, "grant_expired", "main"]);
  t.ok(decide(snapshot, subject, "SELECT", "other").allowed);
});

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

/** A large access file whose entries say more than a role: read and decided by. */

const MANY = 4000;

function narrowed(index: number): string {
  return `${grant(`user${index}`, "main", "ReadWrite").trimEnd()}
tables = ["team${index % 100}", "own_${index}_*"]
columns = ["id", "tenant", "status"]
row_filter = [{ column = "tenant", cmp = "=", value = "@username" }]
max_rows = 200
expires = 2126-01-01T00:00:00Z\n\n`;
}

const text = Array.from({ length: MANY }, (_, index) => {
  const name = `user${index}`;
  return user(name) + grant(name, "main", "ReadOnly") + narrowed(index);
}).join("");

function decided(snapshot: Snapshot, username: string, table: string) {
  const question = { permissions: ["UPDATE" as const], database: "main", table };
  return explainAccess(snapshot, { username }, question, { via: "query", now: 0 });
}

t.test("each user is judged by the user's own entries", async (t) => {
  const parsed = parseAccessFile(text, "access.toml");
  for (let index = 0; index < MANY; index += 97) {
    const name = `user${index}`;
    t.match(decided(parsed, name, `team${index % 100}`), {
      allowed: true,
      role: "ReadWrite",
      entry: `main.team${index % 100}`,
      grant: { holder: name, columns: ["id", "tenant", "status"], maxRows: 200 },
    });
    t.match(decided(parsed, name, `own_${index + 1}_x`), { allowed: false, entry: "main" });
  }
});
