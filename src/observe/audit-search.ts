import { createReadStream, type Dirent } from "node:fs";
import { type FileHandle, open, readdir, stat } from "node:fs/promises";
import path from "node:path";
import { pipeline } from "node:stream";
import {
  type AuditFilter,
  findLines,
  LONGEST_LINE,
  matcherOf,
  NEWLINE,
  needlesOf,
  type Piece,
  parseLine,
  type ReadLine,
  wholeLines,
} from "./audit-filter.ts";

/** An audit file with its rotated ones, read line by line in little memory. */

export const CHUNK_BYTES = 1024 * 1024;
/** Milliseconds by which lines of several processes, or of a clock that was set, may be out of order. */
const DISORDER_MS = 60_000;

interface LineQuery {
  /** Texts that a wanted line holds, all of them; lines without are not looked at. */
  readonly needles: readonly string[];
  /** Epoch milliseconds before which lines need not be given; some are. */
  readonly since: number;
  /** Given each line that may be wanted; the bytes are not to be kept. */
  readonly take: (line: Buffer) => void;
}

/** True for `audit.log.1`, `audit.log.2.gz`, `audit.log-20261122`, `audit.log-20261122.gz`. */
function isRotated(name: string, base: string): boolean {
  return name.startsWith(base) && /^(?:\.\d+|-\d[\d-]*)(?:\.gz)?$/.test(name.slice(base.length));
}

/**
 * The audit file and its rotated ones, the oldest first, but for those that were last written
 * before `since`.
 *
 * @throws the file system's error if the directory cannot be read
 */
export async function auditFilesOf(file: string, since: number): Promise<string[]> {
  const [directory, base] = [path.dirname(file), path.basename(file)];
  const isMeant = (entry: Dirent) =>
    entry.isFile() && (entry.name === base || isRotated(entry.name, base));
  const names = (await readdir(directory, { withFileTypes: true })).filter(isMeant);
  const files = await Promise.all(
    names.map(async ({ name }) => {
      const place = path.join(directory, name);
      return { place, writtenAt: (await stat(place)).mtimeMs, isLast: name === base };
    }),
  );
  return files
    .filter(({ writtenAt }) => writtenAt >= since)
    .sort((a, b) => Number(a.isLast) - Number(b.isLast) || a.writtenAt - b.writtenAt)
    .map(({ place }) => place);
}

/** The time that the first of some lines tells, as it is written there. */
function timeIn(lines: string): string | undefined {
  return /"time":"([\dT:.Z-]{20,30})"/.exec(lines)?.[1];
}

/** Epoch milliseconds of the first whole line behind an offset; undefined if there is none near. */
async function timeBehind(handle: FileHandle, offset: number): Promise<number | undefined> {
  const buffer = Buffer.alloc(64 * 1024);
  const { bytesRead } = await handle.read(buffer, 0, buffer.length, offset);
  const text = buffer.toString("latin1", buffer.indexOf(NEWLINE) + 1, bytesRead);
  const time = Date.parse(timeIn(text) ?? "");
  return Number.isNaN(time) ? undefined : time;
}

/**
 * An offset in a file before which all lines are older, and one behind which none is by much: lines
 * come in the order of their times.
 */
export async function offsetsOf(
  handle: FileHandle,
  moment: number,
): Promise<{ low: number; high: number }> {
  let [low, high] = [0, (await handle.stat()).size];
  while (high - low > CHUNK_BYTES) {
    const middle = Math.floor((low + high) / 2);
    const time = await timeBehind(handle, middle);
    if (time === undefined) break;
    if (time < moment - DISORDER_MS) low = middle;
    else high = middle;
  }
  return { low, high };
}

/** True for a file that cannot be read from its middle. */
export function isCompressed(file: string): boolean {
  return file.endsWith(".gz");
}

/** The bytes of a compressed file. */
export function unpacked(file: string): AsyncIterable<Buffer> {
  // Loaded here: most files of an audit are none.
  const { createGunzip } = process.getBuiltinModule("node:zlib");
  // Its error is that of what is read.
  return pipeline(createReadStream(file), createGunzip({ chunkSize: CHUNK_BYTES }), () => {});
}

