import { andThen, ByteText, type Rest, tokenOf, type ValueKind } from "../json/reader.ts";
import type { BodyReader } from "./body-reader.ts";
import {
  extra,
  type Fields,
  inside,
  type Kind,
  type Level,
  named,
  type ObjectOf,
  objectSchema,
  optional,
  required,
  type Schema,
  whenRead,
} from "./kind.ts";
import { ObjectShape } from "./object-shape.ts";
import type { Nesting, OperationDraft } from "./operation-draft.ts";
import type { InnerSelect } from "./operation-types.ts";
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

type ComparisonWord = keyof typeof valueRules;

function isComparison(text: string): text is ComparisonWord {
  return Object.hasOwn(valueRules, text);
}

/** The operators that take a Select. */
const memberships: readonly ComparisonWord[] = ["IN", "NOT IN"];

const comparisons = Object.keys(valueRules).filter(isComparison);
/** The operators that take any value, or another column. */
const orderings = comparisons.filter((cmp) => valueRules[cmp] === undefined);
const coreComparisons = comparisons.filter((cmp) => ruleOf(cmp)?.isFull !== true);

function ruleOf(comparison: ComparisonWord): ValueRule | undefined {
  return valueRules[comparison];
}

const columnToken = tokenOf("column");

type ColumnText = { toString(): string };

interface ComparisonDraft {
  readonly operation: OperationDraft;
  comparison: ComparisonWord | undefined;
  valueKind: ValueKind | undefined;
  elements: number;
  valueStart: number;
  /** The columns, if the scan collects them. */
  column: ColumnText | undefined;
  other: ColumnText | undefined;
  hasOther: boolean;
  hasSelect: boolean;
  hasEscape: boolean;
  foldsLetters: boolean;
}

const value: Kind<CellValue, ComparisonDraft> = whenRead(
  {
    read(reader, draft) {
      draft.valueKind = reader.kind();
      return reader.skipValue();
    },
    schema: () => ({}),
  },
  (draft, reader, start) => {
    draft.elements = reader.elements;
    draft.valueStart = start;
  },
);

const noteComparison = (draft: ComparisonDraft, word: ComparisonWord): void => {
  draft.comparison = word;
};
const ofAll = oneOf(comparisons, noteComparison, meantComparison);
const ofCore = oneOf(coreComparisons, noteComparison, meantComparison, comparisons);

const comparedColumn = whenRead(inside(column), (draft: ComparisonDraft) => {
  draft.column = draft.operation.lastUsed;
});

const otherColumn = whenRead(inside(column), (draft: ComparisonDraft) => {
  draft.hasOther = true;
  draft.other = draft.operation.lastUsed;
});

export interface NestedFields {
  select: InnerSelect;
  exists: { table: string; on: string; where?: Condition | null };
}

/** The kinds that a condition may contain. `select.ts` sets them, as they contain conditions. */
export const nesting: { -readonly [Name in keyof NestedFields]?: Kind<NestedFields[Name]> } = {};

function nested<Name extends keyof NestedFields>(name: Name): Kind<NestedFields[Name]> {
  return nestedAs(name, () => {
    const known = nesting[name];
    if (known === undefined) throw new Error(`select.ts must set ${name}`);
    return known;
  });
}

/** Reads an operation within another one into a draft of its own. */
export function nestedAs<Value>(as: Nesting, kind: () => Kind<Value>): Kind<Value> {
  return {
    read(reader, outer) {
      const inner = outer.nest(reader, as);
      inner.start = reader.position;
      return andThen(kind().read(reader, inner), () => {
        inner.end = reader.position;
      });
    },
    schema: (reference) => kind().schema(reference),
  };
}

const nestedSelect = whenRead(inside(nested("select")), (draft: ComparisonDraft) => {
  draft.hasSelect = true;
});

const escapeCharacter: Kind<string, ComparisonDraft> = {
  read(reader, draft) {
    const start = reader.position;
    draft.hasEscape = true;
    reader.expect("a string");
    if ([...reader.readString().toString()].length === 1) return undefined;
    throw reader.refusal("invalid_value", "escape must be one character", start);
  },
  schema: () => ({ type: "string", minLength: 1, maxLength: 1 }),
};

