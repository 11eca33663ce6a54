/** JSON values, read or passed over without building them. */

import type { ByteText } from "./byte-text.ts";
import { JsonLexer } from "./json-lexer.ts";
import type { QueryRefused } from "./refusal.ts";

/** How deep arrays and objects may be nested; the body's own object is at depth 1. */
export const deepestNesting = 64;

/** The types of JSON values, as messages name them. */
export type ValueKind = "an object" | "an array" | "a string" | "a number" | "a boolean" | "null";

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

/**
 * Reads values one after the other. Methods that read a value start on its first byte.
 *
 * An object is read by
 * `for (let more = reader.openObject(); more; more = reader.nextMember()) { key, then value }`,
 * an array likewise.
 */
export class JsonReader extends JsonLexer {
  private depth = 0;

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
    this.expect("an object");
    return this.open(closeBrace);
  }

  /** Goes on after a member's value; true if there is another, false past the end of the object. */
  nextMember(): boolean {
    return this.next(closeBrace);
  }

  /** Enters an array; true if it has an element. */
  openArray(): boolean {
    this.expect("an array");
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
    this.position++;
    this.skipSpace();
  }

  /** Reads past any value. Its syntax is judged, its keys are not. */
  skipValue(): void {
    const byte = this.byteAt(this.position);
    if (byte === quote) this.skipString();
    else if (byte === openBrace) this.skipObject();
    else if (byte === openBracket) this.skipArray();
    else if (byte === letterT) this.skipLiteral("true");
    else if (byte === letterF) this.skipLiteral("false");
    else if (byte === letterN) this.skipLiteral("null");
    else if (beginsNumber(byte)) this.skipNumber();
    else throw this.unexpected("a value");
  }

  /** Reads past an array and gives the number of its elements. */
  skipArray(): number {
    let count = 0;
    for (let more = this.open(closeBracket); more; more = this.next(closeBracket)) {
      this.skipValue();
      count++;
    }
    return count;
  }

  private skipObject(): void {
    for (let more = this.open(closeBrace); more; more = this.next(closeBrace)) {
      if (this.byteAt(this.position) !== quote) throw this.unexpected("a key");
      this.skipString();
      this.skipColon();
      this.skipValue();
    }
  }

  private open(close: number): boolean {
    if (this.depth === deepestNesting) {
      const problem = `arrays and objects are nested more than ${deepestNesting} deep`;
      throw this.refusal("nesting_too_deep", problem);
    }
    this.depth++;
    this.position++;
    this.skipSpace();
    if (this.byteAt(this.position) !== close) return true;
    this.leave();
    return false;
  }

  private next(close: number): boolean {
    if (this.byteAt(this.position) !== comma) this.skipSpace();
    const byte = this.byteAt(this.position);
    if (byte === close) {
      this.leave();
      return false;
    }
    if (byte !== comma) throw this.unexpected(`a comma or ${String.fromCharCode(close)}`);
    this.position++;
    this.skipSpace();
    return true;
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
