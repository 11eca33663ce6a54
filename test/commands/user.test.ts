import { chmodSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { grantOn } from "../../src/access/snapshot.ts";
import { verifyPassword } from "../../src/identity/password.ts";
import { grant, user } from "../access/kit.ts";
import { freePort } from "../kit/free-port.ts";
import type { CommandResult } from "../kit/process.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { done, failed, install, installNothing, people, program } from "./kit.ts";
import { CTRL_C, CTRL_D, noTerminal, Terminal } from "./terminal.ts";

const PASSWORD = "correct horse battery";

t.test("user add writes the user with a hash of the configured costs", async (t) => {
  const gatehouse = install(t);
  const before = gatehouse.text;
  const flags = "user add carol --email carol@example.com --password-stdin";
  const result = await gatehouse.run(flags, `${PASSWORD}\nignored\n`);
  t.strictSame(
    result,
    done("Added carol.", `Next, give it a role:  ${program} access grant carol main ReadOnly`),
  );
  const carol = gatehouse.snapshot.users.get("carol");
  t.match(carol?.passwordHash, /^\$argon2id\$v=19\$m=64,t=1,p=1\$/);
  t.match(carol, { email: "carol@example.com", disabled: false, tokensValidAfter: 0 });
  t.notOk(gatehouse.snapshot.grants.has("carol"), "and no grant");
  const [kept = "", rest = ""] = before.split(/(?=\[\[acl]])/, 2);
  t.ok(gatehouse.text.startsWith(kept) && gatehouse.text.includes(rest), "the rest is as it was");
  t.notMatch(gatehouse.text, new RegExp(PASSWORD));
});

t.test("a password that was set opens, and its line's end is not part of it", async (t) => {
  const gatehouse = install(t);
  await gatehouse.run("user add carol --password-stdin", `${PASSWORD}\r\n`);
  await gatehouse.run("user password alice --password-stdin", "another password");
  const { users } = gatehouse.snapshot;
  const costs = { memory: 64, time: 1, parallelism: 1 };
  const opens = (name: string, password: string) =>
    verifyPassword(password, users.get(name)?.passwordHash, [costs]);
  t.ok(await opens("carol", PASSWORD));
  t.ok(await opens("alice", "another password"));
  t.notOk(await opens("alice", PASSWORD));
});

t.test("user add --admin makes an administrator", async (t) => {
  const gatehouse = install(t);
  const result = await gatehouse.run("user add carol --admin --password-stdin", PASSWORD);
  t.strictSame(result, done("Added carol, an administrator."));
  t.equal(grantOn(gatehouse.snapshot, "carol", "*")?.role, "Owner");
});

t.test("user add --admin makes the access file where there is none", async (t) => {
  const gatehouse = installNothing(t);
  const first = await gatehouse.run("user add carol --admin --password-stdin", PASSWORD);
  t.strictSame(first, done("Added carol, an administrator."));
  t.equal(statSync(gatehouse.accessFile).mode & 0o777, 0o600);
  t.strictSame([...gatehouse.snapshot.users.keys()], ["carol"]);
  t.match(gatehouse.text, /^# Who may do what\./);
  const second = await gatehouse.run("user add dave --admin --password-stdin", PASSWORD);
  t.strictSame(second, done("Added dave, an administrator."));
  t.strictSame([...gatehouse.snapshot.users.keys()], ["carol", "dave"]);
});

t.test("user add without --admin makes no access file", async (t) => {
  const gatehouse = installNothing(t);
  const result = await gatehouse.run("user add carol --password-stdin", PASSWORD);
  t.match(result, {
    code: 1,
    stdout: "",
    stderr: /^gatehouse: .*access_control\.toml: is missing: /,
  });
  t.notOk(readdirSync(gatehouse.home).includes("access_control.toml"));
});

t.test("user add --no-password is for machines and external users", async (t) => {
  const gatehouse = install(t);
  const start = Math.floor(Date.now() / 1000);
  t.equal((await gatehouse.run("user add backup --no-password")).code, 0);
  t.equal((await gatehouse.run("user add github:carol --no-password")).code, 0);
  for (const name of ["backup", "github:carol"]) {
    const added = gatehouse.snapshot.users.get(name);
    t.equal(added?.passwordHash, undefined);
    t.ok((added?.tokensValidAfter ?? 0) >= start, "a token of an earlier one is refused");
  }
});

t.test("user password sets a password and changes nothing else", async (t) => {
  const gatehouse = install(t);
  const before = gatehouse.text;
  const old = gatehouse.snapshot.users.get("alice")?.passwordHash ?? "";
  const result = await gatehouse.run("user password alice --password-stdin", PASSWORD);
  t.strictSame(
    result,
    done("Set a new password for alice; every token of the old one has stopped working."),
  );
  const hash = gatehouse.snapshot.users.get("alice")?.passwordHash ?? "";
  t.not(hash, old);
  const [root = "", alice = "", ...rest] = before.split(
    /(?=\[\[users]]\nusername = "(?:alice|bob)")/,
  );
  t.equal(gatehouse.text, [root, alice.replace(old, hash), ...rest].join(""));
});

t.test("user list shows everybody, and no hash", async (t) => {
  const gatehouse = install(t);
  t.strictSame(
    await gatehouse.run("user list"),
    done(
      "USERNAME  EMAIL            STATE     LAST LOGIN  LAST USE  ATTRIBUTES  ACCESS",
      "root      -                active    -           -         -           *:Owner",
      "alice     -                active    -           -         -           main:ReadWrite *:ReadOnly",
      "bob       bob@example.com  disabled  -           -         -           main:ReadOnly",
    ),
  );
  const { code, stdout, stderr } = await gatehouse.run("user list --json");
  t.strictSame([code, stderr], [0, ""]);
  t.match(JSON.parse(stdout), [
    { username: "root", email: null, disabled: false, access: [{ database: "*", role: "Owner" }] },
    { username: "alice" },
    { username: "bob", email: "bob@example.com", disabled: true },
  ]);
  t.notMatch(stdout, /argon2|hash/);
});

t.test("a broken access file is not changed, and its line is named", async (t) => {
  const gatehouse = install(t);
  writeFileSync(gatehouse.accessFile, `${gatehouse.text}[[users]]\nusername = "hunter2!"\n`);
  const before = gatehouse.text;
  const line = before.split("\n").length - 1;
  const commands = [
    "user list",
    "user remove alice",
    "user add carol --no-password",
    "access list",
  ];
  for (const { code, stdout, stderr } of await gatehouse.runAll(commands)) {
    t.strictSame([code, stdout], [1, ""]);
    t.match(stderr, `access_control.toml:${line}: \`username\` must be 1 to 64`);
    t.notMatch(stderr, /hunter2/);
  }
  t.equal(gatehouse.text, before);
});

t.test("the hint after user add names a database that is there", async (t) => {
  const gatehouse = install(t);
  const configuration = path.join(gatehouse.home, "gateway.toml");
  const hinted = async (username: string, text: string) => {
    writeFileSync(configuration, text, { mode: 0o600 });
    const { stdout } = await gatehouse.run(`user add ${username} --no-password`);
    return new RegExp(`access grant ${username} (\\S+) ReadOnly`).exec(stdout)?.[1];
  };
  mkdirSync(path.join(gatehouse.home, "data"), { mode: 0o700 });
  writeFileSync(path.join(gatehouse.home, "data", "sales.sqlite"), "");
  t.equal(await hinted("u1", ""), "sales");
  t.equal(await hinted("u2", '[auth]\ndefault_database = "sales"\n'), "sales");

  const upstream = await new RecordingUpstream().listen(t);
  upstream.answer = (_request, response) => {
    response.end('{"status":"success","data":{"databases":["app","public"]}}');
  };
  const behind = `[upstream]\nurl = "${upstream.url}"\n`;
  t.equal(await hinted("u3", behind), "app", "as the database says");
  t.equal(upstream.take()[0]?.url, "/schema");
  const down = `[upstream]\nurl = "http://127.0.0.1:${await freePort()}"\n`;
  t.equal(await hinted("u4", down), "main", "as the access file says");
});

t.test(
  "user add and user set write attributes, and user set keeps those it does not name",
  async (t) => {
    const gatehouse = install(t);
    await gatehouse.run("user add okta:rita --no-password --attribute tenant=acme");
    const rita = () => gatehouse.snapshot.users.get("okta:rita")?.attributes;
    t.strictSame(rita(), new Map([["tenant", "acme"]]));
    const flags = ["--attribute", "regions=(eu, 'O''Hara')", "--attribute", "level=3"];
    t.strictSame(
      await gatehouse.run("user set okta:rita --email rita@example.com", "", ...flags),
      done(
        `okta:rita has rita@example.com and attributes { tenant = "acme", regions = ["eu", "O'Hara"], level = 3 }.`,
      ),
    );
    t.match(
      gatehouse.text,
      '\nattributes = { tenant = "acme", regions = ["eu", "O\'Hara"], level = 3 }\n',
    );
    const left = await gatehouse.run(
      "user set okta:rita --no-email --remove-attribute regions,level",
    );
    t.strictSame(left, done('okta:rita has no email and attributes { tenant = "acme" }.'));
    const notes = readFileSync(path.join(gatehouse.home, "audit_pending"), "utf8");
    t.strictSame(
      await gatehouse.run("user set okta:rita --no-email --attribute tenant=acme"),
      done(
        'okta:rita has no email and attributes { tenant = "acme" } already: nothing was changed.',
      ),
    );
    await gatehouse.run("user enable okta:rita");
    t.equal(readFileSync(path.join(gatehouse.home, "audit_pending"), "utf8"), notes);
    t.match((await gatehouse.run("user list")).stdout, / {2}\{ tenant = "acme" \} {2}/);
    await gatehouse.run("user set okta:rita --attribute big=99999999999999999999");
    t.match(
      (await gatehouse.run("user list --json")).stdout,
      /"attributes": \{\s+"tenant": "acme",\s+"big": 99999999999999999999\s+\}/,
    );
    await gatehouse.run("user set okta:rita --remove-attribute tenant,big");
    t.notOk(rita());
    t.notMatch(gatehouse.text, "attributes");
  },
);

t.test("a change of a file that others may read says that no gateway takes it", async (t) => {
  const gatehouse = install(t);
  chmodSync(gatehouse.accessFile, 0o644);
  const { code, stderr } = await gatehouse.run("user set alice --attribute tenant=acme");
  t.equal(code, 0);
  const problem = `others may read it; fix it with: chmod 600 ${gatehouse.accessFile}\n`;
  t.equal(stderr, `warning: no gateway takes this change yet: ${gatehouse.accessFile}: ${problem}`);
});

const nobody = /^gatehouse: User not found: nobody \(`\S+ user list` shows all\)\n$/;
const tooLong = `user add carol --email ${"e".repeat(255)} --no-password`;
const refused: [flags: string, input: string | undefined, code: number, stderr: RegExp][] = [
  ["user add alice --password-stdin", PASSWORD, 1, /^gatehouse: User already exists: alice\n$/],
  ["user add carol --password-stdin", "short\n", 1, /^gatehouse: Password must be at least 8 char/],
  ["user add carol --password-stdin", "", 1, /^gatehouse: Password must be at least 8 char/],
  [
    "user add carol --password-stdin",
    "é".repeat(513),
    1,
    /^gatehouse: Password must be at most 10/,
  ],
  ["user add a/b --password-stdin", PASSWORD, 1, /^gatehouse: Invalid username: 1 to 64 of/],
  [
    "user add github:x --password-stdin",
    PASSWORD,
    1,
    /: github:x signs in at its identity provider/,
  ],
  [tooLong, undefined, 1, /^gatehouse: Invalid email/],
  ["user add carol --no-password --password-stdin", PASSWORD, 2, /cannot be used with option/],
  [
    "user add carol",
    undefined,
    2,
    /no terminal to ask on: give the password with --password-stdin\n$/,
  ],
  ["user password alice", undefined, 2, /give the password with --password-stdin/],
  ["user password nobody --password-stdin", PASSWORD, 1, nobody],
  ["user password alice --password-stdin", "short", 1, /^gatehouse: Password must be at least/],
  ["user password bo --password-stdin", PASSWORD, 1, /not found: bo \(did you mean bob\?\)\n$/],
  ["user remove nobody", undefined, 1, nobody],
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
    ...["user set alice", "user set alice --attribute tenant"],
    ...["user set alice --attribute username=bob", `user set alice --email ${"x".repeat(255)}`],
    ...["user set nobody --attribute tenant=acme", "user set ute --attribute tenant=acme"],
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

const costs = { memory: 64, time: 1, parallelism: 1 };
const flags = "hash-password --password-stdin";

t.test("hash-password prints a hash of the configured costs, and nothing else", async (t) => {
  const gatehouse = installNothing(t);
  const { code, stdout, stderr } = await gatehouse.run(flags, `${PASSWORD}\n`);
  t.strictSame([code, stderr], [0, ""]);
  t.match(stdout, /^\$argon2id\$v=19\$m=64,t=1,p=1\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}\n$/);
  t.ok(await verifyPassword(PASSWORD, stdout.trim(), [costs]));
  t.notOk(await verifyPassword(`${PASSWORD}\n`, stdout.trim(), [costs]));
  const again = await gatehouse.run(flags, PASSWORD);
  t.not(again.stdout, stdout, "with a salt of its own each time");
});

t.test("what it prints can be pasted into the access file", async (t) => {
  const gatehouse = install(t);
  const { stdout } = await gatehouse.run(flags, PASSWORD);
  const record = `password_hash = "${stdout.trim()}"`;
  writeFileSync(gatehouse.accessFile, user("root", record) + grant("root", "*", "Owner"));
  t.equal((await gatehouse.run("config check")).code, 0);
});

t.test("a password that could not be set is not hashed either", async (t) => {
  const gatehouse = installNothing(t);
  const short = "Password must be at least 8 characters";
  t.strictSame(await gatehouse.run(flags, "1234567"), failed(1, short));
  t.strictSame(await gatehouse.run(flags, "\nlater lines do not count"), failed(1, short));
  const long = "Password must be at most 1024 bytes";
  t.strictSame(await gatehouse.run(flags, "é".repeat(513)), failed(1, long));
  const nobody = "there is no terminal to ask on: give the password with --password-stdin";
  t.strictSame(await gatehouse.run("hash-password", PASSWORD), failed(2, nobody));
});

const onTerminal = { skip: noTerminal };

t.test("a password is asked for twice and never shown", onTerminal, async (t) => {
  const gatehouse = install(t);
  const terminal = new Terminal(t, gatehouse.home, ["user", "password", "alice"]);
  await terminal.until(/Password for alice: \[/);
  terminal.type(`${PASSWORD}\r`);
  await terminal.until(/The same again: \[/);
  terminal.type(`${PASSWORD}\r`);
  t.equal(await terminal.ended(), 0);
  t.notOk(terminal.shown.includes(PASSWORD));
  const { passwordHash } = gatehouse.snapshot.users.get("alice") ?? {};
  t.ok(await verifyPassword(PASSWORD, passwordHash, [costs]));
});

t.test("two entries that differ are both asked for again", onTerminal, async (t) => {
  const terminal = new Terminal(t, installNothing(t).home, ["hash-password"]);
  await terminal.until(/Password: \[/);
  terminal.type("a slip of the pen\r");
  await terminal.until(/The same again: \[/);
  terminal.type(`${PASSWORD}\r`);
  await terminal.until(/The two are not the same\.\n/);
  await terminal.until(/Password: \[/);
  terminal.type(`${PASSWORD}\r`);
  await terminal.until(/The same again: \[/);
  terminal.type(`${PASSWORD}\r`);
  t.equal(await terminal.ended(), 0);
  const [hash = ""] = /\$argon2id\S+/.exec(terminal.shown) ?? [];
  t.ok(await verifyPassword(PASSWORD, hash, [costs]));
});

for (const [name, keys] of [
  ["Ctrl-C", CTRL_C],
  ["Ctrl-D", CTRL_D],
  ["Ctrl-D after some text", `abc${CTRL_D}`],
] as const) {
  t.test(`${name} at a prompt cancels in one line and with 130`, onTerminal, async (t) => {
    const gatehouse = install(t);
    const terminal = new Terminal(t, gatehouse.home, ["user", "add", "carol"]);
    await terminal.until(/Password for carol: \[/);
    terminal.type(keys);
    await terminal.until(/gatehouse: cancelled\n$/);
    t.equal(await terminal.ended(), 130);
    t.notMatch(terminal.shown, /Error|\bat .*:\d+/);
    t.equal(gatehouse.text, people);
  });
}

t.test("a name that is taken is refused before a password is asked for", onTerminal, async (t) => {
  const terminal = new Terminal(t, install(t).home, ["user", "add", "alice"]);
  await terminal.until(/^gatehouse: User already exists: alice\n$/);
  t.equal(await terminal.ended(), 1);
  t.notMatch(terminal.shown, /Password/);
});
