/** An audit file with its rotated ones, read line by line in little memory. */
import { createReadStream, type Dirent } from "node:fs";
import { type FileHandle, open, readdir, stat } from "node:fs/promises";
import path from "node:path";
import { pipeline } from "node:stream";
import { findIndex } from "./audit-index.ts";
import { findLines, NEWLINE, type Wanted, wholeLines } from "./audit-lines.ts";

export const CHUNK_BYTES = 1024 * 1024;
/** Milliseconds by which lines of several processes, or of a clock that was set, may be out of order. */
export const DISORDER_MS = 60_000;

interface LineQuery {
  /** Texts that a wanted line holds, all of them; lines without are not looked at. */
  readonly needles: readonly string[];
  /** Epoch milliseconds before which lines need not be given; some are. */
  readonly since: number;
  /** The audit whose index may help, and what is worth reading by it. */
  readonly indexed?: { readonly file: string; readonly wanted: Wanted | undefined };
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
export function timeIn(lines: string): string | undefined {
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

/** The bytes of a file, but for some that are older, and for some that hold nothing that is asked. */
async function* chunksOf(
  file: string,
  { since, indexed }: LineQuery,
): AsyncGenerator<AsyncIterable<Buffer>> {
  if (isCompressed(file)) {
    yield unpacked(file);
    return;
  }
  await using handle = await open(file, "r");
  const from = since <= 0 ? 0 : (await offsetsOf(handle, since)).low;
  await using index = indexed && (await findIndex(indexed.file, handle, indexed.wanted));
  const ranges = index?.ranges(from) ?? [{ start: from, end: Number.POSITIVE_INFINITY }];
  for await (const { start, end } of ranges) {
    yield createReadStream(file, { highWaterMark: CHUNK_BYTES, start, end: end - 1 });
  }
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
  for await (const chunks of chunksOf(file, query)) {
    for await (const piece of wholeLines(chunks)) {
      findLines(piece, query.needles, query.take);
      await drained();
    }
  }
}
