/** JSON values (RFC 8259), read strictly from bytes, or passed over without building them. */

import { type ByteText, beginsNumber } from "./bytes.ts";
import { ContainerSkipper, DEEPEST_NESTING } from "./containers.ts";
import { JsonCursor } from "./cursor.ts";
import { JsonFault } from "./fault.ts";
import type { Rest } from "./rest.ts";
import { literalEnd, numberEnd } from "./tokens.ts";

const BLANK = 0x20;
const CLOSE_BRACE = 0x7d;
const CLOSE_BRACKET = 0x5d;
const COLON = 0x3a;
const COMMA = 0x2c;
const LETTER_F = 0x66;
const LETTER_N = 0x6e;
const LETTER_T = 0x74;
const OPEN_BRACE = 0x7b;
const OPEN_BRACKET = 0x5b;
const QUOTE = 0x22;

/** The types of JSON values, as messages name them. */
export type ValueKind = "an object" | "an array" | "a string" | "a number" | "a boolean" | "null";

/**
 * Reads values one after the other from valid UTF-8. Methods that read a value start on its first
 * byte; all throw `JsonFault`.
 *
 * An object is read by
 * `for (let more = reader.openObject(); more; more = reader.nextMember()) { key, then value }`,
 * an array likewise.
 */
export class JsonReader extends JsonCursor {
  /** How many arrays and objects are open. */
  depth = 0;
  #containers: ContainerSkipper | undefined = undefined;

  /** Reads once more what stands at an offset and was read before; goes on where it was, without a pause. */
  reread<Result>(offset: number, read: () => Result): Result {
    const { position, depth, pauseAt } = this;
    this.position = offset;
    this.pauseAt = this.bytes.length + 1;
    const result = read();
    this.position = position;
    this.depth = depth;
    this.pauseAt = pauseAt;
    return result;
  }

  /** The number of elements of the array that `skipValue` read past last. */
  get elements(): number {
    return this.#containers?.elements ?? 0;
  }

  /** The type of the value that begins here. */
  kind(): ValueKind {
    const byte = this.bytes[this.position] ?? 0;
    if (byte === OPEN_BRACE) return "an object";
    if (byte === OPEN_BRACKET) return "an array";
    if (byte === QUOTE) return "a string";
    if (byte === LETTER_T || byte === LETTER_F) return "a boolean";
    if (byte === LETTER_N) return "null";
    if (beginsNumber(byte)) return "a number";
    throw this.#unexpected("a value");
  }

  /** Refuses a value that is not of the type wanted. */
  expect(wanted: ValueKind): void {
    const found = this.kind();
    if (found === wanted) return;
    throw new JsonFault("wrong_type", `${wanted} is expected, ${found} was found`, this.position);
  }

  /** Enters an object; true if it has a member. */
  openObject(): boolean {
    if (this.bytes[this.position] !== OPEN_BRACE) this.expect("an object");
    return this.open(CLOSE_BRACE);
  }

  /** Goes on after a member's value; true if there is another, false past the end of the object. */
  nextMember(): boolean {
    return this.next(CLOSE_BRACE);
  }

  /** Enters an array; true if it has an element. */
  openArray(): boolean {
    if (this.bytes[this.position] !== OPEN_BRACKET) this.expect("an array");
    return this.open(CLOSE_BRACKET);
  }

  /** Goes on after an element; true if there is another, false past the end of the array. */
  nextElement(): boolean {
    return this.next(CLOSE_BRACKET);
  }

  /** Enters the array or object that begins here; true if it is not empty. */
  open(close: number): boolean {
    if (this.depth === DEEPEST_NESTING) {
      const problem = `arrays and objects are nested more than ${DEEPEST_NESTING} deep`;
      throw new JsonFault("nesting_too_deep", problem, this.position);
    }
    this.depth++;
    if (this.#advance() !== close) return true;
    this.#leave();
    return false;
  }

  /** Goes on after a value of an array or object; true if there is another, false past the end. */
  next(close: number): boolean {
    this.skipSpace();
    const byte = this.bytes[this.position] ?? 0;
    if (byte === COMMA) {
      this.#advance();
      return true;
    }
    if (byte !== close) throw this.#unexpected(`a comma or ${String.fromCharCode(close)}`);
    this.#leave();
    return false;
  }

  /** Reads a member's key and moves to its value. */
  readKey(): ByteText {
    const key = this.readBareKey();
    this.skipColon();
    return key;
  }

  /** Reads a member's key and stays at its end, before the colon. */
  readBareKey(): ByteText {
    if (this.bytes[this.position] !== QUOTE) throw this.#unexpected("a key");
    return this.readString();
  }

  /** Reads past a member's key, to its value. */
  skipKey(): void {
    if (this.bytes[this.position] !== QUOTE) throw this.#unexpected("a key");
    this.skipString();
    this.skipColon();
  }

  /** Reads a member's key and moves to its value, if the key is written as these bytes. */
  skipKeyToken(token: Uint8Array): boolean {
    if (!this.skipToken(token)) return false;
    this.skipColon();
    return true;
  }

  /** Moves from the end of a key to its value. */
  skipColon(): void {
    if (this.bytes[this.position] !== COLON) this.skipSpace();
    if (this.bytes[this.position] !== COLON) throw this.#unexpected("a colon");
    this.#advance();
  }

  /** Whether an object begins here whose first key is written as these bytes. */
  firstKeyIs(token: Uint8Array): boolean {
    const { position } = this;
    if (this.bytes[position] !== OPEN_BRACE) return false;
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

  /** Reads past a number. */
  skipNumber(): void {
    this.position = numberEnd(this.bytes, this.position);
  }

  /** Reads past any value. Its syntax is judged, its keys are not. */
  skipValue(): Rest {
    const byte = this.bytes[this.position] ?? 0;
    if (byte === OPEN_BRACKET || byte === OPEN_BRACE) {
      this.#containers ??= new ContainerSkipper(this);
      return this.#containers.skip();
    }
    this.skipScalar(byte);
    return this.isInString ? this.finishInSteps() : undefined;
  }

  /**
   * Reads past a value that is neither array nor object, whose first byte is known; a long string
   * of escapes may be left unfinished (`isInString`).
   */
  skipScalar(byte: number): void {
    if (byte === QUOTE) {
      this.position++;
      this.stayInString();
    } else if (beginsNumber(byte)) this.skipNumber();
    else if (byte === LETTER_T || byte === LETTER_F || byte === LETTER_N) {
      this.position = literalEnd(this.bytes, this.position);
    } else throw this.#unexpected("a value");
  }

  /** Moves past a byte and the white space after it, and gives the byte there. */
  #advance(): number {
    const byte = this.bytes[++this.position] ?? 0;
    if (byte > BLANK) return byte;
    this.skipSpace();
    return this.bytes[this.position] ?? 0;
  }

  #leave(): void {
    this.depth--;
    this.position++;
  }

  #unexpected(wanted: string): JsonFault {
    const found = this.position >= this.bytes.length ? "the body ends" : "something else stands";
    return new JsonFault("invalid_json", `${found} where ${wanted} is expected`, this.position);
  }
}
