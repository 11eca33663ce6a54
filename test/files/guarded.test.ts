import { execFileSync } from "node:child_process";
import { chmod, mkdir, symlink, writeFile } from "node:fs/promises";
import path from "node:path";
import t, { type Test } from "tap";
import { readGuarded, UnsafeFileError } from "../../src/files/guarded.ts";
import { temporaryDirectory } from "../config/support.ts";

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
      `its group or others may write it; mend it with: chmod 600 ${file}`,
    );
  }
});

t.test("a file that others may read is refused if that is to be checked", async (t) => {
  const file = await fileWith(t, "secret", 0o644);
  t.equal(await reasonOf(file), `others may read it; mend it with: chmod 600 ${file}`);
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
