/** An audit file with its rotated ones, read line by line in little memory. */
import { createReadStream, type Dirent } from "node:fs";
import { type FileHandle, open, readdir, stat } from "node:fs/promises";
import path from "node:path";
import { pipeline } from "node:stream";
import { createGunzip } from "node:zlib";

export const CHUNK_BYTES = 1024 * 1024;
/** A line that is longer was not written by the gateway. */
export const LONGEST_LINE = 4 * CHUNK_BYTES;
export const NEWLINE = 0x0a;
/** Milliseconds by which lines of several processes, or of a clock that was set, may be out of order. */
export const DISORDER_MS = 60_000;

/** Which lines are wanted. */
export interface LineQuery {
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

/** Whole lines of a file, one behind the other, and at which byte of it they begin. */
export interface Piece {
  readonly start: number;
  readonly lines: Buffer;
}

/** Puts bytes that come in chunks together to whole lines. */
export async function* wholeLines(chunks: AsyncIterable<Buffer>): AsyncGenerator<Piece> {
  let rest: Buffer = Buffer.alloc(0);
  let start = 0;
  for await (const chunk of chunks) {
    const end = chunk.lastIndexOf(NEWLINE) + 1;
    if (end > 0) {
      const whole = chunk.subarray(0, end);
      const lines = rest.length === 0 ? whole : Buffer.concat([rest, whole]);
      yield { start, lines };
      start += lines.length;
      rest = Buffer.from(chunk.subarray(end));
    } else if (rest.length + chunk.length <= LONGEST_LINE) rest = Buffer.concat([rest, chunk]);
    else {
      start += rest.length + chunk.length;
      rest = Buffer.alloc(0);
    }
  }
  if (rest.length > 0) yield { start, lines: rest };
}

/** Calls `take` with each of the lines that holds all needles, in their order. */
export function findLines(
  { lines }: Piece,
  needles: readonly string[],
  take: (line: Buffer) => void,
): void {
  // The longest is the rarest, as a rule.
  const [first, ...others] = needles.toSorted((a, b) => b.length - a.length);
  const needle = first === undefined ? undefined : Buffer.from(first);
  for (let at = 0; at < lines.length; ) {
    const found = needle === undefined ? at : lines.indexOf(needle, at);
    if (found === -1) return;
    const newline = lines.indexOf(NEWLINE, found);
    const end = newline === -1 ? lines.length : newline;
    const line = lines.subarray(Math.max(at, lines.lastIndexOf(NEWLINE, found) + 1), end);
    if (others.every((other) => line.includes(other))) take(line);
    at = end + 1;
  }
}

/** Epoch milliseconds of the first whole line behind an offset; undefined if there is none near. */
async function timeBehind(handle: FileHandle, offset: number): Promise<number | undefined> {
  const buffer = Buffer.alloc(64 * 1024);
  const { bytesRead } = await handle.read(buffer, 0, buffer.length, offset);
  const text = buffer.toString("latin1", buffer.indexOf(NEWLINE) + 1, bytesRead);
  const time = Date.parse(/"time":"([\dT:.Z-]{20,30})"/.exec(text)?.[1] ?? "");
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

async function offsetOf(file: string, since: number): Promise<number> {
  if (since <= 0) return 0;
  await using handle = await open(file, "r");
  return (await offsetsOf(handle, since)).low;
}

/** True for a file that cannot be read from its middle. */
export function isCompressed(file: string): boolean {
  return file.endsWith(".gz");
}

/** The bytes of a file, but for some that are older. */
export async function chunksOf(file: string, since: number): Promise<AsyncIterable<Buffer>> {
  const isPacked = isCompressed(file);
  const start = isPacked ? 0 : await offsetOf(file, since);
  const stream = createReadStream(file, { highWaterMark: CHUNK_BYTES, start });
  if (!isPacked) return stream;
  // Its error is that of what is read.
  return pipeline(stream, createGunzip({ chunkSize: CHUNK_BYTES }), () => {});
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
