import { andThen } from "../json/reader.ts";
import type { BodyReader } from "./body-reader.ts";
import { condition } from "./conditions.ts";
import {
  type Fields,
  inside,
  type Kind,
  named,
  type ObjectOf,
  objectSchema,
  optional,
  required,
  whenRead,
} from "./kind.ts";
import { ObjectShape } from "./object-shape.ts";
import type { OperationDraft } from "./operation-draft.ts";
import {
  type CellValue,
  column,
  count,
  list,
  literal,
  newName,
  oneOf,
  readCount,
} from "./values.ts";

export const MOST_COMPUTED = 32;
const MOST_ITEMS = 8;
const MOST_DIGITS = 12;

const truncUnits = ["year", "quarter", "month", "week", "day", "hour", "minute"] as const;
const partUnits = [...truncUnits, "weekday"] as const;
const diffUnits = ["day", "hour", "minute", "second"] as const;
const units = [...partUnits, "second"] as const;
export type Unit = (typeof units)[number];

interface FunctionRule {
  /** The fewest and most items of `of`. Undefined if there is no `of`. */
  readonly of?: readonly [least: number, most: number];
  readonly unit?: readonly Unit[];
  readonly needs: readonly FieldName[];
  readonly takes?: readonly FieldName[];
}

type FieldName = "of" | "unit" | "digits" | "path" | "when" | "then" | "else";

const one = { of: [1, 1], needs: ["of"] } as const;
const two = { of: [2, 2], needs: ["of"] } as const;
const several = { of: [2, MOST_ITEMS], needs: ["of"] } as const;

/** What each function takes. Functions with the same rule share a schema. */
const functionRules = {
  ...{ add: several, mul: several, concat: several, coalesce: several },
  ...{ sub: two, div: two, nullif: two },
  ...{ abs: one, lower: one, upper: one, trim: one, length: one },
  round: { ...one, takes: ["digits"] },
  trunc: { of: [1, 1], needs: ["of", "unit"], unit: truncUnits },
  part: { of: [1, 1], needs: ["of", "unit"], unit: partUnits },
  diff: { of: [2, 2], needs: ["of", "unit"], unit: diffUnits },
  json: { of: [1, 1], needs: ["of", "path"] },
  if: { needs: ["when", "then", "else"] },
} as const satisfies Record<string, FunctionRule>;

export type FunctionName = keyof typeof functionRules;

function isFunction(text: string): text is FunctionName {
  return Object.hasOwn(functionRules, text);
}

const functions = Object.keys(functionRules).filter(isFunction);

function ruleOf(fn: FunctionName): FunctionRule {
  return functionRules[fn];
}

/** A column or an earlier name, or a literal. */
export type Item = string | { readonly value: CellValue };

interface ComputeDraft {
  readonly operation: OperationDraft;
  readonly seen: Set<FieldName>;
  fn: FunctionName | undefined;
  as: string;
  items: number;
  unit: Unit | undefined;
  /** Where too many digits are. */
  excessAt: number | undefined;
}

const literalShape = new ObjectShape<unknown>({ value: required(literal) });

const item: Kind<Item> = {
  read(reader, draft) {
    const kind = reader.kind();
    if (kind === "an object") return literalShape.read(reader, draft);
    if (kind === "a string") return column.read(reader, draft);
    const problem = `a column name or a literal such as {"value": 2} is expected, ${kind} was found`;
    throw reader.refusal("wrong_type", problem);
  },
  schema: named("Item", (reference) => ({
    oneOf: [column.schema(reference), objectSchema({ value: required(literal) })(reference)],
  })),
};

/** Any text, unlike the name of a column. */
const memberName: Kind<string, unknown> = {
  read(reader) {
    reader.expect("a string");
    reader.readString();
    return undefined;
  },
  schema: () => ({ type: "string" }),
};

const pathStep: Kind<string | number, unknown> = {
  read: (reader, draft) => (reader.kind() === "a number" ? count : memberName).read(reader, draft),
  schema: (reference) => ({ oneOf: [memberName.schema(reference), count.schema(reference)] }),
};

