import { runAtOnce, type Steps } from "../cooperative-scheduling.ts";
import { parseExactlyInSteps, type ReadNumber, textOf } from "../json/exact.ts";
import { batchKey } from "./grammar.ts";
import type { Operation } from "./operation-types.ts";
import { isOperationName } from "./operations.ts";

/** The scanner has checked the fields against the grammar. */
type Scanned = Readonly<Record<string, never>>;

/** The operations of a body that was scanned, as typed values. They are parsed once, if needed. */
export class ParsedOperations {
  readonly body: Buffer;
  readonly #readNumber: ReadNumber | undefined;
  #all: readonly Operation[] | undefined;
  #isBatch = false;

  constructor(body: Buffer, readNumber?: ReadNumber) {
    this.body = body;
    this.#readNumber = readNumber;
  }

  /** Without configured operations, which the engine does not run. Parses at once. */
  get all(): readonly Operation[] {
    return this.#all ?? runAtOnce(this.parse());
  }

  /** True for a `Batch` itself, not for one under a Preview. */
  get isBatch(): boolean {
    return this.all.length > 0 && this.#isBatch;
  }

  /** The operation at an index of the query's accesses; that of a Preview is the change in it. */
  at(index: number): Operation | undefined {
    const [first] = this.all;
    if (first?.name !== "Preview") return this.all[index];
    const { Batch, limit: _, ...single } = first.fields;
    return operationsIn(Batch?.[index] ?? single)[0];
  }

  *parse(): Steps<readonly Operation[]> {
    if (this.#all !== undefined) return this.#all;
    const body: Scanned = yield* parseExactlyInSteps(textOf(this.body), this.#readNumber);
    const elements: readonly Scanned[] | undefined = body[batchKey];
    this.#isBatch = elements !== undefined;
    this.#all = (elements ?? [body]).flatMap(operationsIn);
    return this.#all;
  }
}

function operationsIn(keyed: object): Operation[] {
  return Object.entries(keyed).flatMap(([name, fields]) =>
    isOperationName(name) ? [{ name, fields }] : [],
  );
}
