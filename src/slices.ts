import { setImmediate } from "node:timers/promises";

/** Long work in small steps: yields wherever it may be interrupted. */
export type Steps<T> = Generator<void, T, void>;

/** Milliseconds for which sliced work may hold the event loop at a time. */
const SLICE_MS = 8;

/** Does the work in one go. */
export function inOneGo<T>(steps: Steps<T>): T {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

/** Does the work in slices of a few milliseconds, between which requests are served. */
export async function inSlices<T>(steps: Steps<T>): Promise<T> {
  let until = performance.now() + SLICE_MS;
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
    if (performance.now() < until) continue;
    await setImmediate();
    until = performance.now() + SLICE_MS;
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
