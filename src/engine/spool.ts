import { randomUUID } from "node:crypto";
import { close, createReadStream, openSync, read, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { EngineRefusal } from "./refusal.ts";

/** The format of rows: a JSON answer, lines of JSON objects, or CSV (RFC 4180). */
export type RowFormat = "json" | "ndjson" | "csv";

export interface RowOutput {
  readonly format: RowFormat;
  write(text: string): void;
  /** Adds to the number of rows. Called for each row, and at the end. */
  countRows(count: number): void;
  /** Called before a row with the length of the rows that it includes. @throws EngineRefusal */
  countIncluded?(length: number): void;
  /** Set while the reader lags; resolves when it has caught up or left. */
  readonly backlog: Promise<void> | undefined;
}

export interface RowStream extends RowOutput {
  writeBytes(bytes: Buffer): void;
  /** True once something has been sent. */
  readonly hasBegun: boolean;
  /** Discards unsent text. */
  reset(): void;
  /** True if, since the last call, something was sent or the output waited for the client. */
  hasProgressed(): boolean;
}

const nothing = Buffer.alloc(0);

/** Characters gathered before a chunk is encoded, approximately. */
const CHUNK_LENGTH = 64 * 1024;

/** Longer answers go to a file. */
const MEMORY_LIMIT = 4 * 1024 * 1024;

/** In characters, for a JSON answer: few outer rows could include a long one thousands of times. */
const INCLUDED_LIMIT = 256 * 1024 * 1024;

/** A JSON answer that is complete before its first byte is sent. */
export interface Answer {
  readonly counts: { readonly affected?: number | undefined; readonly rows?: number | undefined };
  readonly byteLength: number;
  /** The bytes, or the descriptor of a file with them. The sender closes the file. */
  readonly body: Uint8Array | number;
}

export function jsonAnswer(value: object): Answer {
  const body = Buffer.from(JSON.stringify(value));
  return { counts: {}, byteLength: body.length, body };
}

interface SpoolStream {
  readonly format: RowFormat;
  readonly onSpilled: (byteLength: number, rows: number) => void;
}

/**
 * Buffers a whole answer, so that a slow client blocks no writer and sees one consistent state. A
 * query that fails halfway still gets its error status. Long answers go to a file.
 */
export class Spool implements RowOutput {
  readonly format: RowFormat;
  readonly backlog = undefined;
  readonly #openFile: () => number;
  readonly #onSpilled: SpoolStream["onSpilled"] | undefined;
  readonly #chunks: Buffer[] = [];
  #pending = "";
  #byteLength = 0;
  #includedLength = 0;
  #file: number | undefined;
  #affected: number | undefined;
  #rows: number | undefined;

  /**
   * @param openFile opens an empty file for a long answer
   * @param stream sends an answer to the file after one chunk, and receives the file's length
   */
  constructor(openFile: () => number = openUnnamedFile, stream?: SpoolStream) {
    this.#openFile = openFile;
    this.format = stream?.format ?? "json";
    this.#onSpilled = stream?.onSpilled;
  }

  write(text: string): void {
    this.#pending += text;
    if (this.#pending.length >= CHUNK_LENGTH) this.flush();
  }

  countRows(count: number): void {
    this.#rows = (this.#rows ?? 0) + count;
  }

  countIncluded(length: number): void {
    this.#includedLength += length;
    if (this.format !== "json" || this.#includedLength <= INCLUDED_LIMIT) return;
    const problem = `The included rows of a JSON answer exceed ${INCLUDED_LIMIT >> 20} MiB`;
    const remedy = "lower limit, select fewer columns, or accept application/x-ndjson";
    throw new EngineRefusal("query_too_complex", `${problem}; ${remedy}`);
  }

  countAffected(count: number): void {
    this.#affected = (this.#affected ?? 0) + count;
  }

  flush(): void {
    if (this.#pending === "") return;
    const chunk = Buffer.from(this.#pending);
    this.#pending = "";
    this.#byteLength += chunk.length;
    this.#chunks.push(chunk);
    const limit = this.#onSpilled === undefined ? MEMORY_LIMIT : CHUNK_LENGTH - 1;
    if (this.#file !== undefined || this.#byteLength > limit) this.#spill();
  }

  /** Returns the answer and hands over its file. Nothing may be written afterwards. */
  finish(): Answer {
    this.flush();
    const [only = nothing, ...more] = this.#chunks;
    const body = this.#file ?? (more.length === 0 ? only : Buffer.concat(this.#chunks));
    this.#file = undefined;
    const counts = { affected: this.#affected, rows: this.#rows };
    return { counts, byteLength: this.#byteLength, body };
  }

  /** Closes the file, unless it was handed over. The system may take seconds to free a long one. */
  close(): void {
    if (this.#file !== undefined) close(this.#file, () => {});
    this.#file = undefined;
  }

  #spill(): void {
    this.#file ??= this.#openFile();
    for (const chunk of this.#chunks) writeFully(this.#file, chunk);
    this.#chunks.length = 0;
    this.#onSpilled?.(this.#byteLength, this.#rows ?? 0);
  }
}

/** The bytes of an answer. Closes its file when it was read. */
export function answerBytes({ body }: Answer): AsyncIterable<Buffer> | Iterable<Buffer> {
  if (typeof body === "number") return createReadStream("", { fd: body, start: 0 });
  return [Buffer.from(body.buffer, body.byteOffset, body.byteLength)];
}

export async function answerText(answer: Answer): Promise<string> {
  return Buffer.concat(await Array.fromAsync(answerBytes(answer))).toString();
}

const readAt = promisify(read);

/** Blocks of bytes in an unnamed file, read in the order in which they were written. */
export class BlockFile {
  readonly #lengths: number[] = [];
  #file: number | undefined;

  write(block: Buffer): void {
    this.#file ??= openUnnamedFile();
    writeFully(this.#file, block);
    this.#lengths.push(block.length);
  }

  async *blocks(): AsyncGenerator<Buffer> {
    if (this.#file === undefined) return;
    let position = 0;
    for (const length of this.#lengths) {
      const block = Buffer.allocUnsafe(length);
      const { bytesRead } = await readAt(this.#file, block, 0, length, position);
      if (bytesRead < length) throw new Error("A file of rows is too short");
      position += length;
      yield block;
    }
  }

  close(): void {
    if (this.#file !== undefined) close(this.#file, () => {});
  }
}

/** No other process can open the file, and the system frees it when its descriptor is closed. */
function openUnnamedFile(): number {
  const path = join(tmpdir(), `.gatehouse-answer-${randomUUID()}`);
  const file = openSync(path, "wx+", 0o600);
  rmSync(path);
  return file;
}

function writeFully(file: number, bytes: Buffer): void {
  let written = 0;
  while (written < bytes.length) written += writeSync(file, bytes, written);
}
