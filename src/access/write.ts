import { existsSync } from "node:fs";
import { realpath, stat } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { runCooperatively } from "../cooperative-scheduling.ts";
import { replaceFile } from "../files/atomic.ts";
import { UnsafeFileError } from "../files/guarded.ts";
import { LockRefusedError, LockTimeoutError, withLock } from "../files/lock.ts";
import { Refusal } from "../refusal.ts";
import type { ChangeOptions, Plan } from "./access-rules.ts";
import { editAndVerify, editText, NothingLeftError } from "./edit.ts";
import {
  AccessFileError,
  isStill,
  type ParsedAccess,
  parseAccessFile,
  readAccessFile,
} from "./parse.ts";
import type { Change } from "./record-change.ts";
import { requireRemainingOwners } from "./remaining-owners.ts";
import { emptySnapshot, type Snapshot } from "./snapshot.ts";
import { UneditableError } from "./text-editor.ts";
import { type Batch, gatherBatch, type Writer } from "./write-batch.ts";

/** The system does not let the file be written: by its rules, or for want of room. */
const unwritableCodes = new Set([
  ...["EROFS", "EACCES", "EPERM", "EBUSY"],
  ...["ENOSPC", "EDQUOT", "EFBIG", "EIO"],
]);
/** What stands in the file's place is no file: links in a circle, a socket, a path through a file. */
const misplacedCodes = new Set(["ELOOP", "ENXIO", "ENOTDIR", "EISDIR", "ENAMETOOLONG"]);

function invalid(message: string, cause: unknown): Refusal {
  return new Refusal("access_file_invalid", { message, cause });
}

/** What a writer is told that the access file cannot be changed by; other errors as they are. */
function asWriteRefusal(error: unknown, file: string): unknown {
  if (error instanceof AccessFileError || error instanceof UnsafeFileError) {
    return new Refusal("access_file_invalid", { detail: error.message, cause: error });
  }
  if (error instanceof UneditableError) {
    return invalid(`The access file cannot be edited: ${error.message}`, error);
  }
  if (error instanceof LockTimeoutError) {
    return new Refusal("busy", { detail: error.message, retryAfter: 1 });
  }
  if (error instanceof LockRefusedError) {
    return new Refusal("access_file_read_only", { detail: error.message, cause: error });
  }
  if (!(error instanceof Error) || !("code" in error)) return error;
  const code = String(error.code);
  if (code === "ENOENT") return invalid("The access file is missing", error);
  if (misplacedCodes.has(code)) return invalid(`The access file cannot be read (${code})`, error);
  if (!unwritableCodes.has(code)) return error;
  const detail = `${file}: ${error.message}`;
  return new Refusal("access_file_read_only", { detail, cause: error });
}

/** Who may read the file is judged where it is put in force. */
const anyReader = { checkRead: false };
/** Times that a change is begun anew because an operator saved the file meanwhile. */
const ATTEMPTS = 5;
/** Milliseconds that a process leaves to others between two of its own writes. */
const PAUSE_MS = 25;

/** What the file will be; undefined if the changes of several writers cannot be made together. */
async function prepare(
  { changes, writers: [first, ...others] }: Batch,
  current: ParsedAccess,
  file: string,
): Promise<ParsedAccess | undefined> {
  const requireOwnersIn = async (next: Snapshot) => {
    const isForced = first?.options.force === true;
    if (!isForced) await runCooperatively(requireRemainingOwners(current.snapshot, next));
  };
  try {
    const next = await runCooperatively(editAndVerify(current, file, changes));
    await requireOwnersIn(next.snapshot);
    return next;
  } catch (error) {
    if (others.length > 0) return undefined;
    if (error instanceof NothingLeftError) await requireOwnersIn(emptySnapshot);
    throw error;
  }
}

/** A file that is changed by writers of this process, who wait in line. */
interface Target {
  /** As it is named, for messages. */
  readonly file: string;
  readonly queue: Writer[];
}

/** The files that are being changed, by their paths. */
const targets = new Map<string, Target>();

/** Lets the writers of a batch know what came of it; they wait no more. */
function settle({ file, queue }: Target, batch: Batch, written: ParsedAccess): void {
  const { writers, refused } = batch;
  queue.splice(0, writers.length + refused.length);
  for (const writer of writers) writer.resolve(written);
  for (const { writer, error } of refused) writer.reject(asWriteRefusal(error, file));
}

/**
 * Writes at once what those at the head of the queue want, under the lock.
 *
 * @param most writers at most
 * @returns what is now on disk; undefined if somebody who takes no lock, such as an editor, has
 *   written the file since it was read
 * @throws what the first one in the queue is refused with
 */
