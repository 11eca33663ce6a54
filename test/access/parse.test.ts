import t from "tap";
import { namesWithoutRecord, parseAccessFile } from "../../src/access/parse.ts";
import { grantOn, grantsOf, type Snapshot } from "../../src/access/snapshot.ts";
import { runAtOnce } from "../../src/cooperative-scheduling.ts";
import { grant, hashWith, parseRecords, user } from "./kit.ts";

function parse(text: string): Snapshot {
  return parseAccessFile(text, "access.toml");
}

const plain = `
[[users]]
username = "alice"
email = "alice@example.com"
password_hash = "${hashWith()}"
disabled = true
tokens_valid_after = 1763700000

[[acl]]
username = "alice"
database = "main"
role = "ReadWrite"
`;

const readWrite = { username: "alice", database: "main", role: "ReadWrite" };
const alice = {
  username: "alice",
  email: "alice@example.com",
  passwordHash: hashWith(),
  disabled: true,
  tokensValidAfter: 1763700000,
};

const spellings: Record<string, string> = {
  "as documented": plain,
  "with the line ends of Windows": plain.replaceAll("\n", "\r\n"),
  "with a byte-order mark": `\uFEFF${plain}`,
  "without a final newline": plain.trimEnd(),
  "with literal strings": plain.replaceAll('"', "'"),
  "with quoted keys": plain.replace(/^(\w+) =/gm, '"$1" ='),
  "with quoted and spaced headers": plain.replace("[[acl]]", "[[ 'acl' ]]  # grants"),
  "with escapes in keys and values": plain
    .replace("email =", '"em\\u0061il" =')
    .replace('"alice@', '"\\u0061lice@'),
  "indented, and commented everywhere": plain.replace(/^(.+)$/gm, "  # why\n\t $1  # because"),
  "with multi-line strings": plain.replace(/"([^"\n]*)"$/gm, '"""\n$1"""'),
  "with multi-line literal strings": plain.replace(/"([^"\n]*)"$/gm, "'''\n$1'''"),
  "with the tables the other way round": plain.replace(/(\[\[users]].*)(\[\[acl]].*)/s, "$2\n$1"),
  "as inline arrays": [
    `acl = [{ username = "alice", database = "main", role = "ReadWrite" }]`,
    `users = [ # one`,
    `  { username = "alice", email = "alice@example.com", disabled = true,`,
    `    password_hash = '${hashWith()}', tokens_valid_after = 1_763_700_000 },`,
    "]",
  ].join("\n"),
};

for (const [how, text] of Object.entries(spellings)) {
  t.test(`a file ${how} is read`, (t) => {
    const snapshot = parse(text);
    t.strictSame([...snapshot.users], [["alice", alice]]);
    t.strictSame([...snapshot.grants.keys()], ["alice"]);
    const own = grantsOf(snapshot, "alice");
    t.strictSame([[...own.keys()], [...own.values()]], [["main"], [readWrite]]);
    t.end();
  });
}

t.test("what may be left out has a default that opens nothing", (t) => {
  t.strictSame(parse(user("bob", "")).users.get("bob"), {
    username: "bob",
    email: undefined,
    passwordHash: undefined,
    disabled: false,
    tokensValidAfter: 0,
  });
  t.equal(parse(user("bob")).grants.size, 0);
  t.end();
});

t.test("a file with grants alone is read, and names without a record are listed", (t) => {
  const text = grant("ghost", "main", "Owner") + grant("github:bob", "*", "ReadOnly");
  t.strictSame(
    runAtOnce(namesWithoutRecord(parse(text))),
    ["ghost"],
    "an external user needs none",
  );
  t.end();
});

t.test("every valid name is read", (t) => {
  const names = [
    "a",
    "A.b_c-d@e",
    "...",
    "0",
    "a".repeat(64),
    "github:bob",
    "p-_:...",
    "__proto__",
  ];
  const longest = `${"p".repeat(63)}:${"u".repeat(64)}`;
  for (const name of [...names, longest, "constructor", "toString"]) {
    const snapshot = parse(user(name) + grant(name, "constructor", "ReadOnly"));
    t.ok(snapshot.users.has(name), name);
    t.equal(grantOn(snapshot, name, "constructor")?.role, "ReadOnly");
  }
  t.end();
});

t.test("names of users that differ by case are different users", (t) => {
  const { users } = parse(user("bob") + user("Bob"));
  t.strictSame([...users.keys()], ["bob", "Bob"]);
  t.end();
});

t.test("one database may be named by many, if always in one case", (t) => {
  const text = ["a", "b"].map(
    (name) => grant(name, "Main", "Owner") + grant(name, "*", "ReadOnly"),
  );
  const { databases } = parse(text.join(""));
  t.strictSame([...databases], [["main", "Main"]], "* is no database's name");
  t.end();
});

t.test("records keep the order of the file", (t) => {
  const text = user("b") + grant("a", "x", "Owner") + user("a") + grant("b", "x", "Owner");
  const { users, grants } = parseRecords(text, "access.toml");
  t.strictSame(
    users.map(({ username }) => username),
    ["b", "a"],
  );
  t.strictSame(
    grants.map(({ username }) => username),
    ["a", "b"],
  );
  t.end();
});

t.test("any change of the content is another version, and the same content the same", (t) => {
  t.equal(parse(plain).version, parse(plain).version);
  t.not(parse(plain).version, parse(`${plain}# a comment\n`).version);
  t.match(parse(plain).version, /^[0-9a-f]{12}$/);
  t.end();
});
