import { keysOf, type Parsed, writeDigits } from "../json/exact.ts";
import { STRIDE, Word } from "../json/tape.ts";
import {
  at,
  checked,
  extra,
  type Fields,
  type Kind,
  type Level,
  named,
  ObjectShape,
  object,
  objectSchema,
  optional,
  required,
  type Schema,
} from "./kind.ts";
import type { Nesting, OperationNode } from "./node.ts";
import { meantComparison } from "./synonyms.ts";
import type { QueryTape } from "./tape.ts";
import type { ComparisonWord, Condition, Exists, InnerSelect, Term } from "./tree.ts";
import { anyValue, column, joinColumns, list, oneOf, tableName } from "./values.ts";

interface ValueRule {
  readonly words: string;
  readonly isMet: (tape: QueryTape, value: number) => boolean;
  readonly schema: Schema;
  /** Set for an operator that only the full grammar has. */
  readonly isFull?: true;
}

const pattern = {
  words: "a string",
  isMet: (tape, value) => tape.kind(value) === "a string",
  schema: { type: "string" },
} as const satisfies ValueRule;

/** The rule that each operator has for its value. */
const valueRules = {
  "=": undefined,
  "!=": undefined,
  ">": undefined,
  "<": undefined,
  ">=": undefined,
  "<=": undefined,
  LIKE: pattern,
  ILIKE: { ...pattern, isFull: true },
  IN: {
    words: "an array",
    isMet: (tape, value) => tape.kind(value) === "an array",
    schema: { type: "array" },
  },
  "NOT IN": {
    words: "an array without null",
    isMet: (tape, value) => tape.kind(value) === "an array" && !tape.hasNull(value),
    schema: { type: "array", items: { not: { type: "null" } } },
    isFull: true,
  },
  BETWEEN: {
    words: "an array of two",
    isMet: (tape, value) => tape.kind(value) === "an array" && tape.size(value) === 2,
    schema: { type: "array", minItems: 2, maxItems: 2 },
  },
} as const satisfies Record<ComparisonWord, ValueRule | undefined>;

/** The operators that take a Select. */
const memberships: readonly ComparisonWord[] = ["IN", "NOT IN"];

const comparisons = keysOf(valueRules);
/** The operators that take any value, or another column. */
const orderings = comparisons.filter((cmp) => valueRules[cmp] === undefined);
const coreComparisons = comparisons.filter((cmp) => comparisonRule(cmp)?.isFull !== true);

function comparisonRule(comparison: ComparisonWord): ValueRule | undefined {
  return valueRules[comparison];
}

const ofAll = oneOf(comparisons, meantComparison);
const ofCore = oneOf(coreComparisons, meantComparison, comparisons);

/** An operation within another one, with a node of its own. */
export function nestedAs<Value extends object>(as: Nesting, kind: () => Kind<Value>): Kind<Value> {
  return {
    parse(tape, token, outer) {
      const inner = outer.nest(as, token, tape);
      inner.range = { start: tape.start(token), end: tape.end(token) };
      const fields = kind().parse(tape, token, inner);
      inner.fields = fields;
      return fields;
    },
    schema: (reference) => kind().schema(reference),
  };
}

const escapeCharacter: Kind<string> = {
  parse(tape, token) {
    const text = tape.text(token);
    if (text.length <= 2 && [...text].length === 1) return text;
    throw tape.refusal("invalid_value", "escape must be one character", token);
  },
  schema: () => ({ type: "string", minLength: 1, maxLength: 1 }),
};

const comparing = {
  column: required(column),
  cmp: required<ComparisonWord>({
    parse: (tape, token, node) => (tape.isFull ? ofAll : ofCore).parse(tape, token, node),
    schema: () => ({ enum: comparisons }),
  }),
};
const coreFields = { ...comparing, value: required(anyValue) };
const otherText = "A column to compare with, in place of a value.";
const selectText =
  "In place of a list: from, columns (one) and more as in a Select, without database.";
const patternFields = {
  escape: extra(escapeCharacter, "A character that makes the next one literal."),
};
const foldingFields = {
  ...patternFields,
  fold: extra(oneOf(["unicode"]), "Ignores the case of all letters, not only ASCII."),
};
const combining = "; or only one of and, or, not";
const combiningNames = ["and", "or", "not"];
const inFull = "; or only one of and, or, not, exists";
const coreShape = new ObjectShape(coreFields, combining, combiningNames, [
  "other",
  "select",
  "exists",
  ...Object.keys(foldingFields),
]);

function combine(name: string, kind: Kind<unknown>) {
  const fields = { [name]: required(kind) };
  return { word: new Word(name), fields, shape: new ObjectShape(fields) };
}

const patternsBeside: Partial<Record<ComparisonWord, Fields>> = {
  LIKE: patternFields,
  ILIKE: foldingFields,
};

const columnWord = new Word("column");
const valueWord = new Word("value");

/** A condition as JSON, with all digits of its numbers. */
export function termText(term: Term): string {
  return JSON.stringify(term, writeDigits);
}

/** The comparisons with values that every row must meet. */
export function requiredTerms(where: Condition | null | undefined): readonly Term[] {
  if (where === null || where === undefined) return [];
  const terms = "and" in where ? where.and : [where];
  return terms.filter((term): term is Term => "value" in term);
}

interface ConditionKinds {
  /** A condition that is not null. */
  readonly condition: Kind<Condition>;
  readonly where: Kind<Condition | null>;
  /** The field `where`, whose value the node gets. */
  readonly whereField: Kind<Condition | null>;
}

