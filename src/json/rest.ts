/**
 * Reading that may pause, so that a long body does not block the event loop.
 *
 * Readers normally finish at once and return undefined. A reader that reaches a pause
 * (`JsonReader.pause`) returns the remaining work, and every caller adds its own. A body that is
 * read in one go therefore has no extra cost, and both ways share one grammar.
 */

import type { Steps } from "../cooperative-scheduling.ts";

/** The remaining work, interrupted at each yield. Undefined if everything is read. */
export type Rest = Steps<void> | undefined;

export function* andThen(rest: Steps<void>, work: () => void): Steps<void> {
  yield* rest;
  work();
}

/** Reads once, and again while `next` returns true. */
export function repeat(read: () => Rest, next: () => boolean): Rest {
  do {
    const rest = read();
    if (rest !== undefined) return repeatAfter(rest, read, next);
  } while (next());
  return undefined;
}

function* repeatAfter(rest: Steps<void>, read: () => Rest, next: () => boolean): Steps<void> {
  yield* rest;
  while (next()) {
    const more = read();
    if (more !== undefined) yield* more;
  }
}
