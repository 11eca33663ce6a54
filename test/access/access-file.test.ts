import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import {
  appendFile,
  chmod,
  mkdir,
  open,
  rename,
  rm,
  truncate,
  unlink,
  utimes,
  writeFile,
} from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { openAccessFile } from "../../src/core/access/access-file.ts";
import type { ReloadEvent } from "../../src/core/access/access-rules.ts";
import { readHolder } from "../../src/core/access/grant.ts";
import { eventually, PATIENCE_MS } from "../kit/eventually.ts";
import { accessFile, grantOn } from "./kit.ts";
import { holding, watched } from "./watched.ts";

/** A file that pauses for less than this is not read in between, in milliseconds. */
const STILL_MS = 100;

type Watched = Awaited<ReturnType<typeof watched>>;

/** Runs a test on a new file in which alice may read, and that is watched. */
function onFile(name: string, body: (t: Test, file: string, access: Watched) => Promise<unknown>) {
  t.test(name, async (t) => {
    const file = accessFile(t, holding("ReadOnly"));
    await body(t, file, await watched(t, file));
  });
}

/** Writes a file in place, bit by bit; resolves to a time that no pause was longer than, in milliseconds. */
async function saveSlowly(file: string, text: string): Promise<number> {
  let longest = 0;
  let before = performance.now();
  const handle = await open(file, "w", 0o600);
  for (let at = 0; at < text.length; at += 50) {
    const start = performance.now();
    await handle.write(text.slice(at, at + 50));
    longest = Math.max(longest, performance.now() - before);
    before = start;
    await delay(20);
  }
  await handle.close();
  return longest;
}

async function renameOver(file: string, text: string): Promise<void> {
  await writeFile(`${file}.next`, text, { mode: 0o600 });
  await rename(`${file}.next`, file);
}

t.test("a change is in force once what must precede it is done", async (t) => {
  const file = accessFile(t, holding("ReadOnly"));
  const { promise, resolve } = Promise.withResolvers<void>();
  let isAsked = false;
  const beforeChange = () => {
    isAsked = true;
    return promise;
  };
  const access = await openAccessFile(file, { checkRead: true, beforeChange });
  t.teardown(() => access.close());
  const { version } = access;
  t.notOk(isAsked, "the first state is no change");
  await renameOver(file, holding("ReadWrite"));
  await eventually("the change is read", async () => isAsked);
  await delay(3 * STILL_MS);
  t.equal(access.version, version);
  resolve();
  await eventually("the change is in force", async () => access.version !== version);
});

onFile("a save in place takes effect and reports what changed", async (t, file, access) => {
  await writeFile(file, holding("ReadWrite"));
  await access.untilRole("ReadWrite");
  const event = access.events.at(-1);
  t.match(event, {
    kind: "loaded",
    diff: { grantsRaised: [{ holder: readHolder("alice"), database: "main", role: "ReadWrite" }] },
  });
  t.equal(event?.kind === "loaded" && event.snapshot, access.live.snapshot);
});

onFile("each of several saves takes effect, in place or by rename", async (_t, file, access) => {
  await renameOver(file, holding("DbAdmin"));
  await access.untilRole("DbAdmin");
  await rename(file, `${file}~`);
  await writeFile(file, holding("Owner"), { mode: 0o600 });
  await access.untilRole("Owner");
  await writeFile(file, holding("ReadOnly"));
  await access.untilRole("ReadOnly");
  await renameOver(file, holding("Owner"));
  await access.untilRole("Owner");
});

t.test("a save of the same size and an earlier time is noticed", async (t) => {
  const file = accessFile(t, holding("DbAdmin"));
  await utimes(file, 1000, 1000);
  const access = await watched(t, file);
  await writeFile(
    file,
    holding("DbAdmin").replace("DbAdmin", "Owner  ").replace('Owner  "', 'Owner"  '),
  );
  await utimes(file, 1000, 1000);
  await access.untilRole("Owner");
});

t.test("a slow save is read only when it is complete", async (t) => {
  for (let longestPause = Number.POSITIVE_INFINITY; longestPause >= STILL_MS; ) {
    const file = accessFile(t, holding("ReadOnly"));
    const access = await watched(t, file);
    longestPause = await saveSlowly(file, holding("Owner"));
    await access.untilRole("Owner");
    // On a busy machine a pause can last so long that half the file is rightly looked at.
    if (longestPause >= STILL_MS) continue;
    const kinds = access.events.map(({ kind }) => kind);
    t.strictSame(kinds, ["loaded"], "and not half of it before");
  }
});

onFile("a file that keeps changing is still read", async (_t, file, access) => {
  let isWriting = true;
  const writing = (async () => {
    while (isWriting) {
      await renameOver(file, holding("Owner"));
      await delay(30);
    }
  })();
  await access.untilRole("Owner");
  isWriting = false;
  await writing;
});

t.test("a change during the start is not missed", async (t) => {
  for (let round = 0; round < 5; round += 1) {
    const file = accessFile(t, holding("ReadOnly"));
    const opening = watched(t, file);
    await delay(round / 2);
    await renameOver(file, holding("Owner"));
    await (await opening).untilRole("Owner");
  }
});

