/** What is known of one operation while its fields are read, which may come in any order. */

import type { ByteText } from "../json/byte-text.ts";
import { quoteName } from "../json/fault.ts";
import type { BodyReader } from "./body-reader.ts";
import { type BodyLocation, QueryRefused } from "./refusal.ts";
import type { RowReader } from "./row-reader.ts";

// An operation has two tables at most, so among three different names one is foreign.
const namesThatDecide = 3;

/** A table that a column names, and where it was named first. */
interface TableReference {
  readonly table: ByteText;
  readonly location: BodyLocation;
}

/** Has the reader of a body's rows, or makes it when it is first wanted. */
interface RowsOfBody {
  readonly rows: RowReader;
}

/** The database and tables of one operation, and the tables that its columns name. */
export class OperationDraft {
  /** Empty, which names no database, until it is read; every operation's fields require it. */
  database = "";
  table: string | undefined;
  joinedTable: string | undefined;
  readonly #body: RowsOfBody;
  #references: TableReference[] | undefined = undefined;
  #columnStart = 0;
  #columnEnd = 0;

  constructor(body: RowsOfBody) {
    this.#body = body;
  }

  /** Shared by all operations of a body, since their rows tend to be alike. */
  get rows(): RowReader {
    return this.#body.rows;
  }

  /** The operation's tables as far as they are known, `from` before the joined one. */
  get tables(): string[] {
    if (this.table === undefined) return [];
    return this.joinedTable === undefined ? [this.table] : [this.table, this.joinedTable];
  }

  /** Notes that the string token between two offsets is a good column. */
  noteColumn(start: number, end: number): void {
    this.#columnStart = start;
    this.#columnEnd = end;
  }

  /** Reads past a column if it repeats the one noted last, as those of many conditions do. */
  repeatsColumn(reader: BodyReader): boolean {
    return this.#columnEnd > 0 && reader.skipRepeated(this.#columnStart, this.#columnEnd);
  }

  /** Notes a table that a column names, for `judgeReferences`. */
  refer(table: ByteText, reader: BodyReader, offset: number): void {
    this.#references ??= [];
    if (this.#references.length === namesThatDecide) return;
    for (const reference of this.#references) {
      if (reference.table.equals(table)) return;
    }
    this.#references.push({ table, location: reader.location(offset) });
  }

  /** Refuses a column of a table that is not one of the operation's; to be called at its end. */
  judgeReferences(): void {
    if (this.#references === undefined) return;
    const { tables } = this;
    for (const { table, location } of this.#references) {
      const name = table.toString();
      if (tables.includes(name)) continue;
      const allowed = tables.map((own) => quoteName(own)).join(" and ");
      const problem = `a column of the table ${quoteName(name)} is named; allowed: ${allowed}`;
      throw new QueryRefused("invalid_column", problem, location);
    }
  }
}
