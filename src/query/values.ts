import type { Steps } from "../cooperative-scheduling.ts";
import { ObjectKeys } from "../json/document.ts";
import { quoteName } from "../json/fault.ts";
import { andThen, ByteText, type Rest, repeat, tokenOf } from "../json/reader.ts";
import { formatHint } from "../suggestion.ts";
import type { BodyReader } from "./body-reader.ts";
import {
  at,
  extra,
  fullOnly,
  inside,
  type Kind,
  type MakeSchema,
  named,
  type ObjectOf,
  objectSchema,
  optional,
  required,
  type Schema,
} from "./kind.ts";
import {
  columnNamePattern,
  columnNameRule,
  isColumnName,
  isPlainText,
  joinSidePattern,
  LONGEST_COLUMN_BYTES,
  plainNamePattern,
  plainNameRule,
  qualifiedColumnPattern,
} from "./names.ts";
import { ObjectShape } from "./object-shape.ts";
import { MOST_GROUPS, type OperationDraft, type Position } from "./operation-draft.ts";
import type { QueryRefused } from "./refusal.ts";
import { meantWord } from "./synonyms.ts";

const NINE = 0x39;
const ZERO = 0x30;

/** The name of a database or table, passed to `note`. */
export function plainName<Draft>(note: (draft: Draft, name: string) => void): Kind<string, Draft> {
  return {
    read: (reader, draft) => {
      note(draft, readPlainName(reader));
      return undefined;
    },
    schema: named("PlainName", () => ({ type: "string", pattern: `^${plainNamePattern}$` })),
  };
}

function readPlainName(reader: BodyReader): string {
  const start = reader.position;
  reader.expect("a string");
  const text = reader.readString();
  if (!isPlainText(text)) {
    const problem = `${quoteName(text.toString())} is not a plain name; allowed: ${plainNameRule}`;
    throw reader.refusal("invalid_name", problem, start);
  }
  return text.toString();
}

type MeantWord = (found: string, words: readonly string[]) => string | undefined;

/**
 * One of a few words, spelled exactly.
 *
 * @param note receives it
 * @param meant finds the intended word for a wrong one
 * @param ofFull words that only the full grammar has here
 */
export function oneOf<const Word extends string, Draft = unknown>(
  words: readonly Word[],
  note: (draft: Draft, word: Word) => void = () => {},
  meant: MeantWord = meantWord,
  ofFull: readonly string[] = [],
): Kind<Word, Draft> {
  const tokens = words.map((word) => ({ word, token: tokenOf(word) }));
  const readWord = (reader: BodyReader): Word => {
    for (const { word, token } of tokens) if (reader.skipToken(token)) return word;
    const start = reader.position;
    reader.expect("a string");
    const found = reader.readString().toString();
    const known = words.find((word) => word === found);
    if (known !== undefined) return known;
    const hint = ofFull.includes(found) ? fullOnly : formatHint(meant(found, words));
    const problem = `the value ${quoteName(found)} is not one of those allowed: ${words.join(", ")}${hint}`;
    throw reader.refusal("invalid_value", problem, start);
  };
  return {
    read(reader, draft) {
      note(draft, readWord(reader));
      return undefined;
    },
    schema: () => ({ enum: words }),
  };
}

export const flag: Kind<boolean, unknown> = {
  read(reader) {
    reader.expect("a boolean");
    return reader.skipValue();
  },
  schema: () => ({ type: "boolean" }),
};

