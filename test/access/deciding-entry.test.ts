import t from "tap";
import { collectGrants, GrantCollection } from "../../src/access/entries.ts";
import type { Grant } from "../../src/access/grant.ts";
import { decide } from "../../src/access/policy.ts";
import { decidingEntry, otherSpellingOf } from "../../src/access/rights.ts";
import { emptySnapshot, grantsOf, isAdministrator } from "../../src/access/snapshot.ts";

type Written = Omit<Grant, "username">;

function snapshotWith(...entries: Written[]) {
  const grants = entries.map((entry) => ({ username: "rita", ...entry }));
  return { ...emptySnapshot, grants: new Map([["rita", collectGrants(grants)]]) };
}

const now = Date.UTC(2026, 0, 1);

t.test("the entry that names a table wins over a pattern, the database and every one", (t) => {
  const snapshot = snapshotWith(
    { database: "*", role: "ReadOnly" },
    { database: "*", role: "None", tables: ["salaries", "log_*"] },
    { database: "main", role: "ReadWrite", tables: ["tickets", "customer_*"] },
    { database: "main", role: "None", tables: ["customer_vip"] },
    { database: "shop", role: "DbAdmin" },
  );
  const named = (database: string, table?: string) =>
    decidingEntry(snapshot, "rita", database, table, now)?.name;
  t.equal(named("main", "tickets"), "main.tickets");
  t.equal(named("main", "customer_a"), "main.customer_*");
  t.equal(named("main", "customer_vip"), "main.customer_vip");
  t.equal(named("main", "salaries"), "*.salaries", "nothing for main fits");
  t.equal(named("main", "log_1"), "*.log_*");
  t.equal(named("main", "other"), "*");
  t.equal(named("main"), "*");
  t.equal(named("shop", "salaries"), "shop", "an entry for the whole database ends the search");
  t.equal(decidingEntry(snapshot, "bob", "main", "tickets", now), undefined);
  t.end();
});

t.test("a temporary entry wins while it lasts, and leaves the place to another", (t) => {
  const snapshot = snapshotWith(
    { database: "main", role: "ReadOnly" },
    { database: "main", role: "Owner", expires: now + 1000 },
    { database: "main", role: "ReadWrite", tables: ["tickets"], expires: now + 1000 },
  );
  const at = (table: string | undefined, later: number) => {
    const entry = decidingEntry(snapshot, "rita", "main", table, now + later);
    return [entry?.grant.role, entry?.isLapsed];
  };
  t.strictSame(at(undefined, 999), ["Owner", false]);
  t.strictSame(at(undefined, 1000), ["ReadOnly", false]);
  t.strictSame(at("tickets", 999), ["ReadWrite", false]);
  t.strictSame(at("tickets", 1000), ["ReadWrite", true], "nothing else holds the place");
  t.end();
});

t.test("what has lapsed and is alone in its place denies, and says so", (t) => {
  const snapshot = snapshotWith(
    { database: "*", role: "Owner" },
    { database: "main", role: "Owner", expires: 1 },
  );
  const subject = { username: "rita", tokenDatabase: "*" };
  const { allowed, reason, entry } = decide(snapshot, subject, "SELECT", "main");
  t.strictSame([allowed, reason, entry], [false, "grant_expired", "main"]);
  t.ok(decide(snapshot, subject, "SELECT", "other").allowed);
  t.end();
});

t.test("contradictions are found, whatever the order", (t) => {
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
  const base: Grant = { username: "rita", database: "main", role: "ReadOnly" };
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
  t.end();
});

t.test("a table in another case than an entry's is found, by name and by pattern", (t) => {
  const grants = grantsOf(
    snapshotWith(
      { database: "main", role: "ReadOnly", tables: ["Tickets", "customer_*"] },
      { database: "*", role: "ReadOnly", tables: ["logs", "LOGS2"] },
    ),
    "rita",
  );
  const other = (table: string) => otherSpellingOf(grants, "main", table, now)?.spelling;
  t.equal(other("tickets"), "Tickets");
  t.equal(other("TICKETS"), "Tickets");
  t.equal(other("Customer_a"), "customer_*");
  t.equal(other("LOGS"), "logs");
  t.equal(other("logs2"), "LOGS2");
  for (const table of ["Tickets", "customer_A", "logs", "LOGS2", "custom"]) {
    t.equal(other(table), undefined, table);
  }
  t.end();
});

t.test("nobody administers by an entry that narrows, or is for a time", (t) => {
  const subject = { username: "rita", tokenDatabase: "*" };
  const plain: Written = { database: "*", role: "Owner" };
  t.ok(isAdministrator(snapshotWith(plain), "rita"));
  const beside: Written[] = [
    { database: "*", role: "None", tables: ["salaries"] },
    { database: "*", role: "Owner", expires: Number.MAX_SAFE_INTEGER },
  ];
  for (const entry of beside) {
    const snapshot = snapshotWith(plain, entry);
    t.notOk(isAdministrator(snapshot, "rita"));
    t.notOk(decide(snapshot, subject, "GRANT", "main").allowed);
    t.ok(decide(snapshot, subject, "SELECT", "main").allowed);
  }
  const lapsed = snapshotWith(plain, { database: "*", role: "ReadOnly", expires: 1 });
  t.ok(isAdministrator(lapsed, "rita"), "what has given way is absent");
  t.ok(decide(lapsed, subject, "GRANT", "main").allowed);
  const asks = snapshotWith({ ...plain, requireApproval: ["DELETE"] });
  t.notOk(decide(asks, subject, "GRANT", "main").allowed);
  t.end();
});
