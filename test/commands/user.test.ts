import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import t from "tap";
import { readHolder } from "../../src/core/access/grant.ts";
import { verifyPassword } from "../../src/core/identity/password.ts";
import { grant, grantOn, groupGrant, user } from "../access/kit.ts";
import { freePort } from "../kit/free-port.ts";
import { runCommand } from "../kit/process.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import {
  checkRefusals,
  done,
  install,
  installed,
  installNothing,
  people,
  program,
  type Refused,
} from "./kit.ts";
import { CTRL_C, CTRL_D, noTerminal, Terminal } from "./terminal.ts";

const PASSWORD = "correct horse battery";

installed("user add writes the user with a hash of the configured cost", async (t, gatehouse) => {
  const before = gatehouse.text;
  const flags = "user add carol --email carol@example.com --password-stdin";
  const result = await gatehouse.run(flags, `${PASSWORD}\nignored\n`);
  t.strictSame(
    result,
    done("Added carol.", `Next, grant a role:  ${program} access grant carol main ReadOnly`),
  );
  const carol = gatehouse.snapshot.users.get("carol");
  t.match(carol?.passwordHash, /^\$argon2id\$v=19\$m=64,t=1,p=1\$/);
  t.match(carol, { email: "carol@example.com", disabled: false, tokensValidAfter: 0 });
  t.notOk(gatehouse.snapshot.grants.has(readHolder("carol")), "and no grant");
  const [kept = "", rest = ""] = before.split(/(?=\[\[acl]])/, 2);
  t.ok(gatehouse.text.startsWith(kept) && gatehouse.text.includes(rest), "the rest is as it was");
  t.notMatch(gatehouse.text, new RegExp(PASSWORD));
});

installed("a new password works, without the line break", async (t, gatehouse) => {
  await gatehouse.run("user add carol --password-stdin", `${PASSWORD}\r\n`);
  await gatehouse.run("user password alice --password-stdin", "another password");
  const { users } = gatehouse.snapshot;
  const costs = { memory: 64, time: 1, parallelism: 1 };
  const opens = (name: string, password: string) =>
    verifyPassword(password, users.get(name)?.passwordHash, [costs]);
  t.ok(await opens("carol", PASSWORD));
  t.ok(await opens("alice", "another password"));
  t.notOk(await opens("alice", PASSWORD));
  await gatehouse.run("user password alice --password-stdin", `\ufeff${PASSWORD}\n`);
  const again = gatehouse.snapshot.users.get("alice")?.passwordHash;
  t.ok(await verifyPassword(PASSWORD, again, [costs]), "without a byte-order mark");
  const bytes = Buffer.from(`${PASSWORD} \u00e4\n`, "latin1");
  for (const flags of [["user", "password", "alice"], ["hash-password"]]) {
    const all = [...flags, "--password-stdin"];
    const result = await runCommand(gatehouse.home, all, { input: bytes });
    const stderr = "gatehouse: standard input: is not valid UTF-8\n";
    t.match(result, { code: 1, stdout: "", stderr });
  }
  t.equal(gatehouse.snapshot.users.get("alice")?.passwordHash, again);
});

installed("user add --admin adds an administrator", async (t, gatehouse) => {
  const result = await gatehouse.run("user add carol --admin --password-stdin", PASSWORD);
  t.strictSame(result, done("Added carol, an administrator."));
  t.equal(grantOn(gatehouse.snapshot, "carol", "*")?.role, "Owner");
});

