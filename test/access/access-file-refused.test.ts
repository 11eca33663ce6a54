import { execFileSync } from "node:child_process";
import {
  appendFile,
  chmod,
  mkdir,
  rename,
  rm,
  truncate,
  unlink,
  writeFile,
} from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { openAccessFile } from "../../src/access/access-file.ts";
import type { ReloadEvent } from "../../src/access/access-rules.ts";
import { accessFile, user } from "./kit.ts";
import { holding, watched } from "./watched.ts";

t.test("a file that is deleted changes nothing until it is there again", async (t) => {
  const file = accessFile(t, holding("ReadOnly"));
  const access = await watched(t, file);
  await unlink(file);
  t.equal(await access.untilRefused(), "is missing");
  t.equal(access.role, "ReadOnly", "the last good state is in force");
  await writeFile(file, holding("Owner"), { mode: 0o600 });
  await access.untilRole("Owner");
});

t.test("a file that comes back as it was is fresh again", async (t) => {
  const file = accessFile(t, holding("ReadOnly"));
  const access = await watched(t, file);
  await rename(file, `${file}.away`);
  await access.untilRefused();
  await rename(`${file}.away`, file);
  await access.untilRole("ReadOnly");
  t.match(access.events.at(-1), { kind: "loaded", diff: { usersAdded: [], usersChanged: [] } });
});

t.test("a file cut short with a pause before the rest changes nothing meanwhile", async (t) => {
  const file = accessFile(t, holding("ReadOnly"));
  const access = await watched(t, file);
  await truncate(file);
  t.match(await access.untilRefused(), /holds no user and no grant/);
  t.equal(access.role, "ReadOnly");
  const text = holding("Owner");
  await appendFile(file, text.slice(0, -20));
  await delay(300);
  t.ok(access.live.stale);
  t.equal(access.role, "ReadOnly", "half a file is none");
  await appendFile(file, text.slice(-20));
  await access.untilRole("Owner");
});

const invalid: Record<string, [text: string, reason: RegExp]> = {
  "with an unknown role": [holding("Writer"), /^`role` must be one of/],
  "with a syntax error": [`${holding("Owner")}[[acl`, /./],
  "with comments alone": ["# nothing\n", /^holds no user and no grant/],
  "with a user twice": [holding("Owner") + user("alice"), /^this user has a record already$/],
};
for (const [how, [text, reason]] of Object.entries(invalid)) {
  t.test(`a file ${how} changes nothing until it is mended`, async (t) => {
    const file = accessFile(t, holding("ReadOnly"));
    const access = await watched(t, file);
    const before = access.live.snapshot;
    await writeFile(file, text);
    t.match(await access.untilRefused(), reason);
    t.equal(access.live.snapshot, before);
    await writeFile(file, holding("Owner"));
    await access.untilRole("Owner");
  });
}

t.test(
  "a file that became unsafe by its permissions changes nothing until that is mended",
  async (t) => {
    const file = accessFile(t, holding("ReadOnly"));
    const access = await watched(t, file);
    for (const [mode, reason] of [
      [0o644, /^others may read it/],
      [0o620, /^its group or others may write/],
    ] as const) {
      await chmod(file, mode);
      t.match(await access.untilRefused(), reason);
      await chmod(file, 0o600);
      await access.untilRole("ReadOnly");
    }
  },
);

t.test("a file that others may read is accepted where that is not checked", async (t) => {
  const file = accessFile(t, holding("ReadOnly"));
  await chmod(file, 0o644);
  const access = await watched(t, file, false);
  await writeFile(file, holding("Owner"));
  await access.untilRole("Owner");
  await t.rejects(openAccessFile(file, { checkRead: true }), {
    name: "UnsafeFileError",
  });
});

t.test("a pipe or a directory in the file's place changes nothing and stops nothing", async (t) => {
  const file = accessFile(t, holding("ReadOnly"));
  const access = await watched(t, file);
  for (const put of [() => execFileSync("mkfifo", ["-m", "600", file]), () => mkdir(file)]) {
    await rm(file, { recursive: true });
    await put();
    await access.until(() =>
      access.events.some((event) => isRefusal(event, "is not a regular file")),
    );
    t.equal(access.role, "ReadOnly");
    await rm(file, { recursive: true });
    await writeFile(file, holding("ReadOnly"), { mode: 0o600 });
    await access.untilRole("ReadOnly");
    access.events.length = 0;
  }
});

function isRefusal(event: ReloadEvent, reason: string): boolean {
  return event.kind === "failed" && event.problems[0]?.reason === reason;
}

t.test("a first file that cannot be used is an error", async (t) => {
  const file = accessFile(t, holding("Writer"));
  const opening = openAccessFile(file, { checkRead: true });
  await t.rejects(opening, { name: "AccessFileError", problems: [{ line: 8 }] });
});
