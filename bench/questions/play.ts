/** Runs the calls of questions, measures them and compares the answers. */
import { z } from "zod";
import { amounts } from "./amounts.ts";
import { changes } from "./changes.ts";
import { counts } from "./counts.ts";
import { groups } from "./groups.ts";
import { joins } from "./joins.ts";
import { nested } from "./nested.ts";
import type { Call, Question } from "./question.ts";
import { relations } from "./relations.ts";
import type { Shop } from "./shop.ts";
import { times } from "./times.ts";

/** All questions with their ids. None reads rows that another one changes. */
export const questions = Object.entries<Question>({
  ...counts,
  ...groups,
  ...joins,
  ...times,
  ...amounts,
  ...relations,
  ...nested,
  ...changes,
});
type Asked = typeof questions;

/** A result as text for a model, and as a value. */
interface Answered {
  readonly text: string;
  readonly result: unknown;
}

export type Ask = (call: Call) => Promise<Answered>;

export interface Outcome {
  readonly id: string;
  readonly isRight: boolean;
  readonly calls: number;
  /** Of arguments and text results, which a model writes and reads. */
  readonly bytes: number;
  readonly milliseconds: number;
  /** The answer; for a change, also the state afterwards. */
  readonly found: readonly unknown[];
}

const content = z.record(z.string(), z.unknown());

function partOf(value: unknown, path: readonly string[]): unknown {
  const [step, ...rest] = path;
  if (step === undefined) return value;
  if (step === "*")
    return Array.isArray(value) ? value.map((each) => partOf(each, rest)) : undefined;
  if (Array.isArray(value)) return partOf(value.at(Number(step)), rest);
  return partOf(content.safeParse(value).data?.[step], rest);
}

/** Replaces references in the template by parts of the results. */
function fillIn(template: unknown, results: readonly unknown[]): unknown {
  if (Array.isArray(template)) return template.map((each) => fillIn(each, results));
  const { data } = content.safeParse(template);
  if (data === undefined) return template;
  if (typeof data.$ === "string") return partOf(results, data.$.split("."));
  const entries = Object.entries(data).map(([key, each]) => [key, fillIn(each, results)]);
  return Object.fromEntries(entries);
}

/** Only the values, since a model may name fields as it likes. */
function valuesOf(answer: unknown): unknown {
  if (Array.isArray(answer)) return answer.map(valuesOf);
  const { data } = content.safeParse(answer);
  return data === undefined ? answer : Object.values(data).map(valuesOf);
}

/** True if two answers are equal; numbers may differ by the rounding of a double. */
export function isSame(one: unknown, other: unknown): boolean {
  const [left, right] = [valuesOf(one), valuesOf(other)];
  if (typeof left === "number" && typeof right === "number") {
    return Math.abs(left - right) <= 1e-9 * Math.max(Math.abs(left), Math.abs(right));
  }
  if (Array.isArray(left) && Array.isArray(right)) {
    return left.length === right.length && left.every((each, index) => isSame(each, right[index]));
  }
  return left === right;
}

/** Compares the answer to a question, and the state after a change, with the rows of the shop. */
export async function judge({ expected, check }: Question, answer: unknown, shop: Shop, ask: Ask) {
  const after = check && fillIn(check.answer, [(await ask(check)).result]);
  const isRight = isSame(answer, expected(shop)) && isSame(after, check?.expected(shop));
  return { isRight, found: check === undefined ? [answer] : [answer, after] };
}

/** Runs the prepared calls of each question. */
export async function* playAll(ask: Ask, shop: Shop, asked: Asked): AsyncGenerator<Outcome> {
  for (const [id, question] of asked) {
    const results: unknown[] = [];
    let bytes = 0;
    const start = performance.now();
    for (const { tool, arguments: template } of question.calls) {
      const args = content.parse(fillIn(template, results));
      const { text, result } = await ask({ tool, arguments: args });
      bytes += Buffer.byteLength(JSON.stringify(args)) + Buffer.byteLength(text);
      results.push(result);
    }
    const milliseconds = performance.now() - start;
    const judged = await judge(question, fillIn(question.answer, results), shop, ask);
    yield { id, ...judged, calls: results.length, bytes, milliseconds };
  }
}

/** Goals for the average. */
const GOALS = { right: 0.95, calls: 1.3, bytes: 400 } as const;

/** Sums and averages of all outcomes, and whether they reach the goals. */
export function summarize(outcomes: readonly Outcome[]) {
  const right = outcomes.filter(({ isRight }) => isRight).length;
  const total = (of: "calls" | "bytes" | "milliseconds") =>
    outcomes.reduce((sum, outcome) => sum + outcome[of], 0);
  const [calls, bytes, seconds] = [total("calls"), total("bytes"), total("milliseconds") / 1000];
  const each = { calls: calls / outcomes.length, bytes: bytes / outcomes.length };
  const isReached =
    right >= GOALS.right * outcomes.length &&
    each.calls <= GOALS.calls &&
    each.bytes <= GOALS.bytes;
  const text = `${right} of ${outcomes.length} right: ${calls} calls (${each.calls.toFixed(2)} a question), ${bytes} bytes (${each.bytes.toFixed(0)} a question), ${seconds.toFixed(1)} s`;
  return { text, isReached };
}
