import { type Steps, visitEach } from "../cooperative-scheduling.ts";
import { decodeSteps } from "../files/guarded.ts";
import { parseToml, TomlSyntaxError } from "../toml/values.ts";
import type { Boundary, Grant } from "./grant.ts";
import { type AccessRecord, isBoundary, isUser, tableOf } from "./record-tables.ts";
import {
  type AccessRecords,
  isTable,
  type RecordProblem,
  RecordsError,
  readers,
} from "./records.ts";
import type { User } from "./snapshot.ts";
import type { RecordChanges } from "./snapshot-index.ts";
import { blocksFrom, hasLongStrings, isBlankUntil, nextBracket } from "./table-blocks.ts";

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
