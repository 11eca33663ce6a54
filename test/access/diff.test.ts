import t from "tap";
import { diffSnapshots } from "../../src/access/diff.ts";
import { parseAccessFile } from "../../src/access/parse.ts";
import { indexOf, namesIn, recordsOf, replaceRecords } from "../../src/access/record-change.ts";
import { runAtOnce } from "../../src/cooperative-scheduling.ts";
import { grant, hashWith, user } from "./kit.ts";

const none = {
  usersAdded: [],
  usersRemoved: [],
  usersChanged: [],
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

t.test("users and grants added, removed, raised and lowered are told apart", (t) => {
  const before = [user("alice"), user("bob"), grant("alice", "main", "Owner")];
  const after = [user("alice"), user("carol"), grant("alice", "main", "ReadOnly")];
  before.push(grant("bob", "logs", "ReadOnly"), grant("alice", "logs", "ReadOnly"));
  after.push(grant("carol", "*", "DbAdmin"), grant("alice", "logs", "ReadWrite"));
  t.strictSame(diff(before.join(""), after.join("")), {
    ...none,
    usersAdded: ["carol"],
    usersRemoved: ["bob"],
    grantsAdded: ["carol * DbAdmin"],
    grantsRemoved: ["bob logs ReadOnly"],
    grantsRaised: ["alice logs ReadWrite"],
    grantsLowered: ["alice main ReadOnly"],
  });
  t.end();
});

t.test("any change of a user's record is seen, and shown by its name alone", (t) => {
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
  t.end();
});

t.test("a user who was removed is not told of again by the next difference", (t) => {
  const given = parseAccessFile(user("alice") + user("bob") + user("carol"), "a");
  const records = Array.from(namesIn(given), (name) => recordsOf(given, name));
  const first = runAtOnce(indexOf(records, [], "1"));
  const without = (name: string) => new Map([[name, { user: undefined, grants: [] }]]);
  const second = runAtOnce(replaceRecords(first, { users: without("bob") }, "2"));
  const third = runAtOnce(replaceRecords(second, { users: without("carol") }, "3"));
  t.strictSame(diffSnapshots(second, third), {
    ...none,
    usersRemoved: ["carol"],
  });
  t.end();
});

t.test("another order or spelling of the same is no difference", (t) => {
  const before = user("alice") + user("bob") + grant("bob", "main", "Owner");
  const after = grant("bob", "main", "Owner") + user("bob") + user("alice").replaceAll('"', "'");
  t.strictSame(diff(before, `# a comment\n${after}`), none);
  t.end();
});

t.test("an entry of the same role that says something else has changed", (t) => {
  const entry = (more: string) => `${grant("alice", "main", "ReadOnly").trimEnd()}\n${more}`;
  const before = parseAccessFile(entry("max_rows = 5\n"), "a.toml");
  const after = parseAccessFile(
    entry('max_rows = 6\n[[boundaries]]\nvia = "mcp"\nrole = "ReadOnly"\n'),
    "a.toml",
  );
  t.match(diffSnapshots(before, after), {
    grantsChanged: ["alice main ReadOnly"],
    boundariesAdded: ["mcp"],
  });
  t.end();
});
