/** The condition of a `where`: comparisons, and the combinations of them. */

import { ByteText, tokenOf } from "./byte-text.ts";
import { readColumn } from "./columns.ts";
import type { JsonReader, ValueKind } from "./json-reader.ts";
import { type Field, ObjectShape, required } from "./object-shape.ts";
import type { OperationDraft } from "./operation-draft.ts";
import { andThen, type Rest } from "./rest.ts";
import type { Comparison } from "./shape.ts";
import { readList, WordList } from "./values.ts";

const comparisons = new WordList<Comparison>([
  "=",
  "!=",
  ">",
  "<",
  ">=",
  "<=",
  "LIKE",
  "IN",
  "BETWEEN",
]);

/** How most comparisons begin. */
const columnToken = tokenOf("column");

/** A comparison while it is read: its value may come before the operator that judges it. */
interface ComparisonDraft {
  readonly operation: OperationDraft;
  comparison: Comparison | undefined;
  valueKind: ValueKind | undefined;
  /** The number of the value's elements, if it is an array. */
  elements: number;
}

const comparisonShape = new ObjectShape<ComparisonDraft>(
  [
    required("column", (reader, draft) => readColumn(reader, draft.operation)),
    required("cmp", (reader, draft) => {
      draft.comparison = comparisons.read(reader);
    }),
    required("value", (reader, draft) => {
      draft.valueKind = reader.kind();
      const rest = reader.skipValue();
      if (rest !== undefined) return andThen(rest, () => noteElements(reader, draft));
      return noteElements(reader, draft);
    }),
  ],
  "; or one of and, or, not alone",
);

function noteElements(reader: JsonReader, draft: ComparisonDraft): undefined {
  draft.elements = reader.elements;
}

const combinations = [
  combine("and", readConditions),
  combine("or", readConditions),
  combine("not", readCondition),
];

function combine(name: string, read: Field<OperationDraft>["read"]) {
  const shape = new ObjectShape([required(name, read)]);
  return { key: ByteText.from(name), token: tokenOf(name), shape };
}

/** Reads a `where`: a condition, or null for none. */
export function readWhere(reader: JsonReader, draft: OperationDraft): Rest {
  return reader.kind() === "null" ? reader.skipValue() : readCondition(reader, draft);
}

function readConditions(reader: JsonReader, draft: OperationDraft): Rest {
  return readList(reader, () => readCondition(reader, draft));
}

function readCondition(reader: JsonReader, draft: OperationDraft): Rest {
  const combination = findCombination(reader);
  return combination === undefined
    ? readComparison(reader, draft)
    : combination.shape.read(reader, draft);
}

/** The combination that the object here is, by its first key. */
function findCombination(reader: JsonReader) {
  if (reader.firstKeyIs(columnToken)) return undefined;
  for (const combination of combinations) {
    if (reader.firstKeyIs(combination.token)) return combination;
  }
  const first = reader.peekFirstKey();
  return first && combinations.find(({ key }) => key.equals(first));
}

function readComparison(reader: JsonReader, operation: OperationDraft): Rest {
  const start = reader.position;
  const draft: ComparisonDraft = {
    operation,
    comparison: undefined,
    valueKind: undefined,
    elements: 0,
  };
  const rest = comparisonShape.read(reader, draft);
  if (rest !== undefined) return andThen(rest, () => requireFit(reader, draft, start));
  return requireFit(reader, draft, start);
}

function requireFit(reader: JsonReader, draft: ComparisonDraft, start: number): undefined {
  const wanted = unmetDemand(draft);
  if (wanted === undefined) return;
  const problem = `the value does not fit ${draft.comparison}, which compares with ${wanted}`;
  throw reader.refusal("invalid_value", problem, start);
}

/** What the operator demands of its value, if the value is something else. */
function unmetDemand(draft: ComparisonDraft): string | undefined {
  const { comparison, valueKind, elements } = draft;
  if (comparison === "IN" && valueKind !== "an array") return "an array";
  if (comparison === "LIKE" && valueKind !== "a string") return "a string";
  const two = valueKind === "an array" && elements === 2;
  return comparison === "BETWEEN" && !two ? "an array of two" : undefined;
}
