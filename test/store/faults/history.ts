import { nonLinearizable, type Operation } from "./linearizable.ts";

/** The value of a write whose value is unknown, and of a read of a value that was never written. */
export const UNKNOWN_VALUE = "?";

interface Read {
  readonly replica: string;
  readonly operation: Operation;
}

interface Register {
  readonly initial: string;
  readonly writes: Operation[];
  readonly reads: Read[];
}

/** A read that the writes cannot explain. */
export interface Violation {
  readonly register: string;
  readonly replica: string;
  readonly read: Operation;
  /** The last writes before the end of the read. */
  readonly writes: readonly Operation[];
}

/**
 * Writes and reads of shared objects. Each object is one register per replica. A write ends when it
 * is in force at all replicas; before that, some may have it.
 */
export class History {
  readonly #registers = new Map<string, Register>();
  operations = 0;
  writes = 0;
  unknownWrites = 0;
  slowestWriteMs = 0;

  open(register: string, initial: string): void {
    this.#registers.set(register, { initial, writes: [], reads: [] });
  }

  /** @param end Infinity if the outcome is unknown */
  wrote(register: string, value: string, start: number, end: number): void {
    this.#of(register).writes.push({ start, end, value, kind: "write" });
    this.operations++;
    this.writes++;
    if (end === Number.POSITIVE_INFINITY) this.unknownWrites++;
    else this.slowestWriteMs = Math.max(this.slowestWriteMs, end - start);
  }

  /** @param holds true if the register had the value at this replica */
  read(register: string, replica: string, value: string, holds: boolean, start: number): void {
    const end = performance.now();
    const operation = { start, end, value, holds, kind: "read" } as const;
    this.#of(register).reads.push({ replica, operation });
    this.operations++;
  }

  get registers(): number {
    return this.#registers.size;
  }

  #of(name: string): Register {
    const register = this.#registers.get(name);
    if (register === undefined) throw new Error(`no register ${name}`);
    return register;
  }

  violations(): Violation[] {
    return [...this.#registers].flatMap(([name, register]) => [...check(name, register)]);
  }
}

function* check(register: string, { initial, writes, reads }: Register): Generator<Violation> {
  const known = new Set([initial, ...writes.map(({ value }) => value)]);
  const named = (read: Operation): Operation =>
    known.has(read.value) ? read : { ...read, value: UNKNOWN_VALUE };
  for (const [replica, those] of Map.groupBy(reads, (read) => read.replica)) {
    const own = those.map(({ operation }) => named(operation));
    const read = nonLinearizable(initial, [...writes, ...own]);
    if (read === undefined) continue;
    const near = writes
      .filter(({ start }) => start < read.end)
      .sort((a, b) => a.end - b.end)
      .slice(-4);
    yield { register, replica, read, writes: near };
  }
}
