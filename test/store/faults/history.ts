import { nonLinearizable, type Operation } from "./linearizable.ts";

/** What nobody knows to have been written. */
const UNKNOWN = "?";

/** A read, and which replica it was answered by. */
interface Look {
  readonly replica: string;
  readonly operation: Operation;
}

interface Register {
  readonly initial: string;
  readonly writes: Operation[];
  readonly reads: Look[];
}

/** A read of a replica that nothing that was written explains. */
export interface Violation {
  readonly register: string;
  readonly replica: string;
  readonly read: Operation;
  /** The last writes that were answered before, and those that overlap it. */
  readonly writes: readonly Operation[];
}

/**
 * What was asked of shared objects, and what was answered. Each is a register at each replica: a
 * change is acknowledged when it is in force at all of them, and until then some may have it.
 */
export class History {
  readonly #registers = new Map<string, Register>();
  operations = 0;
  writes = 0;
  unknownWrites = 0;
  /** Milliseconds that the slowest write that was answered took. */
  slowestWrite = 0;

  /** Begins a register. */
  open(register: string, initial: string): void {
    this.#registers.set(register, { initial, writes: [], reads: [] });
  }

  /** @param end Infinity if nobody knows whether it was made */
  wrote(register: string, value: string, start: number, end: number): void {
    this.#of(register).writes.push({ start, end, value, kind: "write" });
    this.operations++;
    this.writes++;
    if (end === Number.POSITIVE_INFINITY) this.unknownWrites++;
    else this.slowestWrite = Math.max(this.slowestWrite, end - start);
  }

  /** @param holds whether the register held the value at this replica */
  read(register: string, replica: string, value: string, holds: boolean, start: number): void {
    const end = performance.now();
    this.#of(register).reads.push({
      replica,
      operation: { start, end, value, holds, kind: "read" },
    });
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

  /** Everything that was read and cannot have been. */
  violations(): Violation[] {
    return [...this.#registers].flatMap(([name, register]) => [...check(name, register)]);
  }
}

function* check(register: string, { initial, writes, reads }: Register): Generator<Violation> {
  const known = new Set([initial, ...writes.map(({ value }) => value)]);
  const named = (read: Operation): Operation =>
    known.has(read.value) ? read : { ...read, value: UNKNOWN };
  for (const [replica, looks] of Map.groupBy(reads, (look) => look.replica)) {
    const own = looks.map(({ operation }) => named(operation));
    const read = nonLinearizable(initial, [...writes, ...own]);
    if (read === undefined) continue;
    const near = writes
      .filter(({ start }) => start < read.end)
      .sort((a, b) => a.end - b.end)
      .slice(-4);
    yield { register, replica, read, writes: near };
  }
}

/** The value of a write of which not even that is known. */
export const unknownValue: string = UNKNOWN;
