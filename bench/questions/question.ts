/** A question, and short forms of what a model writes to answer it. */
import type { Shop } from "./shop.ts";
import { database } from "./tables.ts";

/** A tool call. Its arguments may refer to parts of earlier results. */
export interface Call {
  readonly tool: string;
  readonly arguments: Readonly<Record<string, unknown>>;
}

export interface Question {
  readonly question: string;
  /** The best calls of a model that knows the tables. */
  readonly calls: readonly Call[];
  /** The answer as a part of the results. */
  readonly answer: unknown;
  /** Computes the answer from the rows. */
  readonly expected: (shop: Shop) => unknown;
  /** If the question asks for a change: reads the state afterwards. */
  readonly check?: Call & Pick<Question, "answer" | "expected">;
}

/** Questions by id. */
export type Questions = Readonly<Record<string, Question>>;

export { database };

export function call(tool: string, args: Call["arguments"] = {}): Call {
  return { tool, arguments: args };
}

export function select(from: unknown, more: Call["arguments"]): Call {
  return call("select", { database, from, ...more });
}

export function count(from: unknown, more: Call["arguments"] = {}): Call {
  return call("count", { database, from, ...more });
}

/** Refers to a part of the results, such as `0.rows.0.id`. */
export function $(path: string): object {
  return { $: path };
}

export function term(column: string, cmp: string, value: unknown): object {
  return { column, cmp, value };
}

export function aggregate(fn: string, as: string, column?: string): object {
  return { fn, as, ...(column === undefined ? {} : { column }) };
}

export function asc(column: string): object {
  return { column };
}

export function desc(column: string): object {
  return { column, direction: "DESC" };
}

export function inner(table: string, on: string, as?: string): object {
  return { table, ...(as === undefined ? {} : { as }), on, join_type: "INNER" };
}

/** Computes a name that is one of two items. */
export function either(as: string, when: object, yes: unknown, no: unknown): object {
  // biome-ignore lint/suspicious/noThenProperty: the query calls it so
  return { as, fn: "if", when, then: yes, else: no };
}
