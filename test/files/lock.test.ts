import { spawn } from "node:child_process";
import { once } from "node:events";
import { statSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { withLock } from "../../src/files/lock.ts";
import { temporaryDirectory } from "../config/support.ts";
import { PATIENCE_MS } from "../kit/eventually.ts";
import { nodeCommand } from "../kit/node.ts";

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
