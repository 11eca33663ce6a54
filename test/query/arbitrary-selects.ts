/** Arbitrary Selects of the full grammar, most of them valid. */
import fc from "fast-check";
import { type Choose, choicesOf } from "./arbitrary.ts";

const tables = ["users", "orders", "lines", "Users"];
const columns = ["a", "b", "A", "größe", "first name"];

/** Chooses with names for the kinds of choices. */
export class Chooser {
  readonly bound: Choose;

  constructor(bound: Choose) {
    this.bound = bound;
  }

  one<Option>(...options: readonly Option[]): Option {
    const option = options[this.bound(options.length)];
    if (option === undefined) throw new Error("nothing to choose from");
    return option;
  }

  isOneIn(odds: number): boolean {
    return this.bound(odds) === 0;
  }

  some<Item>(most: number, make: () => Item): Item[] {
    return Array.from({ length: 1 + this.bound(most) }, make);
  }

  maybe<Value extends object>(odds: number, make: () => Value): Value | object {
    return this.isOneIn(odds) ? make() : {};
  }
}

/** Names of tables in scope, and once in a while others. */
function column(choose: Chooser, scope: readonly string[]): string {
  const name = choose.one(...columns);
  if (choose.isOneIn(60)) return `${choose.one(...tables)}.${name}`;
  return choose.isOneIn(2) ? name : `${choose.one(...scope)}.${name}`;
}

function condition(choose: Chooser, scope: readonly string[], depth: number): object {
  const inner = () => condition(choose, scope, depth + 1);
  const compared = () => ({ column: column(choose, scope), cmp: "=" });
  const kind = choose.bound(depth > 2 ? 4 : 8);
  if (kind < 2) return { ...compared(), value: choose.one<unknown>(1, "x", null, [1]) };
  if (kind === 2) return { ...compared(), other: column(choose, scope) };
  if (kind === 3) return { column: column(choose, scope), cmp: "LIKE", value: "%" };
  if (kind === 4) return { [choose.one("and", "or")]: choose.some(2, inner) };
  if (kind === 5) return { not: inner() };
  if (kind === 6) {
    const table = choose.one(...tables);
    const where = () => ({ where: condition(choose, [table], depth + 1) });
    return { exists: { table, on: on(choose, table, scope), ...choose.maybe(2, where) } };
  }
  const cmp = choose.one("IN", "NOT IN");
  return { column: column(choose, scope), cmp, select: select(choose, "condition", depth + 1) };
}

function on(choose: Chooser, own: string, around: readonly string[]): string {
  const sides = [`${own}.a`, `${choose.one(...around)}.b`];
  return (choose.isOneIn(2) ? sides : sides.toReversed()).join(" = ");
}

function compute(choose: Chooser, scope: readonly string[], depth: number): object[] {
  const item = () => choose.one<unknown>(column(choose, scope), "x1", { value: 1 });
  return choose
    .some(2, () => item())
    .map((one, at) => {
      const as = `x${at + 1}`;
      if (choose.isOneIn(3)) return { as, fn: "lower", of: [one] };
      if (choose.isOneIn(2)) return { as, fn: "add", of: [one, item()] };
      if (choose.isOneIn(2)) {
        const path = choose.some(3, () => choose.one<unknown>("a.b", "", '"', "*", 0, 7, null));
        return { as, fn: "json", of: [one], path };
      }
      const when = condition(choose, scope, depth + 1);
      // biome-ignore lint/suspicious/noThenProperty: a field of the grammar
      return { as, fn: "if", when, then: one, else: item() };
    });
}

function orders(choose: Chooser, scope: readonly string[]): object | object[] {
  const order = () => ({ column: column(choose, scope), ...choose.maybe(2, () => ascending) });
  return choose.isOneIn(2) ? order() : choose.some(2, order);
}
const ascending = { direction: "ASC" };

