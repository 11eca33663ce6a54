/** Cooperative scheduling: long work in small steps, between which the event loop turns. */
import { setImmediate } from "node:timers/promises";

/** Work that yields wherever it may be interrupted. */
export type Steps<T> = Generator<void, T, void>;

/** Milliseconds for which work in slices may hold the event loop at a time, all of it together. */
const SLICE_MS = 8;
/** How many pieces of such work are under way. */
let underway = 0;

/** Does the work in one go. */
export function runAtOnce<T>(steps: Steps<T>): T {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

/**
 * Does the work in slices of a few milliseconds, between which requests are served. Where much is
 * under way, each has a slice in a turn of the event loop, and they are shorter.
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

/** The same work, given up at the next step once it is not wanted any more: then undefined. */
export function* whileWanted<T>(steps: Steps<T>, isWanted: () => boolean): Steps<T | undefined> {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
    if (!isWanted()) return undefined;
    yield;
  }
}

/** Items visited between two chances to interrupt. */
const ITEMS_PER_STEP = 256;

/** Visits every item; may be interrupted between them. */
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
