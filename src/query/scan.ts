import { runAtOnce, runCooperatively, type Steps, whileWanted } from "../cooperative-scheduling.ts";
import { requireEnd, requireUtf8 } from "../json/document.ts";
import { JsonFault, quoteName } from "../json/fault.ts";
import { andThen, type Rest } from "../json/reader.ts";
import { formatHint } from "../suggestion.ts";
import { BodyReader } from "./body-reader.ts";
import {
  batchKey,
  foreignOperationKey,
  type Grammar,
  LARGEST_BATCH,
  type Operation,
} from "./grammar.ts";
import { fullOnly } from "./kind.ts";
import { ReadOperation } from "./operation-detail.ts";
import { type Collects, OperationDraft } from "./operation-draft.ts";
import { isOperationName, isRowChangeName, permissionsOf } from "./operations.ts";
import { ParsedOperations } from "./parsed-operations.ts";
import type { Access, Query } from "./query.ts";
import { type BodyLocation, QueryRefused } from "./refusal.ts";
import { RowReader } from "./row-reader.ts";
import { meantOperation } from "./synonyms.ts";
import { readElements } from "./values.ts";

class QueryReader {
  readonly #reader: BodyReader;
  readonly #grammar: Grammar;
  readonly #collects: Collects;
  readonly #accesses: Access[] = [];
  readonly #operations: ParsedOperations;
  readonly changes = new Map<number, OperationDraft>();
  #isBatch = false;
  #rows: RowReader | undefined = undefined;

  constructor(reader: BodyReader, grammar: Grammar, collects: Collects) {
    this.#reader = reader;
    this.#grammar = grammar;
    this.#collects = collects;
    this.#operations = new ParsedOperations(reader.bytes);
  }

  get rows(): RowReader {
    this.#rows ??= new RowReader(this.#reader);
    return this.#rows;
  }

  get element(): number | undefined {
    return this.#isBatch ? this.#accesses.length : undefined;
  }

  get query(): Query {
    return { batch: this.#isBatch, accesses: this.#accesses, operations: this.#operations };
  }

  read(): Rest {
    this.#reader.skipSpace();
    this.#requireObject();
    return this.#readSoleMember((key, start) => {
      if (key !== batchKey) return this.#readOperation(this.#operation(key, start));
      this.#isBatch = true;
      return this.#readBatch();
    });
  }

  /** Some callers send SQL or the language of another database, so they learn what to send. */
  #requireObject(): void {
    const reader = this.#reader;
    const remedy = 'send JSON, such as {"Select": {"database": "main", ...}}; see docs/query.md';
    try {
      const kind = reader.kind();
      if (kind === "an object") return;
      // Text that only begins like `null` or `true` is a syntax error.
      if (kind === "null" || kind === "a boolean") reader.skipValue();
      const problem = `an object with one operation key is expected, ${kind} was found; ${remedy}`;
      throw reader.refusal("not_an_object", problem);
    } catch (error) {
      if (!(error instanceof JsonFault)) throw error;
      throw reader.refusal(error.code, `${error.problem}; ${remedy}`, error.offset);
    }
  }

  #readBatch(): Rest {
    const reader = this.#reader;
    reader.path.push(batchKey);
    const place = reader.location();
    if (!reader.openArray()) throw wrongBatchSize(place);
    const rest = readElements(reader, () => {
      if (this.#accesses.length === LARGEST_BATCH) throw wrongBatchSize(place);
      return this.#readSoleMember((key, start) =>
        this.#readOperation(this.#batchOperation(key, start)),
      );
    });
    return andThen(rest, () => reader.path.pop());
  }

  /** Reads an object with exactly one member. `read` gets its key and the key's offset. */
  #readSoleMember(read: (key: string, start: number) => Rest): Rest {
    const reader = this.#reader;
    const start = reader.position;
    if (!reader.openObject()) {
      const problem = `the object is empty; one key is needed: ${this.#allowedKeys().join(", ")}`;
      throw reader.refusal("no_operation", problem, start);
    }
    const keyStart = reader.position;
    const key = this.#readKey();
    return andThen(read(key, keyStart), () => this.#requireEnd(key));
  }

  #readKey(): string {
    const reader = this.#reader;
    for (const { name, token } of this.#grammar.inOrder) {
      if (reader.skipKeyToken(token)) return name;
    }
    return reader.readKey().toString();
  }

  #requireEnd(first: string): void {
    const reader = this.#reader;
    if (!reader.nextMember()) return;
    const start = reader.position;
    const key = reader.readKey().toString();
    const problem = `the key ${quoteName(key)} follows ${quoteName(first)}; only one key is allowed`;
    if (key === first) throw reader.refusal("duplicate_key", problem, start);
    const isOperation =
      key === batchKey || key === foreignOperationKey || this.#grammar.operations.has(key);
    throw reader.refusal(isOperation ? "several_operations" : "unknown_field", problem, start);
  }

  #operation(key: string, start: number, allowed = this.#allowedKeys()): Operation {
    const operation = this.#grammar.operations.get(key);
    if (operation !== undefined) return operation;
    // A known operation that is missing here can only belong to the full grammar.
    const hint = isOperationName(key) ? fullOnly : formatHint(meantOperation(key, allowed));
    const problem = `the operation ${quoteName(key)} is unknown; allowed: ${allowed.join(", ")}${hint}`;
    throw this.#reader.refusal("unknown_operation", problem, start);
  }

  #batchOperation(key: string, start: number): Operation {
    const allowed = this.#grammar.inOrder.filter(({ inBatch }) => inBatch).map(({ name }) => name);
    const operation = key === batchKey ? undefined : this.#operation(key, start, allowed);
    if (operation?.inBatch === true) return operation;
    const problem = `${quoteName(key)} cannot be in a Batch; allowed: ${allowed.join(", ")}`;
    throw this.#reader.refusal("not_in_batch", problem, start);
  }

  #readOperation(operation: Operation): Rest {
    const reader = this.#reader;
    const start = reader.position;
    const draft = new OperationDraft(this, this.#collects);
    reader.path.push(operation.name);
    reader.beginOperation();
    return andThen(operation.shape.read(reader, draft), () => this.#note(operation, draft, start));
  }

  #note(operation: Operation, draft: OperationDraft, start: number): void {
    const reader = this.#reader;
    const { name } = operation;
    draft.judgeReferences();
    operation.judge?.(draft, reader, start);
    reader.path.pop();
    const { previewedElements } = draft;
    if (previewedElements !== undefined) {
      this.#isBatch = true;
      for (const element of previewedElements) {
        element.hasExtraFields = draft.hasExtraFields;
        this.#noteAccess(operation, element, start);
      }
      return;
    }
    if (this.#isBatch && isRowChangeName(name)) this.changes.set(this.#accesses.length, draft);
    this.#noteAccess(operation, draft, start);
  }

  #noteAccess(operation: Operation, draft: OperationDraft, start: number): void {
    const { name, reads } = operation;
    const { database, named } = draft;
    const tables = tablesOf(draft);
    const permissions = permissionsOf(operation.permissions, draft);
    const end = this.#reader.position;
    const index = this.#accesses.length;
    const fields = () => this.#operations.at(index);
    this.#accesses.push({
      operation: name,
      permissions,
      reads,
      database,
      tables,
      start,
      end,
      ...(named === undefined
        ? {}
        : { detail: new ReadOperation(name, draft, this.#reader, start, fields) }),
    });
  }

  #allowedKeys(): readonly string[] {
    return [...this.#grammar.operations.keys(), batchKey];
  }
}

