import { runAtOnce, type Steps } from "../base/cooperative-scheduling.ts";
import { type Parsed, parseExactlyInSteps, type ReadNumber, textOf } from "../json/exact.ts";

/** Rows, a list or a long value, which is read once someone needs it. */
export class Deferred {
  readonly #source: Buffer;
  readonly hasObject: boolean;
  #owner: Parsed;
  #name = "";

  constructor(source: Buffer, hasObject: boolean) {
    this.#source = source;
    this.hasObject = hasObject;
  }

  /** Sets the member that stands for the value until it is read. */
  belongTo(owner: Parsed, name: string): void {
    this.#owner = owner;
    this.#name = name;
  }

  *read(readNumber?: ReadNumber): Steps<Parsed> {
    const value = yield* parseExactlyInSteps(textOf(this.#source), readNumber, this.hasObject);
    this.#owner[this.#name] = value;
    return value;
  }

  /** The value. Reads it at once if that was not done. */
  value(): Parsed {
    const value: Parsed = this.#owner[this.#name];
    return value === this ? runAtOnce(this.read()) : value;
  }

  /** True if both are spelled alike. */
  equals(other: Deferred): boolean {
    return this.#source.equals(other.#source);
  }
}
