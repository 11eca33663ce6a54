/** A write or a read of a register, from request to answer. */
export interface Operation {
  readonly start: number;
  /** Infinity for a write with an unknown outcome. */
  readonly end: number;
  readonly kind: "write" | "read";
  /** The value written, or the value that a read compares with. */
  readonly value: string;
  /** For a read: true if the register had the value. */
  readonly holds?: boolean;
}

/** A possible value of the register, and the pending operations that have taken effect. */
interface Configuration {
  readonly value: string;
  readonly done: ReadonlySet<number>;
}

function fits({ value, holds }: Operation, current: string): boolean {
  return (value === current) === (holds ?? true);
}

/**
 * Searches for an order of the operations, each at a moment between its start and its end, in which
 * every read finds the last written value. The search is that of Wing and Gong (Testing and
 * verifying concurrent objects, 1993), in order of time and without repeated configurations (Lowe,
 * Testing for linearizability, 2017). An operation that ends when another starts overlaps it.
 *
 * @returns undefined if such an order exists, else the first operation that no order can contain
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
    const reached = reachable(configurations, pending).filter(({ done }) => done.has(index));
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

/** Applies every read that fits. A read changes nothing, so applying it early loses no order. */
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

/** The configurations that pending operations can lead to. */
function reachable(
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
