import { Word } from "../json/tape.ts";
import { type Fields, type Kind, named, object, objectSchema, optional, required } from "./kind.ts";
import type { QueryTape } from "./tape.ts";
import type { Compute, Condition, FunctionName, Item, Unit } from "./tree.ts";
import { column, count, list, literal, newName, oneOf } from "./values.ts";

export const MOST_COMPUTED = 32;
const MOST_ITEMS = 8;
const MOST_DIGITS = 12;

const truncUnits = ["year", "quarter", "month", "week", "day", "hour", "minute"] as const;
const partUnits = [...truncUnits, "weekday"] as const;
const diffUnits = ["day", "hour", "minute", "second"] as const;
const units = [...partUnits, "second"] as const;

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
  add: several,
  mul: several,
  concat: several,
  coalesce: several,
  sub: two,
  div: two,
  nullif: two,
  abs: one,
  lower: one,
  upper: one,
  trim: one,
  length: one,
  round: { ...one, takes: ["digits"] },
  trunc: { of: [1, 1], needs: ["of", "unit"], unit: truncUnits },
  part: { of: [1, 1], needs: ["of", "unit"], unit: partUnits },
  diff: { of: [2, 2], needs: ["of", "unit"], unit: diffUnits },
  json: { of: [1, 1], needs: ["of", "path"] },
  if: { needs: ["when", "then", "else"] },
} as const satisfies Record<FunctionName, FunctionRule>;

function isFunction(text: string): text is FunctionName {
  return Object.hasOwn(functionRules, text);
}

const functions = Object.keys(functionRules).filter(isFunction);

function ruleOf(fn: FunctionName): FunctionRule {
  return functionRules[fn];
}

const literalItem = object({ value: required(literal) });

const item: Kind<Item> = {
  parse(tape, token, node) {
    const kind = tape.kind(token);
    if (kind === "an object") return literalItem.parse(tape, token, node);
    if (kind === "a string") return column.parse(tape, token, node);
    const problem = `a column name or a literal such as {"value": 2} is expected, ${kind} was found`;
    throw tape.refusal("wrong_type", problem, token);
  },
  schema: named("Item", (reference) => ({
    oneOf: [column.schema(reference), literalItem.schema(reference)],
  })),
};

/** Any text, unlike the name of a column. */
const memberName: Kind<string> = {
  parse(tape, token) {
    tape.expect(token, "a string");
    return tape.name(token);
  },
  schema: () => ({ type: "string" }),
};

const pathStep: Kind<string | number> = {
  parse: (tape, token, node) =>
    (tape.kind(token) === "a number" ? count : memberName).parse(tape, token, node),
  schema: (reference) => ({ oneOf: [memberName.schema(reference), count.schema(reference)] }),
};

const digits: Kind<number> = {
  parse: count.parse,
  schema: () => ({ type: "integer", minimum: 0, maximum: MOST_DIGITS }),
};

const dependent = ["of", "unit", "digits", "path", "when", "then", "else"] as const;
const digitsWord = new Word("digits");

/** The kind of a name that a Select computes. */
export function computeKind(condition: Kind<Condition>): Kind<Compute> {
  const fields = {
    as: required(newName),
    fn: required(oneOf(functions)),
    of: optional(list(item, { most: MOST_ITEMS })),
    unit: optional(oneOf(units)),
    digits: optional(digits),
    path: optional(list(pathStep, { most: MOST_ITEMS })),
    when: optional(condition),
    // biome-ignore lint/suspicious/noThenProperty: a field of the grammar
    then: optional(item),
    else: optional(item),
  };

  const shape = object(fields);

  /** One schema for the functions that share a rule. */
  function schemasOf() {
    const groups = Map.groupBy(functions, (fn) => JSON.stringify(functionRules[fn]));
    return Array.from(groups.values(), (names): Fields => {
      const { of, unit, needs, takes = [] } = ruleOf(names[0] ?? "add");
      const own = [...needs, ...takes].map((name) => {
        return [name, { ...fields[name], required: needs.includes(name) }] as const;
      });
      const [least, most] = of ?? [];
      const items = { type: "array", minItems: least, maxItems: most };
      return {
        as: fields.as,
        fn: required(oneOf(names)),
        ...Object.fromEntries(own),
        ...(of && {
          of: required({ ...fields.of, schema: (to) => ({ ...items, items: item.schema(to) }) }),
        }),
        ...(unit && { unit: required(oneOf(unit)) }),
      };
    });
  }

  const compute: Kind<Compute> = {
    parse(tape, token, node) {
      const parsed = shape.parse(tape, token, node);
      requireFit(parsed, tape, token);
      node.computed.push(parsed.as);
      return parsed;
    },
    schema: named("Compute", (reference) => ({
      oneOf: schemasOf().map((group) => objectSchema(group)(reference)),
    })),
  };

  return compute;
}

function requireFit(parsed: Compute, tape: QueryTape, token: number): void {
  const { fn, of: items = [], unit, digits = 0 } = parsed;
  const { of: [least, most] = [0, 0], unit: allowed, needs, takes = [] } = ruleOf(fn);
  const missing = needs.find((name) => parsed[name] === undefined);
  if (missing !== undefined) {
    const problem = `the field "${missing}" is missing; ${fn} needs ${needs.join(", ")}`;
    throw tape.refusal("missing_field", problem, token);
  }
  const refuse = (problem: string, offset?: number) =>
    tape.refusal("invalid_value", problem, token, offset);
  const other = dependent.find(
    (name) => parsed[name] !== undefined && !needs.includes(name) && !takes.includes(name),
  );
  if (other !== undefined) {
    throw refuse(`${other} is not allowed with ${fn}; allowed: ${[...needs, ...takes].join(", ")}`);
  }
  if (items.length < least || items.length > most) {
    const wanted = least === most ? `${least}` : `${least} to ${most}`;
    throw refuse(`${fn} takes ${wanted} items in of, ${items.length} were found`);
  }
  if (allowed !== undefined && unit !== undefined && !allowed.includes(unit)) {
    throw refuse(`${fn} has no unit ${unit}; allowed: ${allowed.join(", ")}`);
  }
  if (digits <= MOST_DIGITS) return;
  const place = tape.start(tape.member(token, digitsWord) ?? token);
  throw refuse(`digits may be at most ${MOST_DIGITS}`, place);
}
