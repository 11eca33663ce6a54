import {
  runAtOnce,
  runCooperatively,
  type Steps,
  whileWanted,
} from "../base/cooperative-scheduling.ts";
import { formatHint } from "../base/suggestion.ts";
import type { Deferred } from "../json/exact.ts";
import { JsonFault, quoteName } from "../json/fault.ts";
import { kindAt, literalEnd } from "../json/lexical.ts";
import { STRIDE } from "../json/tape.ts";
import {
  batchKey,
  foreignOperationKey,
  type Grammar,
  type GrammarOperation,
  LARGEST_BATCH,
} from "./grammar.ts";
import { fullOnly } from "./kind.ts";
import { type Body, OperationNode } from "./node.ts";
import { isOperationName, isRowChangeName, neededPermissions } from "./operations.ts";
import { type Access, ParsedOperations, type Query } from "./query.ts";
import { QueryRefused } from "./refusal.ts";
import { meantOperation } from "./synonyms.ts";
import { QueryTape } from "./tape.ts";
import type { Operation } from "./tree.ts";

/** Some callers send SQL or the language of another database, so they learn what to send. */
function requireObject({ bytes, position: start }: QueryTape): void {
  const remedy = 'send JSON, such as {"Select": {"database": "main", ...}}; see docs/query.md';
  const place = { path: "", offset: start };
  try {
    const kind = kindAt(bytes, start);
    if (kind === "an object") return;
    // Text that only begins like `null` or `true` is a syntax error.
    if (kind === "null" || kind === "a boolean") literalEnd(bytes, start);
    const problem = `an object with one operation key is expected, ${kind} was found; ${remedy}`;
    throw new QueryRefused("not_an_object", problem, place);
  } catch (error) {
    if (!(error instanceof JsonFault)) throw error;
    throw new QueryRefused(error.code, `${error.problem}; ${remedy}`, place);
  }
}

/** Makes the tree of a body whose tokens were read. */
class QueryParser {
  readonly #tape: QueryTape;
  readonly #grammar: Grammar;
  readonly #accesses: Access[] = [];
  readonly #operations: Operation[] = [];
  readonly #deferred: Deferred[] = [];
  readonly #changes = new Map<number, OperationNode>();
  readonly #body: Body;
  #isBatch = false;

  constructor(tape: QueryTape, grammar: Grammar) {
    this.#tape = tape;
    this.#grammar = grammar;
    this.#body = { changes: this.#changes, deferred: this.#deferred };
  }

  /** Pauses between the elements of a Batch. */
  *parse(): Steps<Query> {
    const tape = this.#tape;
    const key = this.#requireKey(0);
    const isBatch = tape.name(key) === batchKey;
    if (!isBatch) this.#parseOperation(key, this.#operation(key));
    else {
      this.#isBatch = true;
      const batch = key + STRIDE;
      tape.expect(batch, "an array");
      const end = tape.next(batch);
      let parts = 0;
      for (let element = batch + STRIDE; element < end; element = tape.next(element)) {
        if (this.#accesses.length === LARGEST_BATCH) throw this.#wrongBatchSize(batch);
        const key = this.#requireKey(element);
        this.#parseOperation(key, this.#batchOperation(key));
        this.#requireSole(element, key);
        parts += tape.next(element) - element;
        if (parts < PARTS_PER_STEP) continue;
        parts = 0;
        yield;
      }
      if (this.#accesses.length === 0) throw this.#wrongBatchSize(batch);
    }
    this.#requireSole(0, key);
    const operations = new ParsedOperations(tape.bytes, isBatch, this.#operations, this.#deferred);
    const { escaped } = tape;
    return { batch: this.#isBatch, accesses: this.#accesses, operations, escaped };
  }

  #wrongBatchSize(batch: number): QueryRefused {
    return this.#tape.refusal("batch_size", `a Batch has 1 to ${LARGEST_BATCH} elements`, batch);
  }

  #requireKey(object: number): number {
    const tape = this.#tape;
    tape.expect(object, "an object");
    if (tape.size(object) > 0) return object + STRIDE;
    const problem = `the object is empty; one key is needed: ${this.#allowedKeys().join(", ")}`;
    throw tape.refusal("no_operation", problem, object);
  }

  /** Requires that an object has no second key. */
  #requireSole(object: number, first: number): void {
    const tape = this.#tape;
    if (tape.size(object) === 1) return;
    const second = tape.next(first + STRIDE);
    const name = tape.name(second);
    const firstName = tape.name(first);
    const problem = `the key ${quoteName(name)} follows ${quoteName(firstName)}; only one key is allowed`;
    if (name === firstName) throw tape.refusal("duplicate_key", problem, second);
    const isOperation =
      name === batchKey || name === foreignOperationKey || this.#grammar.operations.has(name);
    throw tape.refusal(isOperation ? "several_operations" : "unknown_field", problem, second);
  }

  #operation(key: number, isInBatch = false): GrammarOperation {
    for (const operation of this.#grammar.inOrder) {
      if (this.#tape.is(key, operation.word)) return operation;
    }
    const name = this.#tape.name(key);
    const allowed = this.#allowedKeys(isInBatch);
    // A known operation that is missing here can only belong to the full grammar.
    const hint = isOperationName(name) ? fullOnly : formatHint(meantOperation(name, allowed));
    const problem = `the operation ${quoteName(name)} is unknown; allowed: ${allowed.join(", ")}${hint}`;
    throw this.#tape.refusal("unknown_operation", problem, key);
  }

  #batchOperation(key: number): GrammarOperation {
    const name = this.#tape.name(key);
    const operation = name === batchKey ? undefined : this.#operation(key, true);
    if (operation?.inBatch === true) return operation;
    const allowed = this.#allowedKeys(true).join(", ");
    const problem = `${quoteName(name)} cannot be in a Batch; allowed: ${allowed}`;
    throw this.#tape.refusal("not_in_batch", problem, key);
  }

