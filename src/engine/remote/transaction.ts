import { setTimeout as delay } from "node:timers/promises";
import { EngineRefusal, tooSlow, UnknownOutcome } from "../refusal.ts";
import type { RowStream } from "../spool.ts";
import {
  type Connection,
  ConnectionLost,
  type Dialect,
  type Mode,
  type Session,
} from "./dialect.ts";
import { OutdatedTable } from "./known-tables.ts";
import { ConcurrencyLimiter, type ConnectionPool } from "./pool.ts";

/** How long a statement may take to end once it is cancelled, in milliseconds. */
const CANCEL_TIME_MS = 1000;

/** What is leased, and until when. */
interface Terms {
  /** The database of the query; undefined for what is about none. */
  readonly database: string | undefined;
  readonly signal: AbortSignal;
  /** True for a connection that is made for it. */
  readonly isFresh: boolean;
  /** True for an error after which the connection is fit for another transaction. */
  isSettled(error: unknown): boolean;
}

/**
 * Leases a connection of the pool to the work. Once `signal` is aborted, what the server does for it is
 * cancelled and the connection given up; so it is after an error that is not settled, which may
 * have come in the middle of an answer.
 *
 * @throws the reason of `signal`, what the pool throws, or what the work throws
 */
async function withLease<Leased, Result>(
  pool: ConnectionPool<Leased>,
  { database, signal, isFresh, isSettled }: Terms,
  work: (session: Leased) => Promise<Result>,
): Promise<Result> {
  const idle = isFresh ? undefined : pool.takeIdle(database);
  const connection = idle ?? (await pool.open(database));
  const lease = new Lease(connection);
  signal.addEventListener("abort", lease.interrupt);
  try {
    signal.throwIfAborted();
    return await work(connection.session);
  } catch (error) {
    if (!isSettled(error)) lease.giveUp();
    throw signal.aborted && !(error instanceof EngineRefusal) ? signal.reason : error;
  } finally {
    signal.removeEventListener("abort", lease.interrupt);
    const ending = lease.cancelling;
    if (ending !== undefined) await ending;
    pool.release(connection, lease.end());
  }
}

/** A connection while it is leased. */
class Lease {
  readonly #connection: Connection<unknown>;
  /** A request to cancel, which must meet nobody else's work. */
  cancelling: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isBroken = false;

  constructor(connection: Connection<unknown>) {
    this.#connection = connection;
  }

  /**
   * Cancels what is under way. If that does not help, since the request came between two
   * statements, it is said once more and the connection is cut.
   */
  readonly interrupt = (): void => {
    this.#isBroken = true;
    this.cancelling = this.#connection.cancel();
    this.#timer = setTimeout(() => {
      this.cancelling = this.#connection.cancel().finally(() => this.#connection.cut());
    }, CANCEL_TIME_MS);
  };

  /** The connection is not used again. */
  giveUp(): void {
    this.#isBroken = true;
  }

  /** Returns whether the connection is broken. */
  end(): boolean {
    clearTimeout(this.#timer);
    return this.#isBroken;
  }
}

/** How often a transaction that has lost against another one is run again at the most. */
const ATTEMPT_LIMIT = 5;

/** How long the first pause before another attempt is at the most, in milliseconds. */
const FIRST_PAUSE_MS = 10;

/** How often it is tried that finds a table changed that it knew. */
const ATTEMPTS_ON_TABLES = 3;

/** What a transaction is to be. */
export interface Conditions {
  readonly mode: Mode;
  /** The database that it is about; absent: none, or all of them. */
  readonly database?: string | undefined;
  /** How it ends if the work succeeds; a commit if left out. */
  readonly end?: "commit" | "rollback";
  /** True if it may be committed with the statement that is known to be its last one. */
  readonly endsWithLast?: boolean;
  /**
   * Where its rows go while others are still to come. It then takes as long as rows move, and is not
   * run again once any has gone out.
   */
  readonly stream?: RowStream;
}

/** The transactions on one server. */
export class Transactions<Leased extends Session> {
  readonly #pool: ConnectionPool<Leased>;
  readonly #dialect: Dialect<Leased>;
  readonly #timeLimit: number;
  /** The place of the one transaction that is run again, so that such ones meet no other such. */
  readonly #again = new ConcurrencyLimiter(1);

  /** `timeLimit` is how long a transaction may take over all attempts, in milliseconds. */
  constructor(pool: ConnectionPool<Leased>, dialect: Dialect<Leased>, timeLimit: number) {
    this.#pool = pool;
    this.#dialect = dialect;
    this.#timeLimit = timeLimit;
  }

