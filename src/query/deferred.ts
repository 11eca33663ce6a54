import type { Steps } from "../cooperative-scheduling.ts";
import { type Parsed, parseExactlyInSteps, type ReadNumber, textOf } from "../json/exact.ts";

/** Rows, a list or a long value, which is read once someone needs it. */
export class Deferred {
  readonly #bytes: Buffer;
  readonly #start: number;
  readonly #end: number;
  readonly #hasObject: boolean;
  #owner: Parsed;
  #name = "";

  constructor(bytes: Buffer, start: number, end: number, hasObject: boolean) {
    this.#bytes = bytes;
    this.#start = start;
    this.#end = end;
    this.#hasObject = hasObject;
  }

  /** Sets the member that stands for the value until it is read. */
  belongTo(owner: Parsed, name: string): void {
    this.#owner = owner;
    this.#name = name;
  }

  *read(readNumber?: ReadNumber): Steps<void> {
    const text = textOf(this.#bytes.subarray(this.#start, this.#end));
    this.#owner[this.#name] = yield* parseExactlyInSteps(text, readNumber, this.#hasObject);
  }
}
