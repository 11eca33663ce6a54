/** JSON values that are passed over, however deep, without recursion. */

import type { Steps } from "../slices.ts";
import { beginsNumber, characterTable } from "./byte-tables.ts";
import { JsonLexer } from "./json-lexer.ts";
import type { QueryRefused } from "./refusal.ts";
import type { Rest } from "./rest.ts";

const blank = 0x20;
const closeBrace = 0x7d;
const closeBracket = 0x5d;
const colon = 0x3a;
const comma = 0x2c;
const letterF = 0x66;
const letterN = 0x6e;
const letterT = 0x74;
const openBrace = 0x7b;
const openBracket = 0x5b;
const quote = 0x22;

/** How deep arrays and objects may be nested; the body's own object is at depth 1. */
export const deepestNesting = 64;

const scalarStart = characterTable('"-0123456789tfn');

/** Enters and leaves arrays and objects, and reads past values; pauses if it is told to. */
export class JsonSkipper extends JsonLexer {
  /** The number of elements of the array that `skipValue` read past last. */
  elements = 0;
  protected depth = 0;
  /** For each depth that `skipValue` has entered, 1 if it is an object's. */
  #objects: Uint8Array | undefined = undefined;
  #pauseLength = 0;
  /** True while a pause interrupts a string. */
  #isInString = false;
  /** Byte offset from which on a pause is due. */
  #pauseAt: number;

  constructor(bytes: Buffer) {
    super(bytes);
    this.#pauseAt = bytes.length + 1;
  }

  /** Has `pause` and `skipValue` pause after every so many bytes; else they never do. */
  pauseEvery(bytes: number): void {
    this.#pauseLength = bytes;
    this.#pauseAt = this.position + bytes;
  }

  /** A pause, if one is due. To be asked for wherever a body may go on for long. */
  pause(): Rest {
    return this.position < this.#pauseAt ? undefined : this.#rest();
  }

  *#rest(): Steps<void> {
    yield;
    this.#pauseAt = this.position + this.#pauseLength;
  }

  /** Reads past any value. Its syntax is judged, its keys are not. */
  skipValue(): Rest {
    const byte = this.byteAt(this.position);
    if (byte === openBracket || byte === openBrace) return this.#skipContainer();
    this.#skipScalar(byte);
    return this.#isInString ? this.#finishInSteps() : undefined;
  }

  *#finishInSteps(): Steps<void> {
    do yield* this.#rest();
    while (this.#isLeftInString());
  }

  /** Reads on in a string; true if it is left unfinished once more. */
  #isLeftInString(): boolean {
    this.#isInString = this.finishString(this.#pauseAt) === "unfinished";
    return this.#isInString;
  }

  /** Reads past a value that is neither array nor object; a long string may be left unfinished. */
  #skipScalar(byte: number): void {
    if (byte === quote) {
      this.position++;
      this.#isLeftInString();
    } else if (beginsNumber(byte)) this.skipNumber();
    else if (byte === letterT || byte === letterF || byte === letterN) this.skipLiteral();
    else throw this.unexpected("a value");
  }

  /** Reads past elements of an array of which only commas are between, and gives their number. */
  #skipScalars(first: number): number {
    this.#skipScalar(first);
    let count = 1;
    while (this.byteAt(this.position) === comma && this.position < this.#pauseAt) {
      const byte = this.byteAt(this.position + 1);
      if (scalarStart[byte] !== 1) break;
      this.position++;
      this.#skipScalar(byte);
      count++;
    }
    return count;
  }

  #skipContainer(): Rest {
    const outside = this.depth;
    this.elements = 0;
    this.#objects ??= new Uint8Array(deepestNesting + 1);
    return this.#skipWithin(this.#objects, outside)
      ? undefined
      : this.#skipInSteps(this.#objects, outside);
  }

  *#skipInSteps(objects: Uint8Array, outside: number): Steps<void> {
    do yield* this.#rest();
    while (!this.#skipWithin(objects, outside));
  }

  /** Reads values until the containers entered since `outside` are left; false if it paused before. */
  #skipWithin(objects: Uint8Array, outside: number): boolean {
    if (this.#isInString) {
      if (this.#isLeftInString()) return false;
      if (!this.#skipToNext(objects, outside)) return true;
    }
    do {
      const byte = this.byteAt(this.position);
      if (byte === openBrace) {
        if (this.open(closeBrace)) {
          objects[this.depth] = 1;
          this.#skipKey();
          continue;
        }
      } else if (byte === openBracket) {
        if (this.open(closeBracket)) {
          objects[this.depth] = 0;
          if (this.depth === outside + 1) this.elements = 1;
          continue;
        }
      } else if (objects[this.depth] === 1) {
        this.#skipScalar(byte);
      } else {
        const count = this.#skipScalars(byte);
        if (this.depth === outside + 1) this.elements += count - 1;
      }
      if (this.#isInString) return false;
      if (!this.#skipToNext(objects, outside)) return true;
    } while (this.position < this.#pauseAt);
    return false;
  }

  /** Goes on to the next value in the containers entered since `outside`; false if they are left. */
  #skipToNext(objects: Uint8Array, outside: number): boolean {
    while (this.depth > outside) {
      const inObject = objects[this.depth] === 1;
      if (!this.next(inObject ? closeBrace : closeBracket)) continue;
      if (inObject) this.#skipKey();
      else if (this.depth === outside + 1) this.elements++;
      return true;
    }
    return false;
  }

  #skipKey(): void {
    if (this.byteAt(this.position) !== quote) throw this.unexpected("a key");
    this.skipString();
    this.skipColon();
  }

  /** Moves from the end of a key to its value. */
  skipColon(): void {
    if (this.byteAt(this.position) !== colon) this.skipSpace();
    if (this.byteAt(this.position) !== colon) throw this.unexpected("a colon");
    this.#advance();
  }

  protected open(close: number): boolean {
    if (this.depth === deepestNesting) {
      const problem = `arrays and objects are nested more than ${deepestNesting} deep`;
      throw this.refusal("nesting_too_deep", problem);
    }
    this.depth++;
    if (this.#advance() !== close) return true;
    this.#leave();
    return false;
  }

  protected next(close: number): boolean {
    let byte = this.byteAt(this.position);
    if (byte <= blank) {
      this.skipSpace();
      byte = this.byteAt(this.position);
    }
    if (byte === comma) {
      this.#advance();
      return true;
    }
    if (byte !== close) throw this.unexpected(`a comma or ${String.fromCharCode(close)}`);
    this.#leave();
    return false;
  }

  /** Moves past a byte and the white space after it, and gives the byte there. */
  #advance(): number {
    const byte = this.byteAt(++this.position);
    if (byte > blank) return byte;
    this.skipSpace();
    return this.byteAt(this.position);
  }

  #leave(): void {
    this.depth--;
    this.position++;
  }

  protected unexpected(wanted: string): QueryRefused {
    const found = this.position >= this.bytes.length ? "the body ends" : "something else stands";
    return this.refusal("invalid_json", `${found} where ${wanted} is expected`);
  }
}