export const count: Kind<number, unknown> = {
  read(reader) {
    readCount(reader);
    return undefined;
  },
  schema: () => ({ type: "integer", minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
};

export function readCount(reader: BodyReader): number {
  const { bytes, position: start } = reader;
  reader.expect("a number");
  reader.skipNumber();
  let count = 0;
  for (let position = start; position < reader.position; position++) {
    const byte = bytes[position] ?? 0;
    // Rounding starts above the limit, so a rounded number is refused too.
    count = byte >= ZERO && byte <= NINE ? count * 10 + (byte - ZERO) : Number.NaN;
  }
  if (count <= Number.MAX_SAFE_INTEGER) return count;
  const problem = `the number is not allowed here; allowed: digits only, at most ${Number.MAX_SAFE_INTEGER}`;
  throw reader.refusal("invalid_value", problem, start);
}

interface ListBounds {
  /** 1 by default. */
  readonly least?: 0 | 1;
  readonly most?: number;
}

export function list<Value, Draft>(
  kind: Kind<Value, Draft>,
  bounds: ListBounds = {},
): Kind<Value[], Draft> {
  const { least = 1, most } = bounds;
  return {
    read: (reader, draft) => readList(reader, () => kind.read(reader, draft), bounds),
    schema: (reference) => ({
      type: "array",
      items: kind.schema(reference),
      ...(least === 0 ? {} : { minItems: least }),
      ...(most === undefined ? {} : { maxItems: most }),
    }),
  };
}

/** An object, or in the full grammar an array of up to `most` objects. */
export function oneOrMany<Value, Draft>(
  kind: Kind<Value, Draft>,
  most: number,
): Kind<Value | Value[], Draft> {
  const many = list(kind, { most });
  return {
    read(reader, draft) {
      const found = reader.kind();
      if (found === "an object") return kind.read(reader, draft);
      const isArray = found === "an array";
      if (isArray && reader.isFull) return many.read(reader, draft);
      const wanted = reader.isFull ? "an object or an array" : "an object";
      const problem = `${wanted} is expected, ${found} was found${isArray ? fullOnly : ""}`;
      throw reader.refusal("wrong_type", problem);
    },
    schema: (reference) =>
      reference.level === "full"
        ? { oneOf: [kind.schema(reference), many.schema(reference)] }
        : kind.schema(reference),
  };
}

export const literal: Kind<Literal, unknown> = {
  read(reader) {
    const kind = reader.kind();
    if (kind !== "an array" && kind !== "an object") return reader.skipValue();
    const problem = `a string, a number, true, false or null is expected, ${kind} was found`;
    throw reader.refusal("wrong_type", problem);
  },
  schema: () => ({ type: ["string", "number", "boolean", "null"] }),
};

type Literal = null | boolean | number | bigint | string;

function emptyArray(reader: BodyReader, start: number): QueryRefused {
  const problem = "the array is empty; at least one element is needed";
  return reader.refusal("invalid_value", problem, start);
}

function readList(
  reader: BodyReader,
  readElement: () => Rest,
  { least = 1, most }: ListBounds,
): Rest {
  const start = reader.position;
  if (!reader.openArray()) {
    if (least === 0) return undefined;
    throw emptyArray(reader, start);
  }
  if (most === undefined) {
    return readElements(reader, () => {
      reader.countPart();
      return readElement();
    });
  }
  let left = most;
  return readElements(reader, () => {
    reader.countPart();
    if (left-- > 0) return readElement();
    const problem = `the array is too long; at most ${most} elements are allowed`;
    throw reader.refusal("invalid_value", problem, start);
  });
}

/**
 * Reads the elements of a non-empty array after `openArray`. A `readElement` that reads several
 * elements must advance the index itself.
 */
export function readElements(reader: BodyReader, readElement: () => Rest): Rest {
  const { path } = reader;
  let index = 0;
  do {
    path.push(index);
    const rest = readElement() ?? reader.pause();
    if (rest !== undefined) return readElementsAfter(rest, reader, readElement);
    index = Number(path.pop()) + 1;
  } while (reader.nextElement());
  return undefined;
}

function* readElementsAfter(
  begun: Steps<void>,
  reader: BodyReader,
  readElement: () => Rest,
): Steps<void> {
  const { path } = reader;
  yield* begun;
  for (let index = Number(path.pop()) + 1; reader.nextElement(); index = Number(path.pop()) + 1) {
    path.push(index);
    const rest = readElement() ?? reader.pause();
    if (rest !== undefined) yield* rest;
  }
}

const DOT = 0x2e;
const ASTERISK = 0x2a;
const asteriskToken = tokenOf("*");

function readColumnName(reader: BodyReader): ByteText {
  const start = reader.position;
  reader.expect("a string");
  const text = reader.readString();
  if (!isColumnName(text)) {
    const problem = `${quoteName(text.toString())} is not a column name; allowed: ${columnNameRule}`;
    throw reader.refusal("invalid_column", problem, start);
  }
  return text;
}

const columnSchema = named("Column", () => ({
  type: "string",
  pattern: `^(?:${columnNamePattern}|${qualifiedColumnPattern})$`,
}));

const newColumnSchema: MakeSchema = named("NewColumn", () => ({
  type: "string",
  pattern: `^${columnNamePattern}$`,
}));

/** The name of a new column, passed to `note`. */
export function newName<Draft>(note: (draft: Draft, name: string) => void): Kind<string, Draft> {
  return {
    read(reader, draft) {
      note(draft, readColumnName(reader).toString());
      return undefined;
    },
    schema: newColumnSchema,
  };
}

/** `column`, or `table.column` with a table of the operation. */
export const column: Kind<string> = { read: readColumn, schema: columnSchema };

export const selectedColumn: Kind<string> = {
  read: readSelectedColumn,
  schema: (reference) => ({ oneOf: [{ const: "*" }, columnSchema(reference)] }),
};

export const ownColumn: Kind<string> = {
  read(reader, draft) {
    draft.use(readColumnName(reader));
    return undefined;
  },
  schema: newColumnSchema,
};

/** The `on` of a join: `table.column = table.column`, with tables of the Select. */
export const joinColumns: Kind<string> = {
  read: readJoinColumns,
  schema: () => ({ type: "string", pattern: `^${joinSidePattern} = ${joinSidePattern}$` }),
};

function readColumn(reader: BodyReader, draft: OperationDraft): undefined {
  const start = reader.position;
  reader.expect("a string");
  noteColumn(reader.readString(), reader, draft, start);
}

function readSelectedColumn(reader: BodyReader, draft: OperationDraft): undefined {
  const start = reader.position;
  if (!reader.skipToken(asteriskToken)) {
    reader.expect("a string");
    const text = reader.readString();
    const everything = text.end - text.start === 1 && text.bytes[text.start] === ASTERISK;
    if (!everything) return noteColumn(text, reader, draft, start);
  }
  draft.use("*");
}

function noteColumn(
  text: ByteText,
  reader: BodyReader,
  draft: OperationDraft,
  start: number,
): undefined {
  if (draft.isEarlierName(text)) return;
  draft.use(text);
  noteName(text, draft);
  if (isColumnName(text)) return;
  const table = tableOf(text);
  if (table === undefined) {
    const allowed = `a column (${columnNameRule}), or table.column with a table of the operation`;
    const isCount = text.toString() === "*" && draft.position === "aggregate";
    const hint = isCount ? "; to count rows, leave column out" : "";
    const problem = `${quoteName(text.toString())} is not a column; allowed: ${allowed}${hint}`;
    throw reader.refusal("invalid_column", problem, start);
  }
  draft.refer(table, reader, start);
}

/** One more than can be valid, so that an invalid name is found. */
const MOST_CONDITIONS = 2 * MOST_GROUPS + 1;

/** Remembers the names that have to fit others of the same Select. */
function noteName(text: ByteText, draft: OperationDraft): void {
  const { position } = draft;
  if (position === "order_by") {
    draft.orders ??= [];
    draft.orders.push(text);
  } else if (position === "group_by") draft.summarize().groups.push(text.toString());
  else if (position === "having") {
    const { conditions } = draft.summarize();
    if (conditions.size < MOST_CONDITIONS) conditions.add(text.toString());
  }
}

/** A column of any table: `table.column`. */
const foreignColumn: Kind<string> = {
  read: readForeignColumn,
  schema: () => ({ type: "string", pattern: `^${qualifiedColumnPattern}$` }),
};

function readForeignColumn(reader: BodyReader, draft: OperationDraft): undefined {
  const start = reader.position;
  reader.expect("a string");
  const text = reader.readString();
  const table = tableOf(text);
  if (table === undefined || !isPlainText(table)) {
    const problem = `${quoteName(text.toString())} is not a column of a table; allowed: table.column`;
    throw reader.refusal("invalid_column", problem, start);
  }
  draft.use(text);
  draft.referenced ??= [];
  draft.referenced.push(table.toString());
}

/** The table in `table.column`. Undefined for other text. */
function tableOf({ bytes, start, end }: ByteText): ByteText | undefined {
  for (let position = start; position < end; position++) {
    if (bytes[position] !== DOT) continue;
    const column = new ByteText(bytes, position + 1, end);
    return isColumnName(column) ? new ByteText(bytes, start, position) : undefined;
  }
  return undefined;
}

/** Maximum bytes of an `on`: two qualified columns and what is between them. */
const LONGEST_JOIN_TEXT = 2 * (2 * LONGEST_COLUMN_BYTES);

function readJoinColumns(reader: BodyReader, draft: OperationDraft): undefined {
  const start = reader.position;
  reader.expect("a string");
  const text = reader.readString();
  const isShort = text.end - text.start <= LONGEST_JOIN_TEXT;
  const sides = isShort ? text.toString().split(" = ") : [];
  const tables = sides.map((side) =>
    /[ =]/.test(side) ? undefined : tableOf(ByteText.from(side)),
  );
  const [left, right, ...more] = tables;
  if (left === undefined || right === undefined || more.length > 0) {
    const allowed =
      "table.column = table.column, with one space on either side of the =, and no other space or =";
    const problem = `${quoteName(text.toString())} does not join two columns; allowed: ${allowed}`;
    throw reader.refusal("invalid_column", problem, start);
  }
  for (const side of sides) draft.use(side);
  draft.refer(left, reader, start);
  draft.refer(right, reader, start);
  draft.joinedBy(left.toString(), right.toString());
}

export type CellValue =
  | null
  | boolean
  | number
  | bigint
  | string
  | CellValue[]
  | { [key: string]: CellValue };

export type Row = Record<string, CellValue>;

function readRow(draft: OperationDraft, position: Position): Rest {
  draft.position = position;
  return draft.rows.read(draft, position === "values");
}

function emptyObject(reader: BodyReader, start: number): QueryRefused {
  const problem = "the object is empty; at least one column is needed";
  return reader.refusal("invalid_value", problem, start);
}

const row: Kind<Row> = {
  read: (_reader, draft) => readRow(draft, "values"),
  schema: (reference): Schema => ({
    type: "object",
    propertyNames: newColumnSchema(reference),
    additionalProperties: true,
  }),
};

/** Not counted as parts: a long Insert is not complex. */
export const rows: Kind<Row[]> = {
  ...list(row),
  read(reader, draft) {
    const start = reader.position;
    if (!reader.openArray()) throw emptyArray(reader, start);
    return readElements(reader, () => row.read(reader, draft));
  },
};

export const changes: Kind<Row> = {
  read(reader, draft) {
    const start = reader.position;
    draft.changesColumns = true;
    const rest = readRow(draft, "set");
    if (rest === undefined && draft.rows.isEmpty) throw emptyObject(reader, start);
    return rest;
  },
  schema: (reference) => ({ ...row.schema(reference), minProperties: 1 }),
};

/** Numbers by column that an Update adds to the existing values. */
export const additions: Kind<Record<string, number | bigint>> = {
  read(reader, draft) {
    const start = reader.position;
    draft.changesColumns = true;
    draft.position = "add";
    if (!reader.openObject()) throw emptyObject(reader, start);
    const columns = new ObjectKeys();
    return repeat(
      () => readAddition(reader, draft, columns),
      () => reader.nextMember(),
    );
  },
  schema: (reference) => ({
    type: "object",
    propertyNames: newColumnSchema(reference),
    additionalProperties: { type: "number" },
    minProperties: 1,
  }),
};

function readAddition(reader: BodyReader, draft: OperationDraft, columns: ObjectKeys): Rest {
  readUniqueColumn(reader, draft, columns);
  reader.expect("a number");
  reader.skipNumber();
  return reader.pause();
}

function readUniqueColumn(reader: BodyReader, draft: OperationDraft, columns: ObjectKeys): void {
  const start = reader.position;
  reader.countPart();
  const column = readColumnName(reader);
  if (!columns.add(column)) {
    const problem = `the column ${quoteName(column.toString())} is given twice; each column is allowed once`;
    throw reader.refusal("duplicate_key", problem, start);
  }
  draft.use(column);
  reader.skipColon();
}

interface Binding {
  readonly operation: OperationDraft;
  element: number;
  column: string;
}

const bindingFields = {
  element: required<number, Binding>({
    read(reader, binding) {
      binding.element = readCount(reader);
      return undefined;
    },
    schema: count.schema,
  }),
  column: required(
    newName((binding: Binding, name) => {
      binding.column = name;
    }),
  ),
};
const bindingShape = new ObjectShape<Binding>(bindingFields);

/** Columns of affected rows by the column that gets their value. */
export const bindings: Kind<Record<string, ObjectOf<typeof bindingFields>>> = {
  read(reader, draft) {
    const start = reader.position;
    draft.changesColumns = true;
    if (!reader.openObject()) throw emptyObject(reader, start);
    const columns = new ObjectKeys();
    return repeat(
      () => readBinding(reader, draft, columns),
      () => reader.nextMember(),
    );
  },
  schema: (reference) => ({
    type: "object",
    propertyNames: newColumnSchema(reference),
    additionalProperties: objectSchema(bindingFields)(reference),
    minProperties: 1,
  }),
};

function readBinding(reader: BodyReader, operation: OperationDraft, columns: ObjectKeys): Rest {
  operation.position = "bind";
  readUniqueColumn(reader, operation, columns);
  const start = reader.position;
  const binding = { operation, element: 0, column: "" };
  const rest = andThen(bindingShape.read(reader, binding), () => {
    if (operation.bindTo(binding.element, binding.column)) return;
    const problem = `element ${binding.element} is not an earlier Insert, Update, Delete or Upsert of this Batch; the first element is 0`;
    throw reader.refusal("invalid_value", problem, start);
  });
  return rest ?? reader.pause();
}

interface TableColumns {
  readonly operation: OperationDraft;
  readonly names: ObjectKeys;
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
  nullable: optional(flag, "True by default, except for the primary key."),
  default: extra(literal, "Value for rows without this column."),
  references: extra<string, TableColumns>(
    inside(at("references", foreignColumn)),
    "table.column whose values are allowed.",
  ),
};

export type ColumnDefinition = ObjectOf<typeof definitionFields>;

const shape = new ObjectShape<TableColumns>(definitionFields);
const definitions = list<ColumnDefinition, TableColumns>({
  read: (reader, columns) => shape.read(reader, columns),
  schema: named("ColumnDefinition", objectSchema(definitionFields)),
});

/** The `columns` of a CreateTable, with unique names. */
export const columnDefinitions: Kind<ColumnDefinition[]> = {
  read: (reader, operation) => definitions.read(reader, { operation, names: new ObjectKeys() }),
  schema: definitions.schema,
};

function readNewColumnName(reader: BodyReader, { names }: TableColumns): undefined {
  const start = reader.position;
  const name = readColumnName(reader);
  if (!names.add(name)) {
    const problem = `the table already has a column ${quoteName(name.toString())}; each name must be unique`;
    throw reader.refusal("invalid_column", problem, start);
  }
}

const LONGEST_TYPE = 63 + "(123456789,123456789)".length;

function readColumnType(reader: BodyReader): undefined {
  const start = reader.position;
  reader.expect("a string");
  const text = reader.readString();
  const isShort = text.end - text.start <= LONGEST_TYPE;
  if (!isShort || !columnType.test(text.toString())) {
    const allowed =
      "a word of at most 63 ASCII letters, digits and _, optionally with (n) or (n,m)";
    const problem = `${quoteName(text.toString())} is not a column type; allowed: ${allowed}`;
    throw reader.refusal("invalid_type", problem, start);
  }
}
