import { closeSync, writeSync } from "node:fs";

/** How rows are written: in a JSON answer, as lines of JSON objects, or as RFC 4180 has it. */
export type RowForm = "json" | "ndjson" | "csv";

/** Takes the rows of a Select as they come. */
export interface RowOutput {
  readonly form: RowForm;
  write(text: string): void;
  /** Writes text in UTF-8. The bytes are not to be changed before `release` is called. */
  writeBytes(bytes: Buffer, release?: () => void): void;
  /** Told at their end how many rows were written. */
  countRows(count: number): void;
  /** Set while whoever takes the rows is behind: resolves once he has caught up or is gone. */
  readonly backlog: Promise<void> | undefined;
}

/** An output whose rows go out while others are still to come. */
export interface RowStream extends RowOutput {
  /** True once something has gone out, which cannot be taken back. */
  readonly hasBegun: boolean;
  /** Drops what was written, none of which has gone out. */
  reset(): void;
  /** True if, since this was asked last, something has gone out or was waited for to be taken. */
  hasMoved(): boolean;
}

/** Text is gathered to chunks of about this many characters before it is encoded. */
const CHUNK_LENGTH = 64 * 1024;

/** Bytes of an answer that are kept in memory; what is longer goes to a file. */
const MEMORY_LIMIT = 4 * 1024 * 1024;

/** How many rows a query has changed, and how many it answers; undefined if it is about none. */
export interface RowCounts {
  readonly affected?: number | undefined;
  readonly rows?: number | undefined;
}

/** A finished answer: its bytes, or the length of the file that holds them. */
export type SpooledAnswer = { readonly counts: RowCounts } & (
  | { readonly kind: "memory"; readonly bytes: Uint8Array }
  | { readonly kind: "file"; readonly byteLength: number }
);

/** How rows are spooled that are read from the file while others are still to come. */
interface SpoolStream {
  readonly form: RowForm;
  /** Told how many bytes are in the file. */
  readonly onSpilled: (byteLength: number) => void;
}

/**
 * An answer that is gathered whole before its first byte is sent.
 *
 * A query is done with the database once its answer is spooled, so that a client that reads
 * slowly holds up no writer and sees one state throughout, and a query that fails half-way
 * still gets its error status. Memory stays bounded: a long answer lies in a file.
 */
export class Spool implements RowOutput {
  readonly form: RowForm;
  readonly backlog = undefined;
  readonly #openFile: () => number;
  readonly #onSpilled: ((byteLength: number) => void) | undefined;
  readonly #chunks: Buffer[] = [];
  #pending = "";
  #byteLength = 0;
  #file: number | undefined;
  #affected: number | undefined;
  #rows: number | undefined;

  /**
   * `openFile` opens the empty file of a long answer, once it is known to be one. With `stream`, an
   * answer of more than one chunk is long, and how much of it is in the file is told each time.
   */
  constructor(openFile: () => number, stream?: SpoolStream) {
    this.#openFile = openFile;
    this.form = stream?.form ?? "json";
    this.#onSpilled = stream?.onSpilled;
  }

  /** Adds text to the answer. @throws what the file system throws, for example when it is full */
  write(text: string): void {
    this.#pending += text;
    if (this.#pending.length >= CHUNK_LENGTH) this.flush();
  }

  countRows(count: number): void {
    this.#rows = (this.#rows ?? 0) + count;
  }

  /** Notes how many rows were changed. */
  countAffected(count: number): void {
    this.#affected = (this.#affected ?? 0) + count;
  }

  /** Puts what was written where it stays. @throws what the file system throws */
  flush(): void {
    if (this.#pending === "") return;
    const chunk = Buffer.from(this.#pending);
    this.#pending = "";
    this.#add(chunk);
  }

  writeBytes(bytes: Buffer, release?: () => void): void {
    this.flush();
    this.#add(Buffer.from(bytes));
    release?.();
  }

  #add(chunk: Buffer): void {
    this.#byteLength += chunk.length;
    this.#chunks.push(chunk);
    const limit = this.#onSpilled === undefined ? MEMORY_LIMIT : CHUNK_LENGTH - 1;
    if (this.#file !== undefined || this.#byteLength > limit) this.#spill();
  }

  /** The whole answer; nothing is written to it afterwards. */
  finish(): SpooledAnswer {
    this.flush();
    const counts = { affected: this.#affected, rows: this.#rows };
    if (this.#file !== undefined) return { kind: "file", byteLength: this.#byteLength, counts };
    const [only = Buffer.alloc(0), ...others] = this.#chunks;
    const bytes = others.length === 0 ? only : Buffer.concat(this.#chunks, this.#byteLength);
    return { kind: "memory", bytes, counts };
  }

  /** Hands the file of a finished answer over to the caller; undefined if there is none. */
  takeFile(): number | undefined {
    const file = this.#file;
    this.#file = undefined;
    return file;
  }

  /** Closes the file; must be called at the end, whatever happened. */
  close(): void {
    if (this.#file !== undefined) closeSync(this.#file);
    this.#file = undefined;
  }

  #spill(): void {
    this.#file ??= this.#openFile();
    for (const chunk of this.#chunks) writeFully(this.#file, chunk);
    this.#chunks.length = 0;
    this.#onSpilled?.(this.#byteLength);
  }
}

function writeFully(file: number, bytes: Buffer): void {
  let written = 0;
  while (written < bytes.length) written += writeSync(file, bytes, written);
}

/** What the file system says where there is no room, or no right, to write. */
const storageCodes = new Set(["ENOSPC", "EDQUOT", "EFBIG", "EIO", "EROFS", "EACCES", "EPERM"]);

/** True for an error of the file system that the operator can mend by giving room or rights. */
export function isStorageError(error: unknown): boolean {
  return error instanceof Error && "code" in error && storageCodes.has(String(error.code));
}
