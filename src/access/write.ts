import { readFile, realpath, stat } from "node:fs/promises";
import { isDeepStrictEqual } from "node:util";
import { replaceFile } from "../files/atomic.ts";
import { LockRefusedError, LockTimeoutError, withLock } from "../files/lock.ts";
import { Refusal } from "../refusal.ts";
import { applyChange, type Change } from "./change.ts";
import { editText } from "./edit.ts";
import { requireSuccession } from "./guards.ts";
import { AccessFileError, parseAccessFile, parseRecords } from "./parse.ts";
import type { Snapshot } from "./snapshot.ts";
import { UneditableError } from "./text-editor.ts";

/**
 * Judges the file as it is under the lock and says what to change in it; throws a Refusal if the
 * change may not be made. No change at all is a fine answer.
 */
export type Plan = (current: Snapshot) => readonly Change[];

const readOnlyCodes = new Set(["EROFS", "EACCES", "EPERM", "EBUSY"]);

function asRefusal(error: unknown, file: string): unknown {
  if (error instanceof AccessFileError) {
    return new Refusal("access_file_invalid", { detail: error.message, cause: error });
  }
  if (error instanceof UneditableError) {
    const message = `The access file cannot be edited: ${error.message}`;
    return new Refusal("access_file_invalid", { message, cause: error });
  }
  if (error instanceof LockTimeoutError)
    return new Refusal("busy", { detail: error.message, retryAfter: 1 });
  if (error instanceof LockRefusedError) {
    return new Refusal("access_file_read_only", { detail: error.message, cause: error });
  }
  if (!(error instanceof Error) || !("code" in error)) return error;
  if (error.code === "ENOENT") {
    return new Refusal("access_file_invalid", {
      message: "The access file is missing",
      cause: error,
    });
  }
  if (!readOnlyCodes.has(String(error.code))) return error;
  const detail = `${file}: ${error.message}`;
  return new Refusal("access_file_read_only", { detail, cause: error });
}

/** The edited text, proven to hold the old records plus exactly `changes`. */
function editAndVerify(text: string, file: string, changes: readonly Change[]): string {
  const before = parseRecords(text, file);
  const edited = editText(text, before, changes);
  const expected = changes.reduce(applyChange, before);
  if (!isDeepStrictEqual(parseRecords(edited, file), expected)) {
    throw new UneditableError("the edit would change more than it means to");
  }
  return edited;
}

/**
 * Changes the access file: takes its lock, reads it again, lets `plan` judge what it reads, edits
 * only what the changes mean, verifies the result and replaces the file atomically. A symlink is
 * followed to the real file. When this resolves, the new content is on disk.
 *
 * @param options.force also where the last Owner or administrator would be lost
 * @returns the snapshot that is now on disk
 * @throws Refusal from `plan`, `last_owner`, `last_administrator`, `access_file_read_only`, `access_file_invalid` or `busy`
 */
export async function changeAccessFile(
  file: string,
  plan: Plan,
  options: { force?: boolean } = {},
): Promise<Snapshot> {
  try {
    const target = await realpath(file);
    return await withLock(target, async () => {
      const text = await readFile(target, "utf8");
      const current = parseAccessFile(text, file);
      const changes = plan(current);
      if (changes.length === 0) return current;
      const edited = editAndVerify(text, file, changes);
      const next = parseAccessFile(edited, file);
      if (options.force !== true) requireSuccession(current, next);
      await replaceFile(target, edited, await stat(target));
      return next;
    });
  } catch (error) {
    throw asRefusal(error, file);
  }
}
