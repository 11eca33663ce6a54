import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { EventEmitter, once } from "node:events";
import { statSync, unlinkSync, writeFileSync } from "node:fs";
import {
  chmod,
  mkdir,
  readdir,
  readFile,
  rename,
  stat,
  symlink,
  unlink,
  utimes,
  writeFile,
} from "node:fs/promises";
import path, { join } from "node:path";
import { mock } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import type { Test } from "tap";
import t from "tap";
import { replaceFile } from "../../src/files/atomic.ts";
import {
  isReadOnlyIn,
  permissionProblem,
  readGuarded,
  shellQuoted,
  UnsafeFileError,
} from "../../src/files/guarded.ts";
import { withLock } from "../../src/files/lock.ts";
import { openWalDatabase } from "../../src/files/wal-database.ts";
import { watchFile } from "../../src/files/watch.ts";
import { temporaryDirectory } from "../config/support.ts";
import { eventually, PATIENCE_MS } from "../kit/eventually.ts";
import { nodeCommand } from "../kit/node.ts";

t.test("a new file is its owner's alone, whatever the umask", async (t) => {
  const file = path.join(temporaryDirectory(t), "file");
  const umask = process.umask(0);
  t.teardown(() => process.umask(umask));
  await replaceFile(file, "new");
  t.equal((await stat(file)).mode & 0o7777, 0o600);
  t.equal(await readFile(file, "utf8"), "new");
});

t.test("mode and owner are those of the file to be like", async (t) => {
  const file = path.join(temporaryDirectory(t), "file");
  await writeFile(file, "old");
  await chmod(file, 0o640);
  await replaceFile(file, "new", await stat(file));
  t.equal((await stat(file)).mode & 0o7777, 0o640);
});

t.test("a reader always meets a whole text", async (t) => {
  const file = path.join(temporaryDirectory(t), "file");
  const texts = ["a", "b"].map((letter) => letter.repeat(300_000));
  await replaceFile(file, texts[0] ?? "");
  let isWriting = true;
  const writing = (async () => {
    for (let turn = 0; turn < 50; turn += 1) await replaceFile(file, texts[turn % 2] ?? "");
    isWriting = false;
  })();
  let reads = 0;
  while (isWriting) {
    if (!texts.includes(await readFile(file, "utf8"))) t.fail("a torn text was read");
    reads += 1;
  }
  await writing;
  t.ok(reads > 1);
});

t.test(
  "where it cannot be done, the old content stays and nothing is left beside it",
  async (t) => {
    const directory = temporaryDirectory(t);
    const file = path.join(directory, "file");
    await mkdir(path.join(file, "inside"), { recursive: true });
    await t.rejects(replaceFile(file, "new"), { code: /EISDIR|ENOTEMPTY|EEXIST/ });
    t.strictSame(await readdir(directory), ["file"]);
  },
);

async function fileWith(t: Test, content: string | Buffer, mode = 0o600): Promise<string> {
  const file = path.join(temporaryDirectory(t), "file");
  await writeFile(file, content);
  await chmod(file, mode);
  return file;
}

async function reasonOf(file: string, checkRead = true): Promise<string | undefined> {
  try {
    await readGuarded(file, { checkRead });
  } catch (error) {
    if (error instanceof UnsafeFileError) return error.reason;
    throw error;
  }
  return undefined;
}

t.test("a private file is read to the last byte, also through a symlink", async (t) => {
  const text = "\uFEFFline\r\nJosé 🔑\n";
  const file = await fileWith(t, text);
  t.equal(await readGuarded(file, { checkRead: true }), text);
  await symlink("file", `${file}.link`);
  t.equal(await readGuarded(`${file}.link`, { checkRead: true }), text);
});

t.test("a file that others may write is refused with the command that mends it", async (t) => {
  for (const mode of [0o620, 0o602, 0o666]) {
    const file = await fileWith(t, "", mode);
    t.equal(
      await reasonOf(file, false),
      `its group or others may write it; fix it with: chmod 600 ${file}`,
    );
  }
});

t.test("a file that others may read is refused if that is to be checked", async (t) => {
  const file = await fileWith(t, "secret", 0o644);
  t.equal(await reasonOf(file), `others may read it; fix it with: chmod 600 ${file}`);
  t.equal(await reasonOf(file, false), undefined);
  t.equal(await reasonOf(await fileWith(t, "", 0o640)), undefined, "its group may");
});

