import t from "tap";
import { diffSnapshots } from "../../src/core/access/diff.ts";
import { readHolder } from "../../src/core/access/grant.ts";
import { parseAccessFile } from "../../src/core/access/parse.ts";
import {
  holderRecords,
  holdersIn,
  indexHolders,
  replaceRecords,
} from "../../src/core/access/record-change.ts";
import { runAtOnce } from "../../src/core/base/cooperative-scheduling.ts";
import { grant, hashWith, user } from "./kit.ts";

const none = {
  usersAdded: [],
  usersRemoved: [],
  usersChanged: [],
  groupsAdded: [],
  groupsRemoved: [],
  groupsChanged: [],
  grantsAdded: [],
  grantsRemoved: [],
  grantsRaised: [],
  grantsLowered: [],
  grantsChanged: [],
  boundariesAdded: [],
  boundariesRemoved: [],
};

function diff(before: string, after: string) {
  return diffSnapshots(parseAccessFile(before, "a"), parseAccessFile(after, "b"));
}

t.test("a difference lists users and grants added, removed, raised and lowered", async (t) => {
  const before = [user("alice"), user("bob"), grant("alice", "main", "Owner")];
  const after = [user("alice"), user("carol"), grant("alice", "main", "ReadOnly")];
  before.push(grant("bob", "logs", "ReadOnly"), grant("alice", "logs", "ReadOnly"));
  after.push(grant("carol", "*", "DbAdmin"), grant("alice", "logs", "ReadWrite"));
  t.strictSame(diff(before.join(""), after.join("")), {
    ...none,
    usersAdded: ["carol"],
    usersRemoved: ["bob"],
    grantsAdded: [{ holder: readHolder("carol"), database: "*", role: "DbAdmin" }],
    grantsRemoved: [{ holder: readHolder("bob"), database: "logs", role: "ReadOnly" }],
    grantsRaised: [{ holder: readHolder("alice"), database: "logs", role: "ReadWrite" }],
    grantsLowered: [{ holder: readHolder("alice"), database: "main", role: "ReadOnly" }],
  });
});

t.test("a changed record is reported by username only", async (t) => {
  const plain = user("alice");
  const others = [
    user("alice", `password_hash = "${hashWith("m=128,t=1,p=1")}"`),
    user("alice", `password_hash = "${hashWith()}"\nemail = "a@example.com"`),
    user("alice", `password_hash = "${hashWith()}"\ndisabled = true`),
    user("alice", `password_hash = "${hashWith()}"\ntokens_valid_after = 1`),
    user("alice", ""),
  ];
  for (const other of others)
    t.strictSame(diff(plain, other), { ...none, usersChanged: ["alice"] });
});

t.test("a removed user is reported once", async (t) => {
  const given = parseAccessFile(user("alice") + user("bob") + user("carol"), "a");
  const records = Array.from(holdersIn(given), (holder) => holderRecords(given, holder));
  const first = runAtOnce(indexHolders(records, [], "1"));
  const without = (name: string) => new Map([[readHolder(name), { user: undefined, grants: [] }]]);
  const second = runAtOnce(replaceRecords(first, { records: without("bob") }, "2"));
  const third = runAtOnce(replaceRecords(second, { records: without("carol") }, "3"));
  t.strictSame(diffSnapshots(second, third), { ...none, usersRemoved: ["carol"] });
});

t.test("order and spelling make no difference", async (t) => {
  const before = user("alice") + user("bob") + grant("bob", "main", "Owner");
  const after = grant("bob", "main", "Owner") + user("bob") + user("alice").replaceAll('"', "'");
  t.strictSame(diff(before, `# a comment\n${after}`), none);
});

t.test("an entry with the same role and other limits has changed", async (t) => {
  const entry = (more: string) => `${grant("alice", "main", "ReadOnly").trimEnd()}\n${more}`;
  const before = parseAccessFile(entry("max_rows = 5\n"), "a.toml");
  const after = parseAccessFile(
    entry('max_rows = 6\n[[boundaries]]\nvia = "mcp"\nrole = "ReadOnly"\n'),
    "a.toml",
  );
  t.match(diffSnapshots(before, after), {
    grantsChanged: [{ holder: "alice", maxRows: 6 }],
    boundariesAdded: ["mcp"],
  });
});

t.test("a group has changed if its members have", async (t) => {
  const group = (name: string, members: string) =>
    `[[groups]]\nname = "${name}"\nmembers = [${members}]\n`;
  const before = user("a") + group("old", '"a"') + group("same", '"a"') + group("team", '"a", "c"');
  const after = user("a") + group("new", '"b"') + group("same", "'a'") + group("team", '"a", "b"');
  t.strictSame(diff(before, after), {
    ...none,
    groupsAdded: [{ name: "new", members: ["b"] }],
    groupsRemoved: [{ name: "old", members: ["a"] }],
    groupsChanged: [{ name: "team", members: ["a", "b"], left: ["c"] }],
  });
});
