import type { Fragment } from "./fragment.ts";

/** A row of a result, in the order of the columns; values as the driver gives them. */
export type ResultRow<Raw> = Readonly<Record<number, Raw | null>>;

/** A statement, and what is wanted of it: its rows, or how many rows it changed. */
export interface Statement {
  readonly fragment: Fragment;
  readonly wants: "rows" | "count";
  /** True if nothing comes behind it, whatever it is answered. */
  readonly isLast?: boolean;
}

/** What the database said; of rows and count the one that was wanted. */
export interface Reply<Raw> {
  readonly rows: readonly ResultRow<Raw>[];
  readonly count: number;
}

/**
 * Work on a database that is written once, for drivers that answer at once and for those that are
 * waited for: it yields statements and gets the replies.
 */
export type Steps<Result, Raw> = Generator<Statement, Result, Reply<Raw>>;

/** Runs a fragment and returns how many rows it changed. */
export function* run<Raw>(fragment: Fragment, isLast = false): Steps<number, Raw> {
  return (yield { fragment, wants: "count", isLast }).count;
}

/** Runs a fragment and returns all of its rows. */
export function* rows<Raw>(fragment: Fragment): Steps<readonly ResultRow<Raw>[], Raw> {
  return (yield { fragment, wants: "rows" }).rows;
}

/** Takes steps whose statements are answered at once. @throws what they throw */
export function takeSteps<Result, Raw>(
  steps: Steps<Result, Raw>,
  answer: (statement: Statement) => Reply<Raw>,
): Result {
  let step = steps.next();
  while (step.done !== true) {
    let reply: Reply<Raw>;
    try {
      reply = answer(step.value);
    } catch (error) {
      step = steps.throw(error);
      continue;
    }
    step = steps.next(reply);
  }
  return step.value;
}
