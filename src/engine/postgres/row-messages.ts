import type { Connection } from "pg";
import type { RowOutput } from "../spool.ts";
import { type Asked, Exchange } from "./exchange.ts";
import type { ResultColumn, RowBytes } from "./row-bytes.ts";

/** The first byte of a row, and the bytes before what a message says (PostgreSQL, "Message Formats"). */
const DATA_ROW = 0x44;
const HEAD_LENGTH = 5;

/** Bytes of rows that are handed over together, and how long they wait for others, in milliseconds. */
const PIECE_LENGTH = 64 * 1024;
const GATHERING_TIME = 5;

/** What comes on a connection, before the driver reads it. */
export class ConnectionTap {
  readonly #stream: Connection["stream"];
  readonly #listener: CallableFunction;
  /** Who reads in the place of the driver. */
  #reader: ((chunk: Buffer) => void) | undefined;

  constructor({ stream }: Pick<Connection, "stream">) {
    const [listener] = stream.listeners("data");
    if (listener === undefined) throw new Error("The driver does not listen");
    this.#stream = stream;
    this.#listener = listener;
    stream.removeAllListeners("data");
    stream.on("data", (chunk: Buffer) => {
      if (this.#reader === undefined) this.feed(chunk);
      else this.#reader(chunk);
    });
  }

  /** Has the driver read something. */
  feed(bytes: Buffer): void {
    Reflect.apply(this.#listener, this.#stream, [bytes]);
  }

  /** Whose turn it is to read; undefined: the driver's. */
  giveTo(reader: ((chunk: Buffer) => void) | undefined): void {
    this.#reader = reader;
  }

  /** Leaves what comes with the server for so long. */
  pauseUntil(end: Promise<void>): void {
    this.#stream.pause();
    void end.then(() => this.#stream.resume());
  }
}

/**
 * A statement whose rows go past the driver, from the bytes of the connection to the output: the
 * driver would make a string of each value. All else that comes is left to it. The connection is not
 * read while the output has a backlog, so that the server waits.
 */
export class RowMessages extends Exchange {
  /** Why a row could not be written, if so; those behind it were dropped. */
  failure: unknown;
  readonly #rows: RowBytes;
  readonly #output: RowOutput;
  readonly #tap: ConnectionTap;
  #isOver = false;
  #soon: NodeJS.Timeout | undefined;
  /** What has come of a message that is not complete, and how long it is to be. */
  #parts: Buffer[] = [];
  #length = 0;
  #needed = 0;

  constructor(tap: ConnectionTap, asked: Asked, rows: RowBytes, output: RowOutput) {
    super(asked);
    this.#tap = tap;
    this.#rows = rows;
    this.#output = output;
  }

  override submit(connection: Connection): void {
    this.#tap.giveTo(this.#onData);
    super.submit(connection);
  }

  protected override get wantsTypes(): boolean {
    return true;
  }

  protected override takeTypes(columns: readonly ResultColumn[]): void {
    this.#attempt(() => this.#rows.requireTypes(columns));
  }

  override handleReadyForQuery(): void {
    this.#leave();
    super.handleReadyForQuery();
  }

  override handleError(error: unknown): void {
    this.#leave();
    super.handleError(error);
  }

  readonly #onData = (chunk: Buffer): void => {
    this.#parts.push(chunk);
    this.#length += chunk.length;
    if (this.#length < this.#needed) return;
    const bytes = this.#parts.length === 1 ? chunk : Buffer.concat(this.#parts, this.#length);
    const rest = bytes.subarray(this.#read(bytes));
    if (this.#isOver) {
      if (rest.length > 0) this.#tap.feed(rest);
      return;
    }
    this.#parts = rest.length === 0 ? [] : [rest];
    this.#length = rest.length;
    this.#needed = rest.length < HEAD_LENGTH ? HEAD_LENGTH : 1 + rest.readUInt32BE(1);
    // Over a Unix socket rows come in pieces of 8 KiB, each of which would cost a write.
    if (this.#rows.length >= PIECE_LENGTH) this.#flush();
    else this.#soon ??= setTimeout(this.#flush, GATHERING_TIME);
  };

  readonly #flush = (): void => {
    clearTimeout(this.#soon);
    this.#soon = undefined;
    this.#attempt(() => this.#rows.flush());
    const { backlog } = this.#output;
    if (backlog !== undefined) this.#tap.pauseUntil(backlog);
  };

  /** Reads whole messages, as long as they are this statement's. Returns where the rest begins. */
  #read(bytes: Buffer): number {
    let at = 0;
    while (!this.#isOver && at + HEAD_LENGTH <= bytes.length) {
      const end = at + 1 + bytes.readUInt32BE(at + 1);
      if (end > bytes.length) break;
      if (bytes[at] === DATA_ROW) {
        const start = at + HEAD_LENGTH;
        if (this.isReached) this.#attempt(() => this.#rows.write(bytes, start, end));
      } else this.#tap.feed(bytes.subarray(at, end));
      at = end;
    }
    return at;
  }

  /** Whatever is thrown to the connection would end the process. */
  #attempt(work: () => void): void {
    if (this.failure !== undefined) return;
    try {
      work();
    } catch (error) {
      this.failure = error;
    }
  }

  /** Gives the connection back to the driver. */
  #leave(): void {
    this.#isOver = true;
    clearTimeout(this.#soon);
    this.#tap.giveTo(undefined);
  }
}
