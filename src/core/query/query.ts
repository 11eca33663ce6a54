import { runAtOnce, type Steps } from "../base/cooperative-scheduling.ts";
import {
  type Deferred,
  decodeText,
  type Parsed,
  parseExactInSteps,
  type ReadNumber,
} from "../json/exact.ts";
import { batchKey } from "./grammar.ts";
import type { OperationNode } from "./node.ts";
import { isOperationName, isRowChangeName } from "./operations.ts";
import type { PermissionClass } from "./permissions.ts";
import type { QueryRefused } from "./refusal.ts";
import type { Operation, Preview, RowChangeName } from "./tree.ts";

export interface Access {
  /** The operation key in the body, such as `Select` or a configured one. */
  readonly operation: string;
  readonly permissions: readonly PermissionClass[];
  readonly reads: boolean;
  readonly database: string;
  /** None for a database operation, two for a join; then those within its conditions. */
  readonly tables: readonly string[];
  /** Byte offsets of the object after the operation's key. `end` is exclusive. */
  readonly start: number;
  readonly end: number;
  /** For a Preview, the change that it contains. */
  readonly node: OperationNode;
}

export interface Query {
  /** True for a `Batch`, also under a Preview. Then `accesses` has one entry per element. */
  readonly batch: boolean;
  readonly accesses: readonly Access[];
  readonly operations: ParsedOperations;
  /** If a key is written with escapes that some parsers do not read. */
  readonly escaped?: QueryRefused | undefined;
}

/** A query with its bytes, and with the conditions that were added to it, if any. */
export interface ParsedQuery {
  readonly body: Buffer;
  readonly query: Query;
}

/** True for a query that may be sent again. */
export function isReadOnly({ accesses }: Query): boolean {
  return accesses.every(({ reads }) => reads);
}

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
    return changesIn(first.fields)[index];
  }

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

export function isRowChange(operation: Operation): operation is Operation<RowChangeName> {
  return isRowChangeName(operation.name);
}

/** The changes under a Preview. */
export function changesIn(preview: Preview): Operation<RowChangeName>[] {
  return (preview.Batch ?? [preview]).flatMap(operationsIn).filter(isRowChange);
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
  const keyed: Parsed = runAtOnce(parseExactInSteps(decodeText(body), readNumber, hasObjects));
  const elements: readonly Parsed[] | undefined = keyed[batchKey];
  return {
    isBatch: elements !== undefined,
    operations: (elements ?? [keyed]).flatMap(operationsIn),
  };
}
