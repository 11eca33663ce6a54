import { existsSync } from "node:fs";
import { realpath, stat } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { errorMessage, systemCode } from "../base/client-error.ts";
import { runCooperatively } from "../base/cooperative-scheduling.ts";
import {
  fingerprint,
  isStorageError,
  readFailure,
  replaceFile,
  replacementObstacle,
  UnsafeFileError,
} from "../base/files/guarded.ts";
import { LockRefusedError, LockTimeoutError, withLock } from "../base/files/lock.ts";
import { canPass } from "../base/files/watch.ts";
import { Refusal } from "../base/refusal.ts";
import type { ChangeOptions, Plan } from "./access-rules.ts";
import { requireRemainingOwners } from "./administration.ts";
import { editAccess, editText } from "./edit.ts";
import {
  AccessFileError,
  indexAccess,
  type ParsedAccess,
  parseAccessFile,
  readAccessFile,
  SMALL_BYTES,
  UneditableError,
  workInThread,
} from "./parse.ts";
import { applyChanges, type Change } from "./record-change.ts";
import type { AccessRecords } from "./records.ts";
import { emptySnapshot, type Snapshot } from "./snapshot.ts";

/** The path is no file: nothing, circular links, a socket, a path through a file. */
const misplacedCodes = ["ENOENT", "ELOOP", "ENXIO", "ENOTDIR", "EISDIR", "ENAMETOOLONG"];

/** Converts errors that mean the access file cannot be changed, and returns others unchanged. */
function asWriteRefusal(error: unknown, file: string): unknown {
  const invalid = (message: string) =>
    new Refusal("access_file_invalid", { message, cause: error });
  if (error instanceof AccessFileError || error instanceof UnsafeFileError) {
    return new Refusal("access_file_invalid", { detail: error.message, cause: error });
  }
  if (error instanceof UneditableError) {
    return invalid(`The access file cannot be edited: ${error.message}`);
  }
  if (error instanceof LockTimeoutError) {
    return new Refusal("busy", { detail: error.message, retryAfter: 1 });
  }
  if (error instanceof LockRefusedError) {
    return new Refusal("access_file_read_only", { detail: error.message, cause: error });
  }
  if (misplacedCodes.includes(systemCode(error)))
    return invalid(`The access file ${readFailure(error)}`);
  if (!isStorageError(error) && !canPass(error)) return error;
  const detail = `${file}: ${errorMessage(error)}`;
  return new Refusal("access_file_read_only", { detail, cause: error });
}

interface WriteOptions extends ChangeOptions {
  /** Also refuse a file that others may read, which gateways would not load. */
  readonly checkRead?: boolean;
}

/** Attempts at a change when an operator saves the file in between. */
const ATTEMPTS = 5;
/** Pause between two writes of one process, so that other processes get the lock. */
const PAUSE_MS = 25;

function isEmptied(records: AccessRecords, changes: readonly Change[]): boolean {
  // Each change removes one user at most.
  if (records.users.length > changes.length) return false;
  const { users, grants } = applyChanges(records, changes);
  return users.length === 0 && grants.length === 0;
}

interface WrittenFile extends ParsedAccess {
  readonly changes: readonly Change[];
}

interface Writer {
  readonly plan: Plan;
  readonly options: WriteOptions;
  /** An earlier reading of the file, so that an unchanged file is not parsed again. */
  readonly earlier: ParsedAccess | undefined;
  /** Puts another state than the earlier one in force, which would be lost in the new one. */
  readonly adopt: () => Promise<unknown>;
  resolve(written: WrittenFile): void;
  reject(error: unknown): void;
}

/** The file is not the one that was read, for example because an editor has saved it. */
class FileChangedError extends Error {}

/** @returns the content on disk. @throws FileChangedError if nothing was written */
async function tryToWrite(
  real: string,
  file: string,
  { plan, options: { force, beforeWrite, checkRead = false }, adopt }: Writer,
  earlier: ParsedAccess | undefined,
): Promise<WrittenFile> {
  const seen = fingerprint(file);
  const requireSame = () => {
    if (fingerprint(file) !== seen || fingerprint(real) !== seen) throw new FileChangedError();
  };
  const current = await readAccessFile(real, { checkRead }, earlier, file);
  if (current !== earlier) await adopt();
  const changes = plan(current.snapshot);
  if (changes.length === 0) return { ...current, changes };
  const requireOwnersIn = async (next: Snapshot) => {
    if (!force) await runCooperatively(requireRemainingOwners(current.snapshot, next));
  };
  if (isEmptied(current.records, changes)) {
    await requireOwnersIn(emptySnapshot);
    // Such a file would be treated as truncated.
    throw new UneditableError("it would contain no user and no grant");
  }
  const { bytes, records } = current;
  const edited =
    bytes.length > SMALL_BYTES
      ? await workInThread({ bytes, file, changes })
      : editAccess(bytes, records, changes, file);
  const next = await indexAccess(Buffer.from(edited.bytes), edited.records);
  await requireOwnersIn(next.snapshot);
  requireSame();
  const old = await stat(real);
  const obstacle = replacementObstacle(real, old);
  if (obstacle !== undefined) {
    throw new Refusal("access_file_read_only", { detail: `${file}: ${obstacle}` });
  }
  const step = { from: current.snapshot.version, to: next.snapshot.version };
  await replaceFile(real, next.bytes, old, async () => {
    await beforeWrite?.(changes, step);
    requireSame();
  });
  return { ...next, changes };
}

