import fc from "fast-check";
import t from "tap";
import { effectDiff } from "../../src/core/access/diff.ts";
import { entriesIn } from "../../src/core/access/entries.ts";
import { groupHolder, type Subject } from "../../src/core/access/grant.ts";
import { callerFor, effectiveGrants } from "../../src/core/access/groups.ts";
import { lintAccess } from "../../src/core/access/lint.ts";
import { parseAccessFile } from "../../src/core/access/parse.ts";
import { decide, explainAccess, isAdministrator } from "../../src/core/access/policy.ts";
import {
  isExternalUsername,
  isGroupName,
  joinNames,
  splitNames,
} from "../../src/core/access/roles.ts";
import { runAtOnce } from "../../src/core/base/cooperative-scheduling.ts";
import { user } from "./kit.ts";

const groups = `
[[groups]]
name = "analysts"
members = ["rita", "staff:bob"]

[[groups]]
name = "support"
members = ["rita"]
`;

function snapshotWith(...entries: string[]) {
  const acl = entries.map((entry) => `[[acl]]\n${entry}\n`);
  return parseAccessFile(`${user("rita")}${groups}${acl.join("\n")}`, "access.toml");
}

const on = (holder: string, place: string, role: string, more = "") =>
  `${holder}\ndatabase = "${place}"\nrole = "${role}"\n${more}`;
const group = (name: string) => `group = "${name}"`;
const rita = { username: "rita", tokenDatabase: "*" };
const bob: Subject = {
  username: "staff:bob",
  tokenDatabase: "*",
  groups: ["staff:engineering", "staff:operations"],
};

/** Reason, role and deciding entry of a SELECT. */
function seen(snapshot: ReturnType<typeof snapshotWith>, subject: Subject, table?: string) {
  const question = { permissions: ["SELECT"] as const, database: "main", table };
  const { reason, role, entry } = explainAccess(snapshot, subject, question, {
    via: "query",
    now: Date.now(),
    hasPreset: false,
  });
  return `${reason} ${role} ${entry}`;
}

t.test("at one place the user's entry wins, then None, then the widest role", async (t) => {
  const read = on(group("analysts"), "main", "ReadOnly");
  const write = on(group("support"), "main", "ReadWrite");
  const none = on(group("support"), "main", "None");
  const own = on('username = "rita"', "main", "DbAdmin");
  const all = on('username = "rita"', "*", "Owner");
  t.equal(seen(snapshotWith(read), rita), "allowed ReadOnly main (group analysts)");
  t.equal(seen(snapshotWith(read, write), rita), "allowed ReadWrite main (group support)");
  t.equal(seen(snapshotWith(read, none), rita), "role_insufficient None main (group support)");
  t.equal(seen(snapshotWith(read, none, own), rita), "allowed DbAdmin main");
  t.equal(seen(snapshotWith(read, all), rita), "allowed ReadOnly main (group analysts)");
  t.equal(seen(snapshotWith(read), { ...rita, username: "carol" }), "no_grant undefined undefined");
  const { allowed } = decide(snapshotWith(read, all), rita, "GRANT", "main");
  t.notOk(allowed, "the group's entry for main decides on GRANT too");
});

t.test("of equal roles of groups, the permanent one decides, and so still grants", async (t) => {
  const expires = "expires = 2100-01-01T00:00:00Z\n";
  const temporary = on(group("analysts"), "*", "Owner", expires);
  const permanent = on(group("support"), "*", "Owner");
  t.ok(isAdministrator(snapshotWith(temporary, permanent), rita));
  const narrower = on(group("support"), "*", "ReadOnly");
  t.notOk(isAdministrator(snapshotWith(temporary, narrower), rita));
  t.equal(seen(snapshotWith(temporary, narrower), rita), "allowed Owner * (group analysts)");
});

t.test("entries that differ by more than a role are a conflict", async (t) => {
  const few = on(group("analysts"), "main", "ReadOnly", "max_rows = 5");
  const more = on(group("support"), "main", "ReadOnly", "max_rows = 6");
  const snapshot = snapshotWith(few, more);
  t.equal(seen(snapshot, rita), "group_conflict None main (groups analysts, support)");
  t.match(decide(snapshot, rita, "SELECT", "main"), {
    reason: "group_conflict",
    message: /of the groups analysts, support differ/,
  });
  t.equal(
    seen(snapshotWith(few, few.replace("analysts", "support")), rita).split(" ")[0],
    "allowed",
  );
  t.equal(seen(snapshot, bob), "allowed ReadOnly main (group analysts)");
});