t.test("user add --admin creates a missing access file", async (t) => {
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

t.test("user add without --admin does not create an access file", async (t) => {
  const gatehouse = installNothing(t);
  const result = await gatehouse.run("user add carol --password-stdin", PASSWORD);
  t.match(result, {
    code: 1,
    stdout: "",
    stderr: /^gatehouse: .*access_control\.toml: does not exist; /,
  });
  t.notOk(readdirSync(gatehouse.home).includes("access_control.toml"));
});

installed("user add --no-password adds machines and external users", async (t, gatehouse) => {
  const start = Math.floor(Date.now() / 1000);
  t.equal((await gatehouse.run("user add backup --no-password")).code, 0);
  t.equal((await gatehouse.run("user add github:carol --no-password")).code, 0);
  for (const name of ["backup", "github:carol"]) {
    const added = gatehouse.snapshot.users.get(name);
    t.equal(added?.passwordHash, undefined);
    t.ok((added?.tokensValidAfter ?? 0) >= start - 1, "earlier tokens of the name are refused");
  }
});

t.test("user password and user disable revoke tokens and change nothing else", async (t) => {
  const gatehouse = install(t);
  const before = gatehouse.text;
  const old = gatehouse.snapshot.users.get("alice")?.passwordHash ?? "";
  const result = await gatehouse.run("user password alice --password-stdin", PASSWORD);
  t.strictSame(result, done("Changed the password of alice. All earlier tokens are revoked."));
  const hash = gatehouse.snapshot.users.get("alice")?.passwordHash ?? "";
  t.not(hash, old);
  const revocations = readFileSync(path.join(gatehouse.home, "revocations"), "utf8");
  t.match(revocations, '"user":"alice"', "earlier tokens are revoked");
  t.equal((await gatehouse.run("user disable bob")).code, 0);
  const more = readFileSync(path.join(gatehouse.home, "revocations"), "utf8");
  t.match(more, '"user":"bob"', "also of a user who is already disabled");
  const [root = "", alice = "", ...rest] = before.split(
    /(?=\[\[users]]\nusername = "(?:alice|bob)")/,
  );
  t.equal(gatehouse.text, [root, alice.replace(old, hash), ...rest].join(""));
});

installed("user list shows all users without their hashes", async (t, gatehouse) => {
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

t.test("user list shows access by groups, also those that only tokens tell", async (t) => {
  const text = [
    people,
    '[[groups]]\nname = "analysts"\nmembers = ["carol"]\n\n',
    user("carol"),
    user("staff:ann", ""),
    user("corp:ann", ""),
    groupGrant("analysts", "logs", "ReadOnly"),
    groupGrant("staff:eng", "logs", "ReadOnly"),
    grant("corp:ann", "main", "ReadOnly", "expires = 2020-01-01T00:00:00Z"),
  ].join("");
  const gatehouse = install(t, text);
  const { stdout } = await gatehouse.run("user list");
  t.match(stdout, /^carol .* logs:ReadOnly \(group analysts\)$/m);
  t.match(stdout, /^staff:ann .* \(and by groups of the token\)$/m);
  t.match(stdout, /^corp:ann .* main:ReadOnly \(expired\)$/m);
  const users = JSON.parse((await gatehouse.run("user list --json")).stdout);
  t.match(users, [
    { username: "root" },
    { username: "alice" },
    { username: "bob" },
    { username: "carol", access: [{ group: "analysts", database: "logs" }] },
    { username: "staff:ann", access: [], token_groups: true },
    { username: "corp:ann", access: [], token_groups: undefined },
  ]);
});

t.test("a broken access file is left alone, and the error names the line", async (t) => {
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

installed("the hint after user add names an existing database", async (t, gatehouse) => {
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
  const preset = `${down}preset = "opensearch"\n[auth]\ndefault_database = "logs"\n`;
  t.equal(await hinted("u5", preset), "logs", "the only one");
});

t.test("user add and user set write attributes, and user set keeps all others", async (t) => {
  const gatehouse = install(t);
  await gatehouse.run("user add okta:rita --no-password --attribute tenant=acme");
  const rita = () => gatehouse.snapshot.users.get("okta:rita")?.attributes;
  t.strictSame(rita(), new Map([["tenant", "acme"]]));
  const flags = ["--attribute", "regions=(eu, 'O''Hara')", "--attribute", "level=3"];
  t.strictSame(
    await gatehouse.run("user set okta:rita --email rita@example.com", flags),
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
    done('okta:rita has no email and attributes { tenant = "acme" }. Nothing was changed.'),
  );
  t.equal((await gatehouse.run("user enable okta:rita")).code, 0);
  const revocations = path.join(gatehouse.home, "revocations");
  t.notOk(existsSync(revocations), "enabling an active user revokes nothing");
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
});

installed("user unlock clears failed logins and changes nothing else", async (t, gatehouse) => {
  const before = gatehouse.text;
  t.strictSame(
    await gatehouse.run("user unlock alice"),
    done("Cleared the failed logins of alice."),
  );
  t.equal(gatehouse.text, before);
  const notes = readFileSync(path.join(gatehouse.home, "audit_pending"), "utf8").trim().split("\n");
  t.match(
    notes.map((line) => JSON.parse(line)),
    [
      { unlocked: "alice" },
      { author: { kind: "cli" }, changes: [{ change: "failed logins cleared", user: "alice" }] },
    ],
  );
  t.match(await gatehouse.run("user unlock stranger"), {
    code: 1,
    stderr: /User not found: stranger/,
  });
});

installed("user enable promises a password only to users who have one", async (t, gatehouse) => {
  await gatehouse.run("user add machine --no-password");
  await gatehouse.run("user add staff:ann --no-password");
  const enabled = async (name: string) => {
    await gatehouse.run(`user disable ${name}`);
    return (await gatehouse.run(`user enable ${name}`)).stdout;
  };
  t.match(
    await enabled("alice"),
    "Enabled alice. The password works again; earlier tokens stay revoked.",
  );
  for (const name of ["machine", "staff:ann"]) {
    const expected = `Enabled ${name}. New tokens are accepted; earlier tokens stay revoked.`;
    t.match(await enabled(name), expected);
  }
});

t.test("user set records another name of the same person, and removes it", async (t) => {
  const gatehouse = install(t);
  t.strictSame(
    await gatehouse.run("user set alice --same-as staff:alice"),
    done("alice has no email and no attributes. It is the same person as staff:alice."),
  );
  t.match(gatehouse.text, /username = "alice"\n.*\nsame_as = "staff:alice"\n/);
  t.match((await gatehouse.run("user list")).stdout, /^alice \(same person as staff:alice\) /m);
  t.match(JSON.parse((await gatehouse.run("user list --json")).stdout), [
    {},
    { username: "alice", same_as: "staff:alice" },
  ]);
  const old = install(t, gatehouse.text).accessFile;
  await gatehouse.run("user set bob --same-as alice");
  await gatehouse.run("user set alice --no-same-as");
  const flags = [old, gatehouse.accessFile];
  t.strictSame(
    await gatehouse.run("access diff", flags),
    done("alice is no longer the same person as staff:alice\nbob is now the same person as alice"),
  );
  const { sameAsChanged } = JSON.parse((await gatehouse.run("access diff --json", flags)).stdout);
  t.strictSame(sameAsChanged, [
    { user: "alice", was: "staff:alice" },
    { user: "bob", same_as: "alice" },
  ]);
  await gatehouse.run("user remove alice");
  t.notMatch(gatehouse.text, "same_as");
});

t.test("a change of a file that others may read warns that gateways reject it", async (t) => {
  const gatehouse = install(t);
  chmodSync(gatehouse.accessFile, 0o644);
  const { code, stderr } = await gatehouse.run("user set alice --attribute tenant=acme");
  t.equal(code, 0);
  const problem = `others may read it; fix it with: chmod 600 ${gatehouse.accessFile}\n`;
  t.equal(
    stderr,
    `warning: gateways reject this file until it is fixed: ${gatehouse.accessFile}: ${problem}`,
  );
});

const nobody = /^gatehouse: User not found: nobody \(`\S+ user list` lists all users\)\n$/;
const tooLong = `user add carol --email ${"e".repeat(255)} --no-password`;
const tooShort = /^gatehouse: Password must be at least 8 char/;
const tooLongPassword = "é".repeat(513);
const noTerminalHint = /not a terminal: pass the password with --password-stdin\n$/;
const refused: Refused[] = [
  ["user add alice --password-stdin", 1, /^gatehouse: User already exists: alice\n$/, PASSWORD],
  ["user add carol --password-stdin", 1, tooShort, "short\n"],
  ["user add carol --password-stdin", 1, tooShort],
  ["user add carol --password-stdin", 1, /: Password must be at most 1024 bytes/, tooLongPassword],
  ["user add a/b --password-stdin", 1, /^gatehouse: Invalid username: 1 to 64 of/, PASSWORD],
  [
    "user add github:x --password-stdin",
    1,
    /: github:x signs in at an identity provider/,
    PASSWORD,
  ],
  [tooLong, 1, /^gatehouse: Invalid email/],
  ["user add carol --no-password --password-stdin", 2, /cannot be used with option/, PASSWORD],
  ["user add carol", 2, noTerminalHint],
  ["user password alice", 2, noTerminalHint],
  ["user password nobody --password-stdin", 1, nobody, PASSWORD],
  ["user password alice --password-stdin", 1, tooShort, "short"],
  ["user password bo --password-stdin", 1, /not found: bo \(did you mean bob\?\)\n$/, PASSWORD],
  ["user remove nobody", 1, nobody],
  ["user add", 2, /missing required argument 'username'/],
  ["user add carol extra --no-password", 2, /too many arguments/],
  ["hash-password --password-stdin", 1, tooShort, "1234567"],
  ["hash-password --password-stdin", 1, tooShort, "\nlater lines do not count"],
  ["hash-password --password-stdin", 1, /: Password must be at most 1024 bytes/, tooLongPassword],
  ["hash-password", 2, noTerminalHint, PASSWORD],
  ["user set alice", 2, /nothing to set; use --email, .*, --same-as or --no-same-as/],
  ["user set alice --same-as alice", 1, /: Invalid username: same_as must be another name of/],
  ["user set alice --same-as a!", 1, /^gatehouse: Invalid username/],
  ["user set alice --same-as ghost", 1, /^gatehouse: User not found: ghost/],
  ["user set alice --attribute tenant", 2, /such as tenant=acme, level=3 or 'regions=\(eu, us\)'/],
  ["user set alice --attribute username=bob", 2, /and is not username/],
  [`user set alice --email ${"x".repeat(255)}`, 1, /^gatehouse: Invalid email/],
  ["user set nobody --attribute tenant=acme", 1, nobody],
  ["user set ute --attribute tenant=acme", 1, /a separate table in the file; change it by hand/],
  ["user set alice --attribute a=1 --attribute a=2", 2, /This attribute is given twice/],
  ["user set alice --email a@b.c --no-email", 2, /'--email' cannot be used with option/],
  ["user set alice --no-same-as --same-as al", 2, /'--no-same-as' cannot be used with option/],
  ["user set alice --attribute a=1 --remove-attribute a", 2, /a cannot be both set and removed/],
  [
    "user set ute --email ute@example.com --remove-attribute tenant,a",
    1,
    /ute has no attribute tenant; it has: a/,
  ],
];

t.test("user commands refuse invalid input with a reason, and change nothing", async (t) => {
  const ute = '\n[[users]]\nusername = "ute"\n[users.attributes]\na = 1\n';
  await checkRefusals(t, install(t, people + ute), refused);
});

const costs = { memory: 64, time: 1, parallelism: 1 };
const flags = "hash-password --password-stdin";

t.test("hash-password prints a hash of the configured cost, and nothing else", async (t) => {
  const gatehouse = installNothing(t);
  const { code, stdout, stderr } = await gatehouse.run(flags, `${PASSWORD}\n`);
  t.strictSame([code, stderr], [0, ""]);
  t.match(stdout, /^\$argon2id\$v=19\$m=64,t=1,p=1\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}\n$/);
  t.ok(await verifyPassword(PASSWORD, stdout.trim(), [costs]));
  t.notOk(await verifyPassword(`${PASSWORD}\n`, stdout.trim(), [costs]));
  const again = await gatehouse.run(flags, PASSWORD);
  t.not(again.stdout, stdout, "with a salt of its own each time");
});

installed("a printed hash works in the access file", async (t, gatehouse) => {
  const { stdout } = await gatehouse.run(flags, PASSWORD);
  const record = `password_hash = "${stdout.trim()}"`;
  writeFileSync(gatehouse.accessFile, user("root", record) + grant("root", "*", "Owner"));
  t.equal((await gatehouse.run("config check")).code, 0);
});

const onTerminal = { skip: noTerminal };

t.test(
  "a prompt asks twice, again if the entries differ, and hides them",
  onTerminal,
  async (t) => {
    const gatehouse = install(t);
    const terminal = new Terminal(t, gatehouse.home, ["user", "password", "alice"]);
    for (const second of ["a slip of the pen", PASSWORD]) {
      await terminal.until(/Password for alice: \[/);
      terminal.type(`${PASSWORD}\r`);
      await terminal.until(/Repeat the password: \[/);
      terminal.type(`${second}\r`);
      if (second !== PASSWORD) await terminal.until(/The passwords differ; enter both again\.\n/);
    }
    t.equal(await terminal.ended(), 0);
    t.notOk(terminal.shown.includes(PASSWORD));
    const { passwordHash } = gatehouse.snapshot.users.get("alice") ?? {};
    t.ok(await verifyPassword(PASSWORD, passwordHash, [costs]));
  },
);

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

t.test("an existing username is refused before the password prompt", onTerminal, async (t) => {
  const terminal = new Terminal(t, install(t).home, ["user", "add", "alice"]);
  await terminal.until(/^gatehouse: User already exists: alice\n$/);
  t.equal(await terminal.ended(), 1);
  t.notMatch(terminal.shown, /Password/);
});