async function write(
  file: string,
  writer: Writer,
  earlier: ParsedAccess | undefined,
): Promise<WrittenFile> {
  for (let count = 0; count < ATTEMPTS; count++) {
    const real = await realpath(file);
    try {
      return await withLock(real, () => tryToWrite(real, file, writer, earlier));
    } catch (error) {
      if (!(error instanceof FileChangedError)) throw error;
    }
  }
  throw new Refusal("busy", { detail: `${file} keeps changing`, retryAfter: 1 });
}

const queues = new Map<string, Writer[]>();

async function serveWriters(file: string, queue: Writer[]): Promise<void> {
  let latest: WrittenFile | undefined;
  for (let [writer] = queue; writer !== undefined; [writer] = queue) {
    try {
      latest = await write(file, writer, latest ?? writer.earlier);
      queue.shift();
      writer.resolve(latest);
    } catch (error) {
      // While the head waited for the lock, everyone in the queue waited too.
      const failed = queue.splice(0, error instanceof LockTimeoutError ? queue.length : 1);
      for (const one of failed) one.reject(asWriteRefusal(error, file));
    }
    if (queue.length > 0) await delay(PAUSE_MS);
  }
  queues.delete(file);
}

/**
 * Changes the access file: takes the lock, reads the file, calls `plan`, edits only what the
 * changes concern, verifies the result and replaces the file atomically. Writers of one process are
 * served in order. When this resolves, the new content is on disk.
 *
 * @throws Refusal as `AccessRules.change`
 */
export function changeAccessFile(
  file: string,
  plan: Plan,
  options: WriteOptions = {},
  earlier?: ParsedAccess,
  adopt = async (): Promise<unknown> => undefined,
): Promise<WrittenFile> {
  const { promise, resolve, reject } = Promise.withResolvers<WrittenFile>();
  const writer = { plan, options, earlier, adopt, resolve, reject };
  const queue = queues.get(file);
  if (queue !== undefined) queue.push(writer);
  else {
    const first = [writer];
    queues.set(file, first);
    void serveWriters(file, first);
  }
  return promise;
}

const header = `# Who may do what. Edit this file while the gateway runs: a change is in force within a second.
#
# [[users]]  username, email, password_hash (made by: gatehouse hash-password), disabled = true,
#            tokens_valid_after = epoch seconds, attributes = { name = "value" },
#            same_as = "another name of the same person"
# [[groups]] name, members = ["rita"]
# [[acl]]    username (or group), database ("*" for every database), role: Owner, DbAdmin, ReadWrite, ReadOnly, None
#            The entry for a named database wins over the entry for "*". Limits of an entry: tables,
#            columns, writable_columns, row_filter, require_where, max_rows, max_changes, require_approval,
#            approvers, expires
# [[boundaries]]  upper limits. via: "mcp" or "query"; for: client, username or group, database;
#            limits: role, max_rows, max_changes, require_approval (approvers), rate_limit
#
# Each key is in docs/access-file.md; examples are in docs/grants.md.
# The log reports errors in this file, and so does "gatehouse config check".
`;

/**
 * Writes a new access file (0600) with `changes`.
 *
 * @param prepare runs right before, only if there is no file yet
 * @returns the snapshot, or undefined if a file exists already, which is left unchanged
 */
export async function createAccessFile(
  file: string,
  changes: readonly Change[],
  prepare: () => Promise<void> = async () => {},
): Promise<Snapshot | undefined> {
  const none = { users: [], groups: [], grants: [], boundaries: [] };
  const text = editText(header, none, applyChanges(none, changes));
  const snapshot = parseAccessFile(text, file);
  return withLock(file, async () => {
    if (existsSync(file)) return undefined;
    await prepare();
    await replaceFile(file, text);
    return snapshot;
  });
}
