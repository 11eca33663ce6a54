import { randomUUID } from "node:crypto";
import { closeSync, createReadStream, openSync, rmSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable } from "node:stream";
import type { RowCounts, RowForm, RowStream, Spool, SpooledAnswer } from "./spool.ts";
import type { Answer } from "./store.ts";

/** Text is gathered to chunks of about this many characters before it is sent. */
const CHUNK_LENGTH = 64 * 1024;

/** Bytes that a client may be behind before the database waits for it. */
const MOST_BEHIND = 256 * 1024;

/** A client that takes nothing of its answer for this long is cut off, in milliseconds. */
export const STALLED_CLIENT_TIMEOUT_MS = 60_000;

const mediaTypes: Readonly<Record<RowForm, string>> = {
  json: "application/json",
  ndjson: "application/x-ndjson",
  csv: "text/csv; charset=utf-8; header=present",
};

/**
 * An answer that goes out while its rows are found. Its head goes out with the first row, so that
 * what fails before it is answered as an error; what fails later has to cut the connection.
 */
export class StreamedAnswer implements RowStream {
  readonly form: RowForm;
  readonly #response: ServerResponse;
  #pending = "";
  #soon: NodeJS.Immediate | undefined;
  #backlog: Promise<void> | undefined;
  #hasMoved = false;

  constructor(response: ServerResponse, form: RowForm) {
    this.#response = response;
    this.form = form;
  }

  get hasBegun(): boolean {
    return this.#response.headersSent;
  }

  get backlog(): Promise<void> | undefined {
    return this.#backlog;
  }

  hasMoved(): boolean {
    const hasMoved = this.#hasMoved || this.#backlog !== undefined;
    this.#hasMoved = false;
    return hasMoved;
  }

  reset(): void {
    this.#take();
  }

  write(text: string): void {
    this.#pending += text;
    if (this.#pending.length >= CHUNK_LENGTH) this.#flush();
    else this.#soon ??= setImmediate(() => this.#flush());
  }

  writeBytes(bytes: Buffer, release?: () => void): void {
    this.#flush();
    this.#send(bytes, release);
  }

  /** The head is out by then, so there is no saying it. */
  countRows(): void {}

  /** Ends the answer. */
  end(): void {
    const last = Buffer.from(this.#take());
    if (!this.hasBegun) {
      const length = { "Content-Length": last.length };
      this.#response.writeHead(200, { "Content-Type": mediaTypes[this.form], ...length });
    }
    this.#response.end(last);
  }

  #take(): string {
    clearImmediate(this.#soon);
    this.#soon = undefined;
    const text = this.#pending;
    this.#pending = "";
    return text;
  }

  #flush(): void {
    const text = this.#take();
    if (text !== "") this.#send(Buffer.from(text));
  }

  #send(bytes: Buffer, release: () => void = () => {}): void {
    const response = this.#response;
    if (response.destroyed) {
      release();
      return;
    }
    if (!this.hasBegun) response.writeHead(200, { "Content-Type": mediaTypes[this.form] });
    this.#hasMoved = true;
    const isTaken = response.write(bytes, release);
    if (!isTaken && response.writableLength > MOST_BEHIND) this.#backlog ??= this.#untilTaken();
  }

  async #untilTaken(): Promise<void> {
    const response = this.#response;
    response.setTimeout(STALLED_CLIENT_TIMEOUT_MS, () => response.destroy());
    const { promise, resolve } = Promise.withResolvers<void>();
    response.once("drain", resolve).once("close", resolve);
    await promise;
    response.off("drain", resolve).off("close", resolve);
    response.setTimeout(0);
    this.#backlog = undefined;
  }
}

/**
 * Opens an empty file that nobody else can open, since it loses its name at once; the system
 * takes it back with its descriptor. @throws what the file system throws
 */
export function openUnnamedFile(): number {
  const path = join(tmpdir(), `.gatehouse-answer-${randomUUID()}`);
  const file = openSync(path, "wx+", 0o600);
  rmSync(path);
  return file;
}

/** An answer that is a value in memory. */
export function jsonAnswer(value: object): Answer {
  return answerInMemory(Buffer.from(JSON.stringify(value)), {});
}

/**
 * An answer that was spooled, in the file at `path` if it is long. The file stays readable when
 * its name is removed afterwards. @throws what the file system throws
 */
export function openAnswer(spooled: SpooledAnswer, path: string): Answer {
  if (spooled.kind === "memory") return answerInMemory(spooled.bytes, spooled.counts);
  return new AnswerInFile(openSync(path, "r"), spooled);
}

/** The answer that this process spooled; the spool gives its file away and needs no closing. */
export function takeAnswer(spool: Spool): Answer {
  const spooled = spool.finish();
  if (spooled.kind === "memory") return answerInMemory(spooled.bytes, spooled.counts);
  const file = spool.takeFile();
  if (file === undefined) throw new Error("A spool was taken twice");
  return new AnswerInFile(file, spooled);
}

function answerInMemory(bytes: Uint8Array, counts: RowCounts): Answer {
  return {
    counts,
    byteLength: bytes.byteLength,
    read: () => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength),
    dispose() {},
  };
}

/** An answer in a file, which the stream owns once it is taken. */
class AnswerInFile implements Answer {
  readonly byteLength: number;
  readonly counts: RowCounts;
  #file: number | undefined;

  constructor(file: number, { byteLength, counts }: { byteLength: number; counts: RowCounts }) {
    this.#file = file;
    this.byteLength = byteLength;
    this.counts = counts;
  }

  read(): Readable {
    const file = this.#file;
    if (file === undefined) throw new Error("An answer was read twice");
    this.#file = undefined;
    return createReadStream("", { fd: file, start: 0 });
  }

  dispose(): void {
    if (this.#file !== undefined) closeSync(this.#file);
    this.#file = undefined;
  }
}
