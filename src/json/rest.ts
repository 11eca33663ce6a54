/**
 * Reading that may pause, so that a long body does not hold the event loop.
 *
 * Readers read at once and give back undefined. Only one that comes upon a pause (`JsonReader.pause`)
 * gives back what is left to do, and every reader around it then adds what it has left itself. So a
 * body that is read in one go costs nothing more, and both ways are one grammar.
 */

import type { Steps } from "../cooperative-scheduling.ts";

/** What is left to read, interrupted wherever it yields; undefined if all is read. */
export type Rest = Steps<void> | undefined;

/** What is left, and then `work`. */
export function* andThen(rest: Steps<void>, work: () => void): Steps<void> {
  yield* rest;
  work();
}

/** Reads once, and again as long as `next` says so. */
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
