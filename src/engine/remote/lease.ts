import { EngineRefusal } from "../refusal.ts";
import type { ConnectionPool } from "./pool.ts";
import type { Connection } from "./session.ts";

/** How long a statement may take to end once it is cancelled, in milliseconds. */
const CANCEL_TIME_MS = 1000;

/** What is leased, and until when. */
export interface Terms {
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
export async function withLease<Leased, Result>(
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
