import type { Duplex } from "node:stream";
import { RowTooLong } from "../refusal.ts";

/** The longest message that a driver reads: it holds a row in several copies. */
const MOST_MESSAGE_BYTES = 64 * 1024 * 1024;

/** How a protocol frames its messages. */
export interface Framing {
  readonly headerBytes: number;
  /** The bytes that follow a header. */
  lengthAt(bytes: Buffer, header: number): number;
  /** True if a message goes on after a part of this length. */
  goesOn(length: number): boolean;
}

/**
 * Destroys a stream if its driver throws, which would end the process, or before it reads a longer
 * message. Pending queries fail with the error. The next byte must be the first of a message.
 */
export function guardReading(stream: Duplex, framing: Framing): void {
  const listeners = stream.listeners("data");
  const lengths = new MessageLengths(framing);
  stream.removeAllListeners("data");
  stream.on("data", (chunk: Buffer) => {
    try {
      lengths.follow(chunk);
      for (const read of listeners) read.call(stream, chunk);
    } catch (error) {
      stream.destroy(error instanceof Error ? error : new Error(String(error)));
    }
  });
}

/** Follows the messages of a stream through its chunks. */
class MessageLengths {
  readonly #framing: Framing;
  /** The beginning of a header that a chunk has cut. */
  #header: Buffer | undefined;
  #left = 0;
  #length = 0;

  constructor(framing: Framing) {
    this.#framing = framing;
  }

  /** @throws RowTooLong */
  follow(chunk: Buffer): void {
    const { headerBytes, lengthAt, goesOn } = this.#framing;
    const bytes = this.#header === undefined ? chunk : Buffer.concat([this.#header, chunk]);
    let at = this.#left;
    while (at + headerBytes <= bytes.length) {
      const length = lengthAt(bytes, at);
      this.#length += length;
      if (this.#length > MOST_MESSAGE_BYTES) throw new RowTooLong();
      if (!goesOn(length)) this.#length = 0;
      at += headerBytes + length;
    }
    this.#left = Math.max(0, at - bytes.length);
    this.#header = at < bytes.length ? bytes.subarray(at) : undefined;
  }
}
