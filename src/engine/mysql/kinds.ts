import { sql } from "kysely";
import { foldCase } from "../fold-case.ts";
import { type Fragment, likeBackslash } from "../sql/fragment.ts";
import type { ColumnKind, ExactComparison, Measure } from "../sql/scope.ts";
import { booleans, bytes, type Codec, formed, nativeDocuments, textCodecOf } from "./codecs.ts";
import {
  bits,
  decimals,
  doubles,
  floats,
  integers,
  readDay,
  readInstant,
  readLocal,
  readSpan,
  writeTime,
  years,
} from "./number-codecs.ts";
import type { Raw } from "./session.ts";
import type { TypeDescription } from "./type-words.ts";

/** How the values of a column are stored, compared and written. */
export interface MysqlKind extends ColumnKind {
  /** JSON text of a value other than null. */
  encode(raw: Raw): string;
}

/** The types whose name says all. */
const plainCodecs: ReadonlyMap<string, Codec> = new Map([
  ["float", floats],
  ["double", doubles],
  ["bit", bits],
  ["year", years],
  ["json", nativeDocuments],
  ["varbinary", bytes()],
  ["tinyblob", bytes()],
  ["blob", bytes()],
  ["mediumblob", bytes()],
  ["longblob", bytes()],
]);

/** The kind of a column. A type that is not known here travels as MySQL's own text. */
export function kindOf(type: TypeDescription): MysqlKind {
  const codec = codecOf(type);
  return {
    store: codec.store,
    compare: codec.compare ?? codec.store,
    encode: codec.encode,
    like: isText(type.dataType) ? likeText : like,
    exact: /^(enum|set)$/.test(type.dataType) || isText(type.dataType) ? exactText : undefined,
    measure: isMeasured(codec, type) ? measures.get(type.dataType) : undefined,
    ...(isNumber(type.dataType) && codec !== booleans ? { sum } : {}),
  };
}

/** Bytes are compared without regard to any collation, blanks at the end included. */
const exactText: ExactComparison = {
  column: (column) => sql`cast(convert(${column} using utf8mb4) as binary)`,
  value: (compared) => (typeof compared === "string" ? Buffer.from(compared) : compared),
};

/** Neither booleans nor JSON, which MySQL has as numbers and text, amount to anything. */
function isMeasured(codec: Codec, { mark }: TypeDescription): boolean {
  return codec !== booleans && mark !== "json";
}

/** What values of a type amount to; `char` and its like also those of a mark, such as UUIDs. */
const measures: ReadonlyMap<string, Measure> = new Map([
  ...["tinyint", "smallint", "mediumint", "int", "bigint", "year"].map(
    (name) => [name, "integer"] as const,
  ),
  ["decimal", "decimal"],
  ...["float", "double"].map((name) => [name, "double"] as const),
  ...["date", "time", "datetime", "timestamp"].map((name) => [name, "moment"] as const),
  ...["char", "varchar", "tinytext", "text", "mediumtext", "longtext"].map(
    (name) => [name, "text"] as const,
  ),
]);

function isNumber(dataType: string): boolean {
  return /int$|^(decimal|double|float)$/.test(dataType);
}

function sum(column: Fragment, amount: unknown): Fragment {
  return sql`${column} + ${amount}`;
}

/** A pattern meets other values as MySQL writes them. */
function like(column: Fragment, pattern: string, foldsCase: boolean): Fragment {
  return likeText(sql`cast(${column} as char)`, pattern, foldsCase);
}

/** MySQL's `lower` folds more than ASCII; `replace` looks at each letter exactly. */
function likeText(text: Fragment, pattern: string, foldsCase: boolean): Fragment {
  if (!foldsCase) return likeBackslash(text, pattern);
  const exact = sql`convert(${text} using utf8mb4) collate utf8mb4_bin`;
  const folded = [..."ABCDEFGHIJKLMNOPQRSTUVWXYZ"].reduce<Fragment>(
    (folding, letter) =>
      sql`replace(${folding}, ${sql.lit(letter)}, ${sql.lit(letter.toLowerCase())})`,
    exact,
  );
  return likeBackslash(folded, foldCase(pattern));
}

function isText(dataType: string): boolean {
  return /^(var)?char$|text$/.test(dataType);
}

function codecOf(type: TypeDescription): Codec {
  const { dataType, columnType, mark, precision } = type;
  const moments = sql`datetime(6)`;
  switch (dataType) {
    case "tinyint":
    case "smallint":
    case "mediumint":
    case "int":
    case "bigint":
      if (/^tinyint\(1\)(?! unsigned)/.test(columnType)) return booleans;
      return integers(/unsigned/.test(columnType));
    case "decimal":
      return decimals(type.scale, mark === "numeric");
    case "date":
      return formed(readDay, sql`date`);
    case "time":
      return formed((text) => readSpan(text, precision), sql`time(6)`, writeTime);
    case "timestamp":
      return formed((text) => readInstant(text, precision), moments, writeInstant);
    case "datetime":
      if (mark === "timestamp") {
        return formed((text) => readInstant(text, precision), moments, writeInstant);
      }
      return formed((text) => readLocal(text, precision), moments, writeTime);
    case "binary":
      return bytes(type.length);
    default:
      return plainCodecs.get(dataType) ?? textCodecOf(type);
  }
}

function writeInstant(text: string): string {
  return `${writeTime(text)}Z`;
}
