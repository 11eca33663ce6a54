import { createHash } from "node:crypto";
import { runAtOnce, runCooperatively, type Steps, visitEach } from "../cooperative-scheduling.ts";
import { decodeSteps, holdsBytes, readGuardedBytes } from "../files/guarded.ts";
import { outline, type Statement } from "../toml/outline.ts";
import { parseToml, TomlSyntaxError } from "../toml/values.ts";
import type { Boundary, Grant, User } from "./grant.ts";
import { isExternalUsername } from "./identifiers.ts";
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
import {
  type AccessIndex,
  changeIndex,
  indexRecords,
  type RecordChanges,
  type Snapshot,
} from "./snapshot.ts";

/** Where a `[[users]]`, `[[acl]]` or `[[boundaries]]` table stands: from its header to the next one. */
export interface Block {
  readonly table: TableName;
  readonly start: number;
  readonly end: number;
}

/** Blocks read between two chances to interrupt. */
const BLOCKS_PER_STEP = 512;

const header = /\[\[(users|acl|boundaries)\]\][ \t]*(?:#[^\n]*)?\r?(?:\n|$)/y;
const blankLine = /[ \t]*(?:#[^\n]*)?\r?(?:\n|$)/y;

/** True if only white space stands between the start of the line and `at`. */
function isLineStart(text: string, at: number): boolean {
  let before = at - 1;
  while (text[before] === " " || text[before] === "\t") before--;
  return before < 0 || text[before] === "\n";
}

/** True if nothing but blank lines and comments stands before `end`. */
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

/** The next `[` at the beginning of a line, at or after `from`; the text's length if none. */
function nextBracket(text: string, from: number): number {
  let at = text.indexOf("[", from);
  while (at !== -1 && !isLineStart(text, at)) at = text.indexOf("[", at + 1);
  return at === -1 ? text.length : at;
}

/**
 * Splits the text from a bracket at the beginning of a line on, far quicker than a parser
 * could. Undefined if it holds anything in which a line that looks like a header might be none:
 * then it takes a parser. A table that spans a bracket of its own is cut in two, and neither half
 * parses.
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

/** True if the text has strings of several lines, in which a line may look like anything. */
function hasLongStrings(text: string): boolean {
  return text.includes('"""') || text.includes("'''");
}

/** The blocks of a plainly written file; undefined if it takes a parser. */
function* plainBlocks(text: string): Steps<Block[] | undefined> {
  const start = nextBracket(text, 0);
  if (hasLongStrings(text) || !isBlankUntil(text, start)) return undefined;
  return yield* blocksFrom(text, start);
}

/**
 * The blocks of any valid file, by its outline. Undefined if there is a key before the first
 * header, which can only be an array of inline tables.
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

/** Something that is wrong in the access file; says nothing of what stands there. */
export interface AccessProblem {
  /** From 1; undefined for what is wrong with the file as a whole. */
  readonly line?: number | undefined;
  readonly reason: string;
}

/** Problems that are told, at most. */
const TOLD = 50;

/** The line of a record that is wrong, or of its key, or of what may not stand at the top. */
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
    // What is not written as [[tables]] has no records to count: its first line must do.
    if (record === index || record === -1) line ??= at;
  }
  return line;
}

/** Counts lines up to a place; places rise. */
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

/** The problems with their lines, in the order of the file. */
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

/** Tables of a plainly written file, read: how many bytes each has, so that it can move, and its record. */
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

/** A plainly written file, read table by table. */
export interface PlainFile {
  readonly bytes: Buffer;
  readonly records: AccessRecords;
  /** Bytes before the first table. */
  readonly preamble: number;
  readonly blocks: ReadBlocks;
  /** What makes the records of the earlier reading these; undefined if there was none. */
  readonly changes: RecordChanges | undefined;
}

/** A broken file up to this size is read whole by the parser, which holds the event loop. */
const SMALL_BYTES = 256 * 1024;

/** Bytes that are compared at a time, by the system's own comparison. */
const CHUNK = 1 << 16;

/** How many bytes from the start are the same in both. */
function commonPrefix(one: Buffer, other: Buffer): number {
  const most = Math.min(one.length, other.length);
  let at = 0;
  while (at < most && one.subarray(at, at + CHUNK).equals(other.subarray(at, at + CHUNK))) {
    at += CHUNK;
  }
  while (at < most && one[at] === other[at]) at++;
  return Math.min(at, most);
}

/** How many bytes from the end are the same in both, of at most `most`. */
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

/** What an earlier reading has in common with a text: its first and its last blocks. */
interface Reusable {
  readonly first: ReadBlocks;
  readonly last: ReadBlocks;
  /** The bytes that have to be read. */
  readonly from: number;
  readonly to: number;
}

function nothingReusable({ length }: Buffer): Reusable {
  return { first: noBlocks, last: noBlocks, from: 0, to: length };
}

/** True if only white space stands between the start of the line and `at`. */
function startsLine(bytes: Buffer, at: number): boolean {
  let before = at - 1;
  while (bytes[before] === 0x20 || bytes[before] === 0x09) before--;
  return before < 0 || bytes[before] === 0x0a;
}

