/** How many queries read one database at a time, so that some workers are left for others. */
const READERS_PER_DATABASE = 3;

/**
 * One lock for each database that is in use: queries on one hold up no other. SQLite has locks of
 * its own; with these, nobody meets them, and who waits does so in turn and without a worker.
 */
export class DatabaseLocks {
  readonly #locks = new Map<string, ReadWriteLock>();

  /** Runs `work` beside other readers of the database. */
  shared<T>(name: string, work: () => Promise<T>): Promise<T> {
    return this.#use(name, (lock) => lock.shared(work));
  }

  /** Runs `work` while nothing else uses the databases. */
  exclusive<T>(names: Iterable<string>, work: () => Promise<T>): Promise<T> {
    // In one order for all, so that no two wait for each other.
    return this.#lockAll([...new Set(names)].sort(), work);
  }

  #lockAll<T>([first, ...others]: readonly string[], work: () => Promise<T>): Promise<T> {
    if (first === undefined) return work();
    return this.#use(first, (lock) => lock.exclusive(() => this.#lockAll(others, work)));
  }

  async #use<T>(name: string, hold: (lock: ReadWriteLock) => Promise<T>): Promise<T> {
    const lock = this.#locks.get(name) ?? new ReadWriteLock(READERS_PER_DATABASE);
    this.#locks.set(name, lock);
    try {
      return await hold(lock);
    } finally {
      if (lock.isFree) this.#locks.delete(name);
    }
  }
}

type Mode = "shared" | "exclusive";

interface Waiter {
  readonly mode: Mode;
  readonly grant: () => void;
}

/**
 * A lock that several readers or one writer hold. It is given in the order in which it was asked
 * for, so that a stream of readers never starves a writer.
 */
export class ReadWriteLock {
  readonly #waiters: Waiter[] = [];
  readonly #readerLimit: number;
  #readers = 0;
  #written = false;

  /** `readerLimit` is how many readers hold it at a time. */
  constructor(readerLimit = Number.POSITIVE_INFINITY) {
    this.#readerLimit = readerLimit;
  }

  /** True while nobody holds the lock or waits for it. */
  get isFree(): boolean {
    return this.#readers === 0 && !this.#written && this.#waiters.length === 0;
  }

  /** Runs `work` beside other readers. */
  shared<T>(work: () => Promise<T>): Promise<T> {
    return this.#hold("shared", work);
  }

  /** Runs `work` while nothing else runs. */
  exclusive<T>(work: () => Promise<T>): Promise<T> {
    return this.#hold("exclusive", work);
  }

  async #hold<T>(mode: Mode, work: () => Promise<T>): Promise<T> {
    await new Promise<void>((grant) => {
      this.#waiters.push({ mode, grant });
      this.#advance();
    });
    try {
      return await work();
    } finally {
      if (mode === "shared") this.#readers -= 1;
      else this.#written = false;
      this.#advance();
    }
  }

  #advance(): void {
    for (let next = this.#waiters[0]; next !== undefined; next = this.#waiters[0]) {
      if (!this.#admits(next.mode)) return;
      this.#waiters.shift();
      if (next.mode === "shared") this.#readers += 1;
      else this.#written = true;
      next.grant();
    }
  }

  #admits(mode: Mode): boolean {
    if (this.#written) return false;
    return mode === "shared" ? this.#readers < this.#readerLimit : this.#readers === 0;
  }
}