t.test("the groups of a token count for that token", async (t) => {
  const table = on(group("staff:engineering"), "main", "ReadOnly", 'tables = ["log_*"]');
  const longer = on(group("staff:operations"), "main", "ReadWrite", 'tables = ["log_x_*"]');
  const snapshot = snapshotWith(table, longer);
  t.equal(seen(snapshot, bob, "log_a"), "allowed ReadOnly main.log_* (group staff:engineering)");
  t.equal(
    seen(snapshot, bob, "log_x_a"),
    "allowed ReadWrite main.log_x_* (group staff:operations)",
  );
  t.equal(seen(snapshot, { ...bob, groups: [] }, "log_a").split(" ")[0], "no_grant");
  const own = on('username = "staff:bob"', "main", "None", 'tables = ["log_*"]');
  const shut = snapshotWith(table, longer, own);
  t.equal(seen(shut, bob, "log_x_a"), "role_insufficient None main.log_*");
});

t.test("an expired entry gives way to one in force at its place", async (t) => {
  const past = "expires = 2020-01-01T00:00:00Z";
  const expired = on(group("analysts"), "main", "Owner", past);
  const other = on(group("support"), "main", "ReadOnly");
  const own = on('username = "rita"', "main", "Owner", past);
  t.equal(seen(snapshotWith(expired), rita), "grant_expired None main (group analysts)");
  t.equal(seen(snapshotWith(expired, other), rita), "allowed ReadOnly main (group support)");
  t.equal(seen(snapshotWith(own, other), rita), "allowed ReadOnly main (group support)");
  t.equal(seen(snapshotWith(own, expired), rita), "grant_expired None main");
  const soon = on(group("analysts"), "main", "Owner", "expires = 2100-01-01T00:00:00Z");
  const snapshot = snapshotWith(soon, other);
  t.equal([...entriesIn(effectiveGrants(snapshot, rita, 0))][0]?.role, "Owner");
  const later = Date.parse("2100-01-01T00:00:00Z");
  t.equal([...entriesIn(effectiveGrants(snapshot, rita, later))][0]?.role, "ReadOnly");
  t.equal([...entriesIn(effectiveGrants(snapshot, rita, 0))][0]?.role, "Owner");
});

t.test("members of a group with Owner on * are administrators", async (t) => {
  const snapshot = snapshotWith(on(group("support"), "*", "Owner"));
  t.ok(isAdministrator(snapshot, rita));
  t.notOk(isAdministrator(snapshot, bob));
});

t.test("a diff tells what users who join and leave a group gain and lose", async (t) => {
  const before = snapshotWith(on(group("analysts"), "main", "ReadOnly"));
  const entry = `[[acl]]\n${on(group("analysts"), "main", "ReadOnly")}`;
  const members = groups.replace('["rita", "staff:bob"]', '["staff:eve"]');
  const after = parseAccessFile(`${user("rita")}${members}${entry}`, "access.toml");
  const effects = [...effectDiff(before, after, Date.now())];
  t.match(
    effects.sort((one, other) => (one.holder < other.holder ? -1 : 1)),
    [
      { holder: "rita", place: "main", gains: [], loses: ["SELECT"] },
      { holder: "staff:bob", place: "main", gains: [], loses: ["SELECT"] },
      { holder: "staff:eve", place: "main", gains: ["SELECT"], loses: [] },
    ],
  );
});

t.test("a diff tells who may grant as the decision does", async (t) => {
  const owner = on('username = "rita"', "main", "Owner");
  const later = new Date(Date.now() + 60_000).toISOString();
  const approved = 'require_approval = ["DROP"]';
  const snapshots = [owner, `${owner}expires = ${later}\n`, `${owner}${approved}\n`].map((one) =>
    snapshotWith(one),
  );
  const effects = snapshots.map((after) => [...effectDiff(snapshotWith(), after, Date.now())]);
  const grants = effects.map(([one]) => one?.gains.includes("GRANT"));
  t.strictSame(grants, [true, false, false]);
  const [plain = snapshotWith(), timed = snapshotWith()] = snapshots;
  const [lost] = effectDiff(plain, timed, Date.now());
  t.match(lost, { gains: [], loses: ["GRANT"], limits: ["expires"] });
});