async function writeBatch(
  target: Target,
  real: string,
  earlier: ParsedAccess | undefined,
  most = Number.POSITIVE_INFINITY,
): Promise<ParsedAccess | undefined> {
  const { file, queue } = target;
  const current = await readAccessFile(real, anyReader, earlier, file);
  const batch = gatherBatch(current.snapshot, queue, most);
  if (batch.changes.length === 0) {
    settle(target, batch, current);
    return current;
  }
  const next = await prepare(batch, current, file);
  if (next === undefined) return writeBatch(target, real, current, 1);
  if (!(await isStill(real, current, anyReader))) return undefined;
  await batch.writers[0]?.options.beforeWrite?.();
  await replaceFile(real, next.bytes, await stat(real));
  settle(target, batch, next);
  return next;
}

/** Serves the head of the queue. @throws what it is refused with */
async function serveHead(target: Target, earlier: ParsedAccess | undefined): Promise<ParsedAccess> {
  const real = await realpath(target.file);
  return withLock(real, async () => {
    for (let count = 0; count < ATTEMPTS; count++) {
      const written = await writeBatch(target, real, earlier);
      if (written !== undefined) return written;
    }
    const detail = `${target.file} does not stand still`;
    throw new Refusal("busy", { detail, retryAfter: 1 });
  });
}

/** Serves all who wait, in order. */
async function serve(target: Target): Promise<void> {
  const { file, queue } = target;
  let latest: ParsedAccess | undefined;
  while (queue.length > 0) {
    const [head] = queue;
    try {
      latest = await serveHead(target, latest ?? head?.earlier);
    } catch (error) {
      // Who has not got the lock in time has kept everybody waiting.
      const failed = queue.splice(0, error instanceof LockTimeoutError ? queue.length : 1);
      for (const writer of failed) writer.reject(asWriteRefusal(error, file));
    }
    if (queue.length > 0) await delay(PAUSE_MS);
  }
  targets.delete(file);
}

/**
 * Changes the access file: takes its lock, reads it again, lets `plan` judge what it reads, edits
 * only what the changes mean, verifies the result and replaces the file atomically. Writers of one
 * process are served in order, and share a write where they can. A symlink is followed to the real
 * file. When this resolves, the new content is on disk.
 *
 * @param earlier an earlier reading of the file, so that only what has changed is parsed
 * @returns what is now on disk
 * @throws Refusal from `plan` or `beforeWrite`, `last_owner`, `last_administrator`,
 *   `access_file_read_only`, `access_file_invalid` or `busy`
 */
export function changeAccessFile(
  file: string,
  plan: Plan,
  options: ChangeOptions = {},
  earlier?: ParsedAccess,
): Promise<ParsedAccess> {
  const { promise, resolve, reject } = Promise.withResolvers<ParsedAccess>();
  const writer = { plan, options, earlier, resolve, reject };
  const known = targets.get(file);
  if (known !== undefined) known.queue.push(writer);
  else {
    const target = { file, queue: [writer] };
    targets.set(file, target);
    void serve(target);
  }
  return promise;
}

const header = `# Who may do what. Edit this file while the gateway runs: a change is in force within a second.
#
# [[users]]  username, email, password_hash (made by: gatehouse hash-password), disabled = true,
#            tokens_valid_after = epoch seconds, attributes = { name = "value" }
# [[acl]]    username, database ("*" for every database), role: Owner, DbAdmin, ReadWrite, ReadOnly, None
#            The entry for a named database wins over the entry for "*". One may narrow itself by: tables,
#            columns, writable_columns, row_filter, require_where, max_rows, max_changes, require_approval,
#            approvers, expires
# [[boundaries]]  what passes at most. via: "mcp" or "query"; for: client, username, database;
#            at most: role, max_rows, max_changes, require_approval (approvers), rate_limit
#
# Each key is in docs/operations.md, "The access file"; examples are in docs/grants.md.
# What is wrong with this file stands in the log, and "gatehouse config check" tells it.
`;

/**
 * Writes a new access file (0600) that holds what `changes` say.
 *
 * @param prepare is done right before, and only if there is none yet
 * @returns its snapshot, or undefined if there is one already: then nothing is written
 */
export async function createAccessFile(
  file: string,
  changes: readonly Change[],
  prepare: () => Promise<void> = async () => {},
): Promise<Snapshot | undefined> {
  const text = editText(header, { users: [], grants: [], boundaries: [] }, changes);
  const snapshot = parseAccessFile(text, file);
  return withLock(file, async () => {
    if (existsSync(file)) return undefined;
    await prepare();
    await replaceFile(file, text);
    return snapshot;
  });
}
