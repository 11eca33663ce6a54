import { realpath, stat } from "node:fs/promises";
import { isDeepStrictEqual } from "node:util";
import { replaceFile } from "../files/atomic.ts";
import { readGuardedBytes, UnsafeFileError } from "../files/guarded.ts";
import { LockRefusedError, LockTimeoutError, withLock } from "../files/lock.ts";
import { Refusal } from "../refusal.ts";
import { inSlices, type Steps, visitEach } from "../slices.ts";
import { applyChange, type Change } from "./change.ts";
import { editSteps } from "./edit.ts";
import { requireSuccession } from "./guards.ts";
import { AccessFileError, digestSteps, type ParsedAccess, parseSteps, readAgain } from "./parse.ts";
import type { AccessRecords } from "./records.ts";
import type { Snapshot } from "./snapshot.ts";
import { UneditableError } from "./text-editor.ts";

/**
 * Judges the file as it is under the lock and says what to change in it; throws a Refusal if the
 * change may not be made. No change at all is a fine answer.
 */
export type Plan = (current: Snapshot) => readonly Change[];

export interface ChangeOptions {
  /** Also where the last Owner of a database or the last administrator would be lost. */
  readonly force?: boolean;
  /** An earlier reading of the file, so that only what has changed is parsed. */
  readonly earlier?: ParsedAccess | undefined;
  /** What must be on disk before the change is. If it fails, nothing is changed. */
  readonly beforeWrite?: (() => Promise<void>) | undefined;
}

/** Who may read the file is judged where it is put in force. */
const anyReader = { checkRead: false };
/** Times that a change is begun anew because an operator saved the file meanwhile. */
const ATTEMPTS = 5;
/** The system does not let the file be written: by its rules, or for want of room. */
const unwritableCodes = new Set([
  ...["EROFS", "EACCES", "EPERM", "EBUSY"],
  ...["ENOSPC", "EDQUOT", "EFBIG", "EIO"],
]);

function asRefusal(error: unknown, file: string): unknown {
  if (error instanceof AccessFileError || error instanceof UnsafeFileError) {
    return new Refusal("access_file_invalid", { detail: error.message, cause: error });
  }
  if (error instanceof UneditableError) {
    const message = `The access file cannot be edited: ${error.message}`;
    return new Refusal("access_file_invalid", { message, cause: error });
  }
  if (error instanceof LockTimeoutError) {
    return new Refusal("busy", { detail: error.message, retryAfter: 1 });
  }
  if (error instanceof LockRefusedError) {
    return new Refusal("access_file_read_only", { detail: error.message, cause: error });
  }
  if (!(error instanceof Error) || !("code" in error)) return error;
  if (error.code === "ENOENT") {
    const message = "The access file is missing";
    return new Refusal("access_file_invalid", { message, cause: error });
  }
  if (!unwritableCodes.has(String(error.code))) return error;
  const detail = `${file}: ${error.message}`;
  return new Refusal("access_file_read_only", { detail, cause: error });
}

function* areEqual<T>(some: readonly T[], others: readonly T[]): Steps<boolean> {
  let equal = some.length === others.length;
  yield* visitEach(some, (one, index) => {
    const other = others[index];
    // Most records are the very same objects, since only what has changed was parsed.
    equal &&= one === other || isDeepStrictEqual(one, other);
  });
  return equal;
}

function* holdsExactly(parsed: AccessRecords, expected: AccessRecords): Steps<boolean> {
  const usersAre = yield* areEqual(parsed.users, expected.users);
  return usersAre && (yield* areEqual(parsed.grants, expected.grants));
}

/** The file with `changes` made, proven to hold the old records plus exactly those. */
function* editAndVerify(
  before: ParsedAccess,
  file: string,
  changes: readonly Change[],
): Steps<ParsedAccess> {
  const edited = yield* editSteps(before.text, before.records, changes);
  const after = yield* parseSteps(edited, file, before);
  const expected = changes.reduce(applyChange, before.records);
  if (yield* holdsExactly(after.records, expected)) return after;
  throw new UneditableError("the edit would change more than it means to");
}

/**
 * One attempt at a change, under the lock.
 *
 * @returns what is now on disk; undefined if somebody who takes no lock, such as an editor, has
 *   written the file since it was read
 */
async function attempt(
  target: string,
  file: string,
  plan: Plan,
  { force = false, earlier, beforeWrite }: ChangeOptions,
): Promise<ParsedAccess | undefined> {
  const current = await readAgain(await readGuardedBytes(target, anyReader), file, earlier);
  const changes = plan(current.snapshot);
  if (changes.length === 0) return current;
  const next = await inSlices(editAndVerify(current, file, changes));
  if (!force) await inSlices(requireSuccession(current.snapshot, next.snapshot));
  const found = await inSlices(digestSteps(await readGuardedBytes(target, anyReader)));
  if (found !== current.digest) return undefined;
  await beforeWrite?.();
  await replaceFile(target, next.text, await stat(target));
  return next;
}

/**
 * Changes the access file: takes its lock, reads it again, lets `plan` judge what it reads, edits
 * only what the changes mean, verifies the result and replaces the file atomically. A symlink is
 * followed to the real file. When this resolves, the new content is on disk.
 *
 * @returns what is now on disk
 * @throws Refusal from `plan` or `beforeWrite`, `last_owner`, `last_administrator`,
 *   `access_file_read_only`, `access_file_invalid` or `busy`
 */
export async function changeAccessFile(
  file: string,
  plan: Plan,
  options: ChangeOptions = {},
): Promise<ParsedAccess> {
  try {
    const target = await realpath(file);
    return await withLock(target, async () => {
      for (let count = 0; count < ATTEMPTS; count++) {
        const written = await attempt(target, file, plan, options);
        if (written !== undefined) return written;
      }
      throw new Refusal("busy", { detail: `${file} does not stand still`, retryAfter: 1 });
    });
  } catch (error) {
    throw asRefusal(error, file);
  }
}
