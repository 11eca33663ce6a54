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
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { mock } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import type { Test } from "tap";
import t from "tap";
import {
  appendWhole,
  findMount,
  readGuarded,
  replaceFile,
  shellQuoted,
  UnsafeFileError,
} from "../../src/core/base/files/guarded.ts";
import { createOnce, takeLock, withLock } from "../../src/core/base/files/lock.ts";
import { openWalDatabase } from "../../src/core/base/files/wal-database.ts";
import { followFiles, watchFile } from "../../src/core/base/files/watch.ts";
import { eventually, PATIENCE_MS } from "../kit/eventually.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { lackDescriptors } from "../kit/no-descriptor.ts";
import { nodeCommand } from "../kit/node.ts";

/** The path of a file in a new directory. */
function fileIn(t: Test, ...names: string[]): string {
  return path.join(temporaryHome(t), ...names, "file");
}

function onFile(name: string, body: (t: Test, file: string) => Promise<unknown>): void {
  t.test(name, (t) => body(t, fileIn(t)));
}

onFile("a new file has mode 0600, whatever the umask", async (t, file) => {
  const umask = process.umask(0);
  t.teardown(() => process.umask(umask));
  await replaceFile(file, "new");
  t.equal((await stat(file)).mode & 0o7777, 0o600);
  t.equal(await readFile(file, "utf8"), "new");
});

t.test("a replaced file keeps the given mode and owner", async (t) => {
  const file = await fileWith(t, "old", 0o640);
  await replaceFile(file, "new", await stat(file));
  t.equal((await stat(file)).mode & 0o7777, 0o640);
});

onFile("a reader never sees a partially written file", async (t, file) => {
  const texts = ["a", "b"].map((letter) => letter.repeat(300_000));
  await replaceFile(file, texts[0] ?? "");
  let isWriting = true;
  const writing = (async () => {
    for (let turn = 0; turn < 50; turn += 1) await replaceFile(file, texts[turn % 2] ?? "");
    isWriting = false;
  })();
  let reads = 0;
  while (isWriting) {
    if (!texts.includes(await readFile(file, "utf8"))) t.fail("a partial text was read");
    reads += 1;
  }
  await writing;
  t.ok(reads > 1);
});

t.test("a failed replacement keeps the old content and leaves no other file", async (t) => {
  const directory = temporaryHome(t);
  const file = path.join(directory, "file");
  await mkdir(path.join(file, "inside"), { recursive: true });
  await t.rejects(replaceFile(file, "new"), { code: /EISDIR|ENOTEMPTY|EEXIST/ });
  t.strictSame(await readdir(directory), ["file"]);
});

t.test("no file is changed or made if its directory cannot be opened to sync it", async (t) => {
  const file = await fileWith(t, "old");
  t.teardown(lackDescriptors((opened) => opened === path.dirname(file)));
  await t.rejects(replaceFile(file, "new"), { code: "EMFILE" });
  await t.rejects(appendWhole(`${file}.log`, "new"), { code: "EMFILE" });
  t.equal(await readFile(file, "utf8"), "old");
  t.strictSame(await readdir(path.dirname(file)), ["file"]);
});

