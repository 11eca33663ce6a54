import { sql } from "kysely";
import type { CellValue, Compute, FunctionName, Item, Unit } from "../../core/query/tree.ts";
import { EngineRefusal } from "../refusal.ts";
import { conditionSql, isNumber, type NumberFamily } from "./conditions.ts";
import { type Fragment, SizeBudget, tooComplex } from "./fragment.ts";
import {
  type Column,
  type ColumnKind,
  type ColumnReference,
  columnSql,
  type Family,
  type Resolve,
  type Scope,
} from "./scope.ts";
import { cellText, comparedValue, numberText, toInteger } from "./values.ts";

export type Arithmetic = "add" | "sub" | "mul" | "div";
type MomentFamily = "date" | "instant";

const typeWords = {
  integer: "bigint",
  decimal: "decimal",
  double: "double",
  text: "text",
  boolean: "boolean",
  json: "json",
};

type ResultFamily = keyof typeof typeWords;

/** Fragments and kinds of computed values. Null gives null. */
export interface ComputeDialect<Kind extends ColumnKind> {
  readonly kinds: Readonly<Record<ResultFamily, Kind>>;
  /** By the declared type of a column whose values have types of their own. */
  declaredFamily?(type: string): Family | undefined;
  /** The kind with which a literal is read as a date or time, if not that of the column beside it. */
  momentKind?(kind: Kind): Kind;
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
  /** The text, or an error that is `query_too_complex` if `bytes` exceeds `MOST_TEXT_BYTES`. */
  limited(text: Fragment, bytes: Fragment): Fragment;
  json(document: Fragment, path: readonly (string | number)[]): Fragment;
}

/** For databases whose operators refuse overflows. `divide` divides numbers that are no doubles. */
export function arithmeticBy(
  divide: (dividend: Fragment, divisor: Fragment) => Fragment,
): ComputeDialect<ColumnKind>["arithmetic"] {
  const operators = { add: sql`+`, sub: sql`-`, mul: sql`*` };
  return (fn, left, right, family) => {
    if (fn !== "div") return sql`(${left} ${operators[fn]} ${right})`;
    const divisor = sql`nullif(${right}, 0)`;
    return family === "double" ? sql`(${left} / ${divisor})` : divide(left, divisor);
  };
}

/** A path of SQL/JSON, as SQLite, MySQL and MariaDB read it. */
export function jsonPath(path: readonly (string | number)[]): string {
  const steps = path.map((step) =>
    typeof step === "number" ? `[${step}]` : `.${JSON.stringify(step)}`,
  );
  return `$${steps.join("")}`;
}

/** Of a computed text: names of names grow fast. */
const MOST_TEXT_BYTES = 1024 * 1024;
export const mostTextBytes = sql.lit(MOST_TEXT_BYTES);

type Typed<Kind extends ColumnKind> = Pick<Column<Kind>, "kind" | "type">;

interface Operand<Kind extends ColumnKind = ColumnKind> {
  readonly sql: Fragment;
  readonly column: Column<Kind>;
  readonly family: Family | undefined;
  /** The column without a conversion; undefined for a literal. */
  readonly bare?: Fragment;
  /** Undefined for a column. */
  readonly literal?: CellValue;
  /** How many columns and literals its expression holds. */
  readonly size: number;
  /** The most bytes of its text. Infinite if unknown. */
  readonly bytes: number;
}

/** UTF-8 of a character, and the digits of a whole number. */
const CHARACTER_BYTES = 4;
const INTEGER_BYTES = 20;

/** Expressions repeat what they are computed of, so names of names grow fast. */
const LARGEST_SIZE = 2000;
const repeats: Partial<Record<FunctionName, number>> = {
  lower: 4,
  upper: 4,
  trunc: 4,
  part: 2,
  round: 3,
  nullif: 3,
  sub: 2,
  div: 2,
  diff: 2,
};

const microsecondsIn: Partial<Record<Unit, number>> = {
  day: 86_400_000_000,
  hour: 3_600_000_000,
  minute: 60_000_000,
  second: 1_000_000,
};

/** Values of one type. */
interface Alike<Kind extends ColumnKind> {
  readonly family: Family;
  readonly kind: Kind;
  readonly type: string;
  readonly sides: readonly Fragment[];
  /** The values as a name has them, if some may be too long. */
  readonly limited?: readonly Fragment[];
}

interface ComputedName<Kind extends ColumnKind> extends Pick<Operand, "size" | "bytes"> {
  readonly reference: ColumnReference<Column<Kind>>;
}

