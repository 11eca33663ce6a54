import { writeFileSync } from "node:fs";
import t from "tap";
import { verifyPassword } from "../../src/identity/password.ts";
import { grant, user } from "../access/kit.ts";
import { failed, install, installNothing } from "./kit.ts";

const PASSWORD = "correct horse battery";
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
