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

export const CHUNK_BYTES = 1024 * 1024;
/** Lines may be this far out of order: several processes write them, and clocks are set. */
const DISORDER_MS = 60_000;

interface LineQuery {
  /** Only lines that contain all of these texts are passed to `take`. */
  readonly needles: readonly string[];
  /** Epoch milliseconds. Older lines may be skipped, but some are still passed to `take`. */
  readonly since: number;
  /** Do not keep the bytes: they are part of a larger buffer. */
  readonly take: (line: Buffer) => void;
}

/** True for `audit.log.1`, `audit.log.2.gz`, `audit.log-20261122`, `audit.log-20261122.gz`. */
function isRotated(name: string, base: string): boolean {
  return name.startsWith(base) && /^(?:\.\d+|-\d[\d-]*)(?:\.gz)?$/.test(name.slice(base.length));
}

/**
 * Returns the audit file and its rotated files, oldest first, without those last written before
 * `since`.
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

function timeIn(lines: string): string | undefined {
  return /"time":"([\dT:.Z-]{20,30})"/.exec(lines)?.[1];
}

/**
 * Epoch milliseconds of the first whole line after an offset; undefined if none is within 64 KiB.
 */
async function timeBehind(handle: FileHandle, offset: number): Promise<number | undefined> {
  const buffer = Buffer.alloc(64 * 1024);
  const { bytesRead } = await handle.read(buffer, 0, buffer.length, offset);
  const text = buffer.toString("latin1", buffer.indexOf(NEWLINE) + 1, bytesRead);
  const time = Date.parse(timeIn(text) ?? "");
  return Number.isNaN(time) ? undefined : time;
}

/**
 * Finds two offsets by binary search. All lines before `low` are older than `moment`, and few after
 * `high` are.
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

export function isCompressed(file: string): boolean {
  return file.endsWith(".gz");
}

export function unpacked(file: string): AsyncIterable<Buffer> {
  // Loaded lazily, because most audit files are not compressed.
  const { createGunzip } = process.getBuiltinModule("node:zlib");
  // The reader of the stream gets the error.
  return pipeline(createReadStream(file), createGunzip({ chunkSize: CHUNK_BYTES }), () => {});
}

async function chunksOf(file: string, since: number): Promise<AsyncIterable<Buffer>> {
  if (isCompressed(file)) return unpacked(file);
  await using handle = await open(file, "r");
  const start = since <= 0 ? 0 : (await offsetsOf(handle, since)).low;
  return createReadStream(file, { highWaterMark: CHUNK_BYTES, start });
}

/**
 * Passes the lines of one file that may match to `query.take`.
 *
 * @param drained awaited between pieces, so that a slow consumer is not flooded
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

/** Where a page ended: the next page continues before this byte of this file. */
export interface AuditPosition {
  /** Unchanged when the file is rotated. */
  readonly inode: string;
  readonly offset: number;
}

/** Databases whose lines may be shown. `others` decides for names that are not listed. */
export interface ShownDatabases {
  readonly named: ReadonlyMap<string, boolean>;
  readonly others: boolean;
}

export interface AuditQuestion {
  readonly file: string;
  readonly filter: AuditFilter;
  /** Undefined shows every line, also those about no database. */
  readonly shown: ShownDatabases | undefined;
  readonly from: AuditPosition | undefined;
  readonly limit: number;
  /** Milliseconds after which the search stops. The next page continues there. */
  readonly patience: number;
}

export interface AuditAnswer {
  readonly lines: readonly ReadLine[];
  /** Undefined if there is nothing older. */
  readonly next: AuditPosition | undefined;
  /** True if the file of `from` is gone or has been compressed since. */
  readonly isLost: boolean;
  /** The time of the oldest line that was searched. */
  readonly reached: string | undefined;
  readonly bytesRead: number;
}

/** Reads whole lines backwards from an offset, one piece at a time. */
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

/**
 * The databases that a line is about; undefined if it is about none, or about anything else too.
 */
function databasesOf({ operations, changes }: ReadLine): string[] | undefined {
  const entries = changes.map(({ entry }) => entry);
  if (operations.length + entries.length === 0 || entries.includes(undefined)) return undefined;
  const places = entries.flatMap((entry) => (entry ?? "").split(","));
  return [
    ...operations.map(({ database }) => database),
    ...places.map((place) => place.trim().split(".")[0] ?? ""),
  ];
}

export function mayShow(shown: ShownDatabases | undefined): (line: ReadLine) => boolean {
  if (shown === undefined) return () => true;
  const { named, others } = shown;
  return (line) => databasesOf(line)?.every((name) => named.get(name) ?? others) ?? false;
}

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

  /** @returns the offset to continue from, once the page is full */
  #take(found: { line: ReadLine; offset: number }[]): number | undefined {
    for (const { line, offset } of found.toReversed()) {
      this.#lines.push(line);
      if (this.#lines.length === this.#question.limit) return offset;
    }
    return undefined;
  }

  /** Updates `#reached`. @returns true if everything older is before `since` */
  #isPast({ lines }: Piece): boolean {
    const time = timeIn(lines.toString("latin1", 0, 4096));
    this.#reached = time ?? this.#reached;
    return Date.parse(time ?? "") < this.#question.filter.since - DISORDER_MS;
  }

  /** @returns the offset to continue from in this file; -1 if nothing older can match */
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

  /** Reads a compressed file from the start and keeps the last lines that fit on the page. */
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

/** Searches the audit files, newest lines first. @throws the file system's error */
export function searchAudit(question: AuditQuestion): Promise<AuditAnswer> {
  return new Search(question).run();
}