  /**
   * Runs `work` as one transaction: all of it is durable when this resolves, and none of it stays
   * when it rejects. It is run again if it lost against another transaction, and only then, so
   * nothing is done twice.
   *
   * @throws EngineRefusal `query_timeout` after the time limit, by which it aborts `query`, the reason for which
   * that was aborted, `outcome_unknown` if it failed at the commit, or what the work throws
   */
  async run<Result>(
    conditions: Conditions,
    query: AbortController,
    work: (session: Leased) => Promise<Result>,
  ): Promise<Result> {
    const { signal } = query;
    signal.throwIfAborted();
    const { stream } = conditions;
    const timer = setTimeout(() => {
      if (stream?.hasMoved()) timer.refresh();
      else query.abort(tooSlow(this.#timeLimit));
    }, this.#timeLimit);
    try {
      return await this.#runOnce(conditions, signal, work);
    } catch (error) {
      if (stream?.hasBegun || !this.#dialect.failures.isTransient(error)) throw error;
      const runOnce = () => this.#runOnce(conditions, signal, work);
      return await this.#again.hold(signal, () => this.#runAgain(runOnce, stream));
    } finally {
      clearTimeout(timer);
    }
  }

  /** Runs what has lost once, a few times at the most, each after a longer pause. */
  async #runAgain<Result>(run: () => Promise<Result>, stream?: RowStream): Promise<Result> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await run();
      } catch (error) {
        const isFinal = !this.#dialect.failures.isTransient(error) || attempt === ATTEMPT_LIMIT;
        if (isFinal || stream?.hasBegun) throw error;
      }
      await delay(Math.random() * FIRST_PAUSE_MS * 2 ** attempt);
    }
  }

  async #runOnce<Result>(
    conditions: Conditions,
    signal: AbortSignal,
    work: (session: Leased) => Promise<Result>,
  ): Promise<Result> {
    const { isSettled } = this.#dialect.failures;
    const { mode, database } = conditions;
    let isFresh = false;
    for (let attempt = 1; ; attempt += 1) {
      let leased: Leased | undefined;
      try {
        const terms = { database, signal, isSettled, isFresh };
        return await withLease(this.#pool, terms, (session) => {
          leased = session;
          return this.#workIn(session, conditions, work);
        });
      } catch (error) {
        const isStale: boolean =
          !isFresh && mode.endsWith("read only") && isUnreached(error, leased);
        const isOutdated = attempt < ATTEMPTS_ON_TABLES && this.#isOutdated(error, leased);
        // Rows that have gone out are not sent a second time.
        if (!(isStale || isOutdated) || conditions.stream?.hasBegun) {
          throw this.#withLimit(error, signal);
        }
        isFresh = isStale;
      }
    }
  }

  /** Names the time limit in an unknown outcome that it has caused. */
  #withLimit(error: unknown, { reason }: AbortSignal): unknown {
    if (!(error instanceof UnknownOutcome)) return error;
    const refusal = this.#dialect.failures.refusalOf(reason ?? error.cause);
    if (refusal?.code !== "query_timeout") return error;
    const why = `The time limit of ${this.#timeLimit / 1000} seconds was reached`;
    return new UnknownOutcome(error.cause, why);
  }

  /** A table may have changed since it was read, if what was asked of it seems wrong. */
  #isOutdated(error: unknown, session: Leased | undefined): boolean {
    const status = this.#dialect.failures.refusalOf(error)?.status;
    const isOfTable = error instanceof OutdatedTable || status === 400 || status === 404;
    return isOfTable && session?.forgetTables?.() === true;
  }

  async #workIn<Result>(
    session: Leased,
    { mode, end = "commit", endsWithLast = false, stream }: Conditions,
    work: (session: Leased) => Promise<Result>,
  ): Promise<Result> {
    const { isSettled, concernsStatement, isTransient } = this.#dialect.failures;
    // The server would count the time for which the client has not read.
    const timeLimit = stream === undefined ? this.#timeLimit : 0;
    const begun = this.#dialect.begin(session, mode, timeLimit, endsWithLast);
    if (begun !== undefined) await begun;
    let result: Result;
    try {
      result = await work(session);
    } catch (error) {
      if (isSettled(error)) await session.end("rollback");
      throw error;
    }
    try {
      const ended = session.end(end);
      if (ended !== undefined) await ended;
    } catch (error) {
      const isAnswer = concernsStatement(error) || isTransient(error);
      const changesNothing = end === "rollback" || mode.endsWith("read only");
      throw isAnswer || changesNothing ? error : new UnknownOutcome(error);
    }
    return result;
  }
}

/** True for a connection that was closed while it was idle, so that the loss is not the query's doing. */
function isUnreached(error: unknown, session: Session | undefined): boolean {
  return error instanceof ConnectionLost && session?.isUntouched === true;
}