/** The bytes of a file, but for some that are older. */
async function chunksOf(file: string, since: number): Promise<AsyncIterable<Buffer>> {
  if (isCompressed(file)) return unpacked(file);
  await using handle = await open(file, "r");
  const start = since <= 0 ? 0 : (await offsetsOf(handle, since)).low;
  return createReadStream(file, { highWaterMark: CHUNK_BYTES, start });
}

/**
 * Reads the lines of one file that may be wanted.
 *
 * @param drained waited for between pieces: whoever takes the lines may be slow
 * @throws the file system's error, or zlib's
 */
export async function readLines(
  file: string,
  query: LineQuery,
  drained: () => Promise<void> = async () => {},
): Promise<void> {
  for await (const piece of wholeLines(await chunksOf(file, query.since))) {
    findLines(piece, query.needles, query.take);
    await drained();
  }
}

/** Questions to the audit's files that are answered by the newest lines first, a page at a time. */

/** Where a page has ended: a file, and the byte before which the next one goes on. */
export interface AuditPosition {
  /** The file's inode, which it keeps when it is rotated. */
  readonly inode: string;
  readonly offset: number;
}

/** Whose lines may be shown: those of databases. Names that are not listed are as `others` says. */
export interface ShownDatabases {
  readonly named: ReadonlyMap<string, boolean>;
  readonly others: boolean;
}

/** A question to the audit. */
export interface AuditQuestion {
  readonly file: string;
  readonly filter: AuditFilter;
  /** Undefined for lines of any database, and of none. */
  readonly shown: ShownDatabases | undefined;
  /** Where to go on. */
  readonly from: AuditPosition | undefined;
  /** Lines of an answer. */
  readonly limit: number;
  /** Milliseconds after which what was not found yet is left to the next page. */
  readonly patience: number;
}

/** An answer, the newest line first. */
export interface AuditAnswer {
  readonly lines: readonly ReadLine[];
  /** Where to go on; undefined if there is nothing more. */
  readonly next: AuditPosition | undefined;
  /** True if the file where it was to go on is gone, or compressed by now. */
  readonly isLost: boolean;
  /** The time of the oldest line that was looked at. */
  readonly reached: string | undefined;
  readonly bytesRead: number;
}

/** Reads whole lines from an offset of a file backwards, a piece at a time. */
async function* piecesBackwards(handle: FileHandle, end: number): AsyncGenerator<Piece> {
  let rest: Buffer = Buffer.alloc(0);
  for (let position = end; position > 0; ) {
    const start = Math.max(0, position - CHUNK_BYTES);
    const chunk = Buffer.allocUnsafe(position - start);
    await handle.read(chunk, 0, chunk.length, start);
    const begin = start === 0 ? 0 : chunk.indexOf(NEWLINE) + 1;
    position = start;
    if (begin > 0 || start === 0) {
      yield { start: start + begin, lines: Buffer.concat([chunk.subarray(begin), rest]) };
      rest = chunk.subarray(0, begin);
    } else {
      const isTooLong = rest.length + chunk.length > LONGEST_LINE;
      rest = isTooLong ? Buffer.alloc(0) : Buffer.concat([chunk, rest]);
    }
  }
}

/** The databases that a line is about; undefined if it is about none, or about more besides. */
function databasesOf({ operations, changes }: ReadLine): string[] | undefined {
  const entries = changes.map(({ entry }) => entry);
  if (operations.length + entries.length === 0 || entries.includes(undefined)) return undefined;
  const places = entries.flatMap((entry) => (entry ?? "").split(","));
  return [
    ...operations.map(({ database }) => database),
    ...places.map((place) => place.trim().split(".")[0] ?? ""),
  ];
}

/** Makes the test for lines that may be shown. */
export function mayShow(shown: ShownDatabases | undefined): (line: ReadLine) => boolean {
  if (shown === undefined) return () => true;
  const { named, others } = shown;
  return (line) => databasesOf(line)?.every((name) => named.get(name) ?? others) ?? false;
}

/** One search over the files, the newest first. */
class Search {
  readonly #question: AuditQuestion;
  readonly #needles: readonly string[];
  readonly #fits: (line: ReadLine) => boolean;
  readonly #deadline: number;
  readonly #lines: ReadLine[] = [];
  #reached: string | undefined;
  #bytesRead = 0;

