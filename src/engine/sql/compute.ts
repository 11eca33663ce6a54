import { sql } from "kysely";
import type { CellValue, Compute, FunctionName, Item, Unit } from "../../query/operation-types.ts";
import { EngineRefusal } from "../refusal.ts";
import { refused } from "../remote/failures.ts";
import { conditionSql } from "./conditions.ts";
import type { Fragment } from "./fragment.ts";
import {
  type Column,
  type ColumnKind,
  type ColumnReference,
  columnSql,
  type Family,
  type Resolve,
  type Scope,
} from "./scope.ts";
import { comparedValue, integerOf, numberText } from "./values.ts";

export type Arithmetic = "add" | "sub" | "mul" | "div";
export type NumberFamily = "integer" | "decimal" | "double";
export type MomentFamily = "date" | "instant";

/** Fragments and kinds of computed values. Operands are not null literals, and null gives null. */
export interface ComputeDialect<Kind extends ColumnKind> {
  readonly kinds: Readonly<Record<NumberFamily | "text" | "boolean" | "json", Kind>>;
  /** By the declared type of a column whose values have types of their own. */
  declaredFamily?(type: string): Family | undefined;
  /** A value as a number of the family. */
  number(value: Fragment, family: NumberFamily): Fragment;
  /** Of operands that are numbers of `family`. Overflows fail; division by zero is null. */
  arithmetic(fn: Arithmetic, left: Fragment, right: Fragment, family: NumberFamily): Fragment;
  /** Halves away from zero. */
  round(value: Fragment, digits: number, family: "decimal" | "double"): Fragment;
  abs(value: Fragment): Fragment;
  trunc(unit: Unit, moment: Fragment, family: MomentFamily): Fragment;
  /** Of the value in UTC. */
  part(unit: Unit, moment: Fragment): Fragment;
  /** Whole microseconds from the second to the first. */
  microseconds(first: Fragment, second: Fragment): Fragment;
  letters(wanted: "lower" | "upper", text: Fragment): Fragment;
  trim(text: Fragment): Fragment;
  length(text: Fragment): Fragment;
  /** Text that sorts by bytes, of text or a whole number. */
  text(value: Fragment): Fragment;
  concat(texts: readonly Fragment[]): Fragment;
  json(document: Fragment, path: readonly (string | number)[]): Fragment;
}

interface Operand<Kind extends ColumnKind> {
  readonly sql: Fragment;
  readonly column: Column<Kind>;
  readonly family: Family | undefined;
  /** How many columns and literals its expression holds. */
  readonly size: number;
}

/** Expressions repeat what they are computed of, so names of names grow fast. */
const LARGEST_SIZE = 2000;
const repeats: Partial<Record<FunctionName, number>> = {
  ...{ lower: 4, upper: 4, trunc: 4, part: 2, round: 3, nullif: 3, div: 1 },
};

const numbers: ReadonlySet<unknown> = new Set(["integer", "decimal", "double"]);

const typeWords: Partial<Record<Family, string>> = {
  ...{ integer: "bigint", decimal: "decimal", double: "double", text: "text" },
  ...{ boolean: "boolean", json: "json" },
};

const microsecondsIn: Partial<Record<Unit, number>> = {
  ...{ day: 86_400_000_000, hour: 3_600_000_000, minute: 60_000_000, second: 1_000_000 },
};

/** The names of a Select, each with its expression. */
export class Computed<Kind extends ColumnKind> {
  readonly names = new Map<string, ColumnReference<Column<Kind>>>();
  readonly #sizes = new Map<string, number>();
  readonly #resolve: Resolve<Column<Kind>>;
  readonly #dialect: ComputeDialect<Kind>;
  readonly #scope: Scope<Column<Kind>>;

  constructor(
    columns: Resolve<Column<Kind>>,
    dialect: ComputeDialect<Kind>,
    scope: Scope<Column<Kind>>,
  ) {
    this.#scope = scope;
    this.#resolve = (name) => this.names.get(name) ?? columns(name);
    this.#dialect = dialect;
  }

  get resolve(): Resolve<Column<Kind>> {
    return this.#resolve;
  }

