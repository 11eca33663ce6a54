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
