import { runAtOnce, type Steps } from "../base/cooperative-scheduling.ts";
import { type Parsed, parseExactlyInSteps, type ReadNumber, textOf } from "../json/exact.ts";
import type { Deferred } from "./deferred.ts";
import { batchKey } from "./grammar.ts";
import { isOperationName } from "./operations.ts";
import type { Operation } from "./tree.ts";

/** The operations of a body as typed values. Long values are read once, if someone needs them. */
export class ParsedOperations {
  readonly body: Buffer;
  /** True for a `Batch` itself, not for one under a Preview. */
  readonly isBatch: boolean;
  readonly #operations: readonly Operation[];
  readonly #deferred: readonly Deferred[];
  #isWhole = false;

  constructor(
    body: Buffer,
    isBatch: boolean,
    operations: readonly Operation[],
    deferred: readonly Deferred[] = [],
  ) {
    this.body = body;
    this.isBatch = isBatch;
    this.#operations = operations;
    this.#deferred = deferred;
  }

  /** Without configured operations, which the engine does not run. */
  get all(): readonly Operation[] {
    this.complete();
    return this.#operations;
  }

  /** The operations as they are, with values that are still deferred. */
  get unread(): readonly Operation[] {
    return this.#operations;
  }

  /** The sources of rows, lists and documents, by value. */
  sources(): ReadonlyMap<unknown, Deferred> {
    const read = this.#deferred.map((deferred) => [deferred.value(), deferred] as const);
    return new Map(read.filter(([value]) => typeof value === "object"));
  }

  /** True if a cell or value may be an object. */
  get hasObjects(): boolean {
    return this.#deferred.some(({ hasObject }) => hasObject);
  }

  /** Reads at once what was deferred. */
  complete(): void {
    if (!this.#isWhole) runAtOnce(this.parse());
  }

  /** The operation at an index of the query's accesses; that of a Preview is the change in it. */
  at(index: number): Operation | undefined {
    const [first] = this.all;
    if (first?.name !== "Preview") return this.all[index];
    const { Batch, limit: _, ...single } = first.fields;
    return operationsIn(Batch?.[index] ?? single)[0];
  }

  /** As `complete`, in steps. */
  *parse(): Steps<readonly Operation[]> {
    if (!this.#isWhole) {
      for (const value of this.#deferred) {
        yield* value.read();
        yield;
      }
      this.#isWhole = true;
    }
    return this.#operations;
  }
}

function operationsIn(keyed: Readonly<Record<string, Parsed>>): Operation[] {
  return Object.entries(keyed).flatMap(([name, fields]) =>
    isOperationName(name) ? [{ name, fields }] : [],
  );
}

export interface ReadOperations {
  readonly isBatch: boolean;
  readonly operations: readonly Operation[];
}

/**
 * The operations of a body that was parsed against the grammar before.
 *
 * @param hasObjects what `ParsedOperations.hasObjects` was
 */
export function readOperations(
  body: Buffer,
  readNumber: ReadNumber,
  hasObjects: boolean,
): ReadOperations {
  const keyed: Parsed = runAtOnce(parseExactlyInSteps(textOf(body), readNumber, hasObjects));
  const elements: readonly Parsed[] | undefined = keyed[batchKey];
  return {
    isBatch: elements !== undefined,
    operations: (elements ?? [keyed]).flatMap(operationsIn),
  };
}
