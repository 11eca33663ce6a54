/** Large access files: read and text in a thread, so that requests are served in the meantime. */

import { appendFile, readFile, truncate } from "node:fs/promises";
import t from "tap";
import { openAccessFile } from "../../src/core/access/access-file.ts";
import { planAddUser, planGrant } from "../../src/core/access/administration.ts";
import { readHolder } from "../../src/core/access/grant.ts";
import { checkRecords, parseAccess } from "../../src/core/access/parse.ts";
import { blankUser } from "../../src/core/access/snapshot.ts";
import { LONGEST_STALL_MS, longestStall, requireNoStall } from "../kit/stall.ts";
import { accessFile, grant, grantOn, hashWith, refusedBy, user } from "./kit.ts";
import { watched } from "./watched.ts";

const USERS = 5000;

const text = Array.from({ length: USERS }, (_, index) => {
  const name = `user${index}`;
  const own = user(name, `email = "${name}@example.com"\npassword_hash = "${hashWith()}"`);
  return own + grant(name, "main", "ReadOnly") + grant(name, `team${index % 100}`, "ReadWrite");
}).join("");

t.test("5,000 users with 10,000 entries reload without a stall", async (t) => {
  const file = accessFile(t, text);
  const access = await watched(t, file);
  await requireNoStall(t, async (attempt) => {
    const database = `logs${attempt}`;
    await appendFile(file, grant("user7", database, "Owner"));
    await access.until(() => grantOn(access.live.snapshot, "user7", database) !== undefined);
  });
  t.match(access.events[0], {
    kind: "loaded",
    diff: { grantsAdded: [{ holder: readHolder("user7"), database: "logs0" }] },
  });
});

t.test("a change of a large file is exact and does not stall", async (t) => {
  const file = accessFile(t, `# kept\n${text}`);
  const access = await watched(t, file);
  let expected = `# kept\n${text.trimEnd()}\n`;
  await requireNoStall(t, async (attempt) => {
    const given = {
      holder: readHolder("user9"),
      database: `logs${attempt}`,
      role: "ReadOnly",
    } as const;
    await access.live.change((current) => planGrant(current, "operator", given));
    expected += `\n${grant("user9", given.database, given.role).trimEnd()}\n`;
  });
  t.equal(grantOn(access.live.snapshot, "user9", "logs0")?.role, "ReadOnly");
  t.ok((await readFile(file, "utf8")) === `${expected}\n`, "exactly that");
});

t.test("concurrent changes of a large file are all written", async (t) => {
  const file = accessFile(t, text.slice(0, text.indexOf(user("user500").slice(0, 30))));
  const access = await watched(t, file);
  const names = ["new1", "new2", "new3"];
  const adding = (name: string) =>
    access.live.change((now) => planAddUser(now, "operator", blankUser(name), undefined));
  await Promise.all(names.map(adding));
  for (const name of names) t.ok(access.live.snapshot.users.has(name), name);
  t.equal(access.live.snapshot.users.size, 500 + names.length);
});

t.test("errors in a large file have line numbers", async (t) => {
  const lines = text.split("\n");
  const at = lines.indexOf('email = "user4000@example.com"');
  const broken = lines.with(at, "email = 1").join("\n");
  const reading = parseAccess(Buffer.from(broken), "access.toml");
  await t.rejects(reading, { name: "AccessFileError", problems: [{ line: at + 1 }] });
  const twice = parseAccess(Buffer.from(`${text}${user("user5")}`), "access.toml");
  const line = text.split("\n").length + 1;
  const reason = "this user already has a record";
  await t.rejects(twice, { name: "AccessFileError", problems: [{ line, reason }] });
});

t.test("a large file that cannot be edited says why", async (t) => {
  const inline = Array.from({ length: 2000 }, (_, at) => `{ username = "user${at}" },\n`).join("");
  const acl = '{ username = "user0", database = "*", role = "Owner" }';
  const file = accessFile(t, `users = [\n${inline}]\nacl = [${acl}] ${"#".repeat(1 << 16)}\n`);
  const access = await watched(t, file);
  const add = { holder: readHolder("user1"), database: "main", role: "ReadOnly" } as const;
  const changing = access.live.change((now) => planGrant(now, "operator", add));
  const { code, message } = await refusedBy(changing);
  t.equal(code, "access_file_invalid");
  t.match(message, /it is written as arrays/);
});

t.test("a file over 4 MiB warns once, and one over 16 MiB is refused", async (t) => {
  const comment = `# ${"x".repeat(1 << 20)}\n`;
  const file = accessFile(t, user("alice") + grant("alice", "main", "Owner"));
  const warnings: string[] = [];
  const warn = (reason: string) => warnings.push(reason);
  const live = await openAccessFile(file, { checkRead: true, warn });
  t.teardown(() => live.close());
  await appendFile(file, comment);
  await live.reload();
  t.strictSame(warnings, []);
  for (let count = 0; count < 2; count++) {
    await appendFile(file, comment.repeat(4));
    await live.reload();
    t.equal(warnings.length, 1);
    t.match(warnings[0], /larger than 4 MiB.*\[store\]/);
  }
  await truncate(file, 16 * 1024 * 1024 + 1);
  await t.rejects(openAccessFile(file, { checkRead: true }), {
    message: /access_control.toml: is larger than 16 MiB: .*gatehouse store import/,
  });
});

// Last, since collecting what it leaves behind stalls what follows.
t.test("reading a large file without a thread is seen as a stall", async (t) => {
  const stall = await longestStall(() => {
    checkRecords(Buffer.from(text), "access.toml");
  });
  t.ok(stall > LONGEST_STALL_MS, `the longest stall took ${stall} ms`);
});
