/** Edits of the access file that touch only the lines they concern. */
import { isDeepStrictEqual } from "node:util";
import { decodeUtf8 } from "../base/files/guarded.ts";
import { elementsIn, outline, renderValue, type Statement, type Writable } from "../base/toml.ts";
import { isSamePlace } from "./entries.ts";
import { type Group, type User, writtenGroup, writtenUser } from "./grant.ts";
import { checkRecords, MAX_ACCESS_FILE_BYTES, TOO_LARGE, UneditableError } from "./parse.ts";
import { applyChanges, type Change } from "./record-change.ts";
import { type AccessRecords, isTableName, type TableName, writtenEntry } from "./records.ts";

interface Table {
  readonly header: Statement;
  /** All statements under the header, including subtables such as `[users.attributes]`. */
  readonly statements: Statement[];
}

interface Splice {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/**
 * Edits the text of an access file. The operator's comments, order, spacing and line ends stay.
 * Edits are collected and made at once by `finish`.
 */
class TextEditor {
  readonly #text: string;
  readonly #lineEnd: string;
  readonly #tables: Record<TableName, Table[]> = {
    users: [],
    groups: [],
    acl: [],
    boundaries: [],
  };
  readonly #splices: Splice[] = [];
  /** The removed tables, with the blank line that was removed after each. */
  readonly #removed = new Map<Table, string>();

  /** @throws UneditableError if the file is not written as tables */
  constructor(text: string) {
    this.#text = text;
    this.#lineEnd = text.includes("\r\n") ? "\r\n" : "\n";
    let statements: Statement[] | undefined;
    for (const statement of outline(text)) {
      const [table] = statement.path;
      // A `[users.attributes]` belongs to the record before it.
      if (statement.kind !== "key" && statement.path.length === 1 && isTableName(table)) {
        statements = [];
        this.#tables[table].push({ header: statement, statements });
      } else if (statements === undefined) {
        throw new UneditableError(
          "it is written as arrays; write it as [[users]] and [[acl]] tables",
        );
      } else statements.push(statement);
    }
  }

