/** Cooperative scheduling: long work in small steps, with turns of the event loop in between. */
import { setImmediate } from "node:timers/promises";

/** Work that yields wherever it may be interrupted. */
export type Steps<T> = Generator<void, T, void>;

/** Longest time for which all such work together may block the event loop. */
const SLICE_MS = 8;
let underway = 0;

export function runAtOnce<T>(steps: Steps<T>): T {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

/**
 * Runs the work in slices of a few milliseconds and serves requests in between. Concurrent pieces
 * of work each get one shorter slice per turn of the event loop.
 */
export async function runCooperatively<T>(steps: Steps<T>): Promise<T> {
  underway++;
  try {
    for (;;) {
      const until = performance.now() + SLICE_MS / underway;
      do {
        const step = steps.next();
        if (step.done === true) return step.value;
      } while (performance.now() < until);
      await setImmediate();
    }
  } finally {
    underway--;
  }
}

/**
 * The same work, abandoned at the next step once it is no longer wanted; it then returns undefined.
 */
export function* whileWanted<T>(steps: Steps<T>, isWanted: () => boolean): Steps<T | undefined> {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
    if (!isWanted()) return undefined;
    yield;
  }
}

const ITEMS_PER_STEP = 256;

export function* visitEach<T>(
  items: Iterable<T>,
  visit: (item: T, index: number) => void,
): Steps<void> {
  let index = 0;
  for (const item of items) {
    visit(item, index);
    index++;
    if (index % ITEMS_PER_STEP === 0) yield;
  }
}