t.test("what is no regular file is refused and not waited for", async (t) => {
  const directory = temporaryDirectory(t);
  await mkdir(path.join(directory, "directory"));
  execFileSync("mkfifo", [path.join(directory, "pipe")]);
  for (const name of ["directory", "pipe"]) {
    t.equal(await reasonOf(path.join(directory, name)), "is not a regular file");
  }
  t.equal(await reasonOf("/dev/null"), "is not a regular file");
});

t.test("a file that is no UTF-8 is refused", async (t) => {
  t.equal(
    await reasonOf(await fileWith(t, Buffer.from("\xff\xfe", "latin1"))),
    "is not valid UTF-8",
  );
});

t.test("a missing file is an error of the file system", async (t) => {
  const file = path.join(temporaryDirectory(t), "missing");
  await t.rejects(readGuarded(file, { checkRead: true }), { code: "ENOENT" });
});

const mounts = `\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 21 0:35 / /run/my\\040secret ro,relatime - tmpfs tmpfs rw
41 21 0:36 / /image rw - squashfs /dev/loop0 ro,errors=continue
42 21 0:37 / /image/data rw - ext4 /dev/sdb rw
43 21 0:38 / /twice rw - tmpfs tmpfs rw
44 43 0:39 / /twice ro - tmpfs tmpfs rw
`;

t.test("a read-only mount is told from the nearest mount above the file", (t) => {
  t.equal(isReadOnlyIn(mounts, "/etc/key"), false);
  t.equal(isReadOnlyIn(mounts, "/run/my secret/key"), true);
  t.equal(isReadOnlyIn(mounts, "/run/my secretive/key"), false);
  t.equal(isReadOnlyIn(mounts, "/image/key"), true, "the file system itself is read-only");
  t.equal(isReadOnlyIn(mounts, "/image/data/key"), false, "a writable mount lies on top");
  t.equal(isReadOnlyIn(mounts, "/twice/key"), true, "the later of two mounts is in force");
  t.equal(isReadOnlyIn("", "/etc/key"), false, "what is unknown is not read-only");
  t.end();
});

t.test("a file is private unless group or others write it or others read it", (t) => {
  const path = join(temporaryDirectory(t), "key");
  writeFileSync(path, "");
  const stats = statSync(path);
  const isPrivate = (mode: number) => {
    stats.mode = 0o100000 | mode;
    return permissionProblem(path, stats, true) === undefined;
  };
  for (const mode of [0o600, 0o400, 0o640, 0o700]) t.ok(isPrivate(mode), mode.toString(8));
  for (const mode of [0o620, 0o602, 0o604, 0o644, 0o666])
    t.notOk(isPrivate(mode), mode.toString(8));
  t.end();
});

t.test("a path in a command is one word of the shell", (t) => {
  t.equal(shellQuoted("/etc/gatehouse/key.pem"), "/etc/gatehouse/key.pem");
  t.equal(shellQuoted("a b"), "'a b'");
  t.equal(shellQuoted("it's; rm"), "'it'\\''s; rm'");
  t.end();
});

t.test("several may have it open, and see what the others write", (t) => {
  const file = path.join(t.testdir(), "state.sqlite");
  const [one, other] = [openWalDatabase(file, 100), openWalDatabase(file, 100)];
  one.exec("CREATE TABLE t (x); INSERT INTO t VALUES (1)");
  t.match(other.prepare("SELECT x FROM t").all(), [{ x: 1 }]);
  one.close();
  other.close();
  t.end();
});

t.test("one that cannot be used is named, with what to do", (t) => {
  const file = path.join(t.testdir(), "state.sqlite");
  writeFileSync(file, "this is no database, but long enough to be looked at as one".repeat(20));
  t.throws(() => openWalDatabase(file, 100), {
    message: `${file} cannot be opened (file is not a database): if its disk is full, or was when the gateway started, free space and restart the gateway`,
  });
  t.end();
});

/** Opens each file whose name it is told, and tells what came of it. */
const opener = `
  const { openWalDatabase } = await import(${JSON.stringify(import.meta.resolve("../../src/files/wal-database.ts"))});
  process.on("message", (file) => {
    try {
      openWalDatabase(file, 60_000).close();
      process.send("opened");
    } catch (error) {
      process.send(String(error.cause));
    }
  });
  process.send("ready");
`;

