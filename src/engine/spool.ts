import { randomUUID } from "node:crypto";
import { closeSync, createReadStream, openSync, unlinkSync, writeSync } from "node:fs";
import { join } from "node:path";
import { Readable } from "node:stream";

/** Text is gathered to chunks of about this many characters before it is encoded. */
const chunkLength = 64 * 1024;

/** Bytes of an answer that are kept in memory; what is longer goes to a file. */
const memoryLimit = 4 * 1024 * 1024;

/** How the names of spool files begin, by which a start finds those that a crash left behind. */
export const spoolFilePrefix = ".answer-";

/**
 * An answer that is gathered whole before its first byte is sent.
 *
 * A query is done with the database once its answer is spooled, so that a client that reads
 * slowly holds up no writer and sees one state throughout, and a query that fails half-way
 * still gets its error status. Memory stays bounded: a long answer lies in a file that has no
 * name any more and is gone with its descriptor.
 */
export class Spool {
  readonly #directory: string;
  readonly #chunks: Buffer[] = [];
  #pending = "";
  #byteLength = 0;
  #file: number | undefined;

  /** `directory` is where the file goes if one is needed. */
  constructor(directory: string) {
    this.#directory = directory;
  }

  /** Adds text to the answer. Throws what the file system throws, for example when it is full. */
  write(text: string): void {
    this.#pending += text;
    if (this.#pending.length >= chunkLength) this.flush();
  }

  /** Puts what was written where it stays. Throws what the file system throws. */
  flush(): void {
    if (this.#pending === "") return;
    const chunk = Buffer.from(this.#pending);
    this.#pending = "";
    this.#byteLength += chunk.length;
    this.#chunks.push(chunk);
    if (this.#file !== undefined || this.#byteLength > memoryLimit) this.#spill();
  }

  /** The length of the answer so far, in bytes. */
  get byteLength(): number {
    this.flush();
    return this.#byteLength;
  }

  /** The answer from its beginning, as a stream that is taken once and owns the file from then. */
  read(): Readable {
    this.flush();
    const file = this.#file;
    if (file === undefined) return Readable.from(this.#chunks, { objectMode: false });
    this.#file = undefined;
    return createReadStream("", { fd: file, start: 0 });
  }

  /** Gives memory and an unread file back; must be called at the end, whatever happened. */
  dispose(): void {
    this.#chunks.length = 0;
    this.#pending = "";
    if (this.#file !== undefined) closeSync(this.#file);
    this.#file = undefined;
  }

  #spill(): void {
    this.#file ??= openNamelessFile(this.#directory);
    for (const chunk of this.#chunks) writeFully(this.#file, chunk);
    this.#chunks.length = 0;
  }
}

function openNamelessFile(directory: string): number {
  const path = join(directory, `${spoolFilePrefix}${randomUUID()}`);
  const file = openSync(path, "wx+", 0o600);
  unlinkSync(path);
  return file;
}

function writeFully(file: number, bytes: Buffer): void {
  let written = 0;
  while (written < bytes.length) written += writeSync(file, bytes, written);
}
