import type { ChangeOptions, Plan } from "./access-rules.ts";
import type { ParsedAccess } from "./parse.ts";
import { type Change, Draft, isDrafted, usernameOf } from "./record-change.ts";
import type { Snapshot } from "./snapshot.ts";

/** Somebody who waits for a change to be made. */
export interface Writer {
  readonly plan: Plan;
  readonly options: ChangeOptions;
  /** An earlier reading of the file, so that only what has changed is parsed. */
  readonly earlier: ParsedAccess | undefined;
  resolve(written: ParsedAccess): void;
  reject(error: unknown): void;
}

/** Changes of several writers that are written at once (group commit). */
export interface Batch {
  readonly changes: readonly Change[];
  /** Those whose changes these are. */
  readonly writers: readonly Writer[];
  /** Those who were refused, each judged by what those before it change. */
  readonly refused: readonly { readonly writer: Writer; readonly error: unknown }[];
}

/** True for a writer whose change is written by itself. */
function isAlone({ options: { force, beforeWrite } }: Writer): boolean {
  return force === true || beforeWrite !== undefined;
}

/**
 * Gathers from the head of the queue, in order, what can be written at once: no two changes of one
 * user, and nothing behind one that takes a record away. A head that is refused is a batch of its
 * own, since it was judged by what is on disk.
 *
 * @param most writers at most
 */
export function gatherBatch(current: Snapshot, queue: readonly Writer[], most: number): Batch {
  const changes: Change[] = [];
  const writers: Writer[] = [];
  const refused: { writer: Writer; error: unknown }[] = [];
  const touched = new Set<string>();
  let draft: Draft | undefined;
  for (const writer of queue.slice(0, most)) {
    if (writers.length > 0 && isAlone(writer)) break;
    let planned: readonly Change[];
    try {
      planned = writer.plan(draft?.snapshot ?? current);
    } catch (error) {
      refused.push({ writer, error });
      if (writers.length === 0) break;
      continue;
    }
    if (planned.some((change) => touched.has(usernameOf(change)))) break;
    writers.push(writer);
    changes.push(...planned);
    if (isAlone(writer) || !planned.every(isDrafted)) break;
    if (planned.length > 0) draft ??= new Draft(current);
    for (const change of planned.filter(isDrafted)) {
      touched.add(usernameOf(change));
      draft?.make(change);
    }
  }
  return { changes, writers, refused };
}