t.test("processes that open a new one at the same moment all have it", async (t) => {
  const processes = Array.from({ length: 3 }, () =>
    spawn(process.execPath, ["--input-type=module", "--eval", opener], {
      stdio: ["ignore", "inherit", "inherit", "ipc"],
    }),
  );
  t.teardown(() => processes.map((one) => one.kill()));
  const heard = async (one: ChildProcess): Promise<string> => (await once(one, "message"))[0];
  await Promise.all(processes.map(heard));
  const directory = t.testdir();
  const outcomes = new Set<string>();
  for (let round = 0; round < 200; round++) {
    const answers = processes.map(heard);
    for (const one of processes) one.send(path.join(directory, `${round}.sqlite`));
    for (const outcome of await Promise.all(answers)) outcomes.add(outcome);
  }
  t.strictSame([...outcomes], ["opened"]);
});

const lockModule = JSON.stringify(new URL("../../src/files/lock.ts", import.meta.url).href);

/** Another process that takes the lock, says so, and gives it back when its input ends. */
function startHolder(file: string) {
  const program = `
    import { once } from "node:events";
    import { withLock } from ${lockModule};
    await withLock(${JSON.stringify(file)}, async () => {
      process.stdout.write("held");
      await once(process.stdin.resume(), "end");
      process.stdout.write("freed");
    });`;
  return spawn(...nodeCommand(["--input-type=module-typescript", "--eval", program]), {
    stdio: ["pipe", "pipe", "inherit"],
    timeout: PATIENCE_MS,
  });
}

t.test("in one process one holds the lock at a time", async (t) => {
  const file = path.join(temporaryDirectory(t), "file");
  let holders = 0;
  let most = 0;
  const work = async () => {
    holders += 1;
    most = Math.max(most, holders);
    await new Promise(setImmediate);
    holders -= 1;
  };
  await Promise.all(Array.from({ length: 10 }, () => withLock(file, work)));
  t.equal(most, 1);
  t.equal(statSync(path.join(path.dirname(file), ".file.lock")).mode & 0o777, 0o600);
});

t.test("a lock is held against another process, also while others here wait for it", async (t) => {
  const file = path.join(temporaryDirectory(t), "file");
  const order: string[] = [];
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  const { promise: taken, resolve: take } = Promise.withResolvers<void>();
  const first = withLock(file, async () => {
    take();
    await released;
    order.push("first");
  });
  await taken;
  const second = withLock(file, async () => void order.push("second"));
  const holder = startHolder(file);
  t.teardown(() => holder.kill("SIGKILL"));
  const held = once(holder.stdout, "data").then(() => order.push("other"));
  // Long enough for the other process to start and to find the lock taken.
  await Promise.race([held, new Promise((resolve) => setTimeout(resolve, 1500))]);
  t.strictSame(order, [], "nobody gets it while it is held");
  release();
  await first;
  holder.stdin.end();
  await Promise.all([held, second]);
  t.equal(order[0], "first");
});

t.test("a holder that is killed leaves the lock free", async (t) => {
  const file = path.join(temporaryDirectory(t), "file");
  const holder = startHolder(file);
  await once(holder.stdout, "data");
  const exit = once(holder, "exit");
  holder.kill("SIGKILL");
  await exit;
  t.equal(await withLock(file, async () => "mine"), "mine");
});

t.test("work that fails gives the lock back", async (t) => {
  const file = path.join(temporaryDirectory(t), "file");
  const failing = withLock(file, async () => {
    throw new Error("failed");
  });
  await t.rejects(failing, { message: "failed" });
  t.equal(await withLock(file, async () => "mine"), "mine");
});

t.test("a lock that stays taken is given up on after ten seconds", async (t) => {
  const file = path.join(temporaryDirectory(t), "file");
  const holder = startHolder(file);
  t.teardown(() => holder.kill("SIGKILL"));
  await once(holder.stdout, "data");
  await t.rejects(
    withLock(file, async () => undefined),
    { name: "LockTimeoutError", message: `another process is writing ${file}` },
  );
});

t.test("a directory that is missing is an error of the file system", async (t) => {
  const file = path.join(temporaryDirectory(t), "missing", "file");
  await t.rejects(
    withLock(file, async () => undefined),
    { code: "ENOENT" },
  );
});

/** Longer than a poll and the time to settle, in milliseconds. */
const QUIET_MS = 800;

/** Puts a file in place at one stroke: written bit by bit, it could be told of twice. */
async function put(file: string, text: string): Promise<void> {
  await writeFile(`${file}.next`, text);
  await rename(`${file}.next`, file);
}

