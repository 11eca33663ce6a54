/** JSON values, read or passed over without building them. */

import type { Steps } from "../slices.ts";
import type { ByteText } from "./byte-text.ts";
import { JsonLexer } from "./json-lexer.ts";
import type { QueryRefused } from "./refusal.ts";
import type { Rest } from "./rest.ts";

/** How deep arrays and objects may be nested; the body's own object is at depth 1. */
export const deepestNesting = 64;

/** The types of JSON values, as messages name them. */
export type ValueKind = "an object" | "an array" | "a string" | "a number" | "a boolean" | "null";

const blank = 0x20;
const quote = 0x22;
const comma = 0x2c;
const colon = 0x3a;
const openBracket = 0x5b;
const closeBracket = 0x5d;
const openBrace = 0x7b;
const closeBrace = 0x7d;
const letterF = 0x66;
const letterN = 0x6e;
const letterT = 0x74;

const scalarStart = Uint8Array.from({ length: 256 }, (_, byte) =>
  '"-0123456789tfn'.includes(String.fromCharCode(byte)) ? 1 : 0,
);

/**
 * Reads values one after the other. Methods that read a value start on its first byte.
 *
 * An object is read by
 * `for (let more = reader.openObject(); more; more = reader.nextMember()) { key, then value }`,
 * an array likewise.
 */
export class JsonReader extends JsonLexer {
  /** The number of elements of the array that `skipValue` read past last. */
  elements = 0;
  private depth = 0;
  /** For each depth that `skipValue` has entered, 1 if it is an object's. */
  private objects: Uint8Array | undefined = undefined;
  private pauseLength = 0;
  /** Byte offset from which on a pause is due. */
  private pauseAt: number;

  constructor(bytes: Buffer) {
    super(bytes);
    this.pauseAt = bytes.length + 1;
  }

  /** Has `pause` and `skipValue` pause after every so many bytes; else they never do. */
  pauseEvery(bytes: number): void {
    this.pauseLength = bytes;
    this.pauseAt = this.position + bytes;
  }

  /** A pause, if one is due. To be asked for wherever a body may go on for long. */
  pause(): Rest {
    return this.position < this.pauseAt ? undefined : this.rest();
  }

  private *rest(): Steps<void> {
    yield;
    this.pauseAt = this.position + this.pauseLength;
  }

  /** The type of the value that begins here. */
  kind(): ValueKind {
    const byte = this.byteAt(this.position);
    if (byte === openBrace) return "an object";
    if (byte === openBracket) return "an array";
    if (byte === quote) return "a string";
    if (byte === letterT || byte === letterF) return "a boolean";
    if (byte === letterN) return "null";
    if (beginsNumber(byte)) return "a number";
    throw this.unexpected("a value");
  }

  /** Refuses a value that is not of the type wanted. */
  expect(wanted: ValueKind): void {
    const found = this.kind();
    if (found !== wanted) {
      throw this.refusal("wrong_type", `${wanted} is expected, ${found} was found`);
    }
  }

  /** Enters an object; true if it has a member. */
  openObject(): boolean {
    if (this.byteAt(this.position) !== openBrace) this.expect("an object");
    return this.open(closeBrace);
  }

  /** Goes on after a member's value; true if there is another, false past the end of the object. */
  nextMember(): boolean {
    return this.next(closeBrace);
  }

  /** Enters an array; true if it has an element. */
  openArray(): boolean {
    if (this.byteAt(this.position) !== openBracket) this.expect("an array");
    return this.open(closeBracket);
  }

  /** Goes on after an element; true if there is another, false past the end of the array. */
  nextElement(): boolean {
    return this.next(closeBracket);
  }

  /** Reads a member's key and moves to its value. */
  readKey(): ByteText {
    const key = this.readBareKey();
    this.skipColon();
    return key;
  }

  /** Reads a member's key and stays at its end, before the colon. */
  readBareKey(): ByteText {
    if (this.byteAt(this.position) !== quote) throw this.unexpected("a key");
    return this.readString();
  }

  /** Reads a member's key and moves to its value, if the key is written as these bytes. */
  skipKeyToken(token: Uint8Array): boolean {
    if (!this.skipToken(token)) return false;
    this.skipColon();
    return true;
  }

  /** Whether an object begins here whose first key is written as these bytes. */
  firstKeyIs(token: Uint8Array): boolean {
    const { position } = this;
    if (this.byteAt(position) !== openBrace) return false;
    this.position++;
    this.skipSpace();
    const found = this.skipToken(token);
    this.position = position;
    return found;
  }

  /** The first key of the object that begins here, without moving; undefined if it has none. */
  peekFirstKey(): ByteText | undefined {
    const { position, depth } = this;
    const key = this.openObject() ? this.readKey() : undefined;
    this.position = position;
    this.depth = depth;
    return key;
  }