const digits: Kind<number, ComputeDraft> = {
  read(reader, draft) {
    const start = reader.position;
    if (readCount(reader) > MOST_DIGITS) draft.excessAt = start;
    return undefined;
  },
  schema: () => ({ type: "integer", minimum: 0, maximum: MOST_DIGITS }),
};

function seen<Value>(name: FieldName, kind: Kind<Value, ComputeDraft>) {
  return optional(whenRead(kind, (draft) => draft.seen.add(name)));
}

const countedItem = whenRead(inside(item), (draft: ComputeDraft) => {
  draft.items++;
});

const fields = {
  as: required(
    newName((draft: ComputeDraft, name) => {
      draft.as = name;
    }),
  ),
  fn: required(
    oneOf(functions, (draft: ComputeDraft, word) => {
      draft.fn = word;
    }),
  ),
  of: seen("of", list(countedItem, { most: MOST_ITEMS })),
  unit: seen(
    "unit",
    oneOf(units, (draft: ComputeDraft, word) => {
      draft.unit = word;
    }),
  ),
  digits: seen("digits", digits),
  path: seen("path", list(pathStep, { most: MOST_ITEMS })),
  when: seen("when", inside(condition)),
  // biome-ignore lint/suspicious/noThenProperty: a field of the grammar
  then: seen("then", inside(item)),
  else: seen("else", inside(item)),
};

export type Compute = ObjectOf<typeof fields>;

const shape = new ObjectShape<ComputeDraft>(fields);

/** One schema for the functions that share a rule. */
function schemasOf() {
  const groups = Map.groupBy(functions, (fn) => JSON.stringify(functionRules[fn]));
  return Array.from(groups.values(), (names): Fields<ComputeDraft> => {
    const { of, unit, needs, takes = [] } = ruleOf(names[0] ?? "add");
    const own = [...needs, ...takes].map((name) => {
      return [name, { ...fields[name], required: needs.includes(name) }] as const;
    });
    const [least, most] = of ?? [];
    const items = { type: "array", minItems: least, maxItems: most };
    return {
      ...{ as: fields.as, fn: required(oneOf(names)) },
      ...Object.fromEntries(own),
      ...(of && {
        of: required({ ...fields.of, schema: (to) => ({ ...items, items: item.schema(to) }) }),
      }),
      ...(unit && { unit: required(oneOf(unit)) }),
    };
  });
}

/** A name that a Select computes. */
export const compute: Kind<Compute> = {
  read(reader, operation) {
    const start = reader.position;
    const draft: ComputeDraft = {
      ...{ operation, seen: new Set(), fn: undefined, as: "", items: 0 },
      ...{ unit: undefined, excessAt: undefined },
    };
    return andThen(shape.read(reader, draft), () => requireFit(reader, draft, start));
  },
  schema: named("Compute", (reference) => ({
    oneOf: schemasOf().map((group) => objectSchema(group)(reference)),
  })),
};

function requireFit(reader: BodyReader, draft: ComputeDraft, start: number): void {
  const { operation, fn = "add", as, items, seen, excessAt } = draft;
  const { of: [least, most] = [0, 0], unit: allowed, needs, takes = [] } = ruleOf(fn);
  const missing = needs.find((name) => !seen.has(name));
  if (missing !== undefined) {
    const problem = `the field "${missing}" is missing; ${fn} needs ${needs.join(", ")}`;
    throw reader.refusal("missing_field", problem, start);
  }
  const refuse = (problem: string, offset = start) =>
    reader.refusal("invalid_value", problem, offset);
  const other = [...seen].find((name) => !needs.includes(name) && !takes.includes(name));
  if (other !== undefined) {
    throw refuse(`${other} is not allowed with ${fn}; allowed: ${[...needs, ...takes].join(", ")}`);
  }
  if (items < least || items > most) {
    const wanted = least === most ? `${least}` : `${least} to ${most}`;
    throw refuse(`${fn} takes ${wanted} items in of, ${items} were found`);
  }
  if (allowed !== undefined && draft.unit !== undefined && !allowed.includes(draft.unit)) {
    throw refuse(`${fn} has no unit ${draft.unit}; allowed: ${allowed.join(", ")}`);
  }
  if (excessAt !== undefined) throw refuse(`digits may be at most ${MOST_DIGITS}`, excessAt);
  operation.computed ??= [];
  operation.computed.push(as);
}