t.test("lint names groups that are unknown, empty or without entries", async (t) => {
  const empty = '[[groups]]\nname = "empty"\nmembers = []\n';
  const text = `${user("rita")}${groups}${empty}[[acl]]\n${on(group("unknown"), "main", "ReadOnly")}
[[acl]]\n${on(group("analysts"), "main", "ReadOnly")}
[[boundaries]]\nvia = "mcp"\ngroup = "support"\nrole = "ReadOnly"\n`;
  const findings = runAtOnce(
    lintAccess(parseAccessFile(text, "access.toml"), { now: Date.now(), hasPreset: false }),
  );
  t.strictSame(findings, [
    "the entry of group unknown for main: there is no such group, so it never applies",
    "the group empty: has no members",
    "the group empty: has no entries",
  ]);
});

t.test("a list may have names in double quotes", async (t) => {
  const lists: [text: string, names: string[]][] = [
    ["", [""]],
    ["a", ["a"]],
    [" a , b,", ["a", "b", ""]],
    ['"a,b", c', ["a,b", "c"]],
    ['"a ""b"" ",c', ['a "b" ', "c"]],
    ['a "b" c,"d"e', ['a "b" c', '"d"e']],
    ['"open, end', ['"open', "end"]],
    ['""', [""]],
  ];
  for (const [text, names] of lists) t.strictSame(splitNames(text), names, text);
  const name = fc.string({ unit: fc.constantFrom("a", ",", '"', " ", ":"), minLength: 1 });
  const property = fc.property(fc.array(name, { minLength: 1 }), (names) => {
    t.strictSame(splitNames(joinNames(names)), names);
  });
  fc.assert(property, { numRuns: 200 });
});

t.test("names of issuers are of any script, in NFC", async (t) => {
  const good = [
    "s:a",
    "s:Jürgen Ö.",
    "s:cn=a/b#c|d'e+f",
    "s:工程",
    "s:हिन्दी",
    `s:${"𝒳".repeat(200)}`,
  ];
  const bad = [
    "s:",
    "s:a  b",
    "s: a",
    "s:a*",
    's:a"',
    "s:a\u0308",
    "s:a,b",
    `s:${"x".repeat(201)}`,
  ];
  for (const name of good) t.ok(isExternalUsername(name) && isGroupName(name), name);
  for (const name of [...bad, "group:a"]) t.notOk(isExternalUsername(name), name);
  for (const name of ["s:a  b", "s: a", "s:a*", 's:a"', "s:a,b", "s:\u2028"]) {
    t.ok(isGroupName(name), encodeURI(name));
  }
  for (const name of ["s:", "s:a\u0308", "s:a\n", `s:${"x".repeat(201)}`, "s:\ud800", "group:a"]) {
    t.notOk(isGroupName(name));
  }
  t.ok(isGroupName("analysts"));
  t.notOk(isGroupName("an analyst"));
});

t.test("a question about a group counts the boundaries of that group only", async (t) => {
  const boundary = (name: string) =>
    `[[boundaries]]\nvia = "mcp"\ngroup = "${name}"\nrole = "ReadOnly"\n`;
  for (const name of ["analysts", "staff:ops"]) {
    const acl = on(group(name), "main", "ReadWrite").replace(/^/, "[[acl]]\n");
    const reasonWith = (boundaries: string) => {
      const snapshot = parseAccessFile(`${user("rita")}${groups}${acl}\n${boundaries}`, "a.toml");
      const question = { permissions: ["INSERT"] as const, database: "main", table: undefined };
      const context = { via: "mcp", now: Date.now(), hasPreset: false } as const;
      return explainAccess(snapshot, callerFor(groupHolder(name)), question, context).reason;
    };
    t.equal(reasonWith(boundary(name)), "role_insufficient", name);
    t.equal(reasonWith(boundary("support")), "allowed", name);
  }
});
