import { type KeyStatement, outline, type Statement } from "../toml/outline.ts";
import { renderValue, type Writable } from "../toml/values.ts";
import type { TableName } from "./record-tables.ts";
import type { Block } from "./table-blocks.ts";

/** The file is written in a way that cannot be edited line by line. */
export class UneditableError extends Error {}

/** The statements of one table, placed in the whole file. */
interface Table {
  readonly header: Statement;
  /** The keys that stand right under the header. */
  readonly keys: readonly KeyStatement[];
  /** All that stands under it, with tables of its own such as `[users.attributes]`. */
  readonly statements: readonly Statement[];
}

const LINE_FEED = 0x0a;

interface Splice {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/**
 * A value in TOML on one line. Quotes that look like the start of a string of several lines are
 * escaped, so that the file stays plain.
 */
function render(value: Writable): string {
  return renderValue(value).replaceAll("'''", "\\u0027\\u0027\\u0027");
}

/** A statement of a part of the file, placed in the whole. */
function moved<S extends Statement>(statement: S, by: number): S {
  const { start, end } = statement;
  const value =
    statement.kind === "key"
      ? { valueStart: statement.valueStart + by, valueEnd: statement.valueEnd + by }
      : {};
  return { ...statement, start: start + by, end: end + by, ...value };
}

/**
 * Edits the access file's bytes in place, whose text is never in memory as a whole: a change touches
 * the lines that it means and no other, so that the operator's comments, order, spacing and line
 * ends stay as they are. Edits are collected, then made at once by `finish`.
 */
export class TextEditor {
  readonly #bytes: Buffer;
  readonly #lineEnd: string;
  readonly #blocks: Record<TableName, Block[]> = { users: [], acl: [], boundaries: [] };
  readonly #splices: Splice[] = [];
  /** Where tables began that were taken out, and the blank line behind each that went with it. */
  readonly #removed = new Map<number, string>();

  /**
   * @param blocks where the tables stand, in bytes
   * @throws UneditableError if the file is not written as tables
   */
  constructor(bytes: Buffer, blocks: readonly Block[] | undefined) {
    this.#bytes = bytes;
    this.#lineEnd = bytes.includes("\r\n") ? "\r\n" : "\n";
    if (blocks === undefined) {
      throw new UneditableError(
        "it is written as arrays; write it as [[users]] and [[acl]] tables",
      );
    }
    for (const block of blocks) this.#blocks[block.table].push(block);
  }

  #table(table: TableName, index: number): Table {
    const block = this.#blocks[table].at(index);
    if (block === undefined) throw new UneditableError("the record to change is not in the file");
    const { start, end } = block;
    // A character for each byte, so that places in the text are places in the bytes.
    const text = this.#bytes.toString("latin1", start, end);
    const [header, ...rest] = outline(text).map((statement) => moved(statement, start));
    if (header === undefined) throw new UneditableError("a table without a header");
    const inner = rest.findIndex(({ kind }) => kind !== "key");
    const own = inner === -1 ? rest : rest.slice(0, inner);
    return { header, keys: own.filter((statement) => statement.kind === "key"), statements: rest };
  }

  /** From the start of the statement's first line to the end of its last, line end included. */
  #lines({ start, end }: Statement): { start: number; end: number } {
    const lineEnd = this.#bytes.indexOf("\n", end);
    return {
      start: start === 0 ? 0 : this.#bytes.lastIndexOf("\n", start - 1) + 1,
      end: lineEnd === -1 ? this.#bytes.length : lineEnd + 1,
    };
  }

  /** Adds a table behind the last one of its kind, in its place if it was taken out, or at the end. */
  append(table: TableName, fields: Record<string, Writable>): void {
    const last = this.#blocks[table].length > 0 ? this.#table(table, -1) : undefined;
    const at = last ? this.#lines(last.statements.at(-1) ?? last.header).end : this.#bytes.length;
    const body = Object.entries(fields).map(([key, value]) => `${key} = ${render(value)}`);
    const lines = [`[[${table}]]`, ...body].map((line) => line + this.#lineEnd).join("");
    const unfinished = at > 0 && this.#bytes[at - 1] !== LINE_FEED;
    const blank = last && this.#removed.get(last.header.start);
    const isApart = blank === undefined && at > 0;
    const gap = (unfinished ? this.#lineEnd : "") + (isApart ? this.#lineEnd : "");
    this.#splices.push({ start: at, end: at, text: gap + lines + (blank ?? "") });
  }

  /**
   * Sets a key of a table, or takes it out if `value` is undefined.
   *
   * @throws UneditableError if what it has is written as a table of its own
   */
  set(table: TableName, index: number, key: string, value: Writable | undefined): void {
    const { header, keys, statements } = this.#table(table, index);
    const statement = keys.find(({ path }) => path.length === 2 && path[1] === key);
    if (statement === undefined) {
      if (statements.some(({ path }) => path[1] === key)) {
        throw new UneditableError(`${key} is a table of its own there; change it by hand`);
      }
      if (value !== undefined) this.#insert(keys.at(-1) ?? header, `${key} = ${render(value)}`);
    } else if (value === undefined) {
      this.#remove(statement);
    } else {
      this.#splices.push({
        start: statement.valueStart,
        end: statement.valueEnd,
        text: render(value),
      });
    }
  }

  #insert(after: Statement, line: string): void {
    const { start, end } = this.#lines(after);
    const indentation = this.#bytes.toString("utf8", start, after.start);
    const unfinished = this.#bytes[end - 1] !== LINE_FEED;
    const text = unfinished
      ? this.#lineEnd + indentation + line
      : indentation + line + this.#lineEnd;
    this.#splices.push({ start: end, end, text });
  }

  /** Takes a statement out, but leaves a comment that stood behind it. */
  #remove(statement: Statement): void {
    const { start, end } = this.#lines(statement);
    const comment = this.#bytes.toString("utf8", statement.end, end).trimStart();
    this.#splices.push({ start, end, text: comment });
  }

  /** Takes a table out, and one of the blank lines around it; comments stay. */
  removeTable(table: TableName, index: number): void {
    const { header, statements } = this.#table(table, index);
    for (const statement of [header, ...statements]) this.#remove(statement);
    const after = this.#lines(statements.at(-1) ?? header).end;
    const blank =
      /^[ \t]*\r?\n/.exec(this.#bytes.toString("latin1", after, after + 256))?.[0] ?? "";
    if (blank !== "") this.#splices.push({ start: after, end: after + blank.length, text: "" });
    this.#removed.set(header.start, blank);
  }

  finish(): Buffer {
    const ordered = this.#splices.toSorted((a, b) => a.start - b.start || a.end - b.end);
    const parts: Buffer[] = [];
    let done = 0;
    for (const { start, end, text } of ordered) {
      if (start < done) throw new UneditableError("two changes meet in one place");
      parts.push(this.#bytes.subarray(done, start), Buffer.from(text));
      done = end;
    }
    return Buffer.concat([...parts, this.#bytes.subarray(done)]);
  }
}
