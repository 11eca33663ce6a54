import type { RowForm, RowOutput } from "../spool.ts";
import type { Column } from "./scope.ts";

/** A column whose values come out of the database as `Raw`. */
interface Encoding<Raw> extends Named {
  readonly column: Column & {
    /** JSON text of a value other than null. */
    readonly kind: { encode(value: Raw): string };
  };
}

interface Named {
  readonly table: { readonly name: string };
  readonly column: Column;
}

/** What stands around the values of rows. */
export interface RowLayout {
  /** Before the first row, or alone. */
  readonly head: string;
  /** Between two rows. */
  readonly separator: string;
  /** Before each value of a row, by its place. */
  readonly prefixes: readonly string[];
  /** After the last value of a row. */
  readonly end: string;
  /** After the last row. */
  readonly tail: string;
  /** In the place of a value that is not there. */
  readonly absent: string;
  /** A value, made of its JSON text. */
  cell(json: string): string;
}

/**
 * What stands around the values of these columns. The keys are column names; where two of the columns
 * share one, both are `table.column` instead.
 */
export function layoutOf(columns: readonly Named[], form: RowForm): RowLayout {
  const keys = keysOf(columns);
  if (form === "csv") {
    return {
      head: `${keys.map(csvText).join(",")}\r\n`,
      separator: "",
      prefixes: keys.map((_, index) => (index === 0 ? "" : ",")),
      end: "\r\n",
      tail: "",
      absent: "",
      cell: csvCell,
    };
  }
  const prefixes = keys.map((key, index) => `${index === 0 ? "{" : ","}${JSON.stringify(key)}:`);
  const values = { prefixes, absent: "null", cell: (json: string) => json };
  return form === "json"
    ? { ...values, head: "[", separator: ",", end: "}", tail: "]" }
    : { ...values, head: "", separator: "", end: "}\n", tail: "" };
}

function keysOf(columns: readonly Named[]): string[] {
  const counts = new Map<string, number>();
  for (const { column } of columns) counts.set(column.name, (counts.get(column.name) ?? 0) + 1);
  return columns.map(({ table, column }) =>
    (counts.get(column.name) ?? 0) > 1 ? `${table.name}.${column.name}` : column.name,
  );
}

/** Makes the function that turns a row of these columns into text, by default into a JSON object. */
export function createRowEncoder<Raw>(
  columns: readonly Encoding<Raw>[],
  { prefixes, absent, cell, end }: RowLayout = layoutOf(columns, "json"),
): (row: Readonly<Record<number, Raw | null>>) => string {
  const members = columns.map(({ column }, index) => ({
    index,
    prefix: prefixes[index] ?? "",
    kind: column.kind,
  }));
  return (row) => {
    let text = "";
    for (const { index, prefix, kind } of members) {
      const value = row[index] ?? null;
      text += prefix + (value === null ? absent : cell(kind.encode(value)));
    }
    return text + end;
  };
}

/** Writes the rows of a Select to an output, in the form that it wants. */
export class RowWriter<Raw> {
  readonly #layout: RowLayout;
  readonly #encode: (row: Readonly<Record<number, Raw | null>>) => string;
  readonly #output: RowOutput;
  /** Rows that were written. */
  count = 0;

  constructor(columns: readonly Encoding<Raw>[], output: RowOutput) {
    this.#layout = layoutOf(columns, output.form);
    this.#encode = createRowEncoder(columns, this.#layout);
    this.#output = output;
  }

  write(row: Readonly<Record<number, Raw | null>>): void {
    // Nothing is written before the first row, so that what fails before it is answered as an error.
    const { head, separator } = this.#layout;
    this.#output.write((this.count === 0 ? head : separator) + this.#encode(row));
    this.count += 1;
  }

  end(): void {
    const { head, tail } = this.#layout;
    this.#output.write((this.count === 0 ? head : "") + tail);
    this.#output.countRows(this.count);
  }
}

/** A cell of CSV (RFC 4180) for a value's JSON text: what is in a string, and anything else as it is. */
function csvCell(json: string): string {
  if (!json.startsWith('"')) return csvText(json);
  const text: string = json.includes("\\") ? JSON.parse(json) : json.slice(1, -1);
  // Null is an empty cell; the empty text is told from it.
  return text === "" ? '""' : csvText(text);
}

/** Text, quoted where that is needed. */
function csvText(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
