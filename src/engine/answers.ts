import { randomUUID } from "node:crypto";
import { closeSync, createReadStream, openSync, rmSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable } from "node:stream";
import type { RowCounts, RowForm, RowStream, Spool, SpooledAnswer } from "./spool.ts";
import type { Answer } from "./store.ts";

/** Characters gathered before a chunk is sent, approximately. */
const CHUNK_LENGTH = 64 * 1024;

/** Bytes that a client may lag behind before the database waits for it. */
const MOST_BEHIND = 256 * 1024;

/** A client that accepts none of its answer for this long is disconnected. */
export const STALLED_CLIENT_TIMEOUT_MS = 60_000;

const mediaTypes: Readonly<Record<RowForm, string>> = {
  json: "application/json",
  ndjson: "application/x-ndjson",
  csv: "text/csv; charset=utf-8; header=present",
};

/**
 * An answer sent while its rows are still being read. Its head is sent with the first row, so that
 * earlier failures are answered as errors. Later failures have to cut the connection.
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

  /** The head has been sent by then, so the count cannot be reported. */
  countRows(): void {}

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
 * Opens an empty file that no other process can open, since its name is removed at once. The system
 * frees it when its descriptor is closed. @throws the error of the file system
 */
export function openUnnamedFile(): number {
  const path = join(tmpdir(), `.gatehouse-answer-${randomUUID()}`);
  const file = openSync(path, "wx+", 0o600);
  rmSync(path);
  return file;
}

export function jsonAnswer(value: object): Answer {
  return answerInMemory(Buffer.from(JSON.stringify(value)), {});
}

/**
 * Opens a spooled answer; a long one is in the file at `path`. The file stays readable after its
 * name is removed. @throws the error of the file system
 */
export function openAnswer(spooled: SpooledAnswer, path: string): Answer {
  if (spooled.kind === "memory") return answerInMemory(spooled.bytes, spooled.counts);
  return new AnswerInFile(openSync(path, "r"), spooled);
}

/**
 * Takes the answer that this process spooled. The spool gives its file away and needs no closing.
 */
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

/** An answer in a file. A stream that has been taken owns the file. */
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