function watched(t: Test, file: string) {
  const emitter = new EventEmitter();
  let count = 0;
  const watch = watchFile(file, () => {
    count += 1;
    emitter.emit("settled");
  });
  t.teardown(() => watch.close());
  return {
    close: () => watch.close(),
    note: () => watch.note(),
    count: () => count,
    settled: () => once(emitter, "settled", { signal: AbortSignal.timeout(PATIENCE_MS) }),
  };
}

t.test("a change is told once, and none is not", async (t) => {
  const file = path.join(temporaryDirectory(t), "file");
  await writeFile(file, "1");
  const watch = watched(t, file);
  await delay(QUIET_MS);
  t.equal(watch.count(), 0);
  await Promise.all([watch.settled(), put(file, "22")]);
  await delay(QUIET_MS);
  t.equal(watch.count(), 1);
});

t.test("a file that is made, deleted and made again is told each time", async (t) => {
  const file = path.join(temporaryDirectory(t), "file");
  const watch = watched(t, file);
  await Promise.all([watch.settled(), put(file, "1")]);
  await Promise.all([watch.settled(), unlink(file)]);
  await Promise.all([watch.settled(), put(file, "1")]);
  t.equal(watch.count(), 3);
});

t.test("a file that is made, read by whoever made it and deleted at once is told of", async (t) => {
  const file = path.join(temporaryDirectory(t), "file");
  const watch = watched(t, file);
  const settled = watch.settled();
  writeFileSync(file, "1");
  watch.note();
  unlinkSync(file);
  await settled;
  t.equal(watch.count(), 1);
});

t.test("other files beside it are not told of", async (t) => {
  const directory = temporaryDirectory(t);
  const file = path.join(directory, "file");
  await writeFile(file, "1");
  const watch = watched(t, file);
  await writeFile(path.join(directory, "other"), "1");
  await mkdir(path.join(directory, "more"));
  await delay(QUIET_MS);
  t.equal(watch.count(), 0);
});

t.test("a directory that is swapped further up is told of", async (t) => {
  const directory = temporaryDirectory(t);
  for (const [name, text] of [
    ["one", "1"],
    ["two", "2"],
  ] as const) {
    await mkdir(path.join(directory, name));
    await writeFile(path.join(directory, name, "file"), text);
  }
  await symlink("one", path.join(directory, "current"));
  const watch = watched(t, path.join(directory, "current", "file"));
  await symlink("two", path.join(directory, "next"));
  await Promise.all([
    watch.settled(),
    rename(path.join(directory, "next"), path.join(directory, "current")),
  ]);
  t.equal(watch.count(), 1);
});

t.test("the swapped links of a ConfigMap are seen without the poll", async (t) => {
  mock.timers.enable({ apis: ["setInterval"] });
  t.teardown(() => mock.timers.reset());
  const directory = temporaryDirectory(t);
  for (const version of ["..1", "..2"]) {
    await mkdir(path.join(directory, version));
    await writeFile(path.join(directory, version, "file"), version);
  }
  await symlink("..1", path.join(directory, "..data"));
  await symlink(path.join("..data", "file"), path.join(directory, "file"));
  const watch = watched(t, path.join(directory, "file"));
  let version = "..1";
  await eventually("a swap is told, once the directory is watched", async () => {
    version = version === "..1" ? "..2" : "..1";
    await symlink(version, path.join(directory, "..next"));
    await rename(path.join(directory, "..next"), path.join(directory, "..data"));
    return watch.count() > 0;
  });
  t.pass();
});

t.test("a directory that is not there yet is no hindrance", async (t) => {
  const directory = path.join(temporaryDirectory(t), "later");
  const watch = watched(t, path.join(directory, "file"));
  await mkdir(directory);
  await Promise.all([watch.settled(), put(path.join(directory, "file"), "1")]);
  t.equal(watch.count(), 1);
});

t.test("a change of the time alone is told, since the content may differ", async (t) => {
  const file = path.join(temporaryDirectory(t), "file");
  await writeFile(file, "1");
  const watch = watched(t, file);
  await Promise.all([watch.settled(), utimes(file, 1, 1)]);
  t.equal(watch.count(), 1);
});

t.test("after it is closed nothing is told, not even what was about to settle", async (t) => {
  const file = path.join(temporaryDirectory(t), "file");
  await writeFile(file, "1");
  const watch = watched(t, file);
  await writeFile(file, "2");
  await delay(50);
  await watch.close();
  // On a busy machine it may have settled before the close.
  const told = watch.count();
  await writeFile(file, "33");
  await delay(QUIET_MS);
  t.equal(watch.count(), told);
});
