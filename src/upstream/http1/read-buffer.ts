import type { OnReadOpts } from "node:net";

/** Bytes that are read at once: what the stream of a socket takes, too. */
const CAPACITY = 64 * 1024;
/** Bytes from which on what was read is handed on as it lies, and not copied. */
const HANDED_ON = 8 * 1024;

/**
 * Where one socket reads to. Memory for each read would cost a small answer more than all that is
 * done with it, so what is short is copied out and the buffer serves again.
 */
export class ReadBuffer {
  #bytes = Buffer.allocUnsafeSlow(CAPACITY);
  /** Takes what was read, for good. */
  take: (bytes: Buffer) => void = () => {};

  /** What the socket is to be made with. */
  readonly onread: OnReadOpts = {
    buffer: () => this.#bytes,
    callback: (length) => {
      this.take(this.#taken(length));
      return true;
    },
  };

  #taken(length: number): Buffer {
    const read = this.#bytes.subarray(0, length);
    if (length < HANDED_ON) return Buffer.from(read);
    this.#bytes = Buffer.allocUnsafeSlow(CAPACITY);
    return read;
  }
}
