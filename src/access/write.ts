import { existsSync } from "node:fs";
import { realpath, stat } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { runAtOnce, runCooperatively, type Steps, visitEach } from "../cooperative-scheduling.ts";
import { replaceFile } from "../files/atomic.ts";
import { UnsafeFileError } from "../files/guarded.ts";
import { LockRefusedError, LockTimeoutError, withLock } from "../files/lock.ts";
import { Refusal } from "../refusal.ts";
import { type KeyStatement, outline, type Statement } from "../toml/outline.ts";
import { renderValue, type Writable } from "../toml/values.ts";
import type { ChangeOptions, Plan } from "./access-rules.ts";
import { requireRemainingOwners } from "./administration.ts";
import { isSamePlace } from "./entries.ts";
import { type Grant, type User, type UserUpdate, updatedUser, writtenUser } from "./grant.ts";
import {
  AccessFileError,
  type Block,
  isStill,
  MAX_ACCESS_FILE_BYTES,
  outlinedBlocks,
  type ParsedAccess,
  type PlainFile,
  parseAccessFile,
  parseSteps,
  readAccessFile,
} from "./parse.ts";
import { applyChanges, type Change, Draft, isDrafted, usernameOf } from "./record-change.ts";
import { type AccessRecords, type TableName, tableOf, writtenEntry } from "./records.ts";
import { emptySnapshot, type Snapshot } from "./snapshot.ts";

/** The file is written in a form that cannot be edited line by line. */
class UneditableError extends Error {}

/** The statements of one table, with offsets in the whole file. */
interface Table {
  readonly header: Statement;
  /** The keys directly under the header. */
  readonly keys: readonly KeyStatement[];
  /** All statements under the header, including subtables such as `[users.attributes]`. */
  readonly statements: readonly Statement[];
}

const LINE_FEED = 0x0a;

interface Splice {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/**
 * Renders a value as TOML on one line. Quotes that look like the start of a multi-line string are
 * escaped, so that the file stays plain.
 */
function render(value: Writable): string {
  return renderValue(value).replaceAll("'''", "\\u0027\\u0027\\u0027");
}

/** Converts the offsets of a statement from a part of the file to the whole. */
function moved<S extends Statement>(statement: S, by: number): S {
  const { start, end } = statement;
  const value =
    statement.kind === "key"
      ? { valueStart: statement.valueStart + by, valueEnd: statement.valueEnd + by }
      : {};
  return { ...statement, start: start + by, end: end + by, ...value };
}

/**
 * Edits the access file's bytes in place, without the whole text in memory. A change touches only
 * the lines it concerns, so the operator's comments, order, spacing and line ends stay. Edits are
 * collected and made at once by `finish`.
 */
class TextEditor {
  readonly #bytes: Buffer;
  readonly #lineEnd: string;
  readonly #blocks: Record<TableName, Block[]> = { users: [], acl: [], boundaries: [] };
  readonly #splices: Splice[] = [];
  /** The starts of removed tables, with the blank line that was removed after each. */
  readonly #removed = new Map<number, string>();

  /**
   * @param blocks the positions of the tables, in bytes
   * @throws UneditableError if the file is not written as tables
   */
  constructor(bytes: Buffer, blocks: readonly Block[] | undefined) {
    this.#bytes = bytes;
    this.#lineEnd = bytes.includes("\r\n") ? "\r\n" : "\n";
    if (blocks === undefined) {
      throw new UneditableError(
        "it is written as arrays; write it as [[users]] and [[acl]] tables",
      );
    }
    for (const block of blocks) this.#blocks[block.table].push(block);
  }

  #table(table: TableName, index: number): Table {
    const block = this.#blocks[table].at(index);
    if (block === undefined) throw new UneditableError("the record to change is not in the file");
    const { start, end } = block;
    // One character per byte, so that offsets in the text are offsets in the bytes.
    const text = this.#bytes.toString("latin1", start, end);
    const [header, ...rest] = outline(text).map((statement) => moved(statement, start));
    if (header === undefined) throw new UneditableError("a table without a header");
    const inner = rest.findIndex(({ kind }) => kind !== "key");
    const own = inner === -1 ? rest : rest.slice(0, inner);
    return { header, keys: own.filter((statement) => statement.kind === "key"), statements: rest };
  }

