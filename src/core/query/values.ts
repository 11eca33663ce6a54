import { formatHint } from "../base/suggestion.ts";
import { Deferred, exactNumber, type Parsed } from "../json/exact.ts";
import { quoteName } from "../json/fault.ts";
import { NINE, ZERO } from "../json/lexical.ts";
import { STRIDE, Word } from "../json/tape.ts";
import {
  at,
  checked,
  extra,
  fullOnly,
  type Kind,
  type MakeSchema,
  named,
  object,
  objectSchema,
  optional,
  required,
  type Schema,
} from "./kind.ts";
import {
  columnNamePattern,
  columnNameRule,
  isColumnText,
  isPlainName,
  joinSidePattern,
  LONGEST_COLUMN_BYTES,
  plainNamePattern,
  plainNameRule,
  qualifiedColumnPattern,
} from "./names.ts";
import type { OperationNode } from "./node.ts";
import { meantWord } from "./synonyms.ts";
import type { QueryTape } from "./tape.ts";
import type { Addend, Binding, CellValue, ColumnDefinition, Literal, Row } from "./tree.ts";

export const MOST_GROUPS = 64;

/** The name of a database or table. */
export const plainName: Kind<string> = {
  parse(tape, token) {
    const name = tape.text(token);
    if (isPlainName(name)) return name;
    const problem = `${quoteName(name)} is not a plain name; allowed: ${plainNameRule}`;
    throw tape.refusal("invalid_name", problem, token);
  },
  schema: named("PlainName", () => ({ type: "string", pattern: `^${plainNamePattern}$` })),
};

/** The name of the table that an operation reads or changes. */
export const tableName: Kind<string> = checked(plainName, (table, node) => {
  node.source = { table, name: table };
});

type MeantWord = (found: string, words: readonly string[]) => string | undefined;

/**
 * One of a few words, spelled exactly.
 *
 * @param meant finds the intended word for a wrong one
 * @param ofFull words that only the full grammar has here
 */
export function oneOf<const Name extends string>(
  names: readonly Name[],
  meant: MeantWord = meantWord,
  ofFull: readonly string[] = [],
): Kind<Name> {
  const words = names.map((name) => ({ name, word: new Word(name) }));
  return {
    parse(tape, token) {
      for (const { name, word } of words) if (tape.is(token, word)) return name;
      const found = tape.text(token);
      const hint = ofFull.includes(found) ? fullOnly : formatHint(meant(found, names));
      const problem = `the value ${quoteName(found)} is not one of those allowed: ${names.join(", ")}${hint}`;
      throw tape.refusal("invalid_value", problem, token);
    },
    schema: () => ({ enum: names }),
  };
}

export const flag: Kind<boolean> = {
  parse(tape, token) {
    tape.expect(token, "a boolean");
    return tape.isTrue(token);
  },
  schema: () => ({ type: "boolean" }),
};