async function fileWith(t: Test, content: string | Buffer, mode = 0o600): Promise<string> {
  const file = fileIn(t);
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

t.test("a private file is read completely, also through a symlink", async (t) => {
  const text = "\uFEFFline\r\nJosé 🔑\n";
  const file = await fileWith(t, text);
  t.equal(await readGuarded(file, { checkRead: true }), text);
  await symlink("file", `${file}.link`);
  t.equal(await readGuarded(`${file}.link`, { checkRead: true }), text);
});

t.test("a file that others may write is refused with the command that fixes it", async (t) => {
  for (const mode of [0o620, 0o602, 0o666]) {
    const file = await fileWith(t, "", mode);
    t.equal(
      await reasonOf(file, false),
      `its group or others may write it; fix it with: chmod 600 ${file}`,
    );
  }
});

t.test("a file that others may read is refused if readers are checked", async (t) => {
  const file = await fileWith(t, "secret", 0o644);
  t.equal(await reasonOf(file), `others may read it; fix it with: chmod 600 ${file}`);
  t.equal(await reasonOf(file, false), undefined);
  for (const mode of [0o600, 0o400, 0o640, 0o700]) {
    t.equal(await reasonOf(await fileWith(t, "", mode)), undefined, mode.toString(8));
  }
  t.match(await reasonOf(await fileWith(t, "", 0o604)), "others may read it");
});

t.test("a directory, a pipe and a device are refused at once", async (t) => {
  const directory = temporaryHome(t);
  await mkdir(path.join(directory, "directory"));
  execFileSync("mkfifo", [path.join(directory, "pipe")]);
  for (const name of ["directory", "pipe"]) {
    t.equal(await reasonOf(path.join(directory, name)), "is not a regular file");
  }
  t.equal(await reasonOf("/dev/null"), "is not a regular file");
});

t.test("a file that is not UTF-8 is refused", async (t) => {
  t.equal(
    await reasonOf(await fileWith(t, Buffer.from("\xff\xfe", "latin1"))),
    "is not valid UTF-8",
  );
});

onFile("a missing file causes the error of the file system", async (t, file) => {
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

t.test("the nearest mount above a file decides whether it is read-only", (t) => {
  t.equal(findMount(mounts, "/etc/key").isReadOnly, false);
  t.equal(findMount(mounts, "/run/my secret/key").isReadOnly, true);
  t.equal(findMount(mounts, "/run/my secretive/key").isReadOnly, false);
  t.equal(findMount(mounts, "/image/key").isReadOnly, true, "the file system itself is read-only");
  t.equal(findMount(mounts, "/image/data/key").isReadOnly, false, "a writable mount is on top");
  t.equal(findMount(mounts, "/twice/key").isReadOnly, true, "the later of two mounts counts");
  t.equal(findMount("", "/etc/key").isReadOnly, false, "an unknown mount counts as writable");
  t.equal(findMount(mounts, "/image/data").point, "/image/data", "it is a mount point itself");
  t.end();
});

t.test("a quoted path is one word of the shell", (t) => {
  t.equal(shellQuoted("/etc/gatehouse/key.pem"), "/etc/gatehouse/key.pem");
  t.equal(shellQuoted("a b"), "'a b'");
  t.equal(shellQuoted("it's; rm"), "'it'\\''s; rm'");
  t.end();
});

t.test("several connections can open a WAL database and see each other's writes", (t) => {
  const file = path.join(t.testdir(), "state.sqlite");
  const [one, other] = [openWalDatabase(file, 100), openWalDatabase(file, 100)];
  one.exec("CREATE TABLE t (x); INSERT INTO t VALUES (1)");
  t.match(other.prepare("SELECT x FROM t").all(), [{ x: 1 }]);
  one.close();
  other.close();
  t.end();
});

t.test("the error for an unusable database names the file and says what to do", (t) => {
  const file = path.join(t.testdir(), "state.sqlite");
  writeFileSync(file, "this is no database, but long enough to be looked at as one".repeat(20));
  t.throws(() => openWalDatabase(file, 100), {
    message: `${file} cannot be opened (file is not a database): if its disk is full, or was when the gateway started, free space and restart the gateway`,
  });
  t.end();
});

/** Opens each file that it receives and sends the outcome. */
const opener = `
  const { openWalDatabase } = await import(${JSON.stringify(import.meta.resolve("../../src/core/base/files/wal-database.ts"))});
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

t.test("processes that open a new database at the same time all succeed", async (t) => {
  const processes = Array.from({ length: 3 }, () =>
    spawn(process.execPath, ["--input-type=module", "--eval", opener], {
      stdio: ["ignore", "inherit", "inherit", "ipc"],
    }),
  );
  t.teardown(() => processes.map((one) => one.kill()));
  const message = async (one: ChildProcess): Promise<string> => (await once(one, "message"))[0];
  await Promise.all(processes.map(message));
  const directory = t.testdir();
  const outcomes = new Set<string>();
  for (let round = 0; round < 200; round++) {
    const answers = processes.map(message);
    for (const one of processes) one.send(path.join(directory, `${round}.sqlite`));
    for (const outcome of await Promise.all(answers)) outcomes.add(outcome);
  }
  t.strictSame([...outcomes], ["opened"]);
});

const lockModule = JSON.stringify(
  new URL("../../src/core/base/files/lock.ts", import.meta.url).href,
);

/** Another process that takes the lock, and releases it when its input ends. */
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

onFile("within a process, only one caller holds the lock at a time", async (t, file) => {
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

onFile("callers in one process take turns, and do not try again and again", async (t, file) => {
  const { mock: exec } = mock.method(DatabaseSync.prototype, "exec");
  t.teardown(() => exec.restore());
  const held = Promise.withResolvers<void>();
  const first = withLock(file, () => held.promise);
  const order: number[] = [];
  const numbers = Array.from({ length: 1000 }, (_, number) => number);
  const others = numbers.map((number) => withLock(file, async () => void order.push(number)));
  t.equal(await withLock(`${file}.other`, async () => "other"), "other", "another file is free");
  await delay(100);
  held.resolve();
  await Promise.all([first, ...others]);
  t.strictSame(order, numbers);
  const tries = exec.calls.filter(({ arguments: [sql] }) => sql === "BEGIN EXCLUSIVE");
  t.equal(tries.length, numbers.length + 2);
});

onFile("a lock excludes other processes, also while callers in this one wait", async (t, file) => {
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
  // Enough time for the other process to start and to find the lock taken.
  await Promise.race([held, new Promise((resolve) => setTimeout(resolve, 1500))]);
  t.strictSame(order, [], "no one else gets the lock");
  release();
  await first;
  holder.stdin.end();
  await Promise.all([held, second]);
  t.equal(order[0], "first");
});

onFile("a killed holder leaves the lock free", async (t, file) => {
  const holder = startHolder(file);
  await once(holder.stdout, "data");
  const exit = once(holder, "exit");
  holder.kill("SIGKILL");
  await exit;
  t.equal(await withLock(file, async () => "mine"), "mine");
});

t.test("a killed creation leaves nothing behind once another one has succeeded", async (t) => {
  const file = fileIn(t);
  const program = `
    import fs from "node:fs/promises";
    import { syncBuiltinESMExports } from "node:module";
    fs.link = fs.rename = () => process.kill(process.pid, "SIGKILL");
    syncBuiltinESMExports();
    const { createOnce } = await import(${lockModule});
    await createOnce(${JSON.stringify(file)}, "killed");
  `;
  const [command, flags] = nodeCommand(["--input-type=module", "-e", program]);
  const [, signal] = await once(spawn(command, flags), "exit");
  t.equal(signal, "SIGKILL");
  await createOnce(file, "first");
  await createOnce(file, "second");
  t.equal(await readFile(file, "utf8"), "first");
  t.strictSame((await readdir(path.dirname(file))).sort(), [".file.lock", "file"]);
});

onFile("failed work releases the lock", async (t, file) => {
  const failing = withLock(file, async () => {
    throw new Error("failed");
  });
  await t.rejects(failing, { message: "failed" });
  t.equal(await withLock(file, async () => "mine"), "mine");
});

onFile("waiting for a lock ends after its timeout", async (t, file) => {
  const holder = startHolder(file);
  t.teardown(() => holder.kill("SIGKILL"));
  await once(holder.stdout, "data");
  await t.rejects(takeLock(file, 100), {
    name: "LockTimeoutError",
    message: `another process is writing ${file}`,
  });
});

t.test("callers whose wait has ended try once while another process keeps the lock", async (t) => {
  const file = fileIn(t);
  const holder = startHolder(file);
  t.teardown(() => holder.kill("SIGKILL"));
  await once(holder.stdout, "data");
  const { now } = performance;
  let later = 0;
  const clock = mock.method(performance, "now", () => now.call(performance) + later);
  const { mock: exec } = mock.method(DatabaseSync.prototype, "exec");
  t.teardown(() => {
    clock.mock.restore();
    exec.restore();
  });
  const callers = Array.from({ length: 50 }, () => withLock(file, async () => "held"));
  later = 11_000;
  const failed = await Promise.allSettled(callers);
  const names = failed.map((one) => (one.status === "rejected" ? one.reason.name : one.value));
  t.strictSame(new Set(names), new Set(["LockTimeoutError"]));
  // The first one in line still waits for half a second.
  t.ok(exec.callCount() < 150, `${exec.callCount()} tries`);
});

t.test("a missing directory causes the error of the file system", async (t) => {
  const file = fileIn(t, "missing");
  await t.rejects(
    withLock(file, async () => undefined),
    { code: "ENOENT" },
  );
});

/** Longer than a poll and the debounce time. */
const QUIET_MS = 800;

/** Replaces a file atomically, so that one change causes one notification. */
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

t.test("one change causes one notification", async (t) => {
  const file = await fileWith(t, "1");
  const watch = watched(t, file);
  await delay(QUIET_MS);
  t.equal(watch.count(), 0);
  await Promise.all([watch.settled(), put(file, "22")]);
  await delay(QUIET_MS);
  t.equal(watch.count(), 1);
});

onFile("creating, deleting and recreating a file each cause a notification", async (t, file) => {
  const watch = watched(t, file);
  await Promise.all([watch.settled(), put(file, "1")]);
  await Promise.all([watch.settled(), unlink(file)]);
  await Promise.all([watch.settled(), put(file, "1")]);
  t.equal(watch.count(), 3);
});

t.test("a file that is created, noted and deleted at once causes a notification", async (t) => {
  const file = fileIn(t);
  const watch = watched(t, file);
  const settled = watch.settled();
  writeFileSync(file, "1");
  watch.note();
  unlinkSync(file);
  await settled;
  t.equal(watch.count(), 1);
});

t.test("other files in the directory cause no notification", async (t) => {
  const directory = temporaryHome(t);
  const file = path.join(directory, "file");
  await writeFile(file, "1");
  const watch = watched(t, file);
  await writeFile(path.join(directory, "other"), "1");
  await mkdir(path.join(directory, "more"));
  await delay(QUIET_MS);
  t.equal(watch.count(), 0);
});

t.test("a swapped directory further up causes a notification", async (t) => {
  const directory = temporaryHome(t);
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

t.test("the swapped links of a ConfigMap cause a notification without the poll", async (t) => {
  mock.timers.enable({ apis: ["setInterval"] });
  t.teardown(() => mock.timers.reset());
  const directory = temporaryHome(t);
  for (const version of ["..1", "..2"]) {
    await mkdir(path.join(directory, version));
    await writeFile(path.join(directory, version, "file"), version);
  }
  await symlink("..1", path.join(directory, "..data"));
  await symlink(path.join("..data", "file"), path.join(directory, "file"));
  const watch = watched(t, path.join(directory, "file"));
  let version = "..1";
  await eventually("a swap is reported, once the directory is watched", async () => {
    version = version === "..1" ? "..2" : "..1";
    await symlink(version, path.join(directory, "..next"));
    await rename(path.join(directory, "..next"), path.join(directory, "..data"));
    return watch.count() > 0;
  });
  t.pass();
});

t.test("a file in a directory that does not exist yet can be watched", async (t) => {
  const directory = path.join(temporaryHome(t), "later");
  const watch = watched(t, path.join(directory, "file"));
  await mkdir(directory);
  await Promise.all([watch.settled(), put(path.join(directory, "file"), "1")]);
  t.equal(watch.count(), 1);
});

t.test("a change of only the time causes a notification", async (t) => {
  const file = await fileWith(t, "1");
  const watch = watched(t, file);
  await Promise.all([watch.settled(), utimes(file, 1, 1)]);
  t.equal(watch.count(), 1);
});

t.test("a file that is read while it keeps changing is read again once it rests", async (t) => {
  let reads = 0;
  let state = 0;
  // The last change may have left the same times and size as the one that was seen before the read.
  const look = () => String(reads === 0 ? ++state : state);
  const watch = watchFile(await fileWith(t, "1"), () => ++reads, look);
  t.teardown(() => watch.close());
  await eventually("it is read again", () => reads === 2);
  await delay(QUIET_MS);
  t.equal(reads, 2, "and no more while it rests");
});

t.test("after the watch is closed there are no notifications, not even pending ones", async (t) => {
  const file = await fileWith(t, "1");
  const watch = watched(t, file);
  await writeFile(file, "2");
  await delay(50);
  await watch.close();
  // On a busy machine the first change may have been reported before the close.
  const reported = watch.count();
  await writeFile(file, "33");
  await delay(QUIET_MS);
  t.equal(watch.count(), reported);
});

t.test("a read that failed for a moment is repeated, and each outage is news once", async (t) => {
  const error = Object.assign(new Error("too many open files"), { code: "EMFILE" });
  let reads = 0;
  let isFailing = true;
  let isHeld: Promise<unknown> = Promise.resolve();
  async function read(): Promise<void> {
    await isHeld;
    reads++;
    if (isFailing) throw error;
  }
  const failures: unknown[] = [];
  const files = [await fileWith(t, "1"), fileIn(t)];
  const followed = followFiles(files, read, (failure) => failures.push(failure));
  t.teardown(() => followed.close());
  let isRead = false;
  const reloading = followed.reload().then(() => {
    isRead = true;
  });
  await eventually("it is read again and again", () => reads > 3);
  t.strictSame(failures, [error]);
  t.notOk(isRead);
  isFailing = false;
  await reloading;
  isFailing = true;
  const outage = followed.reload();
  await eventually("the next outage is news", () => failures.length === 2);

  const release = Promise.withResolvers();
  isHeld = release.promise;
  const reading = followed.reload();
  const closing = followed.close();
  release.resolve(undefined);
  await Promise.all([reading, closing, outage]);
  const last = reads;
  await delay(QUIET_MS);
  t.equal(reads, last, "no read after the close");
});