  #parseOperation(key: number, { name, shape, check, permissions, reads }: GrammarOperation): void {
    const tape = this.#tape;
    const token = key + STRIDE;
    const index = this.#accesses.length;
    const node = new OperationNode(this.#body, this.#isBatch ? index : undefined);
    const fields = shape.parse(tape, token, node);
    node.requireReferences(tape);
    check?.(fields, node, token, tape);
    if (isOperationName(name)) this.#operations.push({ name, fields });
    const range = { start: tape.start(token), end: tape.end(token) };
    const note = (one: OperationNode) => {
      one.operation = one.previewed ?? name;
      if (one.previewed === undefined) {
        one.range = range;
        one.fields = fields;
      }
      const { database, tables, nested } = one;
      this.#accesses.push({
        operation: name,
        permissions: neededPermissions(permissions, one),
        reads,
        database,
        tables:
          nested.length === 0 ? tables : [...tables, ...nested.flatMap((each) => each.tables)],
        start: range.start,
        end: range.end,
        node: one,
      });
    };
    if (node.previewedElements === undefined) {
      if (this.#isBatch && isRowChangeName(name)) this.#changes.set(index, node);
      note(node);
      return;
    }
    this.#isBatch = true;
    for (const element of node.previewedElements) {
      element.hasExtraFields = node.hasExtraFields;
      note(element);
    }
  }

  #allowedKeys(isInBatch = false): readonly string[] {
    const { inOrder, operations } = this.#grammar;
    if (!isInBatch) return [...operations.keys(), batchKey];
    return inOrder.filter(({ inBatch }) => inBatch).map(({ name }) => name);
  }
}

/** Bodies from this size take a few milliseconds and should be parsed in slices. */
export const LONG_BODY = 512 * 1024;
/** A step takes well under a millisecond. */
export const STEP_BYTES = 16 * 1024;
/** Integers of the tape. A step takes well under a millisecond. */
const PARTS_PER_STEP = 4 * 1024;

/**
 * Parses a query body.
 *
 * @throws QueryRefused for every body outside the grammar, and for every body that two JSON parsers
 * could read differently
 */
export function parseQuery(body: Buffer, grammar: Grammar): Query {
  return runAtOnce(parseQueryInSteps(body, grammar, Number.POSITIVE_INFINITY));
}

export function* parseQueryInSteps(
  body: Buffer,
  grammar: Grammar,
  bytesPerStep: number,
  hold?: (bytes: number) => void,
): Steps<Query> {
  const isAtOnce = bytesPerStep === Number.POSITIVE_INFINITY;
  let tape: QueryTape | undefined;
  try {
    tape = new QueryTape(body, isAtOnce, grammar);
    tape.onGrow = hold;
    requireObject(tape);
    yield;
    while (!tape.run(bytesPerStep)) yield;
    return yield* new QueryParser(tape, grammar).parse();
  } catch (error) {
    if (tape !== undefined) throw tape.asRefusal(error);
    if (!(error instanceof JsonFault)) throw error;
    throw new QueryRefused(error.code, error.problem, { path: "", offset: error.offset });
  }
}

/**
 * As `parseQuery`, in slices of a few milliseconds. The bytes must not change during the parsing.
 *
 * @param isWanted polled to cancel work whose result is no longer needed
 * @returns undefined if it was canceled
 */
export function parseQueryInSlices(
  body: Buffer,
  grammar: Grammar,
  isWanted: () => boolean = () => true,
  hold?: (bytes: number) => void,
): Promise<Query | undefined> {
  return runCooperatively(
    whileWanted(parseQueryInSteps(body, grammar, STEP_BYTES, hold), isWanted),
  );
}
