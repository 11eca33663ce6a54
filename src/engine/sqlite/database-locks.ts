import { ReadWriteLock } from "./lock.ts";

/** How many queries read one database at a time, so that some workers are left for others. */
const readersPerDatabase = 3;

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
    const lock = this.#locks.get(name) ?? new ReadWriteLock(readersPerDatabase);
    this.#locks.set(name, lock);
    try {
      return await hold(lock);
    } finally {
      if (lock.isFree) this.#locks.delete(name);
    }
  }
}