  #lines({ start, end }: Statement): { start: number; end: number } {
    const lineEnd = this.#bytes.indexOf("\n", end);
    return {
      start: start === 0 ? 0 : this.#bytes.lastIndexOf("\n", start - 1) + 1,
      end: lineEnd === -1 ? this.#bytes.length : lineEnd + 1,
    };
  }

  /**
   * Adds a table after the last one of its kind, in its place if that was removed, or at the end.
   */
  append(table: TableName, fields: Record<string, Writable>): void {
    const last = this.#blocks[table].length > 0 ? this.#table(table, -1) : undefined;
    const at = last ? this.#lines(last.statements.at(-1) ?? last.header).end : this.#bytes.length;
    const body = Object.entries(fields).map(([key, value]) => `${key} = ${render(value)}`);
    const lines = [`[[${table}]]`, ...body].map((line) => line + this.#lineEnd).join("");
    const unfinished = at > 0 && this.#bytes[at - 1] !== LINE_FEED;
    const blank = last && this.#removed.get(last.header.start);
    const isApart = blank === undefined && at > 0;
    const gap = (unfinished ? this.#lineEnd : "") + (isApart ? this.#lineEnd : "");
    this.#splices.push({ start: at, end: at, text: gap + lines + (blank ?? "") });
  }

  /**
   * Sets a key of a table, or removes it if `value` is undefined.
   *
   * @throws UneditableError if the value is written as a table of its own
   */
  set(table: TableName, index: number, key: string, value: Writable | undefined): void {
    const { header, keys, statements } = this.#table(table, index);
    const statement = keys.find(({ path }) => path.length === 2 && path[1] === key);
    if (statement === undefined) {
      if (statements.some(({ path }) => path[1] === key)) {
        throw new UneditableError(`${key} is a table of its own there; change it by hand`);
      }
      if (value !== undefined) this.#insert(keys.at(-1) ?? header, `${key} = ${render(value)}`);
    } else if (value === undefined) {
      this.#remove(statement);
    } else {
      this.#splices.push({
        start: statement.valueStart,
        end: statement.valueEnd,
        text: render(value),
      });
    }
  }

  #insert(after: Statement, line: string): void {
    const { start, end } = this.#lines(after);
    const indentation = this.#bytes.toString("utf8", start, after.start);
    const unfinished = this.#bytes[end - 1] !== LINE_FEED;
    const text = unfinished
      ? this.#lineEnd + indentation + line
      : indentation + line + this.#lineEnd;
    this.#splices.push({ start: end, end, text });
  }

  /** Removes a statement, but keeps a comment after it. */
  #remove(statement: Statement): void {
    const { start, end } = this.#lines(statement);
    const comment = this.#bytes.toString("utf8", statement.end, end).trimStart();
    this.#splices.push({ start, end, text: comment });
  }

  /** Removes a table and one of the blank lines around it. Comments stay. */
  removeTable(table: TableName, index: number): void {
    const { header, statements } = this.#table(table, index);
    for (const statement of [header, ...statements]) this.#remove(statement);
    const after = this.#lines(statements.at(-1) ?? header).end;
    const blank =
      /^[ \t]*\r?\n/.exec(this.#bytes.toString("latin1", after, after + 256))?.[0] ?? "";
    if (blank !== "") this.#splices.push({ start: after, end: after + blank.length, text: "" });
    this.#removed.set(header.start, blank);
  }

  finish(): Buffer {
    const ordered = this.#splices.toSorted((a, b) => a.start - b.start || a.end - b.end);
    const parts: Buffer[] = [];
    let done = 0;
    for (const { start, end, text } of ordered) {
      if (start < done) throw new UneditableError("two changes meet in one place");
      parts.push(this.#bytes.subarray(done, start), Buffer.from(text));
      done = end;
    }
    return Buffer.concat([...parts, this.#bytes.subarray(done)]);
  }
}

/** The index of a record. It always exists, since the change was judged against these records. */
function placeOf<Item>(records: readonly Item[], isMeant: (record: Item) => boolean): number {
  const index = records.findIndex(isMeant);
  if (index === -1) throw new UneditableError("the record to change is not in the file");
  return index;
}

function editKeys(
  editor: TextEditor,
  table: TableName,
  index: number,
  { old, wanted }: Record<"old" | "wanted", Record<string, Writable>>,
): void {
  for (const key of new Set([...Object.keys(old), ...Object.keys(wanted)])) {
    if (!isDeepStrictEqual(old[key], wanted[key])) editor.set(table, index, key, wanted[key]);
  }
}

function editUser(editor: TextEditor, users: readonly User[], name: string, update: UserUpdate) {
  const index = placeOf(users, ({ username }) => username === name);
  const before = users[index];
  if (before === undefined) return;
  const wanted = writtenUser(updatedUser(before, update));
  editKeys(editor, "users", index, { old: writtenUser(before), wanted });
}

function editGrant(editor: TextEditor, grants: readonly Grant[], grant: Grant): void {
  const index = placeOf(grants, (known) => isSamePlace(known, grant));
  const before = grants[index];
  if (before === undefined) return;
  editKeys(editor, "acl", index, { old: writtenEntry(before), wanted: writtenEntry(grant) });
}

function removeUser(editor: TextEditor, { users, grants }: AccessRecords, name: string): void {
  for (const [index, { username }] of users.entries()) {
    if (username === name) editor.removeTable("users", index);
  }
  for (const [index, { username }] of grants.entries()) {
    if (username === name) editor.removeTable("acl", index);
  }
}

function edit(editor: TextEditor, records: AccessRecords, change: Change): void {
  switch (change.kind) {
    case "add-user":
      editor.append("users", writtenUser(change.user));
      break;
    case "update-user":
      editUser(editor, records.users, change.username, change.update);
      break;
    case "remove-user":
      removeUser(editor, records, change.username);
      break;
    case "add-grant":
      editor.append("acl", writtenEntry(change.grant));
      break;
    case "set-grant":
      editGrant(editor, records.grants, change.grant);
      break;
    case "remove-grant": {
      const isMeant = (known: Grant) => isSamePlace(known, change.grant);
      editor.removeTable("acl", placeOf(records.grants, isMeant));
      break;
    }
  }
}

/**
 * The bytes with `changes` made, in steps. `records` must be those of the bytes.
 *
 * @param blocks the positions of the tables
 * @throws UneditableError if the file is not written as tables
 */
function* editSteps(
  bytes: Buffer,
  blocks: readonly Block[] | undefined,
  records: AccessRecords,
  changes: readonly Change[],
): Steps<Buffer> {
  const editor = new TextEditor(bytes, blocks);
  for (const change of changes) {
    edit(editor, records, change);
    yield;
  }
  return editor.finish();
}

function* blocksOf({ preamble, blocks: { lengths, records } }: PlainFile): Steps<Block[]> {
  const blocks: Block[] = [];
  let start = preamble;
  yield* visitEach(records, (record, at) => {
    const end = start + (lengths[at] ?? 0);
    blocks.push({ table: tableOf(record), start, end });
    start = end;
  });
  return blocks;
}

/** @throws UneditableError */
export function editText(text: string, records: AccessRecords, changes: readonly Change[]): string {
  const bytes = Buffer.from(text);
  const blocks = outlinedBlocks(bytes.toString("latin1"));
  return runAtOnce(editSteps(bytes, blocks, records, changes)).toString();
}

function* areEqual<T>(some: readonly T[], others: readonly T[]): Steps<boolean> {
  let equal = some.length === others.length;
  yield* visitEach(some, (one, index) => {
    const other = others[index];
    // Most records are identical objects, since only changes were parsed.
    equal &&= one === other || isDeepStrictEqual(one, other);
  });
  return equal;
}

function* holdsExactly(parsed: AccessRecords, expected: AccessRecords): Steps<boolean> {
  const usersAre = yield* areEqual(parsed.users, expected.users);
  return usersAre && (yield* areEqual(parsed.grants, expected.grants));
}

/** A file without users and grants would be treated as truncated, so none is written. */
class NothingLeftError extends UneditableError {
  constructor() {
    super("it would hold no user and no grant");
  }
}

/**
 * Edits the file, and verifies that the result holds the old records plus exactly these changes.
 */
export function* editAndVerify(
  before: ParsedAccess,
  file: string,
  changes: readonly Change[],
): Steps<ParsedAccess> {
  const expected = yield* applyChanges(before.records, changes);
  if (expected.users.length === 0 && expected.grants.length === 0) throw new NothingLeftError();
  const { bytes, plain, records } = before;
  const blocks = plain ? yield* blocksOf(plain) : outlinedBlocks(bytes.toString("latin1"));
  const edited = yield* editSteps(bytes, blocks, records, changes);
  if (edited.length > MAX_ACCESS_FILE_BYTES) {
    throw new UneditableError("it would be larger than 256 MiB");
  }
  const after = yield* parseSteps(edited, file, before);
  if (yield* holdsExactly(after.records, expected)) return after;
  throw new UneditableError("the edit would change more than it means to");
}

interface Writer {
  readonly plan: Plan;
  readonly options: ChangeOptions;
  /** An earlier reading of the file, so that only changes are parsed. */
  readonly earlier: ParsedAccess | undefined;
  resolve(written: ParsedAccess): void;
  reject(error: unknown): void;
}

/** Changes of several writers, written at once (group commit). */
interface Batch {
  readonly changes: readonly Change[];
  readonly writers: readonly Writer[];
  /** Refused writers, each judged after the changes of the writers before it. */
  readonly refused: readonly { readonly writer: Writer; readonly error: unknown }[];
}

/** True for a writer whose change must be written by itself. */
function isAlone({ options: { force, beforeWrite } }: Writer): boolean {
  return force === true || beforeWrite !== undefined;
}

/**
 * Collects from the head of the queue, in order, what can be written at once. A batch never has two
 * changes of one user, or anything after a removal. A refused head forms its own batch, since it
 * was judged by what is on disk.
 */
function gatherBatch(current: Snapshot, queue: readonly Writer[], most: number): Batch {
  const changes: Change[] = [];
  const writers: Writer[] = [];
  const refused: { writer: Writer; error: unknown }[] = [];
  const touched = new Set<string>();
  let draft: Draft | undefined;
  for (const writer of queue.slice(0, most)) {
    if (writers.length > 0 && isAlone(writer)) break;
    let planned: readonly Change[];
    try {
      planned = writer.plan(draft?.snapshot ?? current);
    } catch (error) {
      refused.push({ writer, error });
      if (writers.length === 0) break;
      continue;
    }
    if (planned.some((change) => touched.has(usernameOf(change)))) break;
    writers.push(writer);
    changes.push(...planned);
    if (isAlone(writer) || !planned.every(isDrafted)) break;
    if (planned.length > 0) draft ??= new Draft(current);
    for (const change of planned.filter(isDrafted)) {
      touched.add(usernameOf(change));
      draft?.make(change);
    }
  }
  return { changes, writers, refused };
}

/** Error codes for a file that cannot be written, because of its permissions or a lack of space. */
const unwritableCodes = new Set([
  ...["EROFS", "EACCES", "EPERM", "EBUSY"],
  ...["ENOSPC", "EDQUOT", "EFBIG", "EIO"],
]);
/** Error codes for a path that is not a file: circular links, a socket, a path through a file. */
const misplacedCodes = new Set(["ELOOP", "ENXIO", "ENOTDIR", "EISDIR", "ENAMETOOLONG"]);

function invalid(message: string, cause: unknown): Refusal {
  return new Refusal("access_file_invalid", { message, cause });
}

/**
 * Converts errors that mean the access file cannot be changed. Other errors are returned unchanged.
 */
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

/** Read permissions are checked where the file is loaded, not here. */
const anyReader = { checkRead: false };
/** Attempts at a change when an operator saves the file in between. */
const ATTEMPTS = 5;
/** Pause between two writes of one process, so that other processes get the lock. */
const PAUSE_MS = 25;

/**
 * The new content of the file. Undefined if the changes of several writers cannot be made together.
 */
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

interface Target {
  /** The path as configured, for messages. */
  readonly file: string;
  readonly queue: Writer[];
}

const targets = new Map<string, Target>();

function settle({ file, queue }: Target, batch: Batch, written: ParsedAccess): void {
  const { writers, refused } = batch;
  queue.splice(0, writers.length + refused.length);
  for (const writer of writers) writer.resolve(written);
  for (const { writer, error } of refused) writer.reject(asWriteRefusal(error, file));
}

/**
 * Writes the changes at the head of the queue. The caller holds the lock.
 *
 * @param most maximum writers
 * @returns the content on disk, or undefined if someone without the lock, such as an editor, has
 * written the file since it was read
 * @throws the refusal of the first writer in the queue
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

/** Serves the head of the queue. @throws its refusal */
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

async function serve(target: Target): Promise<void> {
  const { file, queue } = target;
  let latest: ParsedAccess | undefined;
  while (queue.length > 0) {
    const [head] = queue;
    try {
      latest = await serveHead(target, latest ?? head?.earlier);
    } catch (error) {
      // While the head waited for the lock, everyone in the queue waited too.
      const failed = queue.splice(0, error instanceof LockTimeoutError ? queue.length : 1);
      for (const writer of failed) writer.reject(asWriteRefusal(error, file));
    }
    if (queue.length > 0) await delay(PAUSE_MS);
  }
  targets.delete(file);
}

/**
 * Changes the access file. It takes the lock, reads the file, calls `plan`, edits only what the
 * changes concern, verifies the result and replaces the file atomically. Writers of one process are
 * served in order and may share a write. A symlink is followed to the real file. When this
 * resolves, the new content is on disk.
 *
 * @param earlier an earlier reading of the file, so that only changes are parsed
 * @returns the content on disk
 * @throws Refusal from `plan` or `beforeWrite`, `last_owner`, `last_administrator`,
 * `access_file_read_only`, `access_file_invalid` or `busy`
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
  const text = editText(header, { users: [], grants: [], boundaries: [] }, changes);
  const snapshot = parseAccessFile(text, file);
  return withLock(file, async () => {
    if (existsSync(file)) return undefined;
    await prepare();
    await replaceFile(file, text);
    return snapshot;
  });
}
