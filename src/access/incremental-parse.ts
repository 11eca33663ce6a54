import { type Steps, visitEach } from "../cooperative-scheduling.ts";
import { decodeSteps } from "../files/guarded.ts";
import { parseToml, TomlSyntaxError } from "../toml/values.ts";
import type { Boundary, Grant } from "./grant.ts";
import { type AccessRecord, isBoundary, isUser, tableOf } from "./record-tables.ts";
import { type AccessRecords, type RecordProblem, RecordsError, readers } from "./records.ts";
import type { User } from "./snapshot.ts";
import type { RecordChanges } from "./snapshot-index.ts";
import {
  type Block,
  blocksBetween,
  hasLongStrings,
  isBlankUntil,
  nextBracket,
} from "./table-blocks.ts";

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
    if (bytes.length - start > suffix || !beginsLine(bytes, start)) break;
    to = start;
    lasts++;
  }
  const first = partOf(earlier.blocks, 0, firsts);
  return { first, last: partOf(earlier.blocks, lengths.length - lasts), from, to };
}

/**
 * The same value with texts of its own, each there once. Those of the parser are parts of the file's text, all of which
 * they would keep in memory.
 */
function detach(value: unknown, known: Map<string, string>): unknown {
  if (typeof value === "string") {
    let own = known.get(value);
    if (own === undefined) {
      own = Buffer.from(value).toString();
      known.set(own, own);
    }
    return own;
  }
  if (Array.isArray(value)) return value.map((each) => detach(each, known));
  if (typeof value !== "object" || value === null || value instanceof Date) return value;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, detach(each, known)]));
}

/** @throws RecordsError for blocks that are right as TOML, with all that is wrong in them */
function* readBlocks(
  text: string,
  blocks: readonly Block[],
  before: ReadBlocks,
): Steps<ReadBlocks> {
  const lengths: number[] = [];
  const records: AccessRecord[] = [];
  const known = new Map<string, string>();
  const problems: RecordProblem[] = [];
  const ordinals = { users: 0, acl: 0, boundaries: 0 };
  for (const record of before.records) ordinals[tableOf(record)]++;
  yield* visitEach(blocks, ({ table, start, end }) => {
    const written = text.slice(start, end);
    const { [table]: array } = parseToml(written, "").values;
    const [value] = Array.isArray(array) ? array : [];
    const report = (problem: RecordProblem) => problems.push(problem);
    const record = readers[table](detach(value, known), ordinals[table]++, report);
    if (record === undefined) return;
    lengths.push(Buffer.byteLength(written));
    records.push(record);
  });
  if (problems.length > 0) throw new RecordsError(problems);
  return { lengths, records };
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
  const text = yield* decodeSteps(file, bytes.subarray(from, to));
  const isWhole = first.records.length === 0;
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
  const blocks = joined(first, read, last);
  const preamble = isWhole ? Buffer.byteLength(before) : (earlier?.preamble ?? 0);
  const replaced = earlier?.blocks.records.slice(
    first.records.length,
    earlier.blocks.records.length - last.records.length,
  );
  const changes = replaced && { removed: replaced, added: read.records };
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
