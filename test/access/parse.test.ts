import assert from "node:assert/strict";
import fc from "fast-check";
import t from "tap";
import { readHolder } from "../../src/core/access/grant.ts";
import {
  AccessFileError,
  holdersWithoutRecord,
  parseAccessFile,
} from "../../src/core/access/parse.ts";
import {
  costBounds,
  formatPasswordHash,
  parsePasswordHash,
} from "../../src/core/access/password-hash.ts";
import { ownGrants, type Snapshot } from "../../src/core/access/snapshot.ts";
import { runAtOnce } from "../../src/core/base/cooperative-scheduling.ts";
import { brokenFiles, SECRET } from "./broken-files.ts";
import { DIGEST, grant, grantOn, hashWith, parseRecords, SALT, user } from "./kit.ts";

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

const readWrite = { holder: readHolder("alice"), database: "main", role: "ReadWrite" };
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

t.test("a file is read in any spelling", async (t) => {
  for (const [how, text] of Object.entries(spellings)) {
    const snapshot = parse(text);
    t.strictSame([...snapshot.users], [["alice", alice]], how);
    t.strictSame([...snapshot.grants.keys()], ["alice"], how);
    const own = ownGrants(snapshot, readHolder("alice"));
    t.strictSame([[...own.keys()], [...own.values()]], [["main"], [readWrite]], how);
  }
});

t.test("defaults of omitted keys give no access", async (t) => {
  t.strictSame(parse(user("bob", "")).users.get("bob"), {
    username: "bob",
    email: undefined,
    passwordHash: undefined,
    disabled: false,
    tokensValidAfter: 0,
  });
  t.equal(parse(user("bob")).grants.size, 0);
});

t.test("a file with grants alone is read, and names without a record are listed", async (t) => {
  const text = grant("ghost", "main", "Owner") + grant("github:bob", "*", "ReadOnly");
  t.strictSame(
    runAtOnce(holdersWithoutRecord(parse(text))),
    ["ghost"],
    "an external user needs none",
  );
});

t.test("every valid name is accepted", async (t) => {
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
});

t.test("names of users that differ by case are different users", async (t) => {
  const { users } = parse(user("bob") + user("Bob"));
  t.strictSame([...users.keys()], ["bob", "Bob"]);
});

t.test("several entries may name a database if the case is the same", async (t) => {
  const text = ["a", "b"].map(
    (name) => grant(name, "Main", "Owner") + grant(name, "*", "ReadOnly"),
  );
  const { databases } = parse(text.join(""));
  t.strictSame([...databases], [["main", "Main"]], "* is no database's name");
});

t.test("records keep the order of the file", async (t) => {
  const text = user("b") + grant("a", "x", "Owner") + user("a") + grant("b", "x", "Owner");
  const { users, grants } = parseRecords(text, "access.toml");
  t.strictSame(
    users.map(({ username }) => username),
    ["b", "a"],
  );
  t.strictSame(
    grants.map(({ holder }) => holder),
    ["a", "b"],
  );
});

t.test("equal content has the same version, other content another", async (t) => {
  t.equal(parse(plain).version, parse(plain).version);
  t.not(parse(plain).version, parse(`${plain}# a comment\n`).version);
  t.match(parse(plain).version, /^[0-9a-f]{12}$/);
});

function errorOf(text: string): AccessFileError | undefined {
  try {
    parseAccessFile(text, "/etc/access.toml");
  } catch (error) {
    if (error instanceof AccessFileError) return error;
    throw error;
  }
  return undefined;
}

t.test("a broken file is refused with line and reason, without its text", async (t) => {
  for (const { text, line, reason } of brokenFiles) {
    const error = errorOf(text);
    const found = error?.problems.find((problem) => reason.test(problem.reason));
    const place = line === undefined ? "/etc/access.toml" : `/etc/access.toml:${line}`;
    t.ok(found !== undefined && found.line === line, `${text}: ${error?.message}`);
    t.ok(error?.message.split("\n").includes(`${place}: ${found?.reason}`), `${text} is reported`);
    t.notMatch(error?.message, new RegExp(SECRET, "i"), text);
  }
});

t.test("all errors of a file are reported in order", async (t) => {
  const text = [
    `[[users]]\nusername = "a b"\nemail = 1\n${SECRET} = 2\nrolle = 3\n\n`,
    user("a"),
    grant("a", "main", "Reader"),
    user("a"),
    grant("a", "Main", "Owner"),
    `[[acl]]\nusername = "b"\ndatabse = "main"\n`,
    grant("a", "Main", "Owner"),
    grant("c", "main", "Owner"),
  ].join("");
  const found = errorOf(text)?.problems.map(
    ({ line, reason }) =>
      `${line} ${reason.replace(/ (?:must be|allowed|only by case).*?(?=$| \(did)/, "")}`,
  );
  t.strictSame(found, [
    "2 `username`",
    "3 `email`",
    "4 unknown key;",
    "5 unknown key;",
    "14 `role`",
    "17 this user already has a record",
    "25 `role`",
    '27 unknown key "databse"; (did you mean database?)',
    "28 this user already has an entry for this database",
    "35 another entry names a database that differs from this one",
  ]);
  const nobody = errorOf('[[acl]]\ndatabase = "main"\nrole = "Owner"\n')?.problems;
  t.match(nobody, [{ line: 1, reason: /^`username` or `group` is required; it is missing$/ }]);
  t.equal(nobody?.length, 1);
});

