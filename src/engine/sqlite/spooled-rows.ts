import { type FileHandle, open } from "node:fs/promises";
import type { RowStream } from "../row-output.ts";
import type { SpooledAnswer } from "../spool.ts";

/** Bytes that are read at a time. */
const PIECE_LENGTH = 64 * 1024;

/**
 * Rows on their way from the file that a worker puts them to. The worker does not wait for the client:
 * SQLite lets nobody write while it reads, and a client that reads slowly would hold all of them up.
 */
export class SpooledRows {
  readonly #path: string;
  readonly #stream: RowStream;
  readonly #signal: AbortSignal;
  #file: FileHandle | undefined;
  /** Bytes that are in the file, and those of them that were sent. */
  #known = 0;
  #sent = 0;
  #sending: Promise<void> | undefined;
  #failure: unknown;

  constructor(path: string, stream: RowStream, signal: AbortSignal) {
    this.#path = path;
    this.#stream = stream;
    this.#signal = signal;
  }

  /** Sends what is in the file, which has so many bytes now. */
  readonly onSpilled = (byteLength: number): void => {
    this.#known = byteLength;
    this.#sending ??= this.#send().catch((error: unknown) => {
      this.#failure = error;
    });
  };

  /** Sends the rest of a whole answer. @throws what the file system throws, and the signal's reason */
  async finish(spooled: SpooledAnswer): Promise<void> {
    if (spooled.kind === "memory") {
      this.#stream.writeBytes(Buffer.from(spooled.bytes));
      return;
    }
    this.onSpilled(spooled.byteLength);
    await this.#sending;
    if (this.#failure !== undefined) throw this.#failure;
  }

  /** Closes the file. */
  async close(): Promise<void> {
    await this.#sending;
    await this.#file?.close();
  }

  async #send(): Promise<void> {
    this.#file ??= await open(this.#path);
    while (this.#sent < this.#known) {
      this.#signal.throwIfAborted();
      const piece = Buffer.allocUnsafe(Math.min(PIECE_LENGTH, this.#known - this.#sent));
      const { bytesRead } = await this.#file.read(piece, 0, piece.length, this.#sent);
      if (bytesRead === 0) throw new Error("The file of an answer is shorter than was told");
      this.#sent += bytesRead;
      this.#stream.writeBytes(piece.subarray(0, bytesRead));
      await this.#stream.backlog;
    }
    this.#sending = undefined;
  }
}
