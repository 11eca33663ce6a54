/** The scanner's front door: from the bytes of a query body to what it asks for. */

import { isUtf8 } from "node:buffer";
import { batchKey, foreignOperationKey, type Grammar, type Operation } from "./grammar.ts";
import { JsonReader } from "./json-reader.ts";
import { OperationDraft } from "./operation-draft.ts";
import type { Access, Query } from "./operations.ts";
import { QueryRefused, quoteName } from "./refusal.ts";
import { RowReader } from "./row-reader.ts";

const largestBatch = 1000;

/**
 * Reads a query body in one pass, without building its rows, and gives the databases and tables it
 * touches.
 *
 * Throws `QueryRefused` for every body that is not of the grammar, and for every one that two JSON
 * parsers could read differently.
 */
export function scan(body: Buffer, grammar: Grammar): Query {
  requireUtf8(body);
  const reader = new JsonReader(body);
  reader.skipSpace();
  if (reader.kind() !== "an object") {
    const problem = `an object with one operation key is expected, ${reader.kind()} was found`;
    throw reader.refusal("not_an_object", problem);
  }
  const query = new QueryScan(reader, grammar).read();
  reader.skipSpace();
  if (reader.position < body.length) {
    const problem = "something follows the end of the object; allowed: white space";
    throw reader.refusal("trailing_data", problem);
  }
  return query;
}

function requireUtf8(body: Buffer): void {
  const start = { path: "", offset: 0 };
  if (!isUtf8(body)) {
    throw new QueryRefused("invalid_utf8", "the body is not valid UTF-8", start);
  }
  if (body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf) {
    const problem = "the body begins with a byte-order mark; UTF-8 without one is expected";
    throw new QueryRefused("byte_order_mark", problem, start);
  }
}

/** The scan of one body. */
class QueryScan {
  private readonly reader: JsonReader;
  private readonly grammar: Grammar;
  private readonly rows: RowReader;

  constructor(reader: JsonReader, grammar: Grammar) {
    this.reader = reader;
    this.grammar = grammar;
    this.rows = new RowReader(reader);
  }

  read(): Query {
    return this.readSoleMember((key, start) =>
      key === batchKey
        ? { batch: true, accesses: this.readBatch() }
        : { batch: false, accesses: [this.readAccess(this.operation(key, start))] },
    );
  }

  private readBatch(): readonly Access[] {
    const { reader } = this;
    const start = reader.position;
    const accesses: Access[] = [];
    reader.path.push(batchKey);
    for (let more = reader.openArray(); more; more = reader.nextElement()) {
      if (accesses.length === largestBatch) throw this.batchSize(start);
      reader.path.push(accesses.length);
      accesses.push(
        this.readSoleMember((key, at) => this.readAccess(this.batchOperation(key, at))),
      );
      reader.path.pop();
    }
    if (accesses.length === 0) throw this.batchSize(start);
    reader.path.pop();
    return accesses;
  }

  private batchSize(start: number): QueryRefused {
    const problem = `a Batch has 1 to ${largestBatch} elements`;
    return this.reader.refusal("batch_size", problem, start);
  }

  /** Reads an object of one member, whose key is an operation's; `read` takes key and offset of the key. */
  private readSoleMember<Result>(read: (key: string, start: number) => Result): Result {
    const { reader } = this;
    const start = reader.position;
    if (!reader.openObject()) {
      const problem = `the object is empty; one key is needed: ${this.allowedKeys()}`;
      throw reader.refusal("no_operation", problem, start);
    }
    const keyStart = reader.position;
    const key = reader.readKey().toString();
    const result = read(key, keyStart);
    if (reader.nextMember()) throw this.secondKey(key);
    return result;
  }

  private secondKey(first: string): QueryRefused {
    const { reader, grammar } = this;
    const start = reader.position;
    const key = reader.readKey().toString();
    const problem = `the key ${quoteName(key)} stands beside ${quoteName(first)}; one key is allowed`;
    if (key === first) return reader.refusal("duplicate_key", problem, start);
    const isOperation =
      key === batchKey || key === foreignOperationKey || grammar.operations.has(key);
    return reader.refusal(isOperation ? "several_operations" : "unknown_field", problem, start);
  }

  private operation(key: string, start: number): Operation {
    const operation = this.grammar.operations.get(key);
    if (operation === undefined) {
      const problem = `the operation ${quoteName(key)} is unknown; allowed: ${this.allowedKeys()}`;
      throw this.reader.refusal("unknown_operation", problem, start);
    }
    return operation;
  }

  private batchOperation(key: string, start: number): Operation {
    const operation = key === batchKey ? undefined : this.operation(key, start);
    if (operation === undefined || !operation.inBatch) {
      const problem = `${quoteName(key)} cannot be in a Batch; allowed: ${this.batchKeys()}`;
      throw this.reader.refusal("not_in_batch", problem, start);
    }
    return operation;
  }

  private readAccess({ name, permission, shape }: Operation): Access {
    const { reader } = this;
    const start = reader.position;
    const draft = new OperationDraft(this.rows);
    reader.path.push(name);
    shape.read(reader, draft);
    draft.judgeReferences();
    reader.path.pop();
    const end = reader.position;
    return {
      operation: name,
      permission,
      database: draft.database,
      tables: draft.tables,
      start,
      end,
    };
  }

  private batchKeys(): string {
    const operations = [...this.grammar.operations.values()];
    return operations
      .filter(({ inBatch }) => inBatch)
      .map(({ name }) => name)
      .join(", ");
  }

  private allowedKeys(): string {
    return [...this.grammar.operations.keys(), batchKey].join(", ");
  }
}
