/** JSON values, read or passed over without building them. */

import { beginsNumber } from "./byte-tables.ts";
import type { ByteText } from "./byte-text.ts";
import { JsonSkipper } from "./json-skipper.ts";

const closeBrace = 0x7d;
const closeBracket = 0x5d;
const letterF = 0x66;
const letterN = 0x6e;
const letterT = 0x74;
const openBrace = 0x7b;
const openBracket = 0x5b;
const quote = 0x22;

/** The types of JSON values, as messages name them. */
export type ValueKind = "an object" | "an array" | "a string" | "a number" | "a boolean" | "null";

/**
 * Reads values one after the other. Methods that read a value start on its first byte.
 *
 * An object is read by
 * `for (let more = reader.openObject(); more; more = reader.nextMember()) { key, then value }`,
 * an array likewise.
 */
export class JsonReader extends JsonSkipper {
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
}
