import type { Duplex } from "node:stream";
import { RowTooLong } from "../refusal.ts";

/** The longest message that a driver reads: it holds a row in several copies. */
const MOST_MESSAGE_BYTES = 64 * 1024 * 1024;

/** How a protocol frames its messages. */
interface Framing {
  readonly headerBytes: number;
  /** The bytes that follow a header. */
  lengthAt(bytes: Buffer, header: number): number;
  /** True if a message goes on after a part of this length. */
  goesOn(length: number): boolean;
}

/** Reads rows in place of a driver. */
export interface RowReader {
  isRow(bytes: Buffer, header: number): boolean;
  /** True if the next row belongs to a query of this reader. */
  readonly isReading: boolean;
  /** @param start where what follows the header begins */
  readRow(bytes: Buffer, start: number, end: number): void;
}

/** The event loop would read 32 chunks of a socket, 2 MiB, before it turns to others. */
const BYTES_PER_TURN = 64 * 1024;

/**
 * Destroys a stream if its driver throws, which would end the process, or before it reads a longer
 * message. Pending queries fail with the error. The next byte must be the first of a message.
 */
export function guardReading(stream: Duplex, framing: Framing, rows?: RowReader): void {
  const listeners = stream.listeners("data");
  const pass = (bytes: Buffer) => {
    for (const read of listeners) read.call(stream, bytes);
  };
  const messages = new Messages(framing, pass, rows);
  stream.removeAllListeners("data");
  let readInTurn = 0;
  stream.on("data", (chunk: Buffer) => {
    try {
      messages.follow(chunk);
    } catch (error) {
      stream.destroy(error instanceof Error ? error : new Error(String(error)));
    }
    readInTurn += chunk.length;
    if (readInTurn < BYTES_PER_TURN) return;
    readInTurn = 0;
    // A stream that waits for a client is resumed when the client has caught up.
    if (stream.isPaused()) return;
    stream.pause();
    setImmediate(() => stream.resume());
  });
}

/** Follows the messages of a stream through its chunks. */
class Messages {
  readonly #framing: Framing;
  readonly #pass: (bytes: Buffer) => void;
  readonly #rows: RowReader | undefined;
  /** The beginning of a header or a row that a chunk has cut. */
  #kept: Buffer[] = [];
  /** Bytes without which it is of no use. */
  #missing = 0;
  /** Of a message whose beginning was passed on. */
  #left = 0;
  #length = 0;

  constructor(framing: Framing, pass: (bytes: Buffer) => void, rows: RowReader | undefined) {
    this.#framing = framing;
    this.#pass = pass;
    this.#rows = rows;
  }

  /** @throws RowTooLong */
  follow(chunk: Buffer): void {
    this.#kept.push(chunk);
    this.#missing -= chunk.length;
    if (this.#missing > 0) return;
    const bytes = this.#kept.length === 1 ? chunk : Buffer.concat(this.#kept);
    this.#kept = [];
    this.#read(bytes);
  }

  #read(bytes: Buffer): void {
    const { headerBytes, lengthAt, goesOn } = this.#framing;
    const rows = this.#rows;
    let passed = 0;
    const passUntil = (end: number) => {
      if (passed < end) this.#pass(bytes.subarray(passed, end));
      passed = end;
    };
    let at = this.#left;
    this.#left = 0;
    while (at + headerBytes <= bytes.length) {
      const length = lengthAt(bytes, at);
      this.#length += length;
      if (this.#length > MOST_MESSAGE_BYTES) throw new RowTooLong();
      if (!goesOn(length)) this.#length = 0;
      const end = at + headerBytes + length;
      if (rows?.isRow(bytes, at)) {
        // What precedes the first row says whose it is.
        passUntil(at);
        if (rows.isReading) {
          if (end > bytes.length) {
            this.#keep(bytes.subarray(at), end - bytes.length);
            return;
          }
          rows.readRow(bytes, at + headerBytes, end);
          passed = end;
        }
      }
      at = end;
    }
    passUntil(Math.min(at, bytes.length));
    if (at < bytes.length) this.#keep(bytes.subarray(at), at + headerBytes - bytes.length);
    else this.#left = at - bytes.length;
  }

  #keep(bytes: Buffer, missing: number): void {
    this.#kept = [bytes];
    this.#missing = missing;
  }
}
