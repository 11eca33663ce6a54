/** Arrays and objects that are passed over, however deep, without recursion. */

import type { Steps } from "../cooperative-scheduling.ts";
import { characterTable } from "./bytes.ts";
import type { JsonCursor } from "./cursor.ts";
import type { Rest } from "./rest.ts";

const CLOSE_BRACE = 0x7d;
const CLOSE_BRACKET = 0x5d;
const COMMA = 0x2c;
const OPEN_BRACE = 0x7b;
const OPEN_BRACKET = 0x5b;

/** How deep arrays and objects may be nested; the body's own object is at depth 1. */
export const DEEPEST_NESTING = 64;

const scalarStart = characterTable('"-0123456789tfn');

/** The moves of a reader over arrays and objects. */
interface ContainerReader extends JsonCursor {
  /** How many arrays and objects are open. */
  readonly depth: number;
  /** Enters an array or object that ends with this byte; true if it has an element. */
  open(close: number): boolean;
  /** Goes on behind an element; true if another one follows. */
  next(close: number): boolean;
  skipKey(): void;
  /** Reads past a value that is no container, by its first byte. */
  skipScalar(first: number): void;
}

/** Reads past containers; their syntax is judged, their keys are not. */
export class ContainerSkipper {
  /** The number of elements of the array that was read past last. */
  elements = 0;
  readonly #reader: ContainerReader;
  /** For each depth that was entered, 1 if it is an object's. */
  readonly #objects = new Uint8Array(DEEPEST_NESTING + 1);

  constructor(reader: ContainerReader) {
    this.#reader = reader;
  }

  /** Reads past the array or object that begins here. */
  skip(): Rest {
    const outside = this.#reader.depth;
    this.elements = 0;
    return this.#skipWithin(outside) ? undefined : this.#skipInSteps(outside);
  }

  *#skipInSteps(outside: number): Steps<void> {
    do yield* this.#reader.rest();
    while (!this.#skipWithin(outside));
  }

  /** Reads values until the containers entered since `outside` are left; false if it paused before. */
  #skipWithin(outside: number): boolean {
    const reader = this.#reader;
    const objects = this.#objects;
    if (reader.isInString) {
      if (reader.stayInString()) return false;
      if (!this.#skipToNext(outside)) return true;
    }
    do {
      const byte = reader.bytes[reader.position] ?? 0;
      if (byte === OPEN_BRACE) {
        if (reader.open(CLOSE_BRACE)) {
          objects[reader.depth] = 1;
          reader.skipKey();
          continue;
        }
      } else if (byte === OPEN_BRACKET) {
        if (reader.open(CLOSE_BRACKET)) {
          objects[reader.depth] = 0;
          if (reader.depth === outside + 1) this.elements = 1;
          continue;
        }
      } else if (objects[reader.depth] === 1) {
        reader.skipScalar(byte);
      } else {
        const count = this.#skipScalars(byte);
        if (reader.depth === outside + 1) this.elements += count - 1;
      }
      if (reader.isInString) return false;
      if (!this.#skipToNext(outside)) return true;
    } while (reader.position < reader.pauseAt);
    return false;
  }

  /** Reads past elements of an array of which only commas are between, and gives their number. */
  #skipScalars(first: number): number {
    const reader = this.#reader;
    const { bytes } = reader;
    reader.skipScalar(first);
    let count = 1;
    while (bytes[reader.position] === COMMA && reader.position < reader.pauseAt) {
      const byte = bytes[reader.position + 1] ?? 0;
      if (scalarStart[byte] !== 1) break;
      reader.position++;
      reader.skipScalar(byte);
      count++;
    }
    return count;
  }

  /** Goes on to the next value in the containers entered since `outside`; false if they are left. */
  #skipToNext(outside: number): boolean {
    const reader = this.#reader;
    while (reader.depth > outside) {
      const inObject = this.#objects[reader.depth] === 1;
      if (!reader.next(inObject ? CLOSE_BRACE : CLOSE_BRACKET)) continue;
      if (inObject) reader.skipKey();
      else if (reader.depth === outside + 1) this.elements++;
      return true;
    }
    return false;
  }
}
