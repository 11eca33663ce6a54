import t from "tap";
import { verifyPassword } from "../../src/identity/password.ts";
import { install, installNothing, people } from "./kit.ts";
import { CTRL_C, CTRL_D, noTerminal, Terminal } from "./terminal.ts";

const PASSWORD = "correct horse battery";
const costs = { memory: 64, time: 1, parallelism: 1 };
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
