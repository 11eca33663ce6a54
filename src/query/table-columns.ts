/** The columns of a CreateTable. */

import { DistinctKeys, hashKey } from "../json/distinct-keys.ts";
import { quoteName } from "../json/fault.ts";
import type { BodyReader } from "./body-reader.ts";
import { newColumnSchema, readColumnName, readForeignColumn } from "./columns.ts";
import {
  extra,
  type Kind,
  named,
  type ObjectOf,
  objectSchema,
  optional,
  required,
} from "./kind.ts";
import { qualifiedColumnPattern } from "./names.ts";
import { ObjectShape } from "./object-shape.ts";
import type { OperationDraft } from "./operation-draft.ts";
import { flag, list, literal } from "./values.ts";

/** The columns of a table, as far as they have been read. */
interface TableColumns {
  readonly operation: OperationDraft;
  readonly names: DistinctKeys;
  /** Byte offsets of the type that was read last; columns tend to repeat it. */
  typeStart: number;
  typeEnd: number;
}

const newColumn: Kind<string, TableColumns> = { read: readNewColumnName, schema: newColumnSchema };

const typePattern = "^[A-Za-z][A-Za-z0-9_]{0,62}(\\([0-9]{1,9}(,[0-9]{1,9})?\\))?$";
const columnType = new RegExp(typePattern);
const type: Kind<string, TableColumns> = {
  read: readColumnType,
  schema: () => ({ type: "string", pattern: typePattern }),
};

const definitionFields = {
  name: required(newColumn),
  type: required(type, "A word such as int, text, boolean, varchar(20), decimal(10,2)."),
  primary_key: optional(flag),
  unique: optional(flag),
  nullable: optional(flag, "True unless it says otherwise or the column is the primary key."),
  default: extra(literal, "What a row holds that leaves the column out."),
  references: extra<string, TableColumns>(
    {
      read(reader, { operation }) {
        operation.enter("references");
        return readForeignColumn(reader, operation);
      },
      schema: () => ({ type: "string", pattern: `^${qualifiedColumnPattern}$` }),
    },
    "table.column whose values it may hold.",
  ),
};

/** A column of a CreateTable, once parsed. */
export type ColumnDefinition = ObjectOf<typeof definitionFields>;

const shape = new ObjectShape<TableColumns>(definitionFields);
const definitions = list<ColumnDefinition, TableColumns>({
  read: (reader, columns) => shape.read(reader, columns),
  schema: named("ColumnDefinition", objectSchema(definitionFields)),
});

/** The `columns` of a CreateTable, each with a name of its own. */
export const columnDefinitions: Kind<ColumnDefinition[]> = {
  read: (reader, operation) =>
    definitions.read(reader, {
      operation,
      names: new DistinctKeys(reader),
      typeStart: 0,
      typeEnd: 0,
    }),
  schema: definitions.schema,
};

function readNewColumnName(reader: BodyReader, { names }: TableColumns): undefined {
  const start = reader.position;
  const name = readColumnName(reader);
  if (!names.add(start, hashKey(name))) {
    const problem = `the table has a column ${quoteName(name.toString())} already; each name may stand once`;
    throw reader.refusal("invalid_column", problem, start);
  }
}

/** Bytes that a type has at most. */
const LONGEST_TYPE = 63 + "(123456789,123456789)".length;

function readColumnType(reader: BodyReader, columns: TableColumns): undefined {
  const { typeStart, typeEnd } = columns;
  if (typeEnd > 0 && reader.skipRepeated(typeStart, typeEnd)) return;
  const start = reader.position;
  reader.expect("a string");
  const text = reader.readString();
  const isShort = text.end - text.start <= LONGEST_TYPE;
  if (!isShort || !columnType.test(text.toString())) {
    const allowed = "a word of at most 63 ASCII letters, digits and _, with (n) or (n,m) if wanted";
    const problem = `${quoteName(text.toString())} is no column type; allowed: ${allowed}`;
    throw reader.refusal("invalid_type", problem, start);
  }
  columns.typeStart = start;
  columns.typeEnd = reader.position;
}