const comparing = {
  column: required(comparedColumn),
  cmp: required<ComparisonWord, ComparisonDraft>({
    read: (reader, draft) => (reader.isFull ? ofAll : ofCore).read(reader, draft),
    schema: () => ({ enum: comparisons }),
  }),
};
const coreFields = { ...comparing, value: required(value) };
const otherText = "A column to compare with, in place of a value.";
const selectText =
  "In place of a list: from, columns (one) and more as in a Select, without database.";
const patternFields = {
  escape: extra(escapeCharacter, "A character that makes the next one literal."),
};
const foldingFields = {
  ...patternFields,
  fold: extra(
    oneOf(["unicode"], (draft: ComparisonDraft) => {
      draft.foldsLetters = true;
    }),
    "Ignores the case of all letters, not only ASCII.",
  ),
};
const allFields = {
  ...coreFields,
  value: optional(value),
  other: extra(otherColumn, otherText),
  select: extra(nestedSelect, selectText),
  ...foldingFields,
};

export type Comparison =
  | (ObjectOf<typeof coreFields> & ObjectOf<typeof foldingFields>)
  | { column: string; cmp: ComparisonWord; other: string }
  | { column: string; cmp: "IN" | "NOT IN"; select: NestedFields["select"] };

export type Condition =
  | Comparison
  | { and: Condition[] }
  | { or: Condition[] }
  | { not: Condition }
  | { exists: NestedFields["exists"] };

const combining = "; or only one of and, or, not";
const combiningNames = ["and", "or", "not"];
const inFull = "; or only one of and, or, not, exists";
const fullShape = new ObjectShape<ComparisonDraft>(allFields, inFull, [
  ...combiningNames,
  "exists",
]);
const coreShape = new ObjectShape<ComparisonDraft>(coreFields, combining, combiningNames, [
  "other",
  "select",
  "exists",
  ...Object.keys(foldingFields),
]);

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

/** A condition that is not null. */
export const condition: Kind<Condition> = {
  read: readCondition,
  schema: named("Condition", (reference) => ({
    description: "A comparison, or a combination of conditions.",
    oneOf: [
      ...comparisonSchemas(reference.level).map((fields) => objectSchema(fields)(reference)),
      ...combinationsAt(reference.level === "full").map(({ fields }) =>
        objectSchema(fields)(reference),
      ),
    ],
  })),
};

const exists: Kind<NestedFields["exists"]> = {
  read(reader, draft) {
    if (draft.position !== "having") return nested("exists").read(reader, draft);
    const problem = "exists is not allowed in having; put it into where";
    throw reader.refusal("invalid_value", problem);
  },
  schema: nested("exists").schema,
};

const coreCombinations = [
  combine("and", list(condition)),
  combine("or", list(condition)),
  combine("not", condition),
];
const combinations = [...coreCombinations, combine("exists", exists)];

function combinationsAt(isFull: boolean) {
  return isFull ? combinations : coreCombinations;
}

function combine(name: string, kind: Kind<unknown>) {
  const fields = { [name]: required(kind) };
  const shape = new ObjectShape<OperationDraft>(fields);
  return { key: ByteText.from(name), token: tokenOf(name), fields, shape };
}

const patternsBeside: Partial<Record<ComparisonWord, Fields<ComparisonDraft>>> = {
  LIKE: patternFields,
  ILIKE: foldingFields,
};

