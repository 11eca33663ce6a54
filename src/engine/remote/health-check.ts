import { setTimeout as delay } from "node:timers/promises";
import { sql } from "kysely";
import type { Logger } from "pino";
import { ConnectionLost, type Dialect, type Session } from "./dialect.ts";
import { ConnectionPool, type ConnectionSource } from "./pool.ts";
import { Transactions } from "./transaction.ts";

/**
 * Finds out whether a server answers, by a statement on a connection of its own: it waits behind no
 * query.
 */
export class HealthCheck<Leased extends Session> {
  readonly #pool: ConnectionPool<Leased>;
  readonly #transactions: Transactions<Leased>;
  #query = new AbortController();
  #asking: Promise<void> | undefined;
  #isClosed = false;

  /** @param timeLimit how long the server may take over the transaction, in milliseconds */
  constructor(source: ConnectionSource<Leased>, dialect: Dialect<Leased>, timeLimit: number) {
    this.#pool = new ConnectionPool(source, 1);
    this.#transactions = new Transactions(this.#pool, dialect, timeLimit);
  }

  /**
   * Resolves if the server answers within `patience` milliseconds.
   *
   * @throws ConnectionLost if it does not, and what the server refuses the connection with
   */
  async run(patience: number): Promise<void> {
    // One look for all who ask at one moment, also if it takes longer than they wait.
    this.#asking ??= this.#ask();
    const timer = new AbortController();
    try {
      await Promise.race([this.#asking, silence(patience, timer.signal)]);
    } finally {
      timer.abort();
    }
  }

  /** Closes the connection. */
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

/** Rejects after the time given. */
async function silence(patience: number, signal: AbortSignal): Promise<void> {
  await delay(patience, undefined, { signal });
  throw new ConnectionLost(new Error(`no answer within ${patience / 1000} seconds`));
}

/** How long an answer of the server counts, in milliseconds. */
const FRESH_TIME_MS = 1000;

/** Tells the log when the server is lost and when it is back, once each. */
export class Reachability {
  readonly #server: string;
  readonly #log: Logger;
  #isLost = false;
  /** `performance.now()` of its last answer. */
  #answeredAt = Number.NEGATIVE_INFINITY;

  /** `server` is the name of its kind, such as `PostgreSQL`. */
  constructor(server: string, log: Logger) {
    this.#server = server;
    this.#log = log;
  }

  /** True if it has answered within the last second, and nothing has failed since. */
  get hasJustAnswered(): boolean {
    return !this.#isLost && performance.now() - this.#answeredAt < FRESH_TIME_MS;
  }

  noteSuccess(): void {
    this.#answeredAt = performance.now();
    if (this.#isLost) this.#log.info(`${this.#server} is back`);
    this.#isLost = false;
  }

  /** `error` is one of the connection, whose words hold nothing of a query. */
  noteFailure(error: unknown): void {
    if (!this.#isLost) {
      this.#log.error({ reason: reasonOf(error) }, `${this.#server} cannot be used`);
    }
    this.#isLost = true;
  }
}

/** What an error of the connection says, or the one below it, which knows more. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return "unknown";
  if (error.cause instanceof Error) return reasonOf(error.cause);
  const code = "code" in error ? `${error.code}: ` : "";
  return code + error.message;
}
