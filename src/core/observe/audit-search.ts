import { createReadStream } from "node:fs";
import { type FileHandle, open, readdir, stat } from "node:fs/promises";
import path from "node:path";
import { pipeline } from "node:stream";
import { splitPlace } from "../query/names.ts";
import { type AuditFilter, createMatcher, type ReadLine, requiredTexts } from "./audit-filter.ts";

const MAX_LINE_BYTES = 4 * 1024 * 1024;
const NEWLINE = 0x0a;

/** Whole lines of a file, and the offset at which they begin. */
export interface Piece {
  readonly start: number;
  readonly lines: Buffer;
}

/** Joins chunks into whole lines and drops lines that are too long. */
async function* wholeLines(chunks: AsyncIterable<Buffer>, start: number): AsyncGenerator<Piece> {
  let rest: Buffer = Buffer.alloc(0);
  let at = start;
  for await (const chunk of chunks) {
    const end = chunk.lastIndexOf(NEWLINE) + 1;
    if (end > 0) {
      const lines = Buffer.concat([rest, chunk.subarray(0, end)]);
      yield { start: at, lines };
      at += lines.length;
      rest = Buffer.from(chunk.subarray(end));
    } else if (rest.length + chunk.length <= MAX_LINE_BYTES) rest = Buffer.concat([rest, chunk]);
    else {
      at += rest.length + chunk.length;
      rest = Buffer.alloc(0);
    }
  }
  if (rest.length > 0) yield { start: at, lines: rest };
}

/** Yields the lines that contain all needles. Do not keep the bytes of a line. */
export function* linesIn(
  { start, lines }: Piece,
  needles: readonly string[],
): Generator<{ readonly bytes: Buffer; readonly offset: number }> {
  const [first, ...others] = needles.toSorted((a, b) => b.length - a.length);
  const needle = first === undefined ? undefined : Buffer.from(first);
  for (let at = 0; at < lines.length; ) {
    const found = needle === undefined ? at : lines.indexOf(needle, at);
    if (found === -1) return;
    const newline = lines.indexOf(NEWLINE, found);
    const end = newline === -1 ? lines.length : newline;
    const begin = Math.max(at, lines.lastIndexOf(NEWLINE, found) + 1);
    const bytes = lines.subarray(begin, end);
    if (others.every((other) => bytes.includes(other))) yield { bytes, offset: start + begin };
    at = end + 1;
  }
}

export const CHUNK_BYTES = 1024 * 1024;
/** Lines may be this far out of order, because several processes write and clocks are set. */
const DISORDER_MS = 60_000;

/** Matches the ends of `audit.log`, `audit.log.1`, `audit.log.2.gz`, `audit.log-20261122`. */
const suffix = /^(?:(?:\.\d+|-\d[\d-]*)(?:\.gz)?)?$/;

/**
 * With rotated files, oldest first, written since `since`. A file that is being compressed counts
 * once, as it was before.
 *
 * @throws the file system's error
 */
export async function findAuditFiles(file: string, since: number): Promise<string[]> {
  const directory = path.dirname(file);
  const base = path.basename(file);
  const entries = (await readdir(directory, { withFileTypes: true })).filter(
    (entry) =>
      entry.isFile() && entry.name.startsWith(base) && suffix.test(entry.name.slice(base.length)),
  );
  const names = entries.map(({ name }) => name);
  const isWhole = (name: string) => !isCompressed(name) || !names.includes(name.slice(0, -3));
  const files = await Promise.all(
    names.filter(isWhole).map(async (name) => {
      const found = path.join(directory, name);
      return { found, writtenAt: (await stat(found)).mtimeMs, isCurrent: name === base };
    }),
  );
  return files
    .filter(({ writtenAt }) => writtenAt >= since)
    .sort((a, b) => Number(a.isCurrent) - Number(b.isCurrent) || a.writtenAt - b.writtenAt)
    .map(({ found }) => found);
}

function timeIn(lines: string): string | undefined {
  return /"time":"([\dT:.Z-]{20,30})"/.exec(lines)?.[1];
}

/**
 * Finds two offsets by binary search. All lines before `low` are older than `moment`, in epoch
 * milliseconds, and few after `high` are.
 */
export async function findOffsets(
  handle: FileHandle,
  moment: number,
): Promise<{ low: number; high: number }> {
  let low = 0;
  let high = (await handle.stat()).size;
  const buffer = Buffer.alloc(64 * 1024);
  while (high - low > CHUNK_BYTES) {
    const middle = Math.floor((low + high) / 2);
    const { bytesRead } = await handle.read(buffer, 0, buffer.length, middle);
    const lines = buffer.toString("latin1", buffer.indexOf(NEWLINE) + 1, bytesRead);
    const time = Date.parse(timeIn(lines) ?? "");
    if (Number.isNaN(time)) break;
    if (time < moment - DISORDER_MS) low = middle;
    else high = middle;
  }
  return { low, high };
}

export function isCompressed(file: string): boolean {
  return file.endsWith(".gz");
}

function unpacked(file: string): AsyncIterable<Buffer> {
  // Loaded on demand, because most audit files are not compressed.
  const { createGunzip } = process.getBuiltinModule("node:zlib");
  // The reader of the stream gets the error.
  return pipeline(createReadStream(file), createGunzip({ chunkSize: CHUNK_BYTES }), () => {});
}

/** Reads whole lines forwards. A compressed file is always read as a whole. */
export function piecesFrom(file: string, start: number, end?: number): AsyncGenerator<Piece> {
  if (isCompressed(file)) return wholeLines(unpacked(file), 0);
  const bounds = { start, ...(end !== undefined && { end }) };
  return wholeLines(createReadStream(file, { highWaterMark: CHUNK_BYTES, ...bounds }), start);
}

