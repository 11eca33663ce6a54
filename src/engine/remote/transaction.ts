import { setTimeout as delay } from "node:timers/promises";
import { anyone, FairQueue } from "../../core/base/queues.ts";
import { EngineRefusal, queryTimedOut, UnknownOutcome } from "../refusal.ts";
import type { RowStream } from "../spool.ts";
import {
  type Connection,
  ConnectionLost,
  type Dialect,
  type Mode,
  type Session,
} from "./dialect.ts";
import { OutdatedTable } from "./known-tables.ts";
import type { ConnectionPool } from "./pool.ts";

/** How long a canceled statement may take to end. */
const CANCEL_TIME_MS = 1000;

/** After losing against another transaction. */
const RETRY_LIMIT = 5;

const FIRST_PAUSE_MS = 10;

/** When cached tables turn out to be outdated. */
const STALE_TABLE_ATTEMPTS = 3;

export interface TransactionOptions {
  readonly mode: Mode;
  readonly database?: string | undefined;
  /** Defaults to a commit. */
  readonly end?: "commit" | "rollback";
  /** The last statement of so many changes may commit the transaction. Defaults to 0. */
  readonly changes?: number;
  /** The transaction may run as long as rows move, and is not retried once any has been sent. */
  readonly stream?: RowStream;
}

export class Transactions<Leased extends Session> {
  readonly #pool: ConnectionPool<Leased>;
  readonly #dialect: Dialect<Leased>;
  readonly #timeLimit: number;
  /** Retries run one at a time, so that they do not conflict with each other. */
  readonly #again = new FairQueue({ slots: 1 });

  constructor(pool: ConnectionPool<Leased>, dialect: Dialect<Leased>, timeLimit: number) {
    this.#pool = pool;
    this.#dialect = dialect;
    this.#timeLimit = timeLimit;
  }

  /**
   * Runs `work` as one transaction. When this resolves, all of it is durable. When it rejects, none
   * of it remains, so a retry repeats nothing.
   *
   * @throws EngineRefusal `query_timeout` after the time limit, which also aborts `query`
   * @throws the reason of `query`, `outcome_unknown` if the commit failed, or what the work throws
   */
  async run<Result>(
    options: TransactionOptions,
    query: AbortController,
    work: (session: Leased) => Promise<Result>,
  ): Promise<Result> {
    const { signal } = query;
    signal.throwIfAborted();
    const { stream } = options;
    const timer = setTimeout(() => {
      if (stream?.hasProgressed()) timer.refresh();
      else query.abort(queryTimedOut(this.#timeLimit));
    }, this.#timeLimit);
    const runOnce = () => this.#runOnce(options, signal, work);
    const mayRetry = (error: unknown) =>
      !stream?.hasBegun && this.#dialect.failures.isTransient(error);
    try {
      return await runOnce();
    } catch (error) {
      if (!mayRetry(error)) throw error;
      return await this.#again.hold(anyone, signal, () => runAgain(runOnce, mayRetry));
    } finally {
      clearTimeout(timer);
    }
  }

  async #runOnce<Result>(
    options: TransactionOptions,
    signal: AbortSignal,
    work: (session: Leased) => Promise<Result>,
  ): Promise<Result> {
    const { mode, database, stream } = options;
    let isFresh = false;
    for (let attempt = 1; ; attempt += 1) {
      let leased: Leased | undefined;
      try {
        const idle = isFresh ? undefined : this.#pool.takeIdle(database);
        const connection = idle ?? (await this.#pool.open(database));
        leased = connection.session;
        return await this.#lease(connection, signal, () =>
          this.#workIn(connection.session, options, work),
        );
      } catch (error) {
        // The query did not cause the loss of a connection that was closed while idle.
        const isStale: boolean =
          !isFresh &&
          mode.endsWith("read only") &&
          error instanceof ConnectionLost &&
          leased?.isUntouched === true;
        const isOutdated = attempt < STALE_TABLE_ATTEMPTS && this.#isOutdated(error, leased);
        // Rows that have been sent must not be sent again.
        if (!(isStale || isOutdated) || stream?.hasBegun) throw this.#withLimit(error, signal);
        isFresh = isStale;
      }
    }
  }

  /** Once `signal` is aborted, the running statement is canceled and the connection discarded. */
  async #lease<Result>(
    connection: Connection<Leased>,
    signal: AbortSignal,
    work: () => Promise<Result>,
  ): Promise<Result> {
    let isBroken = false;
    /** Awaited before release, because a cancel request must not hit another query. */
    let canceling: Promise<void> | undefined;
    let timer: NodeJS.Timeout | undefined;
    // A cancel request between two statements has no effect, so it is repeated.
    const interrupt = (): void => {
      isBroken = true;
      canceling = connection.cancel();
      timer = setTimeout(() => {
        canceling = connection.cancel().finally(() => connection.cut());
      }, CANCEL_TIME_MS);
    };
    signal.addEventListener("abort", interrupt);
    try {
      signal.throwIfAborted();
      return await work();
    } catch (error) {
      if (!this.#dialect.failures.leavesConnectionUsable(error)) isBroken = true;
      throw signal.aborted && !(error instanceof EngineRefusal) ? signal.reason : error;
    } finally {
      signal.removeEventListener("abort", interrupt);
      await canceling;
      clearTimeout(timer);
      this.#pool.release(connection, isBroken);
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

  /** A request that seems wrong may rely on an outdated table description. */
  #isOutdated(error: unknown, session: Leased | undefined): boolean {
    const { refusalOf, leavesConnectionUsable } = this.#dialect.failures;
    const status = leavesConnectionUsable(error) ? refusalOf(error)?.status : undefined;
    const isOfTable = error instanceof OutdatedTable || status === 400 || status === 404;
    return isOfTable && session?.forgetTables?.() === true;
  }

  async #workIn<Result>(
    session: Leased,
    { mode, database, end = "commit", changes = 0, stream }: TransactionOptions,
    work: (session: Leased) => Promise<Result>,
  ): Promise<Result> {
    const { visibleSchema, failures } = this.#dialect;
    const { leavesConnectionUsable, concernsStatement, isTransient, refusalOf } = failures;
    // The server would count the time during which the client does not read.
    const timeLimit = stream === undefined ? this.#timeLimit : 0;
    await this.#dialect.begin(session, mode, timeLimit, changes);
    let result: Result;
    try {
      result = await work(session);
    } catch (error) {
      if (leavesConnectionUsable(error)) {
        await session.end("rollback").catch((failure: unknown) => {
          // Then the server has rolled back too.
          if (!(failure instanceof ConnectionLost)) throw failure;
        });
      }
      throw error;
    }
    try {
      await session.end(end);
    } catch (error) {
      if (database !== undefined && concernsStatement(error)) {
        throw refusalOf(error, { schema: visibleSchema(database), tables: [] }) ?? error;
      }
      const isAnswer = concernsStatement(error) || isTransient(error);
      const changesNothing = end === "rollback" || mode.endsWith("read only");
      throw isAnswer || changesNothing ? error : new UnknownOutcome(error);
    }
    return result;
  }
}

async function runAgain<Result>(
  run: () => Promise<Result>,
  mayRetry: (error: unknown) => boolean,
): Promise<Result> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await run();
    } catch (error) {
      if (attempt === RETRY_LIMIT || !mayRetry(error)) throw error;
    }
    await delay(Math.random() * FIRST_PAUSE_MS * 2 ** attempt);
  }
}