/** @param innerSelect the kind of a Select in a condition, which contains conditions itself */
export function conditionKinds(innerSelect: () => Kind<InnerSelect>): ConditionKinds {
  const select = nestedAs("select", innerSelect);
  const allFields = {
    ...coreFields,
    value: optional(anyValue),
    other: extra(column, otherText),
    select: extra(select, selectText),
    ...foldingFields,
  };

  const fullShape = new ObjectShape(allFields, inFull, [...combiningNames, "exists"]);
  const condition: Kind<Condition> = {
    parse: parseCondition,
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

  const nestedExists = nestedAs("exists", () => existsShape);
  const exists: Kind<Exists> = {
    parse(tape, token, node) {
      if (node.position !== "having") return nestedExists.parse(tape, token, node);
      const problem = "exists is not allowed in having; put it into where";
      throw tape.refusal("invalid_value", problem, token);
    },
    schema: nestedExists.schema,
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

  /** Schemas for the operators that take any value, and one for each other operator. */
  function comparisonSchemas(level: Level): Fields[] {
    const there = level === "full" ? comparisons : coreComparisons;
    const others = there.filter((cmp) => !orderings.includes(cmp));
    const withValue = [orderings, ...others.map((cmp) => [cmp])].map((words) => ({
      ...coreFields,
      cmp: required(oneOf(words)),
      value: required({ ...anyValue, schema: () => valueRules[words[0] ?? "="]?.schema ?? {} }),
      ...patternsBeside[words[0] ?? "="],
    }));
    if (level === "core") return withValue;
    return [
      ...withValue,
      { ...comparing, cmp: required(oneOf(orderings)), other: required(column, otherText) },
      {
        ...comparing,
        cmp: required(oneOf(memberships)),
        select: required(select, selectText),
      },
    ];
  }

  const where: Kind<Condition | null> = {
    parse: (tape, token, node) => (tape.isNull(token) ? null : parseCondition(tape, token, node)),
    schema: named("Where", (reference) => ({
      oneOf: [condition.schema(reference), { type: "null" }],
    })),
  };

  function parseCondition(tape: QueryTape, token: number, node: OperationNode): Condition {
    const key = token + STRIDE;
    const hasKey = tape.kind(token) === "an object" && tape.size(token) > 0;
    if (hasKey && !tape.is(key, columnWord)) {
      for (const { word, shape } of combinationsAt(tape.isFull)) {
        if (tape.is(key, word)) return shape.parse(tape, token, node);
      }
    }
    const first = node.uses.length;
    const parsed: Parsed = (tape.isFull ? fullShape : coreShape).parse(tape, token, node);
    requireComparison(parsed, tape, token);
    const beside = parsed.select ? " select" : parsed.other === undefined ? "" : ` ${parsed.other}`;
    for (let index = first; index < node.uses.length; index++) {
      const use = node.uses[index];
      if (use === undefined || use.column !== parsed.column) continue;
      use.comparison = parsed.cmp + beside;
      break;
    }
    return parsed;
  }

  const whereField = checked(at("where", where), (condition, node, token, tape) => {
    node.condition = condition;
    node.where = { start: tape.start(token), end: tape.end(token) };
  });
  const existsShape: Kind<Exists> = object({
    table: required(tableName),
    on: required(at("on", joinColumns), "table.column = table.column, one of them around exists."),
    where: optional(whereField, "On columns of this table."),
  });
  return { condition, where, whereField };
}

interface ParsedComparison {
  readonly cmp: ComparisonWord;
  readonly other?: string;
  readonly select?: object;
  readonly escape?: string;
  readonly fold?: string;
}

function requireComparison(comparison: ParsedComparison, tape: QueryTape, token: number): void {
  const { cmp, other, select } = comparison;
  const value = tape.member(token, valueWord);
  if (other !== undefined || select !== undefined || value === undefined) {
    requireEither(comparison, value, tape, token);
    if (select !== undefined) return;
  }
  if (takesPattern(comparison)) requirePattern(comparison, tape, token);
  const rule = comparisonRule(cmp);
  if (rule === undefined || value === undefined || rule.isMet(tape, value)) return;
  const problem = `the value does not fit ${cmp}, which needs ${rule.words}`;
  throw tape.refusal("invalid_value", problem, token);
}

function takesPattern(comparison: ParsedComparison): boolean {
  return comparison.escape !== undefined || comparison.fold !== undefined;
}

/** Requires one of `value`, `other` and `select`, and an operator that takes it. */
function requireEither(
  comparison: ParsedComparison,
  value: number | undefined,
  tape: QueryTape,
  token: number,
): void {
  const { cmp, other, select } = comparison;
  if (other === undefined && select === undefined) {
    const required = `required: column, cmp, and value, other or select${inFull}`;
    throw tape.missing("value", required, token);
  }
  if (value !== undefined || (other !== undefined && select !== undefined)) {
    const problem = "only one of value, other and select is allowed";
    throw tape.refusal("invalid_value", problem, token);
  }
  if (select !== undefined && takesPattern(comparison)) {
    const problem = "escape and fold are allowed only with LIKE and ILIKE";
    throw tape.refusal("invalid_value", problem, token);
  }
  const allowed = select === undefined ? orderings : memberships;
  if (allowed.includes(cmp)) return;
  const [what, name] = select === undefined ? ["other column", "other"] : ["select", "select"];
  const problem = `${cmp} takes no ${what}; allowed with ${name}: ${allowed.join(", ")}`;
  throw tape.refusal("invalid_value", problem, token);
}

function requirePattern({ cmp, fold }: ParsedComparison, tape: QueryTape, token: number): void {
  if (cmp === "ILIKE" || (cmp === "LIKE" && fold === undefined)) return;
  const problem =
    fold === undefined
      ? "escape is allowed only with LIKE and ILIKE"
      : "fold is allowed only with ILIKE";
  throw tape.refusal("invalid_value", problem, token);
}
