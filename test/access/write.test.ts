import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import {
  chmod,
  chown,
  lstat,
  mkdir,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  stat,
  symlink,
  truncate,
  utimes,
  writeFile,
} from "node:fs/promises";
import path from "node:path";
import t from "tap";
import type { Plan } from "../../src/core/access/access-rules.ts";
import {
  type Actor,
  planAddUser,
  planGrant,
  planRemoveUser,
} from "../../src/core/access/administration.ts";
import { readHolder } from "../../src/core/access/grant.ts";
import { parseAccessFile } from "../../src/core/access/parse.ts";
import { blankUser } from "../../src/core/access/snapshot.ts";
import { changeAccessFile } from "../../src/core/access/write.ts";
import { takeLock } from "../../src/core/base/files/lock.ts";
import { Refusal } from "../../src/core/base/refusal.ts";
import { putInPlace } from "../kit/gateway.ts";
import { accessFile, grant, grantOn, hashWith, refusedBy, testsOn, user } from "./kit.ts";

const text = `# kept\n${user("root")}${user("alice")}${grant("root", "*", "Owner")}`;

const alice = readHolder("alice");
const onFile = testsOn(text);

function giving(role: "Owner" | "ReadOnly"): Plan {
  return (current) => planGrant(current, "operator", { holder: alice, database: "main", role });
}