/** Reads one file without most of the lines before `since`. @throws its error, or zlib's */
export async function* piecesSince(file: string, since: number): AsyncGenerator<Piece> {
  await using handle = await open(file);
  const isWhole = since <= 0 || isCompressed(file);
  yield* piecesFrom(file, isWhole ? 0 : (await findOffsets(handle, since)).low);
}

/** Where a page ended. The next page continues before this byte of this file. */
interface AuditPosition {
  /** Unchanged when the file is rotated. */
  readonly inode: string;
  readonly offset: number;
}

/** Databases whose lines may be visible. `others` decides for names that are not listed. */
export interface VisibleDatabases {
  readonly named: ReadonlyMap<string, boolean>;
  readonly others: boolean;
}

export interface AuditQuestion {
  readonly file: string;
  readonly filter: AuditFilter;
  /** If undefined, every line is visible, including lines about no database. */
  readonly visible: VisibleDatabases | undefined;
  readonly from: AuditPosition | undefined;
  readonly limit: number;
  /** The search then stops, and the next page continues there. */
  readonly timeoutMs: number;
}

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
      const isTooLong = rest.length + chunk.length > MAX_LINE_BYTES;
      rest = isTooLong ? Buffer.alloc(0) : Buffer.concat([chunk, rest]);
    }
  }
}

/** Undefined for a line about no database, or about anything else too. */
function namedDatabases({ operations, changes }: ReadLine): string[] | undefined {
  const entries = changes.map(({ entry }) => entry);
  if (operations.length + entries.length === 0 || entries.includes(undefined)) return undefined;
  const tables = entries.flatMap((entry) => (entry ?? "").split(","));
  return [
    ...operations.map(({ database }) => database),
    ...tables.map((table) => splitPlace(table.trim()).database),
  ];
}

export function visibilityFilter(
  visible: VisibleDatabases | undefined,
): (line: ReadLine) => boolean {
  if (visible === undefined) return () => true;
  const { named, others } = visible;
  return (line) => namedDatabases(line)?.every((name) => named.get(name) ?? others) ?? false;
}

interface Found {
  readonly line: ReadLine;
  readonly offset: number;
}

export type AuditAnswer = Awaited<ReturnType<typeof searchAudit>>;

/** Searches the audit files, newest lines first. @throws the file system's error */
export async function searchAudit(question: AuditQuestion) {
  const { file, filter, visible, from, limit, timeoutMs } = question;
  const needles = requiredTexts(filter);
  const match = createMatcher(filter);
  const isVisible = visibilityFilter(visible);
  const deadline = performance.now() + timeoutMs;
  const lines: ReadLine[] = [];
  let reached: string | undefined;
  let bytesRead = 0;

  function foundIn(piece: Piece): Found[] {
    bytesRead += piece.lines.length;
    return Array.from(linesIn(piece, needles)).flatMap(({ bytes, offset }) => {
      const line = match(bytes);
      return line !== undefined && isVisible(line) ? [{ line, offset }] : [];
    });
  }

  /** @returns the offset to continue from, once the page is full */
  function take(found: readonly Found[]): number | undefined {
    for (const { line, offset } of found.toReversed()) {
      lines.push(line);
      if (lines.length === limit) return offset;
    }
    return undefined;
  }

  /** Updates `reached`. @returns true if everything older is before `since` */
  function isPast(piece: Piece): boolean {
    const time = timeIn(piece.lines.toString("latin1", 0, 4096));
    reached = time ?? reached;
    return Date.parse(time ?? "") < filter.since - DISORDER_MS;
  }

  /** @returns the offset to continue from in this file; -1 if nothing older can match */
  async function searchBackwards(handle: FileHandle, end: number): Promise<number | undefined> {
    const isBounded = Number.isFinite(filter.until);
    const last = isBounded ? (await findOffsets(handle, filter.until + 2 * DISORDER_MS)).high : end;
    for await (const piece of piecesBackwards(handle, Math.min(end, last))) {
      const full = take(foundIn(piece));
      const hasPassed = isPast(piece);
      if (full !== undefined) return full;
      if (hasPassed) return -1;
      if (performance.now() > deadline) return piece.start;
    }
    return undefined;
  }

  /** Reads a compressed file from the start and keeps the last lines that fit on the page. */
  async function searchCompressed(file: string, end: number): Promise<number | undefined> {
    let kept: Found[] = [];
    for await (const piece of piecesFrom(file, 0)) {
      if (piece.start >= end) break;
      kept = [...kept, ...foundIn(piece).filter(({ offset }) => offset < end)].slice(-limit);
      if (piece.start === 0) isPast(piece);
    }
    return take(kept) ?? (performance.now() > deadline ? 0 : undefined);
  }

  /** True until the file of `from` was found. */
  let isLost = from !== undefined;
  let next: AuditPosition | undefined;
  for (const one of (await findAuditFiles(file, filter.since)).toReversed()) {
    await using handle = await open(one);
    const { ino, size } = await handle.stat();
    const inode = String(ino);
    const isFirst = from?.inode === inode;
    if (isLost && !isFirst) continue;
    isLost = false;
    const end = isFirst ? from.offset : Number.POSITIVE_INFINITY;
    if (end === 0 || size === 0) continue;
    const offset = isCompressed(one)
      ? await searchCompressed(one, end)
      : await searchBackwards(handle, Math.min(end, size));
    if (offset === undefined) continue;
    if (offset !== -1) next = { inode, offset };
    break;
  }
  return {
    lines,
    next,
    /** True if the file of `from` is gone or has been compressed since. */
    isLost,
    /** The time of the oldest line that was searched. */
    reached,
    bytesRead,
  };
}