  define(definition: Compute): void {
    const { as: name, fn, of = [], then: yes, else: no } = definition;
    const items = fn === "if" ? [yes ?? "", no ?? ""] : of;
    const operands = items.map((item) => this.#operand(item));
    const sizes = operands.map(({ size }) => size);
    const own = 1 + sizes.reduce((sum, size) => sum + size, 0) * (repeats[fn] ?? 1);
    const size = own + conditionSize(definition.when, (one) => this.#sizes.get(one) ?? 1);
    if (size > LARGEST_SIZE) throw new EngineRefusal(...refused.tooComplex).at(`compute "${name}"`);
    const { expression, kind, type } = this.#apply(definition, operands);
    this.#sizes.set(name, size);
    this.names.set(name, { table: { name: "" }, column: { name, type, kind }, expression });
  }

  #operand(item: Item): Operand<Kind> {
    if (typeof item !== "string") return this.#literal(item.value);
    const reference = this.#resolve(item);
    const { column } = reference;
    const size = this.#sizes.get(item) ?? 1;
    const { family: own } = column.kind;
    const family = own === "any" ? this.#dialect.declaredFamily?.(column.type) : own;
    const bare = columnSql(reference);
    return { sql: column.kind.operand?.(bare) ?? bare, column, family, size };
  }

  #literal(value: CellValue): Operand<Kind> {
    const family = familyOf(value);
    const kind = this.#dialect.kinds[family];
    const column = { name: "value", type: typeWords[family] ?? "", kind };
    const bound = sql`${value === null ? null : comparedValue(column, value)}`;
    const isText = family === "text";
    const typed = numbers.has(family) ? this.#number(bound, family) : bound;
    return { sql: isText ? this.#dialect.text(bound) : typed, column, family, size: 1 };
  }

  #number(value: Fragment, family: Family): Fragment {
    return isNumber(family) ? this.#dialect.number(value, family) : value;
  }