onFile("a change is on disk when it resolves to the new state", async (t, file) => {
  const { snapshot } = await changeAccessFile(file, giving("ReadOnly"));
  const written = await readFile(file, "utf8");
  t.match(written, /^# kept\n/);
  t.strictSame(snapshot, parseAccessFile(written, file));
  t.equal(grantOn(snapshot, "alice", "main")?.role, "ReadOnly");
});

onFile("a plan without changes writes nothing", async (t, file) => {
  await utimes(file, 1, 1);
  await changeAccessFile(file, () => []);
  t.equal((await stat(file)).mtimeMs, 1000);
});

onFile("a damaged lock file refuses the change, and is named", async (t, file) => {
  const lock = path.join(path.dirname(file), `.${path.basename(file)}.lock`);
  await writeFile(lock, "this is not an empty database\n".repeat(50));
  const refused = await refusedBy(changeAccessFile(file, giving("ReadOnly")));
  t.match(refused, { code: "access_file_read_only", detail: `the lock file ${lock}` });
  await rm(lock);
  await changeAccessFile(file, giving("ReadOnly"));
});

onFile("a refused plan writes nothing and releases the lock", async (t, file) => {
  const refuse: Plan = () => {
    throw new Refusal("role_insufficient");
  };
  t.equal((await refusedBy(changeAccessFile(file, refuse))).code, "role_insufficient");
  t.equal(await readFile(file, "utf8"), text);
  await changeAccessFile(file, giving("ReadOnly"));
});

onFile("a plan judges the current file under the lock", async (t, file) => {
  const seen: (string | undefined)[] = [];
  const look: Plan = (current) => {
    seen.push(grantOn(current, "alice", "main")?.role);
    return [];
  };
  await Promise.all([
    changeAccessFile(file, giving("Owner")),
    changeAccessFile(file, look),
    writeFile(path.join(path.dirname(file), "other"), ""),
  ]);
  await changeAccessFile(file, look);
  t.equal(seen.at(-1), "Owner");
});

onFile("mode and owner are kept", async (t, file) => {
  await chmod(file, 0o640);
  const isRoot = process.getuid?.() === 0;
  if (isRoot) await chown(file, 1234, 2345);
  const before = await stat(file);
  await changeAccessFile(file, giving("ReadOnly"));
  const after = await stat(file);
  t.equal(after.mode & 0o7777, 0o640);
  t.strictSame([after.uid, after.gid], [before.uid, before.gid]);
  t.not(after.ino, before.ino, "it is another file in the place of the old one");
});

onFile("a symlink is followed to the real file and stays a symlink", async (t, file) => {
  const real = path.join(path.dirname(file), "real", "users.toml");
  await mkdir(path.dirname(real));
  await rename(file, real);
  await symlink("real/users.toml", file);
  await changeAccessFile(file, giving("ReadOnly"));
  t.ok((await lstat(file)).isSymbolicLink());
  t.equal(await readlink(file), "real/users.toml");
  t.match(await readFile(real, "utf8"), /role = "ReadOnly"/);
  const beside = await readdir(path.dirname(file));
  t.strictSame(beside.sort(), ["access_control.toml", "real"], "nothing is left beside the link");
});

t.test("a change goes to the file to which the link leads when it is written", async (t) => {
  const [earlier, later] = [accessFile(t, text), accessFile(t, text)];
  const link = path.join(path.dirname(earlier), "link");
  await symlink(earlier, link);
  const release = await takeLock(earlier);
  const changing = changeAccessFile(link, giving("ReadOnly"));
  await symlink(later, `${link}.new`);
  await rename(`${link}.new`, link);
  release();
  const { snapshot } = await changing;
  t.strictSame(snapshot, parseAccessFile(await readFile(link, "utf8"), link));
  t.equal(await readFile(earlier, "utf8"), text);
});

t.test("a save by an editor while the change is on its way to the disk is kept", async (t) => {
  const file = accessFile(t, text);
  let saves = 0;
  const beforeWrite = async () => {
    if (++saves === 1) await putInPlace(file, `${text}# saved by hand\n`);
  };
  const { snapshot } = await changeAccessFile(file, giving("ReadOnly"), { beforeWrite });
  const written = await readFile(file, "utf8");
  t.match(written, "# saved by hand");
  t.strictSame(snapshot, parseAccessFile(written, file));
  t.equal(grantOn(snapshot, "alice", "main")?.role, "ReadOnly");
  const always = () => putInPlace(file, `${text}# ${++saves}\n`);
  await t.rejects(changeAccessFile(file, giving("Owner"), { beforeWrite: always }), {
    code: "busy",
  });
  t.equal(await readFile(file, "utf8"), `${text}# ${saves}\n`, "no save is lost");
});

onFile("a leftover temporary file is replaced", async (t, file) => {
  const temporary = path.join(path.dirname(file), ".access_control.toml.new");
  await writeFile(temporary, "half");
  await changeAccessFile(file, giving("ReadOnly"));
  t.notOk(existsSync(temporary));
});

t.test("the last Owner and administrator stay unless forced", async (t) => {
  const owned = text + grant("alice", "main", "Owner");
  const file = accessFile(t, owned);
  const remove: Plan = () => [{ kind: "remove-user", username: "alice" }];
  t.equal((await refusedBy(changeAccessFile(file, remove))).code, "last_owner");
  const disable: Plan = () => [
    { kind: "update-user", username: "root", update: { disabled: true } },
  ];
  const refused = await refusedBy(changeAccessFile(file, disable));
  t.strictSame([refused.code, refused.status], ["last_administrator", 409]);
  t.equal(await readFile(file, "utf8"), owned);
  await changeAccessFile(file, remove, { force: true });
  const { snapshot: forced } = await changeAccessFile(file, disable, { force: true });
  t.strictSame([...forced.users.keys()], ["root"]);
  t.equal(forced.users.get("root")?.disabled, true);
});

t.test("the only user is never removed", async (t) => {
  const alone = user("root") + grant("root", "*", "Owner");
  const file = accessFile(t, alone);
  const remove: Plan = () => [{ kind: "remove-user", username: "root" }];
  t.equal((await refusedBy(changeAccessFile(file, remove))).code, "last_administrator");
  const forced = await refusedBy(changeAccessFile(file, remove, { force: true }));
  t.equal(forced.code, "access_file_invalid", "a file without users cannot be written");
  t.match(forced.message, "no user and no grant");
  t.equal(await readFile(file, "utf8"), alone);
});

t.test("an invalid file is not written, and the refusal quotes nothing of it", async (t) => {
  const broken = `${text}[[users]]\nusername = "hunter2"\npassword_hash = "hunter2"\n`;
  const file = accessFile(t, broken);
  const refused = await refusedBy(changeAccessFile(file, giving("ReadOnly")));
  t.strictSame([refused.code, refused.status], ["access_file_invalid", 409]);
  t.match(refused.detail, /:\d+: `password_hash` is not an Argon2id hash/);
  t.notMatch(`${refused.message} ${refused.detail}`, /hunter2/);
  t.equal(await readFile(file, "utf8"), broken);
});

onFile("a file that is not UTF-8 is not written", async (t, file) => {
  const bytes = Buffer.concat([Buffer.from("# Jos\xe9\n", "latin1"), Buffer.from(text)]);
  await writeFile(file, bytes);
  const refused = await refusedBy(changeAccessFile(file, giving("ReadOnly")));
  t.equal(refused.code, "access_file_invalid");
  t.match(refused.detail, /is not valid UTF-8/);
  t.strictSame(await readFile(file), bytes);
});

t.test("a byte-order mark is kept", async (t) => {
  const file = accessFile(t, `\uFEFF${text}`);
  await changeAccessFile(file, giving("ReadOnly"));
  t.equal((await readFile(file, "utf8")).slice(0, 7), "\uFEFF# kept");
});

onFile("a missing file is not created", async (t, file) => {
  await rm(file);
  const refused = await refusedBy(changeAccessFile(file, giving("ReadOnly")));
  t.equal(refused.code, "access_file_invalid");
  t.match(refused.message, /does not exist/);
  t.strictSame(await readdir(path.dirname(file)), []);
});

onFile("a file that group or others may write is not edited", async (t, file) => {
  await chmod(file, 0o660);
  const refused = await refusedBy(changeAccessFile(file, giving("ReadOnly")));
  t.equal(refused.code, "access_file_invalid");
  t.match(refused.detail, /group or others may write it; fix it with: chmod 600/);
});

onFile("a new hash replaces the old one and nothing else", async (t, file) => {
  const passwordHash = hashWith("m=128,t=2,p=1");
  await changeAccessFile(file, () => [
    { kind: "update-user", username: "alice", update: { passwordHash } },
  ]);
  const at = text.lastIndexOf(hashWith());
  const expected = text.slice(0, at) + passwordHash + text.slice(at + hashWith().length);
  t.equal(await readFile(file, "utf8"), expected);
});

const misplaced: [what: string, put: (file: string) => void | Promise<void>, message: RegExp][] = [
  ["a link to itself", (file) => symlink(file, file), /cannot be read \(ELOOP\)/],
  ["a pipe", (file) => void execFileSync("mkfifo", ["-m", "600", file]), /not a regular file/],
  ["a directory", (file) => mkdir(file), /not a regular file/],
  [
    "a file that is too large",
    async (file) => {
      await writeFile(file, text, { mode: 0o600 });
      await truncate(file, 16 * 1024 * 1024 + 1);
    },
    /is larger than 16 MiB: import it into a store with `.*gatehouse store import`/,
  ],
];
t.test("links, pipes, directories and large files are refused", async (t) => {
  for (const [what, put, message] of misplaced) {
    const file = accessFile(t, text);
    await rm(file);
    await put(file);
    const refusal = await refusedBy(changeAccessFile(file, giving("ReadOnly")));
    t.equal(refusal.code, "access_file_invalid", what);
    t.match(`${refusal.message} ${refusal.detail}`, message);
  }
});

t.test("a change that would make the file too large is refused", async (t) => {
  const full = `${text}#${"x".repeat(16 * 1024 * 1024 - Buffer.byteLength(text) - 60)}\n`;
  const file = accessFile(t, full);
  const refusal = await refusedBy(changeAccessFile(file, giving("ReadOnly")));
  t.equal(refusal.code, "access_file_invalid");
  t.match(refusal.message, "it would be larger than 16 MiB");
  t.equal((await stat(file)).size, Buffer.byteLength(full));
});

function adding(username: string, actor: Actor = "operator", database = "main"): Plan {
  return (current) =>
    planAddUser(current, actor, blankUser(username), { database, role: "ReadOnly" });
}

onFile("writers of one process are served in order", async (t, file) => {
  const names = Array.from({ length: 20 }, (_, n) => `new${n}`);
  await Promise.all(names.map((name) => changeAccessFile(file, adding(name))));
  const snapshot = parseAccessFile(await readFile(file, "utf8"), file);
  t.strictSame([...snapshot.users.keys()], ["root", "alice", ...names]);
  for (const name of names) t.equal(grantOn(snapshot, name, "main")?.role, "ReadOnly");
});

t.test("each change is judged after those before it", async (t) => {
  const file = accessFile(t, `${text}${user("dora")}${grant("dora", "main", "DbAdmin")}`);
  const dora = { username: "dora", tokenDatabase: "*" };
  const demoting: Plan = (current) =>
    planGrant(current, "operator", {
      holder: readHolder("dora"),
      database: "main",
      role: "ReadOnly",
    });
  const results = await Promise.allSettled([
    changeAccessFile(file, adding("one", dora)),
    changeAccessFile(file, adding("one")),
    changeAccessFile(file, adding("two")),
    changeAccessFile(file, (current) => planRemoveUser(current, "operator", "alice")),
    changeAccessFile(file, adding("alice")),
    changeAccessFile(file, demoting),
    changeAccessFile(file, adding("three", dora)),
    changeAccessFile(file, (current) => planRemoveUser(current, "operator", "root")),
    changeAccessFile(file, adding("four")),
    changeAccessFile(file, adding("five", "operator", "MAIN")),
    changeAccessFile(file, (current) => planRemoveUser(current, "operator", "root"), {
      force: true,
    }),
  ]);
  t.strictSame(
    results.map((result) => (result.status === "rejected" ? result.reason.code : "written")),
    [
      "written",
      "user_exists",
      "written",
      "written",
      "written",
      "written",
      "role_insufficient",
      "last_administrator",
      "written",
      "database_case_conflict",
      "written",
    ],
  );
  const { users } = parseAccessFile(await readFile(file, "utf8"), file);
  t.strictSame([...users.keys()].sort(), ["alice", "dora", "four", "one", "two"]);
});

onFile("a change whose revocation fails is skipped", async (t, file) => {
  const beforeWrite = () => Promise.reject(new Refusal("revocation_failed"));
  const results = await Promise.allSettled([
    changeAccessFile(file, adding("one")),
    changeAccessFile(file, adding("two"), { beforeWrite }),
    changeAccessFile(file, adding("three")),
  ]);
  t.strictSame(
    results.map((result) => (result.status === "rejected" ? result.reason.code : "written")),
    ["written", "revocation_failed", "written"],
  );
  const { users } = parseAccessFile(await readFile(file, "utf8"), file);
  t.strictSame([...users.keys()], ["root", "alice", "one", "three"]);
});
