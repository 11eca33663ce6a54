/**
 * Which names stand in which part of an audit file, so that a question reads the parts alone where
 * they may stand. A file is parted into blocks; for each there is a record, a Bloom filter of the
 * names in the lines that begin there. Blocks of a file that grows never change.
 */
import { createHash } from "node:crypto";
import { readdirSync, rmSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import path from "node:path";
import { memoize } from "../memoize.ts";
import { LONGEST_LINE, NEWLINE, namesOf, type Wanted } from "./audit-filter.ts";

/** Bytes of a block. */
export const BLOCK_BYTES = 4 * 1024 * 1024;
/** Bytes of a filter: with the names of a thousand users a block in 80,000 is read in vain. */
const FILTER_BYTES = 8192;
/** Bits that stand for a name. */
const HASHES = 4;
/** The offsets at which the lines of the block begin and end, before the filter. */
const OFFSETS_BYTES = 16;
const RECORD_BYTES = OFFSETS_BYTES + FILTER_BYTES;
/** Records that are read at once. */
const BATCH = 64;
/** Bytes at the begin of a file by which its index knows it again. */
const KNOWN_BYTES = 4096;
const DIGEST_BYTES = 32;
/** Another one whenever other names are noted. */
const FORMAT = "2";
const LOOK_BYTES = 64 * 1024;

/** The bits that stand for a name. */
function bitsOf(name: string): number[] {
  const digest = createHash("sha256").update(name).digest();
  return Array.from({ length: HASHES }, (_, at) => digest.readUInt16LE(2 * at));
}

/** Where an index of the file with this inode is kept: beside the audit, and by none of its names. */
function indexFileOf(file: string, inode: number): string {
  return path.join(path.dirname(file), `.${path.basename(file)}.${inode}.index`);
}

async function readAt(handle: FileHandle, offset: number, length: number): Promise<Buffer> {
  const buffer = Buffer.alloc(length);
  const { bytesRead } = await handle.read(buffer, 0, length, offset);
  return buffer.subarray(0, bytesRead);
}

/** The offset behind the first end of a line at or behind this one; undefined if none is there yet. */
async function lineEndAt(handle: FileHandle, offset: number): Promise<number | undefined> {
  for (let at = offset; at < offset + LONGEST_LINE; at += LOOK_BYTES) {
    const bytes = await readAt(handle, at, LOOK_BYTES);
    const newline = bytes.indexOf(NEWLINE);
    if (newline !== -1) return at + newline + 1;
    if (bytes.length < LOOK_BYTES) return undefined;
  }
  return undefined;
}

async function digestOf(handle: FileHandle): Promise<Buffer | undefined> {
  const begin = await readAt(handle, 0, KNOWN_BYTES);
  return begin.length < KNOWN_BYTES
    ? undefined
    : createHash("sha256").update(FORMAT).update(begin).digest();
}

/** The record of the block whose lines begin and end there. */
async function recordOf(handle: FileHandle, begin: number, end: number): Promise<Buffer> {
  const record = Buffer.alloc(RECORD_BYTES);
  record.writeBigUInt64LE(BigInt(begin), 0);
  record.writeBigUInt64LE(BigInt(end), 8);
  const lines = await readAt(handle, begin, end - begin);
  const names = namesOf(lines.toString("latin1"));
  for (const bit of [...names].flatMap(bitsOf)) {
    const at = OFFSETS_BYTES + (bit >> 3);
    record.writeUInt8(record.readUInt8(at) | (1 << (bit & 7)), at);
  }
  return record;
}

/** An index that is there, for one question. */
class BlockIndex {
  readonly #index: FileHandle;
  readonly #wanted: Wanted;
  readonly #bits = memoize(bitsOf);
  /** The records that were read last, and which they are. */
  #records: Buffer = Buffer.alloc(0);
  #batch = -1;
  /** Blocks that it knows. */
  readonly count: number;

  constructor(index: FileHandle, count: number, wanted: Wanted) {
    this.#index = index;
    this.count = count;
    this.#wanted = wanted;
  }

  async #record(block: number): Promise<Buffer> {
    const batch = Math.floor(block / BATCH);
    if (batch !== this.#batch) {
      const offset = DIGEST_BYTES + batch * BATCH * RECORD_BYTES;
      this.#records = await readAt(this.#index, offset, BATCH * RECORD_BYTES);
      this.#batch = batch;
    }
    return this.#records.subarray((block % BATCH) * RECORD_BYTES);
  }

  /** Where the lines of a block begin and end, and whether some of them may fit. */
  async read(block: number): Promise<{ begin: number; end: number; mayFit: boolean }> {
    const record = await this.#record(block);
    const has = (bit: number) => (record.readUInt8(OFFSETS_BYTES + (bit >> 3)) >> (bit & 7)) & 1;
    return {
      begin: Number(record.readBigUInt64LE(0)),
      end: Number(record.readBigUInt64LE(8)),
      mayFit: this.#wanted((name) => this.#bits(name).every(has)),
    };
  }

  /**
   * The end of lines at or before an offset, behind which none can fit; the offset itself if some
   * may, or nobody knows.
   */
  async skipBack(offset: number, floor: number): Promise<number> {
    let at = offset;
    while (at > floor) {
      const block = Math.floor((at - 1) / BLOCK_BYTES);
      if (block >= this.count) return at;
      const known = await this.read(block);
      // What ends there has begun in the block before.
      const one = at <= known.begin && block > 0 ? await this.read(block - 1) : known;
      if (one.mayFit || one.begin >= at) return at;
      at = one.begin;
    }
    return at;
  }

  /** The parts of a file, from an offset on, in which lines may fit; the last one has no end. */
  async *ranges(from: number): AsyncGenerator<{ start: number; end: number }> {
    let known = from;
    // The first whole line may have begun in the block before.
    const first = Math.max(0, Math.floor(from / BLOCK_BYTES) - 1);
    for (let block = first; block < this.count; block++) {
      const { end, mayFit } = await this.read(block);
      if (mayFit && end > known) yield { start: known, end };
      known = Math.max(known, end);
    }
    yield { start: known, end: Number.POSITIVE_INFINITY };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#index.close();
  }
}

