/** A place in the bytes of a body, and the moves from there over white space and strings. */

import type { Steps } from "../cooperative-scheduling.ts";
import { ByteText, characterTable } from "./bytes.ts";
import { JsonFault } from "./fault.ts";
import { LongRuns } from "./long-runs.ts";
import type { Rest } from "./rest.ts";
import { escapeEnd, plainEnd, stringFault } from "./tokens.ts";

const BACKSLASH = 0x5c;
const BLANK = 0x20;
const QUOTE = 0x22;

/** Bytes of a string that is unescaped in one go. */
const LONGEST_ESCAPED = 64 * 1024;

/** Bytes of white space after which there may be much of it. */
const LONG_SPACE = 16;
const space = characterTable(" \t\n\r");

/** A cursor over valid UTF-8, which pauses if it is told to. Its methods throw `JsonFault`. */
export class JsonCursor {
  readonly bytes: Buffer;
  /** Byte offset of what is read next. */
  position = 0;
  /** Byte offset from which on a pause is due. */
  pauseAt: number;
  /** True while a pause interrupts a string. */
  isInString = false;
  #pauseLength = 0;
  #longRuns: LongRuns | undefined = undefined;

  constructor(bytes: Buffer) {
    this.bytes = bytes;
    this.pauseAt = bytes.length + 1;
  }

  /** The finder of the ends of long runs, made when it is first wanted. */
  runs(): LongRuns {
    this.#longRuns ??= new LongRuns(this.bytes);
    return this.#longRuns;
  }

  /** The bytes, to be read several at a time. */
  get words(): DataView {
    return this.runs().words;
  }

  /** Has `pause` and `skipValue` pause after every so many bytes; else they never do. */
  pauseEvery(bytes: number): void {
    this.#pauseLength = bytes;
    this.pauseAt = this.position + bytes;
  }

  /** A pause, if one is due. To be asked for wherever a body may go on for long. */
  pause(): Rest {
    return this.position < this.pauseAt ? undefined : this.rest();
  }

  /** A pause, due or not. */
  *rest(): Steps<void> {
    yield;
    this.pauseAt = this.position + this.#pauseLength;
  }

  /** Reads a string and gives its text, unescaped. */
  readString(): ByteText {
    const start = this.position;
    if (!this.skipString()) return new ByteText(this.bytes, start + 1, this.position - 1);
    const length = this.position - start;
    if (length > LONGEST_ESCAPED) {
      const problem = `a name or key with escapes takes ${length} bytes; allowed: ${LONGEST_ESCAPED}`;
      throw new JsonFault("invalid_value", problem, start);
    }
    const text: string = JSON.parse(this.bytes.toString("utf8", start, this.position));
    return ByteText.from(text);
  }

  /** Whether the strings at two offsets, read before, have the same text, in whatever spelling. */
  sameStrings(one: number, other: number): boolean {
    return this.#stringAt(one).equals(this.#stringAt(other));
  }

  #stringAt(start: number): ByteText {
    const { position } = this;
    this.position = start;
    const text = this.readString();
    this.position = position;
    return text;
  }

  /** Reads past a string; true if it has escapes. */
  protected skipString(): boolean {
    this.position++;
    return this.#finishString(Number.POSITIVE_INFINITY) === "escaped";
  }

  /**
   * Reads on to the end of the string that is being read. A string of escapes, which takes long,
   * is left unfinished once a byte offset is passed.
   */
  #finishString(until: number): "plain" | "escaped" | "unfinished" {
    const { bytes } = this;
    let position = this.position;
    let escaped = false;
    while (true) {
      position = plainEnd(this, position);
      const byte = bytes[position] ?? 0;
      if (byte === QUOTE) break;
      if (byte !== BACKSLASH) throw stringFault(bytes, position);
      escaped = true;
      position = escapeEnd(bytes, position);
      if (position > until) {
        this.position = position;
        return "unfinished";
      }
    }
    this.position = position + 1;
    return escaped ? "escaped" : "plain";
  }

  /** Reads on in a string that a pause has interrupted; true if it is interrupted once more. */
  stayInString(): boolean {
    this.isInString = this.#finishString(this.pauseAt) === "unfinished";
    return this.isInString;
  }

  protected *finishInSteps(): Steps<void> {
    do yield* this.rest();
    while (this.stayInString());
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

  /** Moves to the next byte that is not white space. */
  skipSpace(): void {
    if ((this.bytes[this.position] ?? 0) <= BLANK) this.#skipSpaces();
  }

  #skipSpaces(): void {
    const { bytes } = this;
    let position = this.position;
    const long = position + LONG_SPACE;
    while (position < long && space[bytes[position] ?? 0] === 1) position++;
    if (position === long) {
      position = this.runs().repetitionEnd(position - 4);
      while (space[bytes[position] ?? 0] === 1) position++;
    }
    this.position = position;
  }
}