onFile("an explicit reload is in force when it resolves", async (t, file, access) => {
  await writeFile(file, holding("Owner"));
  await access.live.reload();
  t.equal(access.role, "Owner");
  await Promise.all([access.live.reload(), access.live.reload()]);
  await delay(700);
  t.equal(access.events.length, 1, "and is reported once");
});

t.test("a change through the rules is in force in all workers when it resolves", async (t) => {
  const file = accessFile(t, holding("ReadOnly"));
  const elsewhere = await openAccessFile(file, { checkRead: true });
  t.teardown(() => elsewhere.close());
  const rules = await openAccessFile(file, {
    checkRead: true,
    broadcastReload: () => elsewhere.reload(),
  });
  t.teardown(() => rules.close());
  const owner = { holder: readHolder("alice"), database: "main", role: "Owner" } as const;
  const { snapshot: written } = await rules.change(() => [{ kind: "set-grant", grant: owner }]);
  for (const { snapshot } of [rules, elsewhere]) {
    t.equal(grantOn(snapshot, "alice", "main")?.role, "Owner");
    t.equal(snapshot.version, written.version);
  }
});

onFile("a deleted file changes nothing until it exists again", async (t, file, access) => {
  await unlink(file);
  t.equal(await access.untilRefused(), "does not exist");
  t.equal(access.role, "ReadOnly", "the last good state is in force");
  await writeFile(file, holding("Owner"), { mode: 0o600 });
  await access.untilRole("Owner");
});

onFile("a file that returns unchanged is no longer stale", async (t, file, access) => {
  await rename(file, `${file}.away`);
  await access.untilRefused();
  await rename(`${file}.away`, file);
  await access.untilRole("ReadOnly");
  t.match(access.events.at(-1), { kind: "loaded", diff: { usersAdded: [], usersChanged: [] } });
});

onFile("a half-written file changes nothing", async (t, file, access) => {
  await truncate(file);
  t.match(await access.untilRefused(), /contains no user and no grant/);
  t.equal(access.role, "ReadOnly");
  const text = holding("Owner");
  await appendFile(file, text.slice(0, -20));
  await delay(300);
  t.ok(access.live.stale);
  t.equal(access.role, "ReadOnly", "half a file does not count");
  await appendFile(file, text.slice(-20));
  await access.untilRole("Owner");
});

const invalid: Record<string, [text: string, reason: RegExp]> = {
  "with an unknown role": [holding("Writer"), /^`role` must be one of/],
  "with a syntax error": [`${holding("Owner")}[[acl`, /./],
};
for (const [how, [text, reason]] of Object.entries(invalid)) {
  t.test(`a file ${how} changes nothing until it is fixed`, async (t) => {
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

t.test("a file with unsafe permissions changes nothing until they are fixed", async (t) => {
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
});

t.test("a file that others may read is accepted if that is not checked", async (t) => {
  const file = accessFile(t, holding("ReadOnly"));
  await chmod(file, 0o644);
  const access = await watched(t, file, false);
  await writeFile(file, holding("Owner"));
  await access.untilRole("Owner");
  await t.rejects(openAccessFile(file, { checkRead: true }), { name: "UnsafeFileError" });
});

onFile("a pipe or a directory in place of the file changes nothing", async (t, file, access) => {
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

t.test("an invalid file at the start is an error", async (t) => {
  const file = accessFile(t, holding("Writer"));
  const opening = openAccessFile(file, { checkRead: true });
  await t.rejects(opening, { name: "AccessFileError", problems: [{ line: 8 }] });
});

/** What operators edit with, told to make ReadOnly a ReadWrite; each has its own way to save. */
const editors: Record<string, string[]> = {
  sed: ["-i", 's/"ReadOnly"/"ReadWrite"/'],
  vim: ["-es", "-u", "NONE", "-c", '%s/"ReadOnly"/"ReadWrite"/', "-c", "wq"],
  ex: ["-s", "-u", "NONE", "-c", '%s/"ReadOnly"/"ReadWrite"/', "-c", "wq"],
  perl: ["-pi", "-e", 's/"ReadOnly"/"ReadWrite"/'],
};

function isInstalled(editor: string): boolean {
  return spawnSync("sh", ["-c", `command -v ${editor}`]).status === 0;
}

t.test("a save by an editor takes effect", async (t) => {
  const installed = Object.entries(editors).filter(([editor]) => isInstalled(editor));
  t.not(installed.length, 0, "some editor is here to try");
  for (const [editor, flags] of installed) {
    const file = accessFile(t, holding("ReadOnly"));
    const access = await watched(t, file);
    const { status } = spawnSync(editor, [...flags, file], { timeout: PATIENCE_MS });
    t.equal(status, 0, editor);
    await access.untilRole("ReadWrite");
    t.equal(readFileSync(file, "utf8"), holding("ReadWrite"), editor);
  }
});
