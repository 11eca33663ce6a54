/** An audit file with its rotated ones, read line by line in little memory. */
import { createReadStream, type Dirent } from "node:fs";
import { type FileHandle, open, readdir, stat } from "node:fs/promises";
import path from "node:path";
import { pipeline } from "node:stream";
import { createGunzip } from "node:zlib";

const CHUNK_BYTES = 1024 * 1024;
/** A line that is longer was not written by the gateway. */
const LONGEST_LINE = 4 * CHUNK_BYTES;
const NEWLINE = 0x0a;
/** Milliseconds by which lines of several processes, or of a clock that was set, may be out of order. */
const DISORDER_MS = 60_000;

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

/** Finds the lines that hold all needles, among bytes that come in pieces. */
class LineFinder {
  readonly #take: (line: Buffer) => void;
  readonly #needle: Buffer | undefined;
  readonly #others: readonly Buffer[];
  #rest: Buffer = Buffer.alloc(0);

  constructor({ needles, take }: LineQuery) {
    // The longest is the rarest, as a rule.
    const [first, ...others] = needles.toSorted((a, b) => b.length - a.length);
    this.#needle = first === undefined ? undefined : Buffer.from(first);
    this.#others = others.map((needle) => Buffer.from(needle));
    this.#take = take;
  }

  push(chunk: Buffer): void {
    const first = chunk.indexOf(NEWLINE);
    if (first === -1) {
      const isTooLong = this.#rest.length + chunk.length > LONGEST_LINE;
      this.#rest = isTooLong ? Buffer.alloc(0) : Buffer.concat([this.#rest, chunk]);
      return;
    }
    const last = chunk.lastIndexOf(NEWLINE);
    if (this.#rest.length > 0) {
      this.#find(Buffer.concat([this.#rest, chunk.subarray(0, first + 1)]));
      this.#find(chunk.subarray(first + 1, last + 1));
    } else this.#find(chunk.subarray(0, last + 1));
    this.#rest = Buffer.from(chunk.subarray(last + 1));
  }

  end(): void {
    if (this.#rest.length > 0) this.push(Buffer.from("\n"));
  }

  #find(lines: Buffer): void {
    for (let at = 0; at < lines.length; ) {
      const found = this.#needle === undefined ? at : lines.indexOf(this.#needle, at);
      if (found === -1) return;
      const end = lines.indexOf(NEWLINE, found);
      const start = Math.max(at, lines.lastIndexOf(NEWLINE, found) + 1);
      const line = lines.subarray(start, end);
      if (this.#others.every((needle) => line.includes(needle))) this.#take(line);
      at = end + 1;
    }
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

/** An offset in a file before which all lines are older: lines come in the order of their times. */
async function offsetOf(file: string, since: number): Promise<number> {
  if (since <= 0) return 0;
  await using handle = await open(file, "r");
  let [low, high] = [0, (await handle.stat()).size];
  while (high - low > CHUNK_BYTES) {
    const middle = Math.floor((low + high) / 2);
    const time = await timeBehind(handle, middle);
    if (time === undefined) break;
    if (time < since - DISORDER_MS) low = middle;
    else high = middle;
  }
  return low;
}

async function chunksOf(file: string, since: number): Promise<AsyncIterable<Buffer>> {
  const isCompressed = file.endsWith(".gz");
  const start = isCompressed ? 0 : await offsetOf(file, since);
  const stream = createReadStream(file, { highWaterMark: CHUNK_BYTES, start });
  if (!isCompressed) return stream;
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
  const finder = new LineFinder(query);
  for await (const chunk of await chunksOf(file, query.since)) {
    finder.push(chunk);
    await drained();
  }
  finder.end();
}
