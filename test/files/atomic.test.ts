import { chmod, mkdir, readdir, readFile, stat, writeFile } from "node:fs/promises";
import path from "node:path";
import t from "tap";
import { replaceFile } from "../../src/files/atomic.ts";
import { temporaryDirectory } from "../config/support.ts";

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