/** Schemas for the operators that take any value, and one for each other operator. */
function comparisonSchemas(level: Level): Fields<ComparisonDraft>[] {
  const there = level === "full" ? comparisons : coreComparisons;
  const others = there.filter((cmp) => !orderings.includes(cmp));
  const withValue = [orderings, ...others.map((cmp) => [cmp])].map((words) => ({
    ...coreFields,
    cmp: required(oneOf(words)),
    value: required({ ...value, schema: () => valueRules[words[0] ?? "="]?.schema ?? {} }),
    ...patternsBeside[words[0] ?? "="],
  }));
  if (level === "core") return withValue;
  return [
    ...withValue,
    { ...comparing, cmp: required(oneOf(orderings)), other: required(otherColumn, otherText) },
    {
      ...comparing,
      cmp: required(oneOf(memberships)),
      select: required(nestedSelect, selectText),
    },
  ];
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
  const there = combinationsAt(reader.isFull);
  for (const combination of there) {
    if (reader.firstKeyIs(combination.token)) return combination;
  }
  const first = reader.peekFirstKey();
  return first && there.find(({ key }) => key.equals(first));
}

function readComparison(reader: BodyReader, operation: OperationDraft): Rest {
  const start = reader.position;
  const draft: ComparisonDraft = {
    operation,
    comparison: undefined,
    valueKind: undefined,
    elements: 0,
    valueStart: 0,
    column: undefined,
    other: undefined,
    hasOther: false,
    hasSelect: false,
    hasEscape: false,
    foldsLetters: false,
  };
  const shape = reader.isFull ? fullShape : coreShape;
  return andThen(shape.read(reader, draft), () => requireFit(reader, draft, start));
}

function requireFit(reader: BodyReader, draft: ComparisonDraft, start: number): void {
  const { comparison = "=", operation, column: compared, other } = draft;
  const beside = draft.hasSelect ? " select" : other === undefined ? "" : ` ${other}`;
  operation.compare(compared, comparison + beside);
  if (draft.valueKind !== undefined && isTerm(reader)) operation.demand(start, reader.position);
  if (draft.hasOther || draft.hasSelect || draft.valueKind === undefined) {
    requireEither(reader, draft, start);
    if (draft.hasSelect) return;
  }
  if (draft.hasEscape || draft.foldsLetters) requirePattern(reader, draft, start);
  const rule = ruleOf(comparison);
  if (rule === undefined || rule.isMet(draft, reader)) return;
  const problem = `the value does not fit ${comparison}, which needs ${rule.words}`;
  throw reader.refusal("invalid_value", problem, start);
}

/** True at the top of `where`, or in its top-level `and`. */
function isTerm({ path }: BodyReader): boolean {
  return path.at(-1) === "where" || (path.at(-2) === "and" && path.at(-3) === "where");
}

/** Requires one of `value`, `other` and `select`, and an operator that takes it. */
function requireEither(
  reader: BodyReader,
  { comparison = "=", valueKind, hasOther, hasSelect, hasEscape, foldsLetters }: ComparisonDraft,
  start: number,
): void {
  if (!hasOther && !hasSelect) {
    const problem = `the field "value" is missing; required: column, cmp, and value, other or select${inFull}`;
    throw reader.refusal("missing_field", problem, start);
  }
  if (valueKind !== undefined || (hasOther && hasSelect)) {
    const problem = "only one of value, other and select is allowed";
    throw reader.refusal("invalid_value", problem, start);
  }
  if (hasSelect && (hasEscape || foldsLetters)) {
    const problem = "escape and fold are allowed only with LIKE and ILIKE";
    throw reader.refusal("invalid_value", problem, start);
  }
  const allowed = hasSelect ? memberships : orderings;
  if (allowed.includes(comparison)) return;
  const [what, name] = hasSelect ? ["select", "select"] : ["other column", "other"];
  const problem = `${comparison} takes no ${what}; allowed with ${name}: ${allowed.join(", ")}`;
  throw reader.refusal("invalid_value", problem, start);
}

function requirePattern(
  reader: BodyReader,
  { comparison, foldsLetters }: ComparisonDraft,
  start: number,
): void {
  if (comparison === "ILIKE" || (comparison === "LIKE" && !foldsLetters)) return;
  const problem = foldsLetters
    ? "fold is allowed only with ILIKE"
    : "escape is allowed only with LIKE and ILIKE";
  throw reader.refusal("invalid_value", problem, start);
}
