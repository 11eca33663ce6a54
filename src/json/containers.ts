/** Arrays and objects that are passed over, however deep, without recursion. */

import type { Steps } from "../cooperative-scheduling.ts";
import { characterTable } from "./bytes.ts";
import type { JsonReader } from "./reader.ts";
import type { Rest } from "./rest.ts";

const closeBrace = 0x7d;
const closeBracket = 0x5d;
const comma = 0x2c;
const openBrace = 0x7b;
const openBracket = 0x5b;

/** How deep arrays and objects may be nested; the body's own object is at depth 1. */
export const deepestNesting = 64;

const scalarStart = characterTable('"-0123456789tfn');

/** Reads past containers; their syntax is judged, their keys are not. */
export class ContainerSkipper {
  /** The number of elements of the array that was read past last. */
  elements = 0;
  readonly #reader: JsonReader;
  /** For each depth that was entered, 1 if it is an object's. */
  readonly #objects = new Uint8Array(deepestNesting + 1);

  constructor(reader: JsonReader) {
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
      if (byte === openBrace) {
        if (reader.open(closeBrace)) {
          objects[reader.depth] = 1;
          reader.skipKey();
          continue;
        }
      } else if (byte === openBracket) {
        if (reader.open(closeBracket)) {
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
    while (bytes[reader.position] === comma && reader.position < reader.pauseAt) {
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
      if (!reader.next(inObject ? closeBrace : closeBracket)) continue;
      if (inObject) reader.skipKey();
      else if (reader.depth === outside + 1) this.elements++;
      return true;
    }
    return false;
  }
}
