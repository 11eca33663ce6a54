import { andThen, ByteText, type Rest, tokenOf, type ValueKind } from "../json/reader.ts";
import type { BodyReader } from "./body-reader.ts";
import {
  type Kind,
  type Level,
  named,
  type ObjectOf,
  objectSchema,
  required,
  type Schema,
} from "./kind.ts";
import { ObjectShape } from "./object-shape.ts";
import type { OperationDraft } from "./operation-draft.ts";
import { meantComparison } from "./synonyms.ts";
import { type CellValue, column, list, oneOf } from "./values.ts";

/** The rule that each operator has for its value. */
const valueRules = {
  "=": undefined,
  "!=": undefined,
  ">": undefined,
  "<": undefined,
  ">=": undefined,
  "<=": undefined,
  LIKE: {
    words: "a string",
    isMet: ({ valueKind }) => valueKind === "a string",
    schema: { type: "string" },
  },
  ILIKE: {
    words: "a string",
    isMet: ({ valueKind }) => valueKind === "a string",
    schema: { type: "string" },
    isFull: true,
  },
  IN: {
    words: "an array",
    isMet: ({ valueKind }) => valueKind === "an array",
    schema: { type: "array" },
  },
  "NOT IN": {
    words: "an array without null",
    isMet: ({ valueKind, valueStart }, reader) =>
      valueKind === "an array" && !hasNull(reader, valueStart),
    schema: { type: "array", items: { not: { type: "null" } } },
    isFull: true,
  },
  BETWEEN: {
    words: "an array of two",
    isMet: ({ valueKind, elements }) => valueKind === "an array" && elements === 2,
    schema: { type: "array", minItems: 2, maxItems: 2 },
  },
} as const satisfies Record<string, ValueRule | undefined>;

interface ValueRule {
  readonly words: string;
  readonly isMet: (draft: ComparisonDraft, reader: BodyReader) => boolean;
  readonly schema: Schema;
  /** Set for an operator that only the full grammar has. */
  readonly isFull?: true;
}

type Comparison = keyof typeof valueRules;

function isComparison(text: string): text is Comparison {
  return Object.hasOwn(valueRules, text);
}

const comparisons = Object.keys(valueRules).filter(isComparison);
const coreComparisons = comparisons.filter((cmp) => ruleOf(cmp)?.isFull !== true);

function ruleOf(comparison: Comparison): ValueRule | undefined {
  return valueRules[comparison];
}

const columnToken = tokenOf("column");

interface ComparisonDraft {
  readonly operation: OperationDraft;
  comparison: Comparison | undefined;
  valueKind: ValueKind | undefined;
  elements: number;
  valueStart: number;
}

const value: Kind<CellValue, ComparisonDraft> = {
  read(reader, draft) {
    draft.valueKind = reader.kind();
    const start = reader.position;
    const rest = reader.skipValue();
    if (rest !== undefined) return andThen(rest, () => noteElements(reader, draft, start));
    return noteElements(reader, draft, start);
  },
  schema: () => ({}),
};

const noteComparison = (draft: ComparisonDraft, word: Comparison): void => {
  draft.comparison = word;
};
const ofAll = oneOf(comparisons, noteComparison, meantComparison);
const ofCore = oneOf(coreComparisons, noteComparison, meantComparison, comparisons);

const comparisonFields = {
  column: required<string, ComparisonDraft>({
    read: (reader, draft) => column.read(reader, draft.operation),
    schema: column.schema,
  }),
  cmp: required<Comparison, ComparisonDraft>({
    read: (reader, draft) => (reader.isFull ? ofAll : ofCore).read(reader, draft),
    schema: () => ({ enum: comparisons }),
  }),
  value: required(value),
};

export type Condition =
  | ObjectOf<typeof comparisonFields>
  | { and: Condition[] }
  | { or: Condition[] }
  | { not: Condition };

const comparisonShape = new ObjectShape<ComparisonDraft>(
  comparisonFields,
  "; or only one of and, or, not",
  ["and", "or", "not"],
);

function noteElements(reader: BodyReader, draft: ComparisonDraft, start: number): undefined {
  draft.elements = reader.elements;
  draft.valueStart = start;
}

/** Whether the array at an offset has a null element. It must have been read before. */
function hasNull(reader: BodyReader, offset: number): boolean {
  return reader.reread(offset, () => {
    let found = false;
    for (let more = reader.openArray(); more; more = reader.nextElement()) {
      found ||= reader.kind() === "null";
      reader.skipValue();
    }
    return found;
  });
}

const condition: Kind<Condition> = {
  read: readCondition,
  schema: named("Condition", (reference) => ({
    description: "A comparison, or a combination of conditions.",
    oneOf: [
      ...comparisonSchemas(reference.level).map((fields) => objectSchema(fields)(reference)),
      ...combinations.map(({ fields }) => objectSchema(fields)(reference)),
    ],
  })),
};

const combinations = [
  combine("and", list(condition)),
  combine("or", list(condition)),
  combine("not", condition),
];

function combine(name: string, kind: Kind<unknown>) {
  const fields = { [name]: required(kind) };
  const shape = new ObjectShape<OperationDraft>(fields);
  return { key: ByteText.from(name), token: tokenOf(name), fields, shape };
}

/** One schema for all operators that take any value, and one for each other operator. */
function comparisonSchemas(level: Level) {
  const there = level === "full" ? comparisons : coreComparisons;
  const takesAll = there.filter((cmp) => valueRules[cmp] === undefined);
  const others = there.filter((cmp) => valueRules[cmp] !== undefined);
  return [takesAll, ...others.map((cmp) => [cmp])].map((words) => ({
    ...comparisonFields,
    cmp: required(oneOf(words)),
    value: required({ ...value, schema: () => valueRules[words[0] ?? "="]?.schema ?? {} }),
  }));
}

export const where: Kind<Condition | null> = {
  read: (reader, draft) =>
    reader.kind() === "null" ? reader.skipValue() : readCondition(reader, draft),
  schema: named("Where", (reference) => ({
    oneOf: [condition.schema(reference), { type: "null" }],
  })),
};

function readCondition(reader: BodyReader, draft: OperationDraft): Rest {
  const combination = findCombination(reader);
  return combination === undefined
    ? readComparison(reader, draft)
    : combination.shape.read(reader, draft);
}

function findCombination(reader: BodyReader) {
  if (reader.firstKeyIs(columnToken)) return undefined;
  for (const combination of combinations) {
    if (reader.firstKeyIs(combination.token)) return combination;
  }
  const first = reader.peekFirstKey();
  return first && combinations.find(({ key }) => key.equals(first));
}

function readComparison(reader: BodyReader, operation: OperationDraft): Rest {
  const start = reader.position;
  const draft: ComparisonDraft = {
    operation,
    comparison: undefined,
    valueKind: undefined,
    elements: 0,
    valueStart: 0,
  };
  const rest = comparisonShape.read(reader, draft);
  if (rest !== undefined) return andThen(rest, () => requireFit(reader, draft, start));
  return requireFit(reader, draft, start);
}

function requireFit(reader: BodyReader, draft: ComparisonDraft, start: number): undefined {
  const { comparison, operation } = draft;
  if (comparison !== undefined) operation.compare(comparison);
  const rule = comparison && ruleOf(comparison);
  if (rule === undefined || rule.isMet(draft, reader)) return;
  const problem = `the value does not fit ${comparison}, which needs ${rule.words}`;
  throw reader.refusal("invalid_value", problem, start);
}