function tablesOf({ tables, nested }: OperationDraft): string[] {
  return nested === undefined ? tables : [...tables, ...nested.flatMap((one) => one.tables)];
}

function wrongBatchSize(place: BodyLocation): QueryRefused {
  return new QueryRefused("batch_size", `a Batch has 1 to ${LARGEST_BATCH} elements`, place);
}

/** Bodies from this size take a few milliseconds and should be scanned in slices. */
export const LONG_BODY = 512 * 1024;
/** A step takes well under a millisecond. */
export const STEP_BYTES = 16 * 1024;

/**
 * Reads a query body in one pass, without building its rows, and returns the databases and tables
 * that it names.
 *
 * @param collects what to collect as details of each access (`Access.detail`)
 *
 * @throws QueryRefused for every body outside the grammar, and for every body that two JSON parsers
 * could read differently
 */
export function scan(body: Buffer, grammar: Grammar, collects: Collects = false): Query {
  return runAtOnce(scanInSteps(body, grammar, Number.POSITIVE_INFINITY, collects));
}

/** As `scan`, in steps. */
export function* scanInSteps(
  body: Buffer,
  grammar: Grammar,
  bytesPerStep: number,
  collects: Collects = false,
): Steps<Query> {
  const reader = new BodyReader(body, grammar.level === "full");
  try {
    requireUtf8(body);
    yield;
    reader.pauseEvery(bytesPerStep);
    const queryReader = new QueryReader(reader, grammar, collects);
    const rest = queryReader.read();
    if (rest !== undefined) yield* rest;
    requireEnd(reader);
    return queryReader.query;
  } catch (error) {
    throw reader.asRefusal(error);
  }
}

/**
 * As `scan`, in slices of a few milliseconds. The bytes must not change during the scan.
 *
 * @param isWanted polled to cancel a scan whose result is no longer needed
 * @returns undefined if the scan was canceled
 */
export function scanInSlices(
  body: Buffer,
  grammar: Grammar,
  isWanted: () => boolean = () => true,
  collects: Collects = false,
): Promise<Query | undefined> {
  return runCooperatively(whileWanted(scanInSteps(body, grammar, STEP_BYTES, collects), isWanted));
}