/** Finds what need not be read again: an edit leaves most of a file as it was. */
function* findReusable(bytes: Buffer, earlier: PlainFile | undefined): Steps<Reusable> {
  if (earlier === undefined) return nothingReusable(bytes);
  const prefix = commonPrefix(earlier.bytes, bytes);
  yield;
  let from = earlier.preamble;
  let firsts = 0;
  const { lengths } = earlier.blocks;
  for (const length of lengths) {
    // The bracket behind the block must be common too, or the block may now go on.
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

/** Characters of a text that may well be there again: a name, but no hash. */
const REPEATED = 64;

/** Puts texts of their own, each there once, in the place of the parser's, which keep the text that they are parts of. */
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

/** Bytes that are made text at a time, so that it is gone before V8 takes it for long-lived. */
const PIECE = 1 << 16;

/** The bytes in pieces, each of which but the first begins with a bracket at the beginning of a line. */
function* piecesOf(bytes: Buffer): Generator<Buffer, undefined> {
  for (let start = 0; start < bytes.length; ) {
    const before = bytes.indexOf("\n[", start + PIECE);
    const end = before === -1 ? bytes.length : before + 1;
    yield bytes.subarray(start, end);
    start = end;
  }
}

/** Gathers the tables that stand between those before and those behind. */
class TableReader {
  readonly lengths: number[] = [];
  readonly records: AccessRecord[] = [];
  readonly problems: RecordProblem[] = [];
  readonly #known = new Map<string, string>();
  readonly #ordinals = { users: 0, acl: 0, boundaries: 0 };

  constructor(before: ReadBlocks) {
    for (const record of before.records) this.#ordinals[tableOf(record)]++;
  }

  /** Reads the tables of a text; false if it takes a parser to tell where they are. */
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
    // Comments too have characters that may not stand in them.
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
 * Reads a plainly written file; what it has in common with an `earlier` one is not read again.
 * Undefined if the file is not plain, no TOML, or small and wrong: then a parser for any file has the word.
 *
 * @throws UnsafeFileError if the bytes are no text, RecordsError if records break the rules
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
    // The parser's way also tells which of the other records contradict each other.
    if (error instanceof RecordsError && bytes.length <= SMALL_BYTES) return undefined;
    throw error;
  }
}

/** The access file cannot be used; says where and why, never with text from the file. */
export class AccessFileError extends Error {
  readonly file: string;
  /** All that is wrong, in the order of the file; at least one. */
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

/** An access file, read. */
export interface ParsedAccess {
  readonly bytes: Buffer;
  readonly records: AccessRecords;
  readonly snapshot: Snapshot;
  readonly index: AccessIndex;
  /** Present if the file is written plainly: what the next reading may use again. */
  readonly plain: PlainFile | undefined;
}

const HASHED_PER_STEP = 1 << 20;

/** SHA-256 of a file's content, in hexadecimal digits. */
function* digestSteps(bytes: Buffer): Steps<string> {
  const hash = createHash("sha256");
  for (let at = 0; at < bytes.length; at += HASHED_PER_STEP) {
    hash.update(bytes.subarray(at, at + HASHED_PER_STEP));
    yield;
  }
  return hash.digest("hex");
}

/** Digits of the digest that make the version: enough to tell two files apart. */
const VERSION_DIGITS = 12;

/**
 * Reads the access file in steps.
 *
 * @param earlier an earlier reading, so that only what has changed is parsed
 * @throws AccessFileError with the line, if anything in the text is not as it must be, or
 *   UnsafeFileError if the bytes are no text
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

/** Bytes that the access file may have: room for about a million users. */
export const MAX_ACCESS_FILE_BYTES = 256 * 1024 * 1024;

/** Which access files are read. */
export interface ReadOptions {
  /** Also refuse a file that others may read. */
  readonly checkRead: boolean;
}

/** True if the access file still is what was read. @throws as `readAccessFile`, but for its content */
export function isStill(
  file: string,
  { bytes }: ParsedAccess,
  { checkRead }: ReadOptions,
): Promise<boolean> {
  return holdsBytes(file, bytes, { checkRead, maxBytes: MAX_ACCESS_FILE_BYTES });
}

/**
 * Reads the access file in slices, between which requests are served.
 *
 * @param earlier an earlier reading, which is returned if nothing has changed
 * @param name how the file is called in errors
 * @throws AccessFileError, UnsafeFileError if it is no text, no regular file, too large, or its
 *   permissions are too wide, and the error of the file system if it cannot be read
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

/** Reads the access file's text as a snapshot. @throws AccessFileError */
export function parseAccessFile(text: string, file: string): Snapshot {
  return runAtOnce(parseSteps(Buffer.from(text), file)).snapshot;
}

/** The names that have entries but no record: allowed for external users, else worth a warning. */
export function* namesWithoutRecord(snapshot: Snapshot): Steps<string[]> {
  const names: string[] = [];
  yield* visitEach(snapshot.grants.keys(), (name) => {
    if (!snapshot.users.has(name) && !isExternalUsername(name)) names.push(name);
  });
  return names;
}
