/** The condition of a `where`: comparisons, and the combinations of them. */

import { ByteText } from "./byte-text.ts";
import { readColumn } from "./columns.ts";
import type { JsonReader, ValueKind } from "./json-reader.ts";
import { type Field, ObjectShape, required } from "./object-shape.ts";
import type { OperationDraft } from "./operation-draft.ts";
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
      if (draft.valueKind === "an array") draft.elements = reader.skipArray();
      else reader.skipValue();
    }),
  ],
  "; or one of and, or, not alone",
);

const combinations = [
  combine("and", readConditions),
  combine("or", readConditions),
  combine("not", readCondition),
];

function combine(name: string, read: Field<OperationDraft>["read"]) {
  return { key: ByteText.from(name), shape: new ObjectShape([required(name, read)]) };
}

/** Reads a `where`: a condition, or null for none. */
export function readWhere(reader: JsonReader, draft: OperationDraft): void {
  if (reader.kind() === "null") reader.skipLiteral("null");
  else readCondition(reader, draft);
}

function readConditions(reader: JsonReader, draft: OperationDraft): void {
  readList(reader, () => readCondition(reader, draft));
}

function readCondition(reader: JsonReader, draft: OperationDraft): void {
  const first = reader.peekFirstKey();
  const combination = first && combinations.find(({ key }) => key.equals(first));
  if (combination === undefined) readComparison(reader, draft);
  else combination.shape.read(reader, draft);
}

function readComparison(reader: JsonReader, operation: OperationDraft): void {
  const start = reader.position;
  const draft: ComparisonDraft = {
    operation,
    comparison: undefined,
    valueKind: undefined,
    elements: 0,
  };
  comparisonShape.read(reader, draft);
  const wanted = unmetDemand(draft);
  if (wanted !== undefined) {
    const problem = `the value does not fit ${draft.comparison}, which compares with ${wanted}`;
    throw reader.refusal("invalid_value", problem, start);
  }
}

/** What the operator demands of its value, if the value is something else. */
function unmetDemand(draft: ComparisonDraft): string | undefined {
  const { comparison, valueKind, elements } = draft;
  if (comparison === "IN" && valueKind !== "an array") return "an array";
  if (comparison === "LIKE" && valueKind !== "a string") return "a string";
  const two = valueKind === "an array" && elements === 2;
  return comparison === "BETWEEN" && !two ? "an array of two" : undefined;
}
