import { setTimeout as delay } from "node:timers/promises";
import { sql } from "kysely";
import type { Logger } from "pino";
import { ConnectionLost, type Dialect, type Session } from "./dialect.ts";
import { ConnectionPool, type ConnectionSource } from "./pool.ts";
import { Transactions } from "./transaction.ts";

/**
 * Checks that a server answers a statement. Uses a connection of its own, so that it does not wait
 * for queries.
 */
export class HealthCheck<Leased extends Session> {
  readonly #pool: ConnectionPool<Leased>;
  readonly #transactions: Transactions<Leased>;
  #query = new AbortController();
  #asking: Promise<void> | undefined;
  #isClosed = false;

  /** @param timeLimit limit for the transaction, in milliseconds */
  constructor(source: ConnectionSource<Leased>, dialect: Dialect<Leased>, timeLimit: number) {
    this.#pool = new ConnectionPool(source, 1);
    this.#transactions = new Transactions(this.#pool, dialect, timeLimit);
  }

  /**
   * @param patience limit for the answer, in milliseconds
   *
   * @throws ConnectionLost if there is no answer in time, and the error with which the server
   * refuses the connection
   */
  async run(patience: number): Promise<void> {
    // Concurrent callers share one check, even if it outlasts their patience.
    this.#asking ??= this.#ask();
    const timer = new AbortController();
    try {
      await Promise.race([this.#asking, silence(patience, timer.signal)]);
    } finally {
      timer.abort();
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#query.abort();
    await this.#pool.close();
  }

  async #ask(): Promise<void> {
    try {
      if (!this.#isClosed) this.#query = new AbortController();
      await this.#transactions.run({ mode: "read only" }, this.#query, ask);
    } finally {
      this.#asking = undefined;
    }
  }
}

async function ask(session: Session): Promise<void> {
  await session.run(sql`select 1`);
}

async function silence(patience: number, signal: AbortSignal): Promise<void> {
  await delay(patience, undefined, { signal });
  throw new ConnectionLost(new Error(`no answer within ${patience / 1000} seconds`));
}

const FRESH_TIME_MS = 1000;

/** Logs once when the server is lost, and once when it is back. */
export class Reachability {
  readonly #server: string;
  readonly #log: Logger;
  #isLost = false;
  /** `performance.now()` of the last answer. */
  #answeredAt = Number.NEGATIVE_INFINITY;

  constructor(server: string, log: Logger) {
    this.#server = server;
    this.#log = log;
  }

  /** True if the server has answered within the last second and nothing has failed since. */
  get hasJustAnswered(): boolean {
    return !this.#isLost && performance.now() - this.#answeredAt < FRESH_TIME_MS;
  }

  noteSuccess(): void {
    this.#answeredAt = performance.now();
    if (this.#isLost) this.#log.info(`${this.#server} is back`);
    this.#isLost = false;
  }

  /** `error` is about the connection, so its message holds nothing of a query. */
  noteFailure(error: unknown): void {
    if (!this.#isLost) {
      this.#log.error({ reason: reasonOf(error) }, `${this.#server} cannot be used`);
    }
    this.#isLost = true;
  }
}

/** Returns the message of the innermost cause, which is the most specific. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return "unknown";
  if (error.cause instanceof Error) return reasonOf(error.cause);
  const code = "code" in error ? `${error.code}: ` : "";
  return code + error.message;
}