/** Opens an index for reading; undefined if there is none, or it is of another file. */
async function openIndex(file: string, handle: FileHandle, flags: string) {
  const { ino } = await handle.stat();
  const digest = await digestOf(handle);
  if (digest === undefined) return undefined;
  const index = await open(indexFileOf(file, ino), flags, 0o600).catch(() => undefined);
  if (index === undefined) return undefined;
  const { size } = await index.stat();
  const isSame = size === 0 || (await readAt(index, 0, DIGEST_BYTES)).equals(digest);
  return { index, digest, isSame, count: Math.floor((size - DIGEST_BYTES) / RECORD_BYTES) };
}

/**
 * The index of a file for a question.
 *
 * @param file the audit's, by which indexes are called
 * @param handle the file itself, or a rotated one
 */
export async function findIndex(
  file: string,
  handle: FileHandle,
  wanted: Wanted | undefined,
): Promise<BlockIndex | undefined> {
  if (wanted === undefined) return undefined;
  const found = await openIndex(file, handle, "r");
  if (found === undefined) return undefined;
  if (found.isSame && found.count > 0) return new BlockIndex(found.index, found.count, wanted);
  await found.index.close();
  return undefined;
}

/**
 * Adds what an index lacks, a block after the other.
 *
 * @param rest waited for after each block
 * @throws the file system's error
 */
export async function extendIndex(
  file: string,
  rotated: string,
  rest: (ms: number) => Promise<void>,
): Promise<void> {
  await using handle = await open(rotated, "r");
  const found = await openIndex(file, handle, "a+");
  if (found === undefined) return;
  await using index = found.index;
  let { count } = found;
  if (!found.isSame) await index.truncate();
  if (!found.isSame || count < 0) {
    await index.write(found.digest);
    count = 0;
  }
  // What a crash has left of a record.
  await index.truncate(DIGEST_BYTES + count * RECORD_BYTES);
  let begin = 0;
  if (count > 0) {
    const last = await readAt(index, DIGEST_BYTES + (count - 1) * RECORD_BYTES, OFFSETS_BYTES);
    begin = Number(last.readBigUInt64LE(8));
  }
  for (; ; count++) {
    const startedAt = performance.now();
    const end = await lineEndAt(handle, (count + 1) * BLOCK_BYTES - 1);
    if (end === undefined) return;
    await index.write(await recordOf(handle, begin, end));
    begin = end;
    await rest(performance.now() - startedAt);
  }
}

/** Removes the indexes of files that are gone. @param inodes of those that are there */
export function removeOldIndexes(file: string, inodes: ReadonlySet<string>): void {
  const directory = path.dirname(file);
  const prefix = `.${path.basename(file)}.`;
  for (const name of readdirSync(directory)) {
    if (!name.startsWith(prefix) || !name.endsWith(".index")) continue;
    const inode = name.slice(prefix.length, -".index".length);
    if (/^\d+$/.test(inode) && !inodes.has(inode)) rmSync(path.join(directory, name));
  }
}
