import assert from "node:assert/strict";
import fc from "fast-check";
import t from "tap";
import { AccessFileError, parseAccessFile } from "../../src/access/parse.ts";
import { SECRET } from "./broken-file.ts";
import { brokenFiles } from "./broken-files.ts";
import { grant, hashWith, user } from "./kit.ts";

function errorOf(text: string): AccessFileError | undefined {
  try {
    parseAccessFile(text, "/etc/access.toml");
  } catch (error) {
    if (error instanceof AccessFileError) return error;
    throw error;
  }
  return undefined;
}

for (const { rule, text, line, reason } of brokenFiles) {
  t.test(`${rule} is refused, with line and reason`, (t) => {
    const error = errorOf(text);
    t.ok(error, "it is refused");
    const found = error?.problems.find((problem) => reason.test(problem.reason));
    t.equal(found?.line, line);
    const place = line === undefined ? "/etc/access.toml" : `/etc/access.toml:${line}`;
    t.ok(error?.message.split("\n").includes(`${place}: ${found?.reason}`), "it is told");
    t.notMatch(error?.message, new RegExp(SECRET, "i"), "nothing of the file is shown");
    t.end();
  });
}

t.test("all mistakes of a file are told at once, in its order", (t) => {
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
    "17 this user has a record already",
    "25 `role`",
    '27 unknown key "databse"; (did you mean database?)',
    "28 this user has an entry for this database already",
    "35 another entry names a database that differs from this one",
  ]);
  const nobody = errorOf('[[acl]]\ndatabase = "main"\nrole = "Owner"\n')?.problems;
  t.match(nobody, [{ line: 1, reason: /^`username` must be .*; it is left out$/ }]);
  t.equal(nobody?.length, 1);
  t.end();
});

t.test("mistakes of a large file are found with their lines, and counted", (t) => {
  const good = Array.from({ length: 5000 }, (_, at) => user(`user${at}`)).join("");
  const bad = Array.from({ length: 60 }, () => grant(SECRET, "main", "Writer")).join("");
  const problems = errorOf(good + bad)?.problems ?? [];
  t.equal(problems.length, 51);
  t.equal(problems[0]?.line, 4 * 5000 + 4);
  t.equal(problems[49]?.line, 4 * 5000 + 5 * 49 + 4);
  t.strictSame(problems[50], { reason: "and 10 more problems" });
  t.end();
});

t.test("a line is found in a file with the line ends of Windows", (t) => {
  const text = `${user("a")}${grant("a", "main", "Writer")}`.replaceAll("\n", "\r\n");
  t.equal(errorOf(text)?.problems[0]?.line, 8);
  t.end();
});

t.test("a line is found where the tables are one inline array", (t) => {
  const text = 'users = [\n  { username = "a" },\n  { username = "a" },\n]\n';
  t.equal(errorOf(text)?.problems[0]?.line, 1, "the array's own line is as near as it gets");
  t.end();
});

t.test("however a file is mutilated, no name, email or hash is in the reason", (t) => {
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
  t.end();
});
