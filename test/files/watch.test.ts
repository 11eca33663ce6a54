import { EventEmitter, once } from "node:events";
import { unlinkSync, writeFileSync } from "node:fs";
import { mkdir, rename, symlink, unlink, utimes, writeFile } from "node:fs/promises";
import path from "node:path";
import { mock } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { watchFile } from "../../src/files/watch.ts";
import { temporaryDirectory } from "../config/support.ts";
import { eventually, PATIENCE_MS } from "../kit/eventually.ts";

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
