/** A place in the bytes of a body, and the small moves from there. */

import { characterTable } from "./byte-tables.ts";
import { LongRuns } from "./long-runs.ts";
import { type BodyLocation, type QueryRefusalCode, QueryRefused } from "./refusal.ts";

const blank = 0x20;

/** Bytes of white space after which there may be much of it. */
const longSpace = 16;

const space = characterTable(" \t\n\r");

/** A cursor over the bytes of a body. */
export class JsonCursor {
  readonly bytes: Buffer;
  /** Byte offset of what is read next. */
  position = 0;
  /** The fields and indices that lead to what is being read; kept by those who know the grammar. */
  readonly path: (string | number)[] = [];
  #longRuns: LongRuns | undefined = undefined;

  constructor(bytes: Buffer) {
    this.bytes = bytes;
  }

  /** The error for a fault here, or at another byte offset of the same place in the grammar. */
  refusal(code: QueryRefusalCode, problem: string, offset = this.position): QueryRefused {
    return new QueryRefused(code, problem, this.location(offset));
  }

  /** Where the cursor is; another offset may be named for the same path. */
  location(offset = this.position): BodyLocation {
    const segments = this.path.map((segment) =>
      typeof segment === "number" ? `[${segment}]` : `.${segment}`,
    );
    return { path: segments.join("").replace(/^\./, ""), offset };
  }

  /** The byte at an offset; 0, which begins and continues no JSON token, past the end. */
  protected byteAt(position: number): number {
    return this.bytes[position] ?? 0;
  }

  /** The finder of the ends of long runs, made when it is first wanted. */
  protected runs(): LongRuns {
    this.#longRuns ??= new LongRuns(this.bytes);
    return this.#longRuns;
  }

  /** Moves to the next byte that is not white space. */
  skipSpace(): void {
    if ((this.bytes[this.position] ?? 0) <= blank) this.#skipSpaces();
  }

  #skipSpaces(): void {
    const { bytes } = this;
    let position = this.position;
    const long = position + longSpace;
    while (position < long && space[bytes[position] ?? 0] === 1) position++;
    if (position === long) {
      position = this.runs().repetitionEnd(position - 4);
      while (space[bytes[position] ?? 0] === 1) position++;
    }
    this.position = position;
  }

  /** Reads past a string if it is written as these bytes, quotes included. */
  skipToken(token: Uint8Array): boolean {
    const { bytes, position } = this;
    const { length } = token;
    // The first byte is a quote in nearly all tokens: the second one tells more.
    for (let index = 1; index < length; index++) {
      if (bytes[position + index] !== token[index]) return false;
    }
    if (bytes[position] !== token[0]) return false;
    this.position = position + length;
    return true;
  }

  /** Reads past bytes that repeat those between two offsets. */
  skipRepeated(start: number, end: number): boolean {
    const { bytes, position } = this;
    const distance = position - start;
    for (let offset = start; offset < end; offset++) {
      if (bytes[offset] !== bytes[offset + distance]) return false;
    }
    this.position = position + end - start;
    return true;
  }
}
