/** Query bodies without end for the fuzzer: valid ones in every spelling, and damaged ones. */

import fc from "fast-check";
import { type Choose, query, write } from "./arbitrary.ts";
import { mutate } from "./mutations.ts";

const poolSize = 500;
const recentSize = 256;
/** Bodies that are kept for further damage at most. */
const mostKept = 5000;
/** Longer ones are not kept: damage in them is found in short ones too, and sooner. */
const longestKept = 4096;

/** Makes bodies that follow from choices alone. */
export class BodyMaker {
  readonly #choose: Choose;
  readonly #values: readonly object[];
  readonly #kept: Buffer[] = [];
  readonly #recent: Buffer[] = [];

  constructor(choose: Choose) {
    this.#choose = choose;
    this.#values = fc.sample(query, { numRuns: poolSize, seed: choose(2 ** 31) });
  }

  /** The number of bodies that were kept. */
  get kept(): number {
    return this.#kept.length;
  }

  /** Has a body taken as a start for others, since it was of interest. */
  keep(body: Buffer): void {
    if (body.length > longestKept) return;
    if (this.#kept.length < mostKept) this.#kept.push(body);
    else this.#kept[this.#choose(mostKept)] = body;
  }

  /** The next body. One of eight is a valid query; the others are damaged. */
  next(): Buffer {
    const choose = this.#choose;
    if (choose(8) === 0) return this.#valid();
    const start = choose(2) === 0 ? this.#kept[choose(this.#kept.length)] : undefined;
    const foreign = this.#valid();
    return mutate(start ?? this.#valid(), choose, foreign);
  }

  #valid(): Buffer {
    // Writing takes longer than scanning, so each body is a start more than once.
    if (this.#choose(8) > 0) return this.#recent[this.#choose(recentSize)] ?? this.#write();
    return this.#write();
  }

  #write(): Buffer {
    const value = this.#values[this.#choose(this.#values.length)];
    const body = Buffer.from(write(value, this.#choose));
    this.#recent[this.#choose(recentSize)] = body;
    return body;
  }
}
