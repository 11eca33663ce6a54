import { createHash } from "node:crypto";
import { runAtOnce, runCooperatively, type Steps, visitEach } from "../cooperative-scheduling.ts";
import { decodeSteps, holdsBytes, readGuardedBytes } from "../files/guarded.ts";
import { outline, type Statement } from "../toml/outline.ts";
import { parseToml, TomlSyntaxError } from "../toml/values.ts";
import type { Boundary, Grant, User } from "./grant.ts";
import {
  type AccessRecord,
  type AccessRecords,
  isBoundary,
  isTable,
  isTableName,
  isUser,
  type RecordProblem,
  RecordsError,
  readers,
  readRecords,
  type TableName,
  tableOf,
} from "./records.ts";
import { isExternalUsername } from "./roles.ts";
import {
  type AccessIndex,
  changeIndex,
  indexRecords,
  type RecordChanges,
  type Snapshot,
} from "./snapshot.ts";

/**
 * The position of a `[[users]]`, `[[acl]]` or `[[boundaries]]` table, from its header to the next
 * one.
 */
export interface Block {
  readonly table: TableName;
  readonly start: number;
  readonly end: number;
}

const BLOCKS_PER_STEP = 512;

const header = /\[\[(users|acl|boundaries)\]\][ \t]*(?:#[^\n]*)?\r?(?:\n|$)/y;
const blankLine = /[ \t]*(?:#[^\n]*)?\r?(?:\n|$)/y;

function isLineStart(text: string, at: number): boolean {
  let before = at - 1;
  while (text[before] === " " || text[before] === "\t") before--;
  return before < 0 || text[before] === "\n";
}

function isBlankUntil(text: string, end: number): boolean {
  let at = 0;
  while (at < end) {
    blankLine.lastIndex = at;
    const match = blankLine.exec(text);
    if (match === null || match[0].length === 0) return false;
    at = match.index + match[0].length;
  }
  return true;
}

/** The next `[` at the start of a line, at or after `from`, or the length of the text. */
function nextBracket(text: string, from: number): number {
  let at = text.indexOf("[", from);
  while (at !== -1 && !isLineStart(text, at)) at = text.indexOf("[", at + 1);
  return at === -1 ? text.length : at;
}

/**
 * Splits the text into tables, much faster than a parser. `from` must be a bracket at the start of
 * a line. Returns undefined if only a parser can tell which lines are headers. A table with a line
 * that begins with a bracket is cut in two, and neither half parses.
 */
function* blocksFrom(text: string, from: number): Steps<Block[] | undefined> {
  const blocks: Block[] = [];
  let start = from;
  while (start < text.length) {
    header.lastIndex = start;
    const table = header.exec(text)?.[1];
    if (!isTableName(table)) return undefined;
    const end = nextBracket(text, header.lastIndex);
    blocks.push({ table, start, end });
    start = end;
    if (blocks.length % BLOCKS_PER_STEP === 0) yield;
  }
  return blocks;
}

/** In multi-line strings, any line may look like a header. */
function hasLongStrings(text: string): boolean {
  return text.includes('"""') || text.includes("'''");
}

/** The blocks of a plainly written file. Undefined if only a parser can find them. */
function* plainBlocks(text: string): Steps<Block[] | undefined> {
  const start = nextBracket(text, 0);
  if (hasLongStrings(text) || !isBlankUntil(text, start)) return undefined;
  return yield* blocksFrom(text, start);
}

/**
 * The blocks of any valid file, from its outline. Undefined if a key precedes the first header,
 * which can only be an array of inline tables.
 */
export function outlinedBlocks(text: string): Block[] | undefined {
  const statements = outline(text);
  if (statements[0]?.kind === "key") return undefined;
  // A `[users.attributes]` belongs to the record before it.
  const headers = statements.filter(({ kind, path }) => kind !== "key" && path.length === 1);
  return headers.flatMap(({ path: [table], start }, at) => {
    const end = headers[at + 1]?.start ?? text.length;
    return isTableName(table) ? [{ table, start, end }] : [];
  });
}

/** A problem in the access file. Never quotes the file. */
export interface AccessProblem {
  /** From 1. Undefined for a problem of the whole file. */
  readonly line?: number | undefined;
  readonly reason: string;
}

/** Maximum problems reported. */
const TOLD = 50;

function lineAmong(
  statements: readonly Statement[],
  { table, index, key }: RecordProblem,
): number | undefined {
  const isStranger = index === -1;
  const top = isStranger ? key : table;
  let record = -1;
  let line: number | undefined;
  for (const { kind, path, line: at } of statements) {
    if (path[0] !== top) continue;
    if (isStranger) return at;
    if (kind === "array-table" && path.length === 1) record += 1;
    if (record === index && key !== undefined && path[1] === key) return at;
    // Inline arrays have no record headers to count, so the first line is used.
    if (record === index || record === -1) line ??= at;
  }
  return line;
}

/** @param places offsets in ascending order */
function* linesBefore(text: string, places: readonly number[]): Steps<Map<number, number>> {
  const lines = new Map<number, number>();
  let [count, from] = [0, 0];
  for (const place of places) {
    for (
      let at = text.indexOf("\n", from);
      at !== -1 && at < place;
      at = text.indexOf("\n", from)
    ) {
      count++;
      from = at + 1;
      if (count % 4096 === 0) yield;
    }
    lines.set(place, count);
  }
  return lines;
}

function* locate(
  text: string,
  problems: readonly RecordProblem[],
): Steps<readonly AccessProblem[]> {
  const told = problems.slice(0, TOLD);
  const blocks = yield* plainBlocks(text);
  const found: AccessProblem[] = [];
  if (blocks === undefined) {
    const statements = outline(text);
    for (const problem of told) {
      found.push({ line: lineAmong(statements, problem), reason: problem.reason });
    }
  } else {
    const starts: Record<TableName, number[]> = { users: [], acl: [], boundaries: [] };
    yield* visitEach(blocks, ({ table, start }) => starts[table].push(start));
    const ends = new Map(blocks.map(({ start, end }) => [start, end]));
    const placed = told.map((problem) => ({
      problem,
      start: starts[problem.table][problem.index] ?? 0,
    }));
    const places = placed.map(({ start }) => start).sort((one, other) => one - other);
    const before = yield* linesBefore(text, places);
    for (const { problem, start } of placed) {
      const statements = outline(text.slice(start, ends.get(start)));
      const line = lineAmong(statements, { ...problem, index: 0 }) ?? 1;
      found.push({ line: (before.get(start) ?? 0) + line, reason: problem.reason });
      yield;
    }
  }
  const ordered = found.toSorted((one, other) => (one.line ?? 0) - (other.line ?? 0));
  const more = problems.length - told.length;
  return more === 0 ? ordered : [...ordered, { reason: `and ${more} more problems` }];
}

/**
 * The tables of a plainly written file. They keep lengths in bytes, not positions, so that they can
 * move.
 */
interface ReadBlocks {
  readonly lengths: readonly number[];
  readonly records: readonly AccessRecord[];
}

const noBlocks: ReadBlocks = { lengths: [], records: [] };

function partOf({ lengths, records }: ReadBlocks, from: number, to?: number): ReadBlocks {
  return { lengths: lengths.slice(from, to), records: records.slice(from, to) };
}

function joined(first: ReadBlocks, ...others: readonly ReadBlocks[]): ReadBlocks {
  return {
    lengths: first.lengths.concat(...others.map(({ lengths }) => lengths)),
    records: first.records.concat(...others.map(({ records }) => records)),
  };
}

export interface PlainFile {
  readonly bytes: Buffer;
  readonly records: AccessRecords;
  readonly preamble: number;
  readonly blocks: ReadBlocks;
  /** The difference to the earlier reading. Undefined if there was none. */
  readonly changes: RecordChanges | undefined;
}

/** An invalid file up to this size is read by the parser in one go, which blocks the event loop. */
const SMALL_BYTES = 256 * 1024;

/** Bytes compared at a time by the native comparison. */
const CHUNK = 1 << 16;

function commonPrefix(one: Buffer, other: Buffer): number {
  const most = Math.min(one.length, other.length);
  let at = 0;
  while (at < most && one.subarray(at, at + CHUNK).equals(other.subarray(at, at + CHUNK))) {
    at += CHUNK;
  }
  while (at < most && one[at] === other[at]) at++;
  return Math.min(at, most);
}

function commonSuffix(one: Buffer, other: Buffer, most: number): number {
  const tail = (bytes: Buffer, from: number, to: number) =>
    bytes.subarray(bytes.length - to, bytes.length - from);
  let count = 0;
  while (count + CHUNK <= most) {
    const next = count + CHUNK;
    if (!tail(one, count, next).equals(tail(other, count, next))) break;
    count = next;
  }
  while (count < most && one[one.length - count - 1] === other[other.length - count - 1]) count++;
  return count;
}

interface Reusable {
  readonly first: ReadBlocks;
  readonly last: ReadBlocks;
  readonly from: number;
  readonly to: number;
}

function nothingReusable({ length }: Buffer): Reusable {
  return { first: noBlocks, last: noBlocks, from: 0, to: length };
}

function startsLine(bytes: Buffer, at: number): boolean {
  let before = at - 1;
  while (bytes[before] === 0x20 || bytes[before] === 0x09) before--;
  return before < 0 || bytes[before] === 0x0a;
}

/** Finds the tables that need not be read again, since an edit leaves most of a file unchanged. */
function* findReusable(bytes: Buffer, earlier: PlainFile | undefined): Steps<Reusable> {
  if (earlier === undefined) return nothingReusable(bytes);
  const prefix = commonPrefix(earlier.bytes, bytes);
  yield;
  let from = earlier.preamble;
  let firsts = 0;
  const { lengths } = earlier.blocks;
  for (const length of lengths) {
    // The bracket after the block must match too. Otherwise the block may now be longer.
    if (from + length >= prefix) break;
    from += length;
    firsts++;
  }
  if (firsts === 0) return nothingReusable(bytes);
  const most = Math.min(earlier.bytes.length, bytes.length) - from;
  yield;
  const suffix = commonSuffix(earlier.bytes, bytes, most);
  yield;
  let to = bytes.length;
  let lasts = 0;
  for (let at = lengths.length - 1; at >= firsts; at--) {
    const start = to - (lengths[at] ?? 0);
    if (bytes.length - start > suffix || !startsLine(bytes, start)) break;
    to = start;
    lasts++;
  }
  const first = partOf(earlier.blocks, 0, firsts);
  return { first, last: partOf(earlier.blocks, lengths.length - lasts), from, to };
}

/** Maximum characters of a text that is likely to repeat: a name, but not a hash. */
const REPEATED = 64;

/**
 * Replaces the parser's strings by deduplicated copies. The parser's are slices that keep the whole
 * text in memory.
 */
function detach(value: unknown, known: Map<string, string>): unknown {
  if (typeof value === "string") {
    let own = known.get(value);
    if (own === undefined) {
      own = Buffer.from(value).toString();
      if (own.length <= REPEATED) known.set(own, own);
    }
    return own;
  }
  if (Array.isArray(value)) return value.map((each) => detach(each, known));
  if (!isTable(value)) return value;
  for (const key of Object.keys(value)) value[key] = detach(value[key], known);
  return value;
}

/**
 * Bytes decoded at a time, so that the text is freed before V8 promotes it to the old generation.
 */
const PIECE = 1 << 16;

/**
 * Splits the bytes into pieces. Each piece but the first begins with a bracket at the start of a
 * line.
 */
function* piecesOf(bytes: Buffer): Generator<Buffer, undefined> {
  for (let start = 0; start < bytes.length; ) {
    const before = bytes.indexOf("\n[", start + PIECE);
    const end = before === -1 ? bytes.length : before + 1;
    yield bytes.subarray(start, end);
    start = end;
  }
}

/** Reads the tables between the reused leading and trailing ones. */
class TableReader {
  readonly lengths: number[] = [];
  readonly records: AccessRecord[] = [];
  readonly problems: RecordProblem[] = [];
  readonly #known = new Map<string, string>();
  readonly #ordinals = { users: 0, acl: 0, boundaries: 0 };

  constructor(before: ReadBlocks) {
    for (const record of before.records) this.#ordinals[tableOf(record)]++;
  }

  /** Returns false if only a parser can tell where the tables are. */
  *read(text: string): Steps<boolean> {
    const blocks = hasLongStrings(text) ? undefined : yield* blocksFrom(text, 0);
    if (blocks === undefined) return false;
    const report = (problem: RecordProblem) => this.problems.push(problem);
    yield* visitEach(blocks, ({ table, start, end }) => {
      const written = text.slice(start, end);
      const { [table]: array } = parseToml(written, "").values;
      const [value] = Array.isArray(array) ? array : [];
      const record = readers[table](detach(value, this.#known), this.#ordinals[table]++, report);
      if (record === undefined) return;
      this.lengths.push(Buffer.byteLength(written));
      this.records.push(record);
    });
    return true;
  }
}

function* sortRecords({ records }: ReadBlocks): Steps<AccessRecords> {
  const users: User[] = [];
  const grants: Grant[] = [];
  const boundaries: Boundary[] = [];
  yield* visitEach(records, (record) => {
    if (isUser(record)) users.push(record);
    else if (isBoundary(record)) boundaries.push(record);
    else grants.push(record);
  });
  return { users, grants, boundaries };
}

function* readParts(
  bytes: Buffer,
  file: string,
  earlier: PlainFile | undefined,
): Steps<PlainFile | undefined> {
  const { first, last, from, to } = yield* findReusable(bytes, earlier);
  const read = new TableReader(first);
  let preamble = from === 0 ? undefined : earlier?.preamble;
  for (const piece of piecesOf(bytes.subarray(from, to))) {
    const text = yield* decodeSteps(file, piece);
    const start = preamble === undefined ? nextBracket(text, 0) : 0;
    if (!isBlankUntil(text, start)) return undefined;
    // Parsed because comments, too, can contain invalid characters.
    const { text: before } = parseToml(text.slice(0, start), "");
    preamble ??= Buffer.byteLength(before);
    if (!(yield* read.read(text.slice(start)))) return undefined;
  }
  if (read.problems.length > 0) throw new RecordsError(read.problems);
  const blocks = joined(first, read, last);
  const replaced = earlier?.blocks.records.slice(
    first.records.length,
    earlier.blocks.records.length - last.records.length,
  );
  const changes = replaced && { removed: replaced, added: read.records };
  return { bytes, preamble: preamble ?? 0, blocks, records: yield* sortRecords(blocks), changes };
}

/**
 * Reads a plainly written file and reuses what it shares with an `earlier` one. Returns undefined
 * if the full parser must read it: the file is not plain, not TOML, or small and invalid.
 *
 * @throws UnsafeFileError if the bytes are not text, RecordsError if records break the rules
 */
function* readPlain(
  bytes: Buffer,
  file: string,
  earlier: PlainFile | undefined,
): Steps<PlainFile | undefined> {
  try {
    return yield* readParts(bytes, file, earlier);
  } catch (error) {
    if (error instanceof TomlSyntaxError) return undefined;
    // The full parser also reports which of the other records conflict.
    if (error instanceof RecordsError && bytes.length <= SMALL_BYTES) return undefined;
    throw error;
  }
}

/** The access file is invalid. The message says where and why, and never quotes the file. */
export class AccessFileError extends Error {
  readonly file: string;
  /** In the order of the file, at least one. */
  readonly problems: readonly AccessProblem[];

  constructor(file: string, problems: readonly AccessProblem[]) {
    const lines = problems.map(({ line, reason }) =>
      line === undefined ? `${file}: ${reason}` : `${file}:${line}: ${reason}`,
    );
    super(lines.join("\n"));
    this.name = "AccessFileError";
    this.file = file;
    this.problems = problems;
  }
}

export interface ParsedAccess {
  readonly bytes: Buffer;
  readonly records: AccessRecords;
  readonly snapshot: Snapshot;
  readonly index: AccessIndex;
  /** Present if the file is written plainly. The next reading reuses it. */
  readonly plain: PlainFile | undefined;
}

const HASHED_PER_STEP = 1 << 20;

function* digestSteps(bytes: Buffer): Steps<string> {
  const hash = createHash("sha256");
  for (let at = 0; at < bytes.length; at += HASHED_PER_STEP) {
    hash.update(bytes.subarray(at, at + HASHED_PER_STEP));
    yield;
  }
  return hash.digest("hex");
}

/** Hex digits of the hash in the version, enough to tell two files apart. */
const VERSION_DIGITS = 12;

/**
 * Reads the access file in steps.
 *
 * @param earlier an earlier reading, so that only changes are parsed
 * @throws AccessFileError with the line if the file is invalid, UnsafeFileError if it is not text
 */
export function* parseSteps(
  bytes: Buffer,
  file: string,
  earlier?: ParsedAccess,
): Steps<ParsedAccess> {
  try {
    const plain = yield* readPlain(bytes, file, earlier?.plain);
    const problems: RecordProblem[] = [];
    const report = (problem: RecordProblem) => problems.push(problem);
    const read =
      plain?.records ??
      readRecords(parseToml(yield* decodeSteps(file, bytes), file).values, report);
    const { users, grants, boundaries } = read;
    if (problems.length === 0 && users.length === 0 && grants.length === 0) {
      const reason = "holds no user and no grant: taken as truncated";
      throw new AccessFileError(file, [{ reason }]);
    }
    const version = (yield* digestSteps(bytes)).slice(0, VERSION_DIGITS);
    const changed =
      earlier && plain?.changes
        ? yield* changeIndex(earlier.index, plain.changes, plain.records, version)
        : undefined;
    const index = changed ?? (yield* indexRecords(read, version, report));
    if (problems.length > 0) throw new RecordsError(problems);
    const records = plain?.records ?? {
      users: users.filter((user) => user !== undefined),
      grants: grants.filter((grant) => grant !== undefined),
      boundaries: boundaries.filter((boundary) => boundary !== undefined),
    };
    return { bytes, records, snapshot: index.snapshot, index, plain };
  } catch (error) {
    if (error instanceof TomlSyntaxError) {
      const { line, reason } = error;
      throw new AccessFileError(file, [{ line, reason }]);
    }
    if (!(error instanceof RecordsError)) throw error;
    const text = yield* decodeSteps(file, bytes);
    throw new AccessFileError(file, yield* locate(text, error.problems));
  }
}

/** Maximum size of the access file, enough for about a million users. */
export const MAX_ACCESS_FILE_BYTES = 256 * 1024 * 1024;

export interface ReadOptions {
  /** Also refuse a file that other users of the system can read. */
  readonly checkRead: boolean;
}

/** True if the access file is unchanged. @throws as `readAccessFile`, except for the content */
export function isStill(
  file: string,
  { bytes }: ParsedAccess,
  { checkRead }: ReadOptions,
): Promise<boolean> {
  return holdsBytes(file, bytes, { checkRead, maxBytes: MAX_ACCESS_FILE_BYTES });
}

/**
 * Reads the access file in slices, so that requests are served in between.
 *
 * @param earlier an earlier reading, returned if nothing has changed
 * @param name the file's name in errors
 * @throws AccessFileError, UnsafeFileError if it is not text, not a regular file, too large, or its
 * permissions are too wide, and the file system's error if it cannot be read
 */
export async function readAccessFile(
  file: string,
  options: ReadOptions,
  earlier?: ParsedAccess,
  name = file,
): Promise<ParsedAccess> {
  if (earlier !== undefined && (await isStill(file, earlier, options))) return earlier;
  const { checkRead } = options;
  const bytes = await readGuardedBytes(file, { checkRead, maxBytes: MAX_ACCESS_FILE_BYTES });
  return runCooperatively(parseSteps(bytes, name, earlier));
}

/** @throws AccessFileError */
export function parseAccessFile(text: string, file: string): Snapshot {
  return runAtOnce(parseSteps(Buffer.from(text), file)).snapshot;
}

/**
 * Names with entries but no record. This is normal for external users and otherwise worth a
 * warning.
 */
export function* namesWithoutRecord(snapshot: Snapshot): Steps<string[]> {
  const names: string[] = [];
  yield* visitEach(snapshot.grants.keys(), (name) => {
    if (!snapshot.users.has(name) && !isExternalUsername(name)) names.push(name);
  });
  return names;
}
