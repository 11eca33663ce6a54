/** The columns of a CreateTable. */

import { readColumnName } from "./columns.ts";
import { DistinctKeys } from "./distinct-keys.ts";
import type { JsonReader } from "./json-reader.ts";
import { hashColumn } from "./key-hash.ts";
import { ObjectShape, optional, required } from "./object-shape.ts";
import { quoteName } from "./refusal.ts";
import type { Rest } from "./rest.ts";
import { readBoolean, readList } from "./values.ts";

/** The columns of a table, as far as they have been read. */
interface TableColumns {
  readonly names: DistinctKeys;
  /** Byte offsets of the type that was read last; columns tend to repeat it. */
  typeStart: number;
  typeEnd: number;
}

const definition = new ObjectShape<TableColumns>([
  required("name", readNewColumnName),
  required("type", readColumnType),
  optional("primary_key", readBoolean),
  optional("unique", readBoolean),
  optional("nullable", readBoolean),
]);

/** Reads the `columns` of a CreateTable, each with a name of its own. */
export function readColumnDefinitions(reader: JsonReader): Rest {
  const columns = { names: new DistinctKeys(reader), typeStart: 0, typeEnd: 0 };
  return readList(reader, () => definition.read(reader, columns));
}

function readNewColumnName(reader: JsonReader, { names }: TableColumns): undefined {
  const start = reader.position;
  const name = readColumnName(reader);
  if (!names.add(start, hashColumn(name))) {
    const problem = `the table has a column ${quoteName(name.toString())} already; each name may stand once`;
    throw reader.refusal("invalid_column", problem, start);
  }
}

const columnType = /^[A-Za-z][A-Za-z0-9_]{0,62}(\([0-9]{1,9}(,[0-9]{1,9})?\))?$/;

/** Bytes that a type has at most. */
const longestType = 63 + "(123456789,123456789)".length;

function readColumnType(reader: JsonReader, columns: TableColumns): undefined {
  const { typeStart, typeEnd } = columns;
  if (typeEnd > 0 && reader.skipRepeated(typeStart, typeEnd)) return;
  const start = reader.position;
  reader.expect("a string");
  const text = reader.readString();
  const isShort = text.end - text.start <= longestType;
  if (!isShort || !columnType.test(text.toString())) {
    const allowed = "a word of at most 63 ASCII letters, digits and _, with (n) or (n,m) if wanted";
    const problem = `${quoteName(text.toString())} is no column type; allowed: ${allowed}`;
    throw reader.refusal("invalid_type", problem, start);
  }
  columns.typeStart = start;
  columns.typeEnd = reader.position;
}