  constructor(question: AuditQuestion) {
    this.#question = question;
    this.#needles = needlesOf(question.filter);
    const [fits, isShown] = [matcherOf(question.filter), mayShow(question.shown)];
    this.#fits = (line) => fits(line) && isShown(line);
    this.#deadline = performance.now() + question.patience;
  }

  /** The lines of a piece that fit, the oldest first, and where they begin. */
  #found(piece: Piece): { line: ReadLine; offset: number }[] {
    const found: { line: ReadLine; offset: number }[] = [];
    findLines(piece, this.#needles, (bytes) => {
      const line = parseLine(bytes);
      const offset = piece.start + bytes.byteOffset - piece.lines.byteOffset;
      if (line !== undefined && this.#fits(line)) found.push({ line, offset });
    });
    this.#bytesRead += piece.lines.length;
    return found;
  }

  /** Takes lines, the newest first. @returns where to go on once the page is full */
  #take(found: { line: ReadLine; offset: number }[]): number | undefined {
    for (const { line, offset } of found.toReversed()) {
      this.#lines.push(line);
      if (this.#lines.length === this.#question.limit) return offset;
    }
    return undefined;
  }

  /** Notes how far it has come. @returns true if all that is older is too old */
  #isPast({ lines }: Piece): boolean {
    const time = timeIn(lines.toString("latin1", 0, 4096));
    this.#reached = time ?? this.#reached;
    return Date.parse(time ?? "") < this.#question.filter.since - DISORDER_MS;
  }

  /** @returns where to go on in this file; -1 if nothing that is older is wanted */
  async #lookBack(handle: FileHandle, end: number): Promise<number | undefined> {
    const { until } = this.#question.filter;
    const last = Number.isFinite(until)
      ? await offsetsOf(handle, until + 2 * DISORDER_MS)
      : undefined;
    for await (const piece of piecesBackwards(handle, Math.min(end, last?.high ?? end))) {
      const full = this.#take(this.#found(piece));
      const isPast = this.#isPast(piece);
      if (full !== undefined) return full;
      if (isPast) return -1;
      if (performance.now() > this.#deadline) return piece.start;
    }
    return undefined;
  }

  /** A compressed file is read whole, and the last lines are kept that a page has room for. */
  async #lookThrough(file: string, end: number): Promise<number | undefined> {
    let kept: { line: ReadLine; offset: number }[] = [];
    for await (const piece of wholeLines(unpacked(file))) {
      if (piece.start >= end) break;
      const found = this.#found(piece).filter(({ offset }) => offset < end);
      kept = [...kept, ...found].slice(-this.#question.limit);
      if (piece.start === 0) this.#isPast(piece);
    }
    return this.#take(kept) ?? (performance.now() > this.#deadline ? 0 : undefined);
  }

  /** @throws the file system's error */
  async run(): Promise<AuditAnswer> {
    const { file, filter, from } = this.#question;
    let isBehind = from !== undefined;
    let next: AuditPosition | undefined;
    for (const one of (await auditFilesOf(file, filter.since)).toReversed()) {
      await using handle = await open(one);
      const { ino, size } = await handle.stat();
      const inode = String(ino);
      const isFirst = from?.inode === inode;
      if (isBehind && !isFirst) continue;
      isBehind = false;
      const end = isFirst ? from.offset : Number.POSITIVE_INFINITY;
      if (end === 0 || size === 0) continue;
      const offset = isCompressed(one)
        ? await this.#lookThrough(one, end)
        : await this.#lookBack(handle, Math.min(end, size));
      if (offset === -1) break;
      if (offset !== undefined) {
        next = { inode, offset };
        break;
      }
    }
    return {
      ...{ lines: this.#lines, next, isLost: isBehind },
      ...{ reached: this.#reached, bytesRead: this.#bytesRead },
    };
  }
}

/** Asks the audit's files, the newest first. @throws the file system's error */
export function searchAudit(question: AuditQuestion): Promise<AuditAnswer> {
  return new Search(question).run();
}