  #table(table: TableName, index: number): Table {
    const found = this.#tables[table][index];
    if (found === undefined) throw new UneditableError("the record to change is not in the file");
    return found;
  }

  #lines({ start, end }: Statement): { start: number; end: number } {
    const lineEnd = this.#text.indexOf("\n", end);
    return {
      start: start === 0 ? 0 : this.#text.lastIndexOf("\n", start - 1) + 1,
      end: lineEnd === -1 ? this.#text.length : lineEnd + 1,
    };
  }

  #isUnfinished(at: number): boolean {
    return at > 0 && this.#text[at - 1] !== "\n";
  }

  /** After the last table of its kind, in its place if that was removed, or at the end. */
  append(table: TableName, fields: Record<string, Writable>): void {
    const last = this.#tables[table].at(-1);
    const at = last ? this.#lines(last.statements.at(-1) ?? last.header).end : this.#text.length;
    const body = Object.entries(fields).map(([key, value]) => `${key} = ${renderValue(value)}`);
    const lines = [`[[${table}]]`, ...body].map((line) => line + this.#lineEnd).join("");
    const blank = last && this.#removed.get(last);
    const isApart = blank === undefined && at > 0;
    const gap = (this.#isUnfinished(at) ? this.#lineEnd : "") + (isApart ? this.#lineEnd : "");
    this.#splices.push({ start: at, end: at, text: gap + lines + (blank ?? "") });
  }

  #set(
    table: TableName,
    index: number,
    key: string,
    old: Writable | undefined,
    value: Writable | undefined,
  ): void {
    const { header, statements } = this.#table(table, index);
    const inner = statements.findIndex(({ kind }) => kind !== "key");
    const keys = inner === -1 ? statements : statements.slice(0, inner);
    const statement = keys.find(({ path }) => path.length === 2 && path[1] === key);
    if (statement === undefined) {
      if (statements.some(({ path }) => path[1] === key)) {
        throw new UneditableError(`${key} is a separate table in the file; change it by hand`);
      }
      if (value !== undefined) {
        this.#insert(keys.at(-1) ?? header, `${key} = ${renderValue(value)}`);
      }
    } else if (value === undefined) {
      this.#remove(statement);
    } else if (
      !Array.isArray(old) ||
      !Array.isArray(value) ||
      !this.#editArray(statement, old, value)
    ) {
      const { valueStart: start, end } = statement;
      this.#splices.push({ start, end, text: renderValue(value) });
    }
  }

  /**
   * Removes elements of an array and adds others at its end, so that comments between them stay.
   *
   * @returns false if other edits are needed
   */
  #editArray(statement: Statement, old: readonly unknown[], wanted: readonly unknown[]): boolean {
    const text = this.#text;
    const elements = elementsIn(text, statement);
    const rendered = wanted.map(renderValue);
    const names = new Set(rendered);
    const isKept = old.map((one) => names.has(renderValue(one)));
    const kept = old.filter((_, at) => isKept[at]);
    const added = rendered.slice(kept.length);
    const last = elements[isKept.lastIndexOf(true)];
    const isInOrder = isDeepStrictEqual(wanted.slice(0, kept.length), kept);
    const isPlain = elements.every(({ end, comma = end }) => !/[\n#]/.test(text.slice(end, comma)));
    if (!isInOrder || !isPlain || elements.length !== old.length) return false;
    if (added.length > 0 && last === undefined) return false;
    const splice = (start: number, end: number, text = "") =>
      this.#splices.push({ start, end, text });
    let done = 0;
    for (const [at, { start, end, comma = end - 1 }] of elements.entries()) {
      if (isKept[at]) continue;
      const lineStart = text.lastIndexOf("\n", start - 1) + 1;
      const before = text.slice(lineStart, start);
      const [rest = "", newline] = /^[ \t]*(\r?\n)?/.exec(text.slice(comma + 1)) ?? [];
      const isFirst = /(?:^|\[)\s*$/.test(before);
      const isLine = newline !== undefined && before.trim() === "";
      const from = isLine ? lineStart : isFirst ? start : lineStart + before.trimEnd().length;
      const isSpaceGone = isLine || (isFirst && newline === undefined);
      const to = comma + 1 + (isSpaceGone ? rest.length : 0);
      splice(Math.max(done, from), to);
      done = to;
    }
    if (last === undefined) return true;
    const { start, end, comma } = last;
    const endsWithComma = elements.at(-1)?.comma !== undefined;
    const lineStart = text.lastIndexOf("\n", start - 1) + 1;
    const newline = text.indexOf("\n", end);
    const isInside = lineStart > statement.valueStart && newline < statement.end;
    const isLine = isInside && newline > (comma ?? end);
    if (added.length > 0 && isLine) {
      const [indent = ""] = /^\s*/.exec(text.slice(lineStart, start)) ?? [];
      const lines = added.map((one) => this.#lineEnd + indent + one).join(",");
      const lineEnd = newline - (text[newline - 1] === "\r" ? 1 : 0);
      if (comma === undefined) splice(end, end, ",");
      splice(lineEnd, lineEnd, endsWithComma ? `${lines},` : lines);
    } else {
      splice(end, end, added.map((one) => `, ${one}`).join(""));
      if (comma !== undefined && !endsWithComma) splice(comma, comma + 1);
    }
    return true;
  }

  update(
    table: TableName,
    index: number,
    old: Record<string, Writable>,
    wanted: Record<string, Writable>,
  ): void {
    for (const key of new Set([...Object.keys(old), ...Object.keys(wanted)])) {
      if (!isDeepStrictEqual(old[key], wanted[key]))
        this.#set(table, index, key, old[key], wanted[key]);
    }
  }

  #insert(after: Statement, line: string): void {
    const { start, end } = this.#lines(after);
    const indented = this.#text.slice(start, after.start) + line;
    const text = this.#isUnfinished(end) ? this.#lineEnd + indented : indented + this.#lineEnd;
    this.#splices.push({ start: end, end, text });
  }

  /** Removes a statement, but keeps a comment after it. */
  #remove(statement: Statement): void {
    const { start, end } = this.#lines(statement);
    this.#splices.push({ start, end, text: this.#text.slice(statement.end, end).trimStart() });
  }

  /** Removes a table and one of the blank lines around it. Comments stay. */
  removeTable(name: TableName, index: number): void {
    const table = this.#table(name, index);
    for (const statement of [table.header, ...table.statements]) this.#remove(statement);
    const { end: after } = this.#lines(table.statements.at(-1) ?? table.header);
    const lineEnd = this.#text.indexOf("\n", after) + 1;
    const next = this.#text.slice(after, lineEnd);
    const blank = next.trim() === "" ? next : "";
    if (blank !== "") this.#splices.push({ start: after, end: lineEnd, text: "" });
    this.#removed.set(table, blank);
  }

  finish(): string {
    const ordered = this.#splices.toSorted((a, b) => a.start - b.start || a.end - b.end);
    let result = "";
    let done = 0;
    for (const { start, end, text } of ordered) {
      if (start < done) throw new UneditableError("two changes overlap");
      result += this.#text.slice(done, start) + text;
      done = end;
    }
    return result + this.#text.slice(done);
  }
}

/** Turns the records of a table into others: those that stay in their order, then new ones. */
function editTable<Item>(
  editor: TextEditor,
  table: TableName,
  [before, after]: readonly [readonly Item[], readonly Item[]],
  isSame: (known: Item, other: Item) => boolean,
  written: (item: Item) => Record<string, Writable>,
): void {
  let stayed = 0;
  for (const [index, record] of before.entries()) {
    const wanted = after[stayed];
    if (wanted === undefined || !isSame(record, wanted)) editor.removeTable(table, index);
    else {
      if (wanted !== record) editor.update(table, index, written(record), written(wanted));
      stayed++;
    }
  }
  for (const record of after.slice(stayed)) editor.append(table, written(record));
}

/** @throws UneditableError if the file is not written as tables */
export function editText(text: string, before: AccessRecords, after: AccessRecords): string {
  const editor = new TextEditor(text);
  const { users, groups, grants } = after;
  const isSameUser = (known: User, { username }: User) => known.username === username;
  const isSameGroup = (known: Group, { name }: Group) => known.name === name;
  editTable(editor, "users", [before.users, users], isSameUser, writtenUser);
  editTable(editor, "groups", [before.groups, groups], isSameGroup, writtenGroup);
  editTable(editor, "acl", [before.grants, grants], isSamePlace, writtenEntry);
  return editor.finish();
}

/** Verifies that the result holds the old records plus exactly these changes. */
export function editAccess(
  bytes: Uint8Array,
  records: AccessRecords,
  changes: readonly Change[],
  file: string,
): { bytes: Uint8Array; records: AccessRecords } {
  const wanted = applyChanges(records, changes);
  const edited = Buffer.from(editText(decodeUtf8(file, bytes), records, wanted));
  if (edited.length > MAX_ACCESS_FILE_BYTES) {
    throw new UneditableError(`it would be ${TOO_LARGE}`);
  }
  const after = checkRecords(edited, file);
  if (isDeepStrictEqual(after, wanted)) return { bytes: edited, records: after };
  throw new UneditableError("the edit would change more than intended");
}
