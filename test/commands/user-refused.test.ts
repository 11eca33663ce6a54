import t from "tap";
import type { CommandResult } from "../kit/process.ts";
import { install, people } from "./kit.ts";

const PASSWORD = "correct horse battery";

const refused: [flags: string, input: string | undefined, code: number, stderr: RegExp][] = [
  ["user add alice --password-stdin", PASSWORD, 1, /^gatehouse: User already exists: alice\n$/],
  ["user add carol --password-stdin", "short\n", 1, /^gatehouse: Password must be at least 8 char/],
  ["user add carol --password-stdin", "", 1, /^gatehouse: Password must be at least 8 char/],
  [
    "user add carol --password-stdin",
    "é".repeat(513),
    1,
    /^gatehouse: Password must be at most 1024/,
  ],
  ["user add a/b --password-stdin", PASSWORD, 1, /^gatehouse: Invalid username: 1 to 64 of/],
  [
    "user add github:x --password-stdin",
    PASSWORD,
    1,
    /^gatehouse: github:x signs in at its identity provider/,
  ],
  [
    `user add carol --email ${"e".repeat(255)} --no-password`,
    undefined,
    1,
    /^gatehouse: Invalid email/,
  ],
  ["user add carol --no-password --password-stdin", PASSWORD, 2, /cannot be used with option/],
  [
    "user add carol",
    undefined,
    2,
    /^gatehouse: there is no terminal to ask on: give the password with --password-stdin\n$/,
  ],
  ["user password alice", undefined, 2, /give the password with --password-stdin/],
  [
    "user password nobody --password-stdin",
    PASSWORD,
    1,
    /^gatehouse: User not found: nobody \(`\S+ user list` shows all\)\n$/,
  ],
  ["user password alice --password-stdin", "short", 1, /^gatehouse: Password must be at least/],
  [
    "user password bo --password-stdin",
    PASSWORD,
    1,
    /User not found: bo \(did you mean bob\?\)\n$/,
  ],
  [
    "user remove nobody",
    undefined,
    1,
    /^gatehouse: User not found: nobody \(`\S+ user list` shows all\)\n$/,
  ],
  ["user add", undefined, 2, /missing required argument 'username'/],
  ["user add carol extra --no-password", undefined, 2, /too many arguments/],
];
t.test("what may not be is refused with a reason, and nothing is written", async (t) => {
  const gatehouse = install(t);
  const results: CommandResult[] = [];
  for (const [flags, input] of refused) results.push(await gatehouse.run(flags, input));
  for (const [index, [flags, input, code, stderr]] of refused.entries()) {
    t.match(results[index], { code, stdout: "", stderr }, flags.slice(0, 60));
    const secret = input?.trim();
    if (secret) t.notOk(results[index]?.stderr.includes(secret), "the password is not echoed");
  }
  t.equal(gatehouse.text, people);
});

t.test("user set refuses what it cannot write, and changes nothing", async (t) => {
  const gatehouse = install(
    t,
    `${people}\n[[users]]\nusername = "ute"\n[users.attributes]\na = 1\n`,
  );
  const before = gatehouse.text;
  const results = await gatehouse.runAll([
    "user set alice",
    "user set alice --attribute tenant",
    "user set alice --attribute username=bob",
    `user set alice --email ${"x".repeat(255)}`,
    "user set nobody --attribute tenant=acme",
    "user set ute --attribute tenant=acme",
    "user set alice --attribute a=1 --attribute a=2",
    "user set alice --attribute a=1 --remove-attribute a",
    "user set ute --email ute@example.com --remove-attribute tenant,a",
  ]);
  t.strictSame(
    results.map(({ code }) => code),
    [2, 2, 2, 1, 1, 1, 2, 2, 1],
  );
  t.match(
    results[0]?.stderr,
    "nothing to set: give --email, --no-email, --attribute or --remove-attribute",
  );
  t.match(results[1]?.stderr, "such as tenant=acme, level=3 or 'regions=(eu, us)'");
  t.match(results[4]?.stderr, "User not found: nobody");
  t.match(results[5]?.stderr, "attributes is a table of its own there; change it by hand");
  t.match(results[6]?.stderr, "this attribute is given twice");
  t.match(results[7]?.stderr, "the attribute a is both set and removed");
  t.match(results[8]?.stderr, "ute has no attribute tenant; it has: a");
  t.equal(gatehouse.text, before);
});
