import { type Steps, visitEach } from "../cooperative-scheduling.ts";
import { decodeSteps } from "../files/guarded.ts";
import { parseToml, TomlSyntaxError } from "../toml/values.ts";
import type { Boundary, Grant } from "./grant.ts";
import { type AccessRecord, isBoundary, isUser, type TableName, tableOf } from "./record-tables.ts";
import {
  type AccessRecords,
  type RecordProblem,
  RecordsError,
  type Report,
  readers,
} from "./records.ts";
import type { User } from "./snapshot.ts";
import type { RecordChanges } from "./snapshot-index.ts";
import {
  type Block,
  blocksBetween,
  hasLongStrings,
  isBlankUntil,
  nextBracket,
} from "./table-blocks.ts";

/** A table of a plainly written file, read. It knows its length in bytes, so that it can move. */
export interface ReadBlock {
  readonly length: number;
  readonly record: AccessRecord;
}

/** A plainly written file, read table by table. */
export interface PlainFile {
  readonly bytes: Buffer;
  readonly records: AccessRecords;
  /** Bytes before the first table. */
  readonly preamble: number;
  readonly blocks: readonly ReadBlock[];
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
  readonly first: readonly ReadBlock[];
  readonly last: readonly ReadBlock[];
  /** The bytes that have to be read. */
  readonly from: number;
  readonly to: number;
}

function nothingReusable({ length }: Buffer): Reusable {
  return { first: [], last: [], from: 0, to: length };
}

/** True if only white space stands between the start of the line and `at`. */
function beginsLine(bytes: Buffer, at: number): boolean {
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
  for (const { length } of earlier.blocks) {
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
  for (let at = earlier.blocks.length - 1; at >= firsts; at--) {
    const start = to - (earlier.blocks[at]?.length ?? 0);
    if (bytes.length - start > suffix || !beginsLine(bytes, start)) break;
    to = start;
    lasts++;
  }
  const end = earlier.blocks.length - lasts;
  return { first: earlier.blocks.slice(0, firsts), last: earlier.blocks.slice(end), from, to };
}

function readRecord(
  written: string,
  table: TableName,
  index: number,
  report: Report,
): AccessRecord | undefined {
  const { [table]: array } = parseToml(written, "").values;
  const [record] = Array.isArray(array) ? array : [];
  return readers[table](record, index, report);
}

/** @throws RecordsError for blocks that are right as TOML, with all that is wrong in them */
function* readBlocks(
  text: string,
  blocks: readonly Block[],
  before: readonly ReadBlock[],
): Steps<ReadBlock[]> {
  const read: ReadBlock[] = [];
  const problems: RecordProblem[] = [];
  const ordinals = { users: 0, acl: 0, boundaries: 0 };
  for (const { record } of before) ordinals[tableOf(record)]++;
  yield* visitEach(blocks, ({ table, start, end }) => {
    const written = text.slice(start, end);
    const record = readRecord(written, table, ordinals[table]++, (problem) =>
      problems.push(problem),
    );
    if (record !== undefined) read.push({ length: Buffer.byteLength(written), record });
  });
  if (problems.length > 0) throw new RecordsError(problems);
  return read;
}

function recordsOf(blocks: readonly ReadBlock[]): AccessRecord[] {
  return blocks.map(({ record }) => record);
}

function* sortRecords(blocks: readonly ReadBlock[]): Steps<AccessRecords> {
  const users: User[] = [];
  const grants: Grant[] = [];
  const boundaries: Boundary[] = [];
  yield* visitEach(blocks, ({ record }) => {
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
  const text = yield* decodeSteps(file, bytes.subarray(from, to));
  const isWhole = first.length === 0;
  const start = isWhole ? nextBracket(text, 0) : 0;
  const before = text.slice(0, start);
  if (!isBlankUntil(text, start) || hasLongStrings(isWhole ? text.slice(start) : text)) {
    return undefined;
  }
  // Comments too have characters that may not stand in them.
  if (isWhole) parseToml(before, "");
  const middle = yield* blocksBetween(text, start, text.length);
  if (middle === undefined) return undefined;
  const read = yield* readBlocks(text, middle, first);
  const blocks = [...first, ...read, ...last];
  const preamble = isWhole ? Buffer.byteLength(before) : (earlier?.preamble ?? 0);
  const replaced = earlier?.blocks.slice(first.length, earlier.blocks.length - last.length);
  const changes = replaced && { removed: recordsOf(replaced), added: recordsOf(read) };
  return { bytes, preamble, blocks, records: yield* sortRecords(blocks), changes };
}

/**
 * Reads a plainly written file; what it has in common with an `earlier` one is not read again.
 * Undefined if the file is not plain, no TOML, or small and wrong: then a parser for any file has the word.
 *
 * @throws UnsafeFileError if the bytes are no text, RecordsError if records break the rules
 */
export function* readPlain(
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