  #apply(
    definition: Compute,
    operands: readonly Operand<Kind>[],
  ): { expression: Fragment; kind: Kind; type: string } {
    const { fn, unit = "day", digits = 0, path = [] } = definition;
    const dialect = this.#dialect;
    const result = (family: keyof typeof dialect.kinds, expression: Fragment) => ({
      ...{ expression: sql`(${expression})`, kind: dialect.kinds[family] },
      type: typeWords[family] ?? "",
    });
    const [first, second] = operands;
    if (first === undefined) throw new Error("The scanner accepted a function without items");
    switch (fn) {
      case "add":
      case "sub":
      case "mul":
      case "div": {
        const common = this.#numbers(definition, operands);
        const family = fn === "div" && common === "integer" ? "decimal" : common;
        const sides = operands.map((one) => dialect.number(one.sql, common));
        const expression = sides.reduce((left, right) =>
          dialect.arithmetic(fn, left, right, family),
        );
        return result(family, expression);
      }
      case "round": {
        const family = this.#numbers(definition, operands);
        const number = dialect.number(first.sql, family);
        const rounded = family === "integer" ? number : dialect.round(number, digits, family);
        return result(family, rounded);
      }
      case "abs": {
        const family = this.#numbers(definition, operands);
        return result(family, dialect.abs(dialect.number(first.sql, family)));
      }
      case "trunc": {
        const family = requireMoment(definition, first);
        const { kind, type } = first.column;
        return { expression: sql`(${dialect.trunc(unit, first.sql, family)})`, kind, type };
      }
      case "part":
        requireMoment(definition, first);
        return result("integer", dialect.part(unit, first.sql));
      case "diff": {
        const moments = this.#moments(definition, operands);
        const [from = first.sql, to = first.sql] = moments;
        const length = dialect.number(sql`${sql.lit(microsecondsIn[unit] ?? 1)}`, "decimal");
        const between = dialect.number(dialect.microseconds(from, to), "decimal");
        return result("decimal", dialect.arithmetic("div", between, length, "decimal"));
      }
      case "lower":
      case "upper":
        return result("text", dialect.letters(fn, this.#text(definition, first)));
      case "trim":
        return result("text", dialect.trim(this.#text(definition, first)));
      case "length":
        return result("integer", dialect.length(this.#text(definition, first)));
      case "concat": {
        const texts = operands.map((one) => this.#text(definition, one, ["text", "integer"]));
        return result("text", dialect.concat(texts));
      }
      case "coalesce": {
        const { sides, kind, type } = this.#alike(definition, operands);
        return { expression: sql`coalesce(${sql.join(sides)})`, kind, type };
      }
      case "nullif": {
        const { sides, kind, type, family } = this.#alike(definition, operands);
        const beside = (side: Fragment) => kind.beside?.(side, family) ?? side;
        const [one = first.sql, other = second?.sql ?? first.sql] = sides;
        const expression = sql`case when ${beside(one)} = ${beside(other)} then null else ${one} end`;
        return { expression: sql`(${expression})`, kind, type };
      }
      case "if": {
        const { sides, kind, type } = this.#alike(definition, operands);
        const when = conditionSql(this.#resolve, definition.when ?? { and: [] }, this.#scope);
        const expression = sql`case when ${when} then ${sides[0]} else ${sides[1]} end`;
        return { expression: sql`(${expression})`, kind, type };
      }
      case "json":
        if (first.family !== "json") throw unfit(definition, first, "JSON");
        return result("json", dialect.json(first.sql, path));
    }
  }

  #numbers(definition: Compute, operands: readonly Operand<Kind>[]): NumberFamily {
    const other = operands.find(({ family }) => !isNumber(family));
    if (other !== undefined) throw unfit(definition, other, "numbers");
    return widest(operands.map(({ family }) => family));
  }

  #moments(definition: Compute, operands: readonly Operand<Kind>[]): Fragment[] {
    const model = operands.find(({ family }) => family === "date" || family === "instant");
    const [first] = operands;
    if (model === undefined)
      throw unfit(definition, first ?? this.#literal(null), "dates and times");
    return operands.map((one, at) => {
      const item = definition.of?.[at];
      const isLiteral = typeof item === "object" && typeof item.value === "string";
      if (isLiteral) return sql`${comparedValue(model.column, item.value)}`;
      requireMoment(definition, one);
      return one.sql;
    });
  }

  #text(
    definition: Compute,
    operand: Operand<Kind>,
    families: readonly (Family | undefined)[] = ["text"],
  ): Fragment {
    if (families.includes(operand.family)) return this.#dialect.text(operand.sql);
    const allowed = families.length === 1 ? "text" : "text and whole numbers";
    throw unfit(definition, operand, allowed);
  }

  /** The operands as values of one type: that of the first column, or the widest number. */
  #alike(definition: Compute, operands: readonly Operand<Kind>[]) {
    const items =
      definition.fn === "if"
        ? [definition.then ?? "", definition.else ?? ""]
        : (definition.of ?? []);
    const literalAt = (at: number) => {
      const item = items[at];
      return typeof item === "object" ? item : undefined;
    };
    const present = operands.filter((_, at) => literalAt(at)?.value !== null);
    const model = operands.find((_, at) => literalAt(at) === undefined) ?? present[0];
    if (model === undefined) {
      throw new EngineRefusal("invalid_value", `compute "${definition.as}": every item is null`);
    }
    const isNumeric = present.every(({ family }) => isNumber(family));
    if (isNumeric) {
      const family = widest(present.map((one) => one.family));
      const kind = this.#dialect.kinds[family];
      const sides = operands.map((one) => this.#dialect.number(one.sql, family));
      return { sides, kind, type: typeWords[family] ?? "", family };
    }
    const { family, column } = model;
    if (family === undefined) throw unfit(definition, model, "known types");
    const sides = operands.map((one, at) => {
      const literal = literalAt(at);
      if (literal?.value === null) return sql`null`;
      if (literal === undefined && one.family !== family) {
        throw unfit(definition, one, `the type of "${model.column.name}"`);
      }
      if (literal === undefined || one === model) return one.sql;
      return sql`${comparedValue(column, literal.value)}`;
    });
    const isText = family === "text";
    const texts = isText ? sides.map((side) => this.#dialect.text(side)) : sides;
    const kind = isText || family === "boolean" ? this.#dialect.kinds[family] : column.kind;
    return { sides: texts, kind, type: isText ? "text" : column.type, family };
  }
}

function isNumber(family: Family | undefined): family is NumberFamily {
  return numbers.has(family);
}

function widest(families: readonly (Family | undefined)[]): NumberFamily {
  if (families.includes("double")) return "double";
  return families.includes("decimal") ? "decimal" : "integer";
}

function requireMoment<Kind extends ColumnKind>(
  definition: Compute,
  operand: Operand<Kind>,
): MomentFamily {
  const { family } = operand;
  if (family === "date" || family === "instant") return family;
  throw unfit(definition, operand, "dates and times");
}

function unfit<Kind extends ColumnKind>(
  { as: name, fn }: Compute,
  { column }: Operand<Kind>,
  allowed: string,
): EngineRefusal {
  const problem = `compute "${name}": ${fn} does not take "${column.name}" (${column.type}); allowed: ${allowed}`;
  return new EngineRefusal("invalid_value", problem);
}

function familyOf(value: CellValue): NumberFamily | "text" | "boolean" {
  if (typeof value === "boolean") return "boolean";
  if (typeof value === "string" || value === null) return "text";
  if (numberText(value) === undefined) return "text";
  return integerOf(value) === undefined ? "decimal" : "integer";
}

function conditionSize(when: Compute["when"], sizeOf: (name: string) => number): number {
  if (when === undefined) return 0;
  if ("not" in when) return conditionSize(when.not, sizeOf);
  if ("exists" in when) return 1;
  if ("column" in when) return sizeOf(when.column) + ("other" in when ? sizeOf(when.other) : 0);
  const parts = "and" in when ? when.and : when.or;
  return parts.reduce((sum, part) => sum + conditionSize(part, sizeOf), 0);
}
