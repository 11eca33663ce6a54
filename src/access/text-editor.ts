import { type KeyStatement, outline, type Statement } from "../toml/outline.ts";
import type { AccessRecords } from "./parse.ts";

/** The text is written in a way that cannot be edited line by line. */
export class UneditableError extends Error {}

/** The two kinds of table in the access file. */
export type TableName = "users" | "acl";
/** A value that an edit may write. */
export type Scalar = string | number | boolean;

/** A `[[users]]` or `[[acl]]` table as it stands in the text. */
interface Block {
  readonly header: Statement;
  readonly keys: KeyStatement[];
}

interface Splice {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/** A TOML basic string; JSON's escapes are TOML's, but for DEL. */
function quote(text: string): string {
  return JSON.stringify(text).replaceAll("\u007f", "\\u007f");
}

function scalar(value: Scalar): string {
  return typeof value === "string" ? quote(value) : String(value);
}

/**
 * Edits the access file's text in place: a change touches the lines that it means and no other,
 * so that the operator's comments, order, spacing and line ends stay as they are. Edits are
 * collected, then made at once by `finish`.
 */
export class TextEditor {
  readonly #text: string;
  readonly #lineEnd: string;
  readonly #blocks: Record<TableName, Block[]> = { users: [], acl: [] };
  readonly #splices: Splice[] = [];

  constructor(text: string, records: AccessRecords) {
    this.#text = text;
    this.#lineEnd = text.includes("\r\n") ? "\r\n" : "\n";
    let block: Block | undefined;
    for (const statement of outline(text)) {
      const [table] = statement.path;
      if (statement.kind === "key") block?.keys.push(statement);
      else if (table === "users" || table === "acl") {
        block = { header: statement, keys: [] };
        this.#blocks[table].push(block);
      } else block = undefined;
    }
    this.#requireTables("users", records.users.length);
    this.#requireTables("acl", records.grants.length);
  }

  #requireTables(table: TableName, count: number): void {
    if (this.#blocks[table].length === count) return;
    throw new UneditableError(
      `\`${table}\` is written as one array; write it as [[${table}]] tables`,
    );
  }

  #block(table: TableName, index: number): Block {
    const block = this.#blocks[table][index];
    if (block === undefined) throw new UneditableError("the record to change is not in the file");
    return block;
  }

  /** From the start of the statement's first line to the end of its last, line end included. */
  #lines({ start, end }: Statement): { start: number; end: number } {
    const lineEnd = this.#text.indexOf("\n", end);
    return {
      start: this.#text.lastIndexOf("\n", start - 1) + 1,
      end: lineEnd === -1 ? this.#text.length : lineEnd + 1,
    };
  }

  /** Adds a table behind the last one of its kind, or at the end. */
  append(table: TableName, fields: Record<string, Scalar>): void {
    const last = this.#blocks[table].at(-1);
    const at = last ? this.#lines(last.keys.at(-1) ?? last.header).end : this.#text.length;
    const body = Object.entries(fields).map(([key, value]) => `${key} = ${scalar(value)}`);
    const lines = [`[[${table}]]`, ...body].map((line) => line + this.#lineEnd).join("");
    const unfinished = at > 0 && this.#text[at - 1] !== "\n";
    const gap = (unfinished ? this.#lineEnd : "") + (at > 0 ? this.#lineEnd : "");
    this.#splices.push({ start: at, end: at, text: gap + lines });
  }

  /** Sets a key of a table, or takes it out if `value` is undefined. */
  set(table: TableName, index: number, key: string, value: Scalar | undefined): void {
    const { header, keys } = this.#block(table, index);
    const statement = keys.find(({ path }) => path.at(-1) === key);
    if (statement === undefined) {
      if (value !== undefined) this.#insert(keys.at(-1) ?? header, `${key} = ${scalar(value)}`);
    } else if (value === undefined) {
      this.#remove(statement);
    } else {
      this.#splices.push({
        start: statement.valueStart,
        end: statement.valueEnd,
        text: scalar(value),
      });
    }
  }

  #insert(after: Statement, line: string): void {
    const { start, end } = this.#lines(after);
    const indentation = this.#text.slice(start, after.start);
    const unfinished = this.#text[end - 1] !== "\n";
    const text = unfinished
      ? this.#lineEnd + indentation + line
      : indentation + line + this.#lineEnd;
    this.#splices.push({ start: end, end, text });
  }

  /** Takes a statement out, but leaves a comment that stood behind it. */
  #remove(statement: Statement): void {
    const { start, end } = this.#lines(statement);
    const comment = this.#text.slice(statement.end, end).trimStart();
    this.#splices.push({ start, end, text: comment });
  }

  /** Takes a table out, and one of the blank lines around it; comments stay. */
  removeTable(table: TableName, index: number): void {
    const { header, keys } = this.#block(table, index);
    for (const statement of [header, ...keys]) this.#remove(statement);
    const after = this.#lines(keys.at(-1) ?? header).end;
    const blank = /^[ \t]*\r?\n/.exec(this.#text.slice(after, after + 256))?.[0];
    if (blank !== undefined)
      this.#splices.push({ start: after, end: after + blank.length, text: "" });
  }

  finish(): string {
    const ordered = this.#splices.toSorted((a, b) => a.start - b.start || a.end - b.end);
    const parts: string[] = [];
    let done = 0;
    for (const { start, end, text } of ordered) {
      if (start < done) throw new UneditableError("two changes meet in one place");
      parts.push(this.#text.slice(done, start), text);
      done = end;
    }
    return parts.join("") + this.#text.slice(done);
  }
}