/** The names of a Select, each with its expression. */
export class Computed<Kind extends ColumnKind> {
  readonly resolve: Resolve<Column<Kind>>;
  readonly #names = new Map<string, ComputedName<Kind>>();
  readonly #budget: SizeBudget;
  readonly #dialect: ComputeDialect<Kind>;
  readonly #scope: Scope<Column<Kind>>;

  constructor(
    columns: Resolve<Column<Kind>>,
    dialect: ComputeDialect<Kind>,
    scope: Scope<Column<Kind>>,
  ) {
    this.#scope = scope;
    this.#budget = scope.find(({ nesting }) => nesting)?.nesting?.budget ?? new SizeBudget();
    this.#dialect = dialect;
    this.resolve = (name) => {
      const known = this.#names.get(name);
      if (known === undefined) return columns(name);
      this.#budget.spend(known.size);
      return known.reference;
    };
  }

  define(definition: Compute): void {
    const { as: name, fn, of = [], then: yes = "", else: no = "" } = definition;
    const items = fn === "if" ? [yes, no] : of;
    try {
      this.#define(definition, items);
    } catch (error) {
      if (!(error instanceof EngineRefusal)) throw error;
      const { column = "" } = error;
      const hint = items.includes(column)
        ? `; write a text as {"value": ${JSON.stringify(column)}}`
        : "";
      throw error.at(`compute "${name}"`, hint);
    }
  }

  #define(definition: Compute, items: readonly Item[]): void {
    const { as: name, fn, when } = definition;
    const operands = items.map((item) => this.#operand(item));
    const { spent } = this.#budget;
    const { expression, kind, type } = this.#apply(definition, items, operands);
    const ofItems = operands.reduce((sum, { size }) => sum + size, 0) * (repeats[fn] ?? 1);
    const bytes = mostBytes(definition, operands);
    const measured = bytes > MOST_TEXT_BYTES ? countItems(items, operands) : [];
    const ofLength = measured.reduce(
      (sum, [{ literal, size }]) => sum + (literal === undefined ? size : 0),
      0,
    );
    const size = 1 + ofItems + ofLength + partWeight(when) + this.#budget.spent - spent;
    if (size > LARGEST_SIZE) throw tooComplex("a computed name repeats too many others");
    const reference = { table: { name: "" }, column: { name, type, kind }, expression };
    this.#names.set(name, { reference, size, bytes: Math.min(bytes, MOST_TEXT_BYTES) });
  }

