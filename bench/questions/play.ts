/** Runs the calls of a question and measures them. */

/** A tool call. An object `{"$": "0.rows.0.id"}` refers to a part of an earlier result. */
interface Call {
  readonly tool: string;
  readonly arguments: Readonly<Record<string, unknown>>;
}

/** A question with the best calls of a model that knows the tables. */
export interface Question {
  readonly id: string;
  readonly question: string;
  readonly calls: readonly Call[];
  /** The answer as a part of the results. */
  readonly answer: unknown;
  /** Calls, and bytes of their arguments and of the text results. */
  readonly budget: { readonly calls: number; readonly bytes: number };
  /** The expected state afterwards, if the question asks for a change. */
  readonly check?: Call & { readonly answer: unknown };
}

/** A result as text for a model, and as a value. */
interface Answered {
  readonly text: string;
  readonly result: unknown;
}

export type Ask = (call: Call) => Promise<Answered>;

export interface Played {
  readonly answer: unknown;
  /** The state afterwards; undefined without a check. */
  readonly after: unknown;
  readonly calls: number;
  readonly bytes: number;
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function partOf(value: unknown, path: readonly string[]): unknown {
  const [step, ...rest] = path;
  if (step === undefined) return value;
  if (step === "*")
    return Array.isArray(value) ? value.map((each) => partOf(each, rest)) : undefined;
  if (Array.isArray(value)) return partOf(value.at(Number(step)), rest);
  return partOf(isObject(value) ? value[step] : undefined, rest);
}

/** Replaces references in the template by parts of the results. */
export function fillIn(template: unknown, results: readonly unknown[]): unknown {
  if (Array.isArray(template)) return template.map((each) => fillIn(each, results));
  if (!isObject(template)) return template;
  const { $: path } = template;
  if (typeof path === "string") return partOf(results, path.split("."));
  const entries = Object.entries(template).map(([key, each]) => [key, fillIn(each, results)]);
  return Object.fromEntries(entries);
}

/** Runs the calls of a question in order. */
export async function play({ calls, answer, check }: Question, ask: Ask): Promise<Played> {
  const results: unknown[] = [];
  let bytes = 0;
  for (const { tool, arguments: template } of calls) {
    const args = fillIn(template, results);
    const { text, result } = await ask({ tool, arguments: isObject(args) ? args : {} });
    bytes += Buffer.byteLength(JSON.stringify(args)) + Buffer.byteLength(text);
    results.push(result);
  }
  const after = check && fillIn(check.answer, [(await ask(check)).result]);
  return { answer: fillIn(answer, results), after, calls: calls.length, bytes };
}

/** Only the values, since a model may name fields as it likes. */
function valuesOf(answer: unknown): unknown {
  if (Array.isArray(answer)) return answer.map(valuesOf);
  if (isObject(answer)) return Object.values(answer).map(valuesOf);
  return answer;
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
