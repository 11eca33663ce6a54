import { realpath, stat } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { runCooperatively, type Steps, visitEach } from "../cooperative-scheduling.ts";
import { replaceFile } from "../files/atomic.ts";
import { decodeSteps } from "../files/guarded.ts";
import { LockTimeoutError, withLock } from "../files/lock.ts";
import { Refusal } from "../refusal.ts";
import type { ChangeOptions, Plan } from "./access-rules.ts";
import { applyChanges, type Change } from "./change.ts";
import { editSteps } from "./edit.ts";
import { requireSuccession } from "./guards.ts";
import { digestSteps, type ParsedAccess, parseSteps, readAgain } from "./parse.ts";
import { MAX_ACCESS_FILE_BYTES, readAccessBytes } from "./read.ts";
import type { AccessRecords } from "./records.ts";
import { UneditableError } from "./text-editor.ts";
import { type Batch, gatherBatch, type Writer } from "./write-batch.ts";
import { asWriteRefusal } from "./write-refusal.ts";

/** Who may read the file is judged where it is put in force. */
const anyReader = { checkRead: false };
/** Times that a change is begun anew because an operator saved the file meanwhile. */
const ATTEMPTS = 5;
/** Milliseconds that a process leaves to others between two of its own writes. */
const BREATH_MS = 25;

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
  const text = yield* decodeSteps(file, before.bytes);
  const edited = Buffer.from(yield* editSteps(text, before.records, changes));
  if (edited.length > MAX_ACCESS_FILE_BYTES) {
    throw new UneditableError("it would be larger than 64 MiB");
  }
  const after = yield* parseSteps(edited, file, before);
  const expected = yield* applyChanges(before.records, changes);
  if (yield* holdsExactly(after.records, expected)) return after;
  throw new UneditableError("the edit would change more than it means to");
}

/** What the file will be; undefined if the changes of several writers cannot be made together. */
async function prepare(
  { changes, writers: [first, ...others] }: Batch,
  current: ParsedAccess,
  file: string,
): Promise<ParsedAccess | undefined> {
  try {
    const next = await runCooperatively(editAndVerify(current, file, changes));
    const isForced = first?.options.force === true;
    if (!isForced) await runCooperatively(requireSuccession(current.snapshot, next.snapshot));
    return next;
  } catch (error) {
    if (others.length === 0) throw error;
    return undefined;
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
  const current = await readAgain(await readAccessBytes(real, anyReader), file, earlier);
  const batch = gatherBatch(current.snapshot, queue, most);
  if (batch.changes.length === 0) {
    settle(target, batch, current);
    return current;
  }
  const next = await prepare(batch, current, file);
  if (next === undefined) return writeBatch(target, real, current, 1);
  const found = await runCooperatively(digestSteps(await readAccessBytes(real, anyReader)));
  if (found !== current.digest) return undefined;
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
    if (queue.length > 0) await delay(BREATH_MS);
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
