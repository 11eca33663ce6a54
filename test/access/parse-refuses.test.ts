import assert from "node:assert/strict";
import fc from "fast-check";
import t from "tap";
import { AccessFileError, parseAccessFile } from "../../src/access/parse.ts";
import { brokenFiles, SECRET } from "./broken-files.ts";
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
    t.equal(error?.line, line);
    t.match(error?.reason, reason);
    const place = line === undefined ? "/etc/access.toml" : `/etc/access.toml:${line}`;
    t.equal(error?.message, `${place}: ${error?.reason}`);
    t.notMatch(error?.message, new RegExp(SECRET, "i"), "nothing of the file is shown");
    t.end();
  });
}

t.test("a line is found in a file with the line ends of Windows", (t) => {
  const text = `${user("a")}${grant("a", "main", "Writer")}`.replaceAll("\n", "\r\n");
  t.equal(errorOf(text)?.line, 8);
  t.end();
});

t.test("a line is found where the tables are one inline array", (t) => {
  const text = 'users = [\n  { username = "a" },\n  { username = "a" },\n]\n';
  t.equal(errorOf(text)?.line, 1, "the array's own line is as near as it gets");
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
