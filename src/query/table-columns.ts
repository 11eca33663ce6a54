/** The columns of a CreateTable. */

import { readColumnName } from "./columns.ts";
import type { JsonReader } from "./json-reader.ts";
import { ObjectShape, optional, required } from "./object-shape.ts";
import { quoteName } from "./refusal.ts";
import { readBoolean, readList } from "./values.ts";

/** The names of a table's columns, as far as they have been read. */
type ColumnNames = Set<string>;

const definition = new ObjectShape<ColumnNames>([
  required("name", readNewColumnName),
  required("type", readColumnType),
  optional("primary_key", readBoolean),
  optional("unique", readBoolean),
  optional("nullable", readBoolean),
]);

/** Reads the `columns` of a CreateTable, each with a name of its own. */
export function readColumnDefinitions(reader: JsonReader): void {
  const names: ColumnNames = new Set();
  readList(reader, () => definition.read(reader, names));
}

function readNewColumnName(reader: JsonReader, names: ColumnNames): void {
  const start = reader.position;
  const name = readColumnName(reader);
  if (names.has(name)) {
    const problem = `the table has a column ${quoteName(name)} already; each name may stand once`;
    throw reader.refusal("invalid_column", problem, start);
  }
  names.add(name);
}

const columnType = /^[A-Za-z][A-Za-z0-9_]{0,62}(\([0-9]{1,9}(,[0-9]{1,9})?\))?$/;

function readColumnType(reader: JsonReader): void {
  const start = reader.position;
  reader.expect("a string");
  const type = reader.readString().toString();
  if (!columnType.test(type)) {
    const allowed = "a word of at most 63 ASCII letters, digits and _, with (n) or (n,m) if wanted";
    const problem = `${quoteName(type)} is no column type; allowed: ${allowed}`;
    throw reader.refusal("invalid_type", problem, start);
  }
}