  #operand(item: Item): Operand<Kind> {
    if (typeof item !== "string") return this.#literal(item.value);
    const reference = this.resolve(item);
    const { column } = reference;
    const { family: own } = column.kind;
    const family = own === "any" ? this.#dialect.declaredFamily?.(column.type) : own;
    const bare = columnSql(reference);
    const value = column.kind.operand?.(bare) ?? bare;
    const longest =
      own === "integer"
        ? INTEGER_BYTES
        : (column.kind.bounds?.characters ?? Infinity) * CHARACTER_BYTES;
    const { size = 1, bytes = longest } = this.#names.get(item) ?? {};
    return { sql: value, bare, column, family, size, bytes };
  }

  #literal(literal: CellValue): Operand<Kind> {
    const family = literalFamily(literal);
    const column = { name: "value", ...this.#typeOf(family) };
    // Without a type, which would become that of the result.
    if (literal === null) return { sql: sql`null`, column, family, literal, size: 1, bytes: 0 };
    const bound = sql`${comparedValue(column, literal)}`;
    const typed = isNumber(family) ? this.#dialect.number(bound, family) : bound;
    const value = family === "text" ? this.#dialect.text(bound) : typed;
    const bytes = Buffer.byteLength(typeof literal === "string" ? literal : cellText(literal));
    return { sql: value, column, family, literal, size: partWeight(literal), bytes };
  }

  #typeOf(family: ResultFamily): Typed<Kind> {
    return { kind: this.#dialect.kinds[family], type: typeWords[family] };
  }

  #apply(
    definition: Compute,
    items: readonly Item[],
    operands: readonly Operand<Kind>[],
  ): Typed<Kind> & { readonly expression: Fragment } {
    const { fn, unit = "day", digits = 0, path = [] } = definition;
    const dialect = this.#dialect;
    const typed = ({ kind, type }: Typed<Kind>, expression: Fragment) => ({
      kind,
      type,
      expression: sql`(${expression})`,
    });
    const result = (family: ResultFamily, expression: Fragment) =>
      typed(this.#typeOf(family), expression);
    const textResult = (text: Fragment, length?: Fragment) =>
      result("text", this.#limited(text, mostBytes(definition, operands), length));
    const [first] = operands;
    if (first === undefined) throw new Error("The parser accepted a function without items");
    switch (fn) {
      case "add":
      case "sub":
      case "mul":
      case "div": {
        const common = requireNumbers(definition, operands);
        const family = fn === "div" && common === "integer" ? "decimal" : common;
        const sides = operands.map((one) => dialect.number(one.sql, common));
        const expression = sides.reduce((left, right) =>
          dialect.arithmetic(fn, left, right, family),
        );
        return result(family, expression);
      }
      case "round": {
        const family = requireNumbers(definition, operands);
        const number = dialect.number(first.sql, family);
        const rounded = family === "integer" ? number : dialect.round(number, digits, family);
        return result(family, rounded);
      }
      case "abs": {
        const family = requireNumbers(definition, operands);
        const absolute = dialect.abs(dialect.number(first.sql, family));
        return first.column.kind.isFloat ? typed(first.column, absolute) : result(family, absolute);
      }
      case "trunc": {
        if (first.literal === null) return result("text", dialect.text(first.sql));
        const family = requireMoment(definition, first);
        return typed(first.column, dialect.trunc(unit, first.sql, family));
      }
      case "part":
        requireMoment(definition, first);
        return result("integer", dialect.part(unit, first.sql));
      case "diff": {
        const [from = first.sql, to = first.sql] = this.#moments(definition, operands);
        const length = dialect.number(sql`${sql.lit(microsecondsIn[unit] ?? 1)}`, "decimal");
        const between = dialect.number(dialect.microseconds(from, to), "decimal");
        return result("decimal", dialect.arithmetic("div", between, length, "decimal"));
      }
      case "lower":
      case "upper":
        return textResult(dialect.letters(fn, this.#text(definition, first)));
      case "trim":
        return textResult(dialect.trim(this.#text(definition, first)));
      case "length":
        return result("integer", dialect.length(this.#text(definition, first)));
      case "concat": {
        const text = (one: Operand) => {
          const isInteger = one.family === "integer";
          const allowed = "text and whole numbers";
          const whole = isInteger ? dialect.text(one.sql) : this.#text(definition, one, allowed);
          return sql`coalesce(${whole}, '')`;
        };
        const lengths = countItems(items, operands).map(([one, count]) =>
          one.literal === undefined
            ? sql`${sql.raw(`${count}.0`)} * octet_length(${text(one)})`
            : sql.raw(`${count * one.bytes}.0`),
        );
        return textResult(
          sql`concat(${sql.join(operands.map(text))})`,
          sql.join(lengths, sql` + `),
        );
      }
      case "coalesce": {
        const alike = this.#alike(definition, operands);
        return typed(alike, sql`coalesce(${sql.join(alike.limited ?? alike.sides)})`);
      }
      case "nullif": {
        const alike = this.#alike(definition, operands);
        const comparable = (side: Fragment) => alike.kind.asFamily?.(side, alike.family) ?? side;
        const { sides, limited = sides } = alike;
        const [one = first.sql, other = one] = sides;
        // A null of the other item's type.
        if (first.literal === null) return typed(alike, sql`case when false then ${other} end`);
        const isEqual = sql`${comparable(one)} = ${comparable(other)}`;
        return typed(alike, sql`case when ${isEqual} then null else ${limited[0]} end`);
      }
      case "if": {
        const alike = this.#alike(definition, operands);
        const when = conditionSql(this.resolve, definition.when ?? { and: [] }, this.#scope);
        const [yes, no] = alike.limited ?? alike.sides;
        return typed(alike, sql`case when ${when} then ${yes} else ${no} end`);
      }
      case "json":
        if (first.literal === null) return result("json", dialect.text(first.sql));
        if (first.family !== "json") throw unfit(definition, first, "JSON");
        return result("json", dialect.json(first.sql, path));
    }
  }

  #limited(text: Fragment, bytes: number, length = sql`octet_length(${text})`): Fragment {
    return bytes > MOST_TEXT_BYTES ? this.#dialect.limited(text, length) : text;
  }

  #text(definition: Compute, operand: Operand, allowed = "text"): Fragment {
    if (operand.family === "text") return this.#dialect.text(operand.sql);
    throw unfit(definition, operand, allowed);
  }

  /** The operands as values of one type: that of the first column, or the widest number. */
  #alike(definition: Compute, operands: readonly Operand<Kind>[]): Alike<Kind> {
    const present = operands.filter(({ literal }) => literal !== null);
    const model = present.find(({ literal }) => literal === undefined) ?? present[0];
    if (model === undefined) {
      throw new EngineRefusal("invalid_value", `every item of ${definition.fn} is null`);
    }
    const { family, column } = model;
    if (family === undefined) throw unfit(definition, model, "known types");
    const own = { family, kind: column.kind, type: column.type };
    const isRenamed = model.bare !== undefined && present.every(({ bare }) => bare === model.bare);
    // Computed decimals have no zeros at the end, and texts of any length are checked below.
    const isComputed = family === "decimal" || (family === "text" && model.bytes > MOST_TEXT_BYTES);
    if (isRenamed && !isComputed) {
      // The column keeps its values as they are.
      const sides = operands.map(({ sql: value, bare = value }) => bare);
      return { ...own, sides };
    }
    if (present.every((one) => isNumber(one.family))) {
      const common = widest(present);
      const sides = operands.map((one) => this.#dialect.number(one.sql, common));
      const isOther = present.some((one) => one.bare !== undefined && !one.column.kind.isFloat);
      return column.kind.isFloat === true && !isOther
        ? { ...own, sides }
        : { sides, family: common, ...this.#typeOf(common) };
    }
    const sides = operands.map((one) => {
      const { literal } = one;
      if (literal === null) return sql`null`;
      if ((literal ?? model.literal) === undefined) {
        if (one.family !== family) throw unfit(definition, one, `the type of "${column.name}"`);
      } else if (model.literal !== undefined && one.family !== family) {
        throw unfit(definition, one, `items of one type, here ${column.type}`);
      }
      if (literal === undefined || one === model) return one.sql;
      return sql`${comparedValue(column, literal)}`;
    });
    if (family === "text" || family === "json") {
      const texts = sides.map((side) => this.#dialect.text(side));
      const limited = texts.map((text, at) => this.#limited(text, operands[at]?.bytes ?? 0));
      const alike = { sides: texts, family, ...this.#typeOf(family) };
      return family === "text" ? { ...alike, limited } : alike;
    }
    const kind = family === "boolean" ? this.#dialect.kinds.boolean : column.kind;
    return { sides, family, kind, type: column.type };
  }

  /** A literal beside a moment is read as one. */
  #moments(definition: Compute, operands: readonly Operand<Kind>[]): Fragment[] {
    const model = operands.find(({ family }) => family === "date" || family === "instant");
    return operands.map((one) => {
      if (model === undefined || typeof one.literal !== "string") {
        requireMoment(definition, one);
        return one.sql;
      }
      const { column } = model;
      const kind = this.#dialect.momentKind?.(column.kind) ?? column.kind;
      return sql`${comparedValue({ ...column, kind }, one.literal)}`;
    });
  }
}

/** Of the result. More than `MOST_TEXT_BYTES` are refused where they are computed. */
function mostBytes({ fn }: Compute, operands: readonly Operand[]): number {
  return operands.reduce(
    (most, { bytes }) => (fn === "concat" ? most + bytes : Math.max(most, bytes)),
    0,
  );
}

/** Each item once, with how often it stands there. */
function countItems(items: readonly Item[], operands: readonly Operand[]) {
  const counts = new Map<Item, [one: Operand, count: number]>();
  for (const [at, one] of operands.entries()) {
    const item = items[at] ?? "";
    counts.set(item, [one, (counts.get(item)?.[1] ?? 0) + 1]);
  }
  return [...counts.values()];
}

function requireNumbers(definition: Compute, operands: readonly Operand[]): NumberFamily {
  const other = operands.find(({ family, literal }) => literal !== null && !isNumber(family));
  if (other !== undefined) throw unfit(definition, other, "numbers");
  return widest(operands);
}

function widest(operands: readonly Operand[]): NumberFamily {
  const families = operands.map(({ family }) => family);
  if (families.includes("double")) return "double";
  return families.includes("decimal") ? "decimal" : "integer";
}

function requireMoment(definition: Compute, operand: Operand): MomentFamily {
  const { family, literal } = operand;
  if (family === "date" || family === "instant") return family;
  if (literal === null) return "instant";
  throw unfit(definition, operand, "dates, and dates with times");
}

function unfit({ fn }: Compute, { column, literal }: Operand, allowed: string): EngineRefusal {
  const what = literal === undefined ? `"${column.name}"` : "a literal";
  const problem = `${fn} does not take ${what} (${column.type}); allowed: ${allowed}`;
  return new EngineRefusal("invalid_value", problem);
}

/** The size of the SQL that a part of a query becomes, in columns and literals. */
function partWeight(part: unknown): number {
  if (typeof part === "string") return 1 + (part.length >> 10);
  if (typeof part !== "object" || part === null) return 1;
  return Object.values(part).reduce<number>((sum, one) => sum + partWeight(one), 1);
}

function literalFamily(value: CellValue): NumberFamily | "text" | "boolean" {
  if (typeof value === "boolean") return "boolean";
  if (typeof value === "string" || value === null) return "text";
  if (numberText(value) === undefined) return "text";
  return toInteger(value) === undefined ? "decimal" : "integer";
}