t.test("errors of a large file have line numbers and are counted", async (t) => {
  const good = Array.from({ length: 5000 }, (_, at) => user(`user${at}`)).join("");
  const bad = Array.from({ length: 60 }, () => grant(SECRET, "main", "Writer")).join("");
  const problems = errorOf(good + bad)?.problems ?? [];
  t.equal(problems.length, 51);
  t.equal(problems[0]?.line, 4 * 5000 + 4);
  t.equal(problems[49]?.line, 4 * 5000 + 5 * 49 + 4);
  t.strictSame(problems[50], { reason: "and 10 more problems" });
});

t.test("lines are found in a file with Windows line ends", async (t) => {
  const text = `${user("a")}${grant("a", "main", "Writer")}`.replaceAll("\n", "\r\n");
  t.equal(errorOf(text)?.problems[0]?.line, 8);
});

t.test("lines are found in a file of inline arrays", async (t) => {
  const text = 'users = [\n  { username = "a" },\n  { username = "a" },\n]\n';
  t.equal(errorOf(text)?.problems[0]?.line, 1, "the array's own line is as near as it gets");
});

t.test("no damage to a file puts a name, email or hash into the reason", async (t) => {
  const secrets = ["zaphod", "trillian", "Magrathea", "c2FsdHNh", "aGFzaGhh", "argon2"];
  const text = [
    user("zaphod", `email = "trillian@example.com"\npassword_hash = "${hashWith()}"`),
    grant("zaphod", "Magrathea", "Owner"),
  ].join("");
  const cut = fc.nat({ max: text.length });
  const piece = fc.oneof(
    fc.constantFrom('"', "'", "[", "]", "=", "\\", "\n", "#", "."),
    fc.string(),
  );
  let refused = 0;
  fc.assert(
    fc.property(cut, fc.nat({ max: 12 }), piece, (at, length, inserted) => {
      const error = errorOf(text.slice(0, at) + inserted + text.slice(at + length));
      if (error === undefined) return;
      refused += 1;
      for (const secret of secrets) {
        // The rule for hashes names the one algorithm that it allows.
        const said: string = error.message.replace("an Argon2id hash", "");
        assert.ok(!said.includes(secret), `${secret} in ${said}`);
      }
    }),
    { numRuns: 2000 },
  );
  t.ok(refused > 200, "the mutilations were enough");
});

const orders = ["m,t,p", "m,p,t", "t,m,p", "t,p,m", "p,m,t", "p,t,m"];

t.test("the parameters are read in any order and written in one", async (t) => {
  const values = new Map([
    ["m", "65536"],
    ["t", "3"],
    ["p", "4"],
  ]);
  for (const order of orders) {
    const parameters = order.split(",").map((name) => `${name}=${values.get(name)}`);
    const hash = parsePasswordHash(hashWith(parameters.join(",")));
    t.strictSame(hash?.costs, { memory: 65536, time: 3, parallelism: 4 }, order);
    t.equal(hash && formatPasswordHash(hash), hashWith("m=65536,t=3,p=4"));
  }
});

t.test("salt and hash are the bytes that were written", async (t) => {
  const hash = parsePasswordHash(hashWith());
  t.strictSame(hash?.salt, Buffer.from(SALT, "base64"));
  t.strictSame(hash?.hash, Buffer.from(DIGEST, "base64"));
});

t.test("each cost is accepted up to its bounds and refused past them", async (t) => {
  const accepts = (parameters: string) => parsePasswordHash(hashWith(parameters)) !== undefined;
  const [leastMemory, mostMemory] = costBounds.memory;
  t.strictSame([leastMemory, mostMemory], [8, 1_048_576]);
  for (const memory of [8, 9, 1_048_576]) t.ok(accepts(`m=${memory},t=1,p=1`), `m=${memory}`);
  for (const memory of [0, 7, 1_048_577]) t.notOk(accepts(`m=${memory},t=1,p=1`), `m=${memory}`);
  for (const cost of [1, 2, 64]) {
    t.ok(accepts(`m=512,t=${cost},p=1`), `t=${cost}`);
    t.ok(accepts(`m=512,t=1,p=${cost}`), `p=${cost}`);
  }
  for (const cost of [0, 65, 9_999_999]) {
    t.notOk(accepts(`m=1048576,t=${cost},p=1`), `t=${cost}`);
    t.notOk(accepts(`m=1048576,t=1,p=${cost}`), `p=${cost}`);
  }
});

t.test("each lane needs 8 KiB", async (t) => {
  t.ok(parsePasswordHash(hashWith("m=32,t=1,p=4")));
  t.notOk(parsePasswordHash(hashWith("m=31,t=1,p=4")));
  t.notOk(parsePasswordHash(hashWith("m=064,t=1,p=4")), "a number has one spelling");
});