  /** Moves from the end of a key to its value. */
  skipColon(): void {
    if (this.byteAt(this.position) !== colon) this.skipSpace();
    if (this.byteAt(this.position) !== colon) throw this.unexpected("a colon");
    this.advance();
  }

  /** Reads past any value. Its syntax is judged, its keys are not. */
  skipValue(): Rest {
    const byte = this.byteAt(this.position);
    if (byte === openBracket || byte === openBrace) return this.skipContainer();
    this.skipScalar(byte);
    return undefined;
  }

  /** Reads past a value that is neither array nor object. */
  private skipScalar(byte: number): void {
    if (byte === quote) this.skipString();
    else if (beginsNumber(byte)) this.skipNumber();
    else if (byte === letterT || byte === letterF || byte === letterN) this.skipLiteral();
    else throw this.unexpected("a value");
  }

  /** Reads past elements of an array of which only commas are between, and gives their number. */
  private skipScalars(first: number): number {
    this.skipScalar(first);
    let count = 1;
    while (this.byteAt(this.position) === comma && this.position < this.pauseAt) {
      const byte = this.byteAt(this.position + 1);
      if (scalarStart[byte] !== 1) break;
      this.position++;
      this.skipScalar(byte);
      count++;
    }
    return count;
  }

  private skipContainer(): Rest {
    const outside = this.depth;
    this.elements = 0;
    this.objects ??= new Uint8Array(deepestNesting + 1);
    return this.skipWithin(this.objects, outside)
      ? undefined
      : this.skipInSteps(this.objects, outside);
  }

  private *skipInSteps(objects: Uint8Array, outside: number): Steps<void> {
    do yield* this.rest();
    while (!this.skipWithin(objects, outside));
  }

  /** Reads values until the containers entered since `outside` are left; false if it paused before. */
  private skipWithin(objects: Uint8Array, outside: number): boolean {
    do {
      const byte = this.byteAt(this.position);
      if (byte === openBrace) {
        if (this.open(closeBrace)) {
          objects[this.depth] = 1;
          this.skipKey();
          continue;
        }
      } else if (byte === openBracket) {
        if (this.open(closeBracket)) {
          objects[this.depth] = 0;
          if (this.depth === outside + 1) this.elements = 1;
          continue;
        }
      } else if (objects[this.depth] === 1) {
        this.skipScalar(byte);
      } else {
        const count = this.skipScalars(byte);
        if (this.depth === outside + 1) this.elements += count - 1;
      }
      if (!this.skipToNext(objects, outside)) return true;
    } while (this.position < this.pauseAt);
    return false;
  }

  /** Goes on to the next value in the containers entered since `outside`; false if they are left. */
  private skipToNext(objects: Uint8Array, outside: number): boolean {
    while (this.depth > outside) {
      const inObject = objects[this.depth] === 1;
      if (!this.next(inObject ? closeBrace : closeBracket)) continue;
      if (inObject) this.skipKey();
      else if (this.depth === outside + 1) this.elements++;
      return true;
    }
    return false;
  }

  private skipKey(): void {
    if (this.byteAt(this.position) !== quote) throw this.unexpected("a key");
    this.skipString();
    this.skipColon();
  }

  private open(close: number): boolean {
    if (this.depth === deepestNesting) {
      const problem = `arrays and objects are nested more than ${deepestNesting} deep`;
      throw this.refusal("nesting_too_deep", problem);
    }
    this.depth++;
    if (this.advance() !== close) return true;
    this.leave();
    return false;
  }

  private next(close: number): boolean {
    let byte = this.byteAt(this.position);
    if (byte <= blank) {
      this.skipSpace();
      byte = this.byteAt(this.position);
    }
    if (byte === comma) {
      this.advance();
      return true;
    }
    if (byte !== close) throw this.unexpected(`a comma or ${String.fromCharCode(close)}`);
    this.leave();
    return false;
  }

  /** Moves past a byte and the white space after it, and gives the byte there. */
  private advance(): number {
    const byte = this.byteAt(++this.position);
    if (byte > blank) return byte;
    this.skipSpace();
    return this.byteAt(this.position);
  }

  private leave(): void {
    this.depth--;
    this.position++;
  }

  private unexpected(wanted: string): QueryRefused {
    const found = this.position >= this.bytes.length ? "the body ends" : "something else stands";
    return this.refusal("invalid_json", `${found} where ${wanted} is expected`);
  }
}

/** A minus sign or a digit. */
function beginsNumber(byte: number): boolean {
  return byte === 0x2d || (byte >= 0x30 && byte <= 0x39);
}
