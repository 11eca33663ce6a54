import type { OnReadOpts } from "node:net";

/**
 * Bytes that are read at once. With 64 KiB an answer of 10 MB costs twice the processor time; the
 * system backs only the pages that are written to.
 */
const CAPACITY = 256 * 1024;
/** Bytes from which on what was read is lent as it lies, and not copied. */
const LENT_FROM = 8 * 1024;
/** Buffers that are kept besides the one that is read to. */
const SPARE = 2;

/** What to call, once, when lent bytes are of no more use. */
export type Release = () => void;

/** What was read, for as long as the call that hands it over; whoever wants it longer holds it. */
export interface Lease {
  hold(): Release;
}

/** The lease of a buffer. */
class BufferLease implements Lease {
  readonly #giveBack: Release;
  #holders = 0;

  constructor(giveBack: Release) {
    this.#giveBack = giveBack;
  }

  /** Lends to one more. */
  hold(): Release {
    this.#holders++;
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      this.#holders--;
      if (this.#holders === 0) this.#giveBack();
    };
  }
}

const nothing = (): void => {};
/** Of bytes that belong to whoever gets them. */
const owned: Lease = { hold: () => nothing };

/**
 * Where one socket reads to. New memory for each read would cost a small answer more than all that
 * is done with it, and have the collector go through the whole heap after every few large ones. So
 * what is short is copied out, and what is long is lent: the buffer serves again when all of it has
 * been given back, and meanwhile another one is read to.
 */
export class ReadBuffer {
  #bytes: Buffer<ArrayBuffer> = Buffer.allocUnsafeSlow(CAPACITY);
  readonly #spare: Buffer<ArrayBuffer>[] = [];
  /** Takes what was read. */
  take: (bytes: Buffer, lease: Lease) => void = nothing;

  /** What the socket is to be made with. */
  readonly onread: OnReadOpts = {
    buffer: () => this.#bytes,
    callback: (length) => {
      this.#onRead(length);
      return true;
    },
  };

  #onRead(length: number): void {
    const buffer = this.#bytes;
    const read = buffer.subarray(0, length);
    if (length < LENT_FROM) {
      this.take(Buffer.from(read), owned);
      return;
    }
    this.#bytes = this.#spare.pop() ?? Buffer.allocUnsafeSlow(CAPACITY);
    const lease = new BufferLease(() => {
      if (this.#spare.length < SPARE) this.#spare.push(buffer);
    });
    const release = lease.hold();
    this.take(read, lease);
    release();
  }
}
