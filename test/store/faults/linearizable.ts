/** Whether a history of a register could have come from one that changes at one moment. */

/** A change or a look at a register, with when it was asked and when it was answered. */
export interface Operation {
  readonly start: number;
  /** Infinity for a change of which nobody knows whether it was made. */
  readonly end: number;
  readonly kind: "write" | "read";
  /** What was written, or what a read is about. */
  readonly value: string;
  /** Of a read: whether the register held the value; that it did not says no more. */
  readonly holds?: boolean;
}

/** What the register may be after some of the operations, and which of those under way have been. */
interface Configuration {
  readonly value: string;
  readonly done: ReadonlySet<number>;
}

function fits({ value, holds }: Operation, held: string): boolean {
  return (value === held) === (holds ?? true);
}

/**
 * Looks for an order of the operations, each at a moment between its start and its end, in which
 * every read finds what was written last: the search of Wing and Gong (Testing and verifying
 * concurrent objects, 1993) in the order of time with known configurations left out, as Lowe has it
 * (Testing for linearizability, 2017). Operations that end at the moment another starts overlap it.
 *
 * @returns undefined if there is one, else the first operation by whose end there is none
 */
export function nonLinearizable(
  initial: string,
  operations: readonly Operation[],
): Operation | undefined {
  const events = operations.flatMap(({ start, end }, index) => [
    { at: start, index, isEnd: false },
    ...(end === Number.POSITIVE_INFINITY ? [] : [{ at: end, index, isEnd: true }]),
  ]);
  events.sort((a, b) => a.at - b.at || Number(a.isEnd) - Number(b.isEnd));
  const pending = new Map<number, Operation>();
  let configurations: Configuration[] = [{ value: initial, done: new Set() }];
  for (const { index, isEnd } of events) {
    const operation = operations[index];
    if (operation === undefined) continue;
    if (!isEnd) {
      pending.set(index, operation);
      continue;
    }
    const reached = everyWay(configurations, pending).filter(({ done }) => done.has(index));
    if (reached.length === 0) return operation;
    pending.delete(index);
    configurations = distinct(
      reached.map(({ value, done }) => ({ value, done: without(done, index) })),
    );
  }
  return undefined;
}

function without(done: ReadonlySet<number>, index: number): Set<number> {
  const left = new Set(done);
  left.delete(index);
  return left;
}

function keyOf({ value, done }: Configuration): string {
  return JSON.stringify([value, ...[...done].sort((a, b) => a - b)]);
}

function distinct(configurations: readonly Configuration[]): Configuration[] {
  return [...new Map(configurations.map((one) => [keyOf(one), one])).values()];
}

/** Takes every read that fits: it changes nothing, so there is nothing to be said for waiting. */
function withReads(
  value: string,
  done: ReadonlySet<number>,
  pending: ReadonlyMap<number, Operation>,
): Configuration {
  const all = new Set(done);
  for (const [index, operation] of pending) {
    if (operation.kind === "read" && fits(operation, value)) all.add(index);
  }
  return { value, done: all };
}

/** What can be reached from some configurations by operations that are under way. */
function everyWay(
  from: readonly Configuration[],
  pending: ReadonlyMap<number, Operation>,
): Configuration[] {
  const found = new Map<string, Configuration>();
  const open = from.map(({ value, done }) => withReads(value, done, pending));
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const key = keyOf(next);
    if (found.has(key)) continue;
    found.set(key, next);
    for (const [index, { kind, value }] of pending) {
      if (kind === "read" || next.done.has(index)) continue;
      open.push(withReads(value, new Set(next.done).add(index), pending));
    }
  }
  return [...found.values()];
}
