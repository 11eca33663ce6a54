/** Measured and expected results of the calls of a question. */
import { readFileSync } from "node:fs";
import { z } from "zod";
import { type Ask, isSame, play, type Question } from "./play.ts";
import { afterwards, references } from "./reference.ts";
import type { Scale, Shop } from "./shop.ts";

const call = z.object({ tool: z.string(), arguments: z.record(z.string(), z.unknown()) });
const question = z.object({
  id: z.string(),
  question: z.string(),
  calls: z.array(call),
  answer: z.unknown(),
  budget: z.object({ calls: z.number(), bytes: z.number() }),
  check: call.extend({ answer: z.unknown() }).exactOptional(),
});
const answer = z.object({ answer: z.unknown(), after: z.unknown().optional() });

function read(name: string): unknown {
  return JSON.parse(readFileSync(new URL(name, import.meta.url), "utf8"));
}

/** The questions, in order. */
export const questions: readonly Question[] = z.array(question).parse(read("questions.json"));

/** Checked answers of a scale by question. */
export function answersOf(scale: Scale): Readonly<Record<string, z.output<typeof answer>>> {
  return (
    z.record(z.string(), z.record(z.string(), answer)).parse(read("answers.json"))[scale] ?? {}
  );
}

/** Answers computed from the shop's rows. */
export function computedAnswers(shop: Shop): Record<string, z.output<typeof answer>> {
  const entries = questions.map(({ id }) => {
    const after = afterwards[id]?.(shop);
    return [
      id,
      { answer: references[id]?.(shop), ...(after === undefined ? {} : { after }) },
    ] as const;
  });
  return Object.fromEntries(entries);
}

export interface Outcome {
  readonly id: string;
  readonly isRight: boolean;
  readonly isWithinBudget: boolean;
  readonly calls: number;
  readonly bytes: number;
  readonly milliseconds: number;
  /** The answer; for a change, also the state afterwards. */
  readonly found: unknown;
}

/** Runs the prepared calls of each question. */
export async function* playAll(
  ask: Ask,
  scale: Scale,
  asked: readonly Question[],
): AsyncGenerator<Outcome> {
  const expected = answersOf(scale);
  for (const question of asked) {
    const { id, budget } = question;
    const start = performance.now();
    const { answer, after, calls, bytes } = await play(question, ask);
    const milliseconds = performance.now() - start;
    const isRight = isSame(answer, expected[id]?.answer) && isSame(after, expected[id]?.after);
    const isWithinBudget = calls <= budget.calls && bytes <= budget.bytes;
    yield { id, isRight, isWithinBudget, calls, bytes, milliseconds, found: [answer, after] };
  }
}