export const count: Kind<number> = {
  parse(tape, token) {
    tape.expect(token, "a number");
    const { bytes } = tape;
    const end = tape.end(token);
    let count = 0;
    for (let position = tape.start(token); position < end; position++) {
      const byte = bytes[position] ?? 0;
      // Rounding starts above the limit, so a rounded number is refused too.
      count = byte >= ZERO && byte <= NINE ? count * 10 + (byte - ZERO) : Number.NaN;
    }
    if (count <= Number.MAX_SAFE_INTEGER) return count;
    const problem = `the number is not allowed here; allowed: digits only, at most ${Number.MAX_SAFE_INTEGER}`;
    throw tape.refusal("invalid_value", problem, token);
  },
  schema: () => ({ type: "integer", minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
};

interface ListBounds {
  /** 1 by default. */
  readonly least?: 0 | 1;
  readonly most?: number;
}

export function list<Value>(kind: Kind<Value>, bounds: ListBounds = {}): Kind<Value[]> {
  const { least = 1, most } = bounds;
  return {
    parse(tape, token, node) {
      requireArray(tape, token, least);
      const end = tape.next(token);
      const values: Value[] = [];
      for (let element = token + STRIDE; element < end; element = tape.next(element)) {
        if (values.length === most) {
          const problem = `the array is too long; at most ${most} elements are allowed`;
          throw tape.refusal("invalid_value", problem, element, tape.start(token));
        }
        values.push(kind.parse(tape, element, node));
      }
      return values;
    },
    schema: (reference) => ({
      type: "array",
      items: kind.schema(reference),
      ...(least === 0 ? {} : { minItems: least }),
      ...(most === undefined ? {} : { maxItems: most }),
    }),
  };
}

function requireArray(tape: QueryTape, token: number, least = 1): void {
  tape.expect(token, "an array");
  if (tape.size(token) >= least) return;
  const problem = "the array is empty; at least one element is needed";
  throw tape.refusal("invalid_value", problem, token);
}

/** An object, or in the full grammar an array of up to `most` objects. */
export function oneOrMany<Value>(kind: Kind<Value>, most: number): Kind<Value | Value[]> {
  const many = list(kind, { most });
  return {
    parse(tape, token, node) {
      const found = tape.kind(token);
      if (found === "an object") return kind.parse(tape, token, node);
      const isArray = found === "an array";
      if (isArray && tape.isFull) return many.parse(tape, token, node);
      const wanted = tape.isFull ? "an object or an array" : "an object";
      const problem = `${wanted} is expected, ${found} was found${isArray ? fullOnly : ""}`;
      throw tape.refusal("wrong_type", problem, token);
    },
    schema: (reference) =>
      reference.level === "full"
        ? { oneOf: [kind.schema(reference), many.schema(reference)] }
        : kind.schema(reference),
  };
}

export const literal: Kind<Literal> = {
  parse(tape, token) {
    const kind = tape.kind(token);
    if (kind !== "an array" && kind !== "an object") return parseScalar(tape, token);
    const problem = `a string, a number, true, false or null is expected, ${kind} was found`;
    throw tape.refusal("wrong_type", problem, token);
  },
  schema: () => ({ type: ["string", "number", "boolean", "null"] }),
};

function parseScalar(tape: QueryTape, token: number): Parsed {
  switch (tape.kind(token)) {
    case "null":
      return null;
    case "a boolean":
      return tape.isTrue(token);
    case "a string":
      return tape.string(token);
    default:
      return exactNumber(tape.source(token));
  }
}

function defer(tape: QueryTape, token: number, { body }: OperationNode): Parsed {
  const source = tape.bytes.subarray(tape.start(token), tape.end(token));
  const deferred = new Deferred(source, tape.hasObject(token));
  body.deferred.push(deferred);
  return deferred;
}

/** Longer values are read only if they are needed. */
const LONG_VALUE = 1024;

export const anyValue: Kind<CellValue> = {
  parse(tape, token, node) {
    const kind = tape.kind(token);
    const isShort = tape.end(token) - tape.start(token) <= LONG_VALUE;
    if (isShort && kind !== "an array" && kind !== "an object") return parseScalar(tape, token);
    return defer(tape, token, node);
  },
  schema: () => ({}),
};

const columnSchema = named("Column", () => ({
  type: "string",
  pattern: `^(?:${columnNamePattern}|${qualifiedColumnPattern})$`,
}));

const newColumnSchema: MakeSchema = named("NewColumn", () => ({
  type: "string",
  pattern: `^${columnNamePattern}$`,
}));

export const newName: Kind<string> = {
  parse(tape, token) {
    tape.expect(token, "a string");
    return parseColumnName(tape, token);
  },
  schema: newColumnSchema,
};

function parseColumnName(tape: QueryTape, token: number): string {
  const name = tape.name(token);
  if (isColumnText(name)) return name;
  const problem = `${quoteName(name)} is not a column name; allowed: ${columnNameRule}`;
  throw tape.refusal("invalid_column", problem, token);
}

/** `column`, or `table.column` with a table of the operation. */
export const column: Kind<string> = { parse: useColumn, schema: columnSchema };

export const selectedColumn: Kind<string> = {
  parse(tape, token, node) {
    if (tape.text(token) !== "*") return useColumn(tape, token, node);
    node.use("*");
    return "*";
  },
  schema: (reference) => ({ oneOf: [{ const: "*" }, columnSchema(reference)] }),
};

export const ownColumn: Kind<string> = checked(newName, (name, node) => node.use(name));

function useColumn(tape: QueryTape, token: number, node: OperationNode): string {
  const name = tape.text(token);
  if (node.isEarlierName(name)) return name;
  node.use(name);
  const dot = name.indexOf(".");
  if (isColumnText(dot === -1 ? name : name.slice(dot + 1))) {
    if (dot !== -1) node.refer(name.slice(0, dot), token);
    return name;
  }
  const allowed = `a column (${columnNameRule}), or table.column with a table of the operation`;
  const isCount = name === "*" && node.position === "aggregate";
  const hint = isCount ? "; to count rows, leave column out" : "";
  const problem = `${quoteName(name)} is not a column; allowed: ${allowed}${hint}`;
  throw tape.refusal("invalid_column", problem, token);
}

/** The table in `table.column`. Undefined for other text. */
function qualifyingTable(text: string): string | undefined {
  const dot = text.indexOf(".");
  return dot !== -1 && isColumnText(text.slice(dot + 1)) ? text.slice(0, dot) : undefined;
}

/** A column of any table: `table.column`. */
const foreignColumn: Kind<string> = {
  parse(tape, token, node) {
    const name = tape.text(token);
    const table = qualifyingTable(name);
    if (table === undefined || !isPlainName(table)) {
      const problem = `${quoteName(name)} is not a column of a table; allowed: table.column`;
      throw tape.refusal("invalid_column", problem, token);
    }
    node.use(name);
    node.referenced.push(table);
    return name;
  },
  schema: () => ({ type: "string", pattern: `^${qualifiedColumnPattern}$` }),
};

/** Maximum bytes of an `on`: two qualified columns and what is between them. */
const LONGEST_JOIN_TEXT = 2 * (2 * LONGEST_COLUMN_BYTES);

/** The tables of the two columns of an `on`. Undefined for other text. */
export function joinedTables(on: string): readonly [string, string] | undefined {
  const sides = on.split(" = ");
  const [left, right, ...more] = sides.map((side) =>
    /[ =]/.test(side) ? undefined : qualifyingTable(side),
  );
  return left === undefined || right === undefined || more.length > 0 ? undefined : [left, right];
}

/** The `on` of a join: `table.column = table.column`, with tables of the Select. */
export const joinColumns: Kind<string> = {
  parse(tape, token, node) {
    const on = tape.text(token);
    const tables =
      tape.end(token) - tape.start(token) <= LONGEST_JOIN_TEXT ? joinedTables(on) : undefined;
    if (tables === undefined) {
      const allowed =
        "table.column = table.column, with one space on either side of the =, and no other space or =";
      const problem = `${quoteName(on)} does not join two columns; allowed: ${allowed}`;
      throw tape.refusal("invalid_column", problem, token);
    }
    for (const side of on.split(" = ")) node.use(side);
    node.join(tables, token);
    return on;
  },
  schema: () => ({ type: "string", pattern: `^${joinSidePattern} = ${joinSidePattern}$` }),
};

const rowSchema: MakeSchema = (reference): Schema => ({
  type: "object",
  propertyNames: newColumnSchema(reference),
  additionalProperties: true,
});

/** The tape has read the rows, and counted no parts: a long Insert is not complex. */
export const rows: Kind<Row[]> = {
  parse(tape, token, node) {
    requireArray(tape, token);
    node.position = "values";
    for (const column of tape.columnsOf(token)) node.use(column);
    return defer(tape, token, node);
  },
  schema: (reference) => ({ type: "array", items: rowSchema(reference), minItems: 1 }),
};

function requireColumns(tape: QueryTape, token: number): void {
  tape.expect(token, "an object");
  if (tape.size(token) > 0) return;
  const problem = "the object is empty; at least one column is needed";
  throw tape.refusal("invalid_value", problem, token);
}

export const changes: Kind<Row> = {
  parse(tape, token, node) {
    requireColumns(tape, token);
    node.position = "set";
    for (const column of tape.columnsOf(token)) node.use(column);
    return defer(tape, token, node);
  },
  schema: (reference) => ({ ...rowSchema(reference), minProperties: 1 }),
};

/** Values by column. Each column is given once. */
function byColumn<Value>({ parse, schema }: Kind<Value>): Kind<Record<string, Value>> {
  return {
    parse(tape, token, node) {
      requireColumns(tape, token);
      const end = tape.next(token);
      const { position } = node;
      const values = new Map<string, Value>();
      for (let key = token + STRIDE; key < end; key = tape.next(key + STRIDE)) {
        const column = parseColumnName(tape, key);
        if (values.has(column)) {
          const problem = `the column ${quoteName(column)} is given twice; each column is allowed once`;
          throw tape.refusal("duplicate_key", problem, key);
        }
        node.position = position;
        node.use(column);
        values.set(column, parse(tape, key + STRIDE, node));
      }
      return Object.fromEntries(values);
    },
    schema: (reference) => ({
      type: "object",
      propertyNames: newColumnSchema(reference),
      additionalProperties: schema(reference),
      minProperties: 1,
    }),
  };
}

const decimalPattern = "^-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?$";
/** A decimal as text, which columns of decimals take in place of a number. */
export const decimalText = new RegExp(decimalPattern);

const addition: Kind<Addend> = {
  parse(tape, token) {
    if (tape.kind(token) === "a string") {
      const text = tape.name(token);
      if (decimalText.test(text)) return text;
      const problem = `${quoteName(text)} is not a number; allowed: a number, or for a decimal a string such as "12.50"`;
      throw tape.refusal("invalid_value", problem, token);
    }
    tape.expect(token, "a number");
    const number: Parsed = exactNumber(tape.source(token));
    return number;
  },
  schema: () => ({ type: ["number", "string"], pattern: decimalPattern }),
};

/** Numbers by column that an Update adds to the existing values. */
export const additions: Kind<Record<string, Addend>> = at("add", byColumn(addition));

const bindingFields = { element: required(count), column: required(newName) };

/** Columns of affected rows by the column that gets their value. */
export const bindings: Kind<Record<string, Binding>> = at(
  "bind",
  byColumn(
    checked(object(bindingFields), ({ element, column }, node, token, tape) => {
      if (node.bindTo(element, column)) return;
      const problem = `element ${element} is not an earlier Insert, Update, Delete or Upsert of this Batch; the first element is 0`;
      throw tape.refusal("invalid_value", problem, token);
    }),
  ),
);

const typePattern = "^[A-Za-z][A-Za-z0-9_]{0,62}(\\([0-9]{1,9}(,[0-9]{1,9})?\\))?$";
const columnType = new RegExp(typePattern);
const LONGEST_TYPE = 63 + "(123456789,123456789)".length;

const type: Kind<string> = {
  parse(tape, token) {
    const text = tape.text(token);
    if (text.length <= LONGEST_TYPE && columnType.test(text)) return text;
    const allowed =
      "a word of at most 63 ASCII letters, digits and _, optionally with (n) or (n,m)";
    const problem = `${quoteName(text)} is not a column type; allowed: ${allowed}`;
    throw tape.refusal("invalid_type", problem, token);
  },
  schema: () => ({ type: "string", pattern: typePattern }),
};

const definitionFields = {
  name: required(newName),
  type: required(type, "A word such as int, text, boolean, varchar(20), decimal(10,2)."),
  primary_key: optional(flag),
  unique: optional(flag),
  nullable: optional(flag, "True by default, except for the primary key."),
  default: extra(literal, "Value for rows without this column."),
  references: extra(at("references", foreignColumn), "table.column whose values are allowed."),
};

const nameWord = new Word("name");

/** The `columns` of a CreateTable, with unique names. */
export const columnDefinitions: Kind<ColumnDefinition[]> = checked(
  list({
    parse: object(definitionFields).parse,
    schema: named("ColumnDefinition", objectSchema(definitionFields)),
  }),
  (definitions, _node, token, tape) => {
    const names = new Set<string>();
    let element = token + STRIDE;
    for (const { name } of definitions) {
      if (names.has(name)) {
        const problem = `the table already has a column ${quoteName(name)}; each name must be unique`;
        throw tape.refusal("invalid_column", problem, tape.member(element, nameWord) ?? element);
      }
      names.add(name);
      element = tape.next(element);
    }
  },
);
