import type { RowOutput } from "../spool.ts";

/** Room at first, which is enough for a few rows, and afterwards. */
const FIRST_ROOM = 4 * 1024;
const USUAL_ROOM = 128 * 1024;

const noRoom = Buffer.alloc(0);

/** Buffers that are kept to be used again. */
const SPARE_BUFFERS = 4;

/**
 * Gathers bytes for an output, whose memory is used again once the output has no use for it: new memory
 * for each piece would have the collector go through the heap all the time. Room is made with `reserve`
 * before anything is put at `at`.
 */
export class ByteWriter {
  bytes: Buffer = Buffer.allocUnsafe(FIRST_ROOM);
  /** Where the next byte goes. */
  at = 0;
  readonly #output: RowOutput;
  readonly #spare: Buffer[] = [];

  constructor(output: RowOutput) {
    this.#output = output;
  }

  /** Makes room for so many bytes more. */
  reserve(count: number): void {
    if (this.at + count <= this.bytes.length) return;
    const larger = Buffer.allocUnsafeSlow(
      Math.max(USUAL_ROOM, 2 * this.bytes.length, this.at + count),
    );
    this.bytes.copy(larger, 0, 0, this.at);
    this.bytes = larger;
  }

  /** Copies bytes as they are. */
  copy(from: Buffer, start: number, end: number): void {
    const { bytes } = this;
    let { at } = this;
    // A call for a few bytes costs more than the bytes.
    if (end - start > 32) at += from.copy(bytes, at, start, end);
    else for (let next = start; next < end; next += 1) bytes[at++] = from[next] ?? 0;
    this.at = at;
  }

  /** Puts text for which room is made here. */
  text(text: string): void {
    this.reserve(text.length < USUAL_ROOM ? 3 * text.length : Buffer.byteLength(text));
    this.at += this.bytes.write(text, this.at);
  }

  /** Hands over what was gathered. */
  flush(): void {
    if (this.at === 0) return;
    const { bytes } = this;
    this.#output.writeBytes(bytes.subarray(0, this.at), () => {
      const isUsual = bytes.length === USUAL_ROOM;
      if (isUsual && this.#spare.length < SPARE_BUFFERS) this.#spare.push(bytes);
    });
    // Most answers end here, so that no room is made before it is needed.
    this.bytes = this.#spare.pop() ?? noRoom;
    this.at = 0;
  }
}