/** Members of rows. `depth` counts the levels of `include`. */
function includes(choose: Chooser, around: readonly string[], depth: number): object[] {
  const free = tables.slice(0, 3).filter((name) => !around.includes(name));
  return choose
    .some(2, () => depth)
    .map((_, at) => {
      const table = choose.isOneIn(20) ? choose.one(...tables) : choose.one(...free, "tags");
      const scope = [table];
      const single = { one: true, ...choose.maybe(12, () => ({ limit: 1 })) };
      const several = { limit: choose.one(0, 1, 100, 1000, 10_001), ...choose.maybe(3, () => no) };
      return {
        as: choose.isOneIn(30) ? choose.one("members1", "MEMBERS1", "a", "x1") : `members${at + 1}`,
        table,
        on: on(choose, choose.isOneIn(30) ? "lines" : table, around),
        columns: selected(choose, scope),
        ...choose.maybe(3, () => ({ where: condition(choose, scope, 2) })),
        ...choose.maybe(4, () => ({ compute: compute(choose, scope, 2) })),
        ...choose.maybe(3, () => ({ order_by: orders(choose, scope) })),
        ...choose.one<object>({}, {}, single, several),
        ...(choose.isOneIn(depth + 1) ? { include: includes(choose, scope, depth + 1) } : {}),
      };
    });
}
const no = { one: false };

function selected(choose: Chooser, scope: readonly string[]): string[] {
  return choose.isOneIn(3) ? ["*"] : choose.some(2, () => column(choose, scope));
}

function source(choose: Chooser, depth: number): unknown {
  const table = choose.one(...tables);
  if (depth > 3 || choose.isOneIn(2)) return table;
  if (choose.isOneIn(3)) return { table, as: choose.one("t1", "t2", "users") };
  return { select: select(choose, "from", depth + 1), as: choose.one("t1", "t2", "t1", "users") };
}

function nameOf(from: unknown): string {
  return typeof from === "string" ? from : String(Object(from).as);
}

function select(
  choose: Chooser,
  place: "operation" | "from" | "condition",
  depth: number,
): Record<string, unknown> {
  const from = source(choose, place === "condition" && depth > 1 ? 4 : depth);
  const first = nameOf(from);
  const joined = choose.one(...tables.filter((name) => name !== first));
  const isJoined = choose.isOneIn(4);
  const scope = isJoined ? [first, joined] : [first];
  const join = { table: joined, on: on(choose, joined, [first]), join_type: "INNER" };
  const common = {
    ...(place === "operation" ? { database: "main" } : {}),
    from,
    ...(isJoined ? { join } : {}),
    ...choose.maybe(3, () => ({ where: condition(choose, scope, depth) })),
    ...choose.maybe(5, () => ({ compute: compute(choose, scope, depth) })),
    ...choose.maybe(4, () => ({ limit: choose.one(0, 1, 9, 10_000, 1_000_000) })),
    ...choose.maybe(6, () => ({ offset: choose.bound(3) })),
  };
  if (choose.isOneIn(5)) {
    const aggregate = [{ fn: "count", as: "n" }];
    const groups = place === "condition" || choose.isOneIn(2) ? {} : { group_by: ["größe"] };
    const having = { having: { column: "n", cmp: ">", value: 1 } };
    return { ...common, aggregate, ...groups, ...choose.maybe(3, () => having) };
  }
  const names = [columns.slice(0, 2), ["größe"], selected(choose, scope)];
  return {
    ...common,
    columns: place === "condition" ? [column(choose, scope)] : choose.one(...names),
    ...choose.maybe(12, () => ({ distinct: choose.isOneIn(2) })),
    ...choose.maybe(3, () => ({ order_by: orders(choose, scope) })),
    ...(choose.isOneIn(place === "operation" ? 2 : 40)
      ? { include: includes(choose, scope, 1) }
      : {}),
  };
}

export const fullSelect: fc.Arbitrary<object> = fc
  .integer()
  .map((seed) => ({ Select: select(new Chooser(choicesOf(seed)), "operation", 1) }));
