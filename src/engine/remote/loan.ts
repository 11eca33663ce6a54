import { EngineRefusal } from "../refusal.ts";

/** How long a statement may take to end once it is cancelled, in milliseconds. */
const cancelTime = 1000;

/** A connection that is taken out of a pool for one transaction. */
export interface Connection<Lent> {
  readonly session: Lent;
  /** Asks the server, by another connection, to end what it does for this one. Never rejects. */
  cancel(): Promise<void>;
  /** Breaks the connection at once. */
  cut(): void;
  /** Puts it back into the pool, which throws a broken one away. */
  release(isBroken: boolean): void;
}

/** The connections to one server. */
export interface ConnectionPool<Lent> {
  /**
   * Takes out a connection, or makes one.
   *
   * Throws `ConnectionLost`, or the server's error if it refuses the connection.
   */
  connect(): Promise<Connection<Lent>>;
  /** Closes the connections once none of them is taken out. */
  close(): Promise<void>;
}

/**
 * Lends a connection for the work. Once `signal` is aborted, what the server does for it is
 * cancelled and the connection given up; so it is after an error that is not settled, which may
 * have come in the middle of an answer.
 *
 * Throws the reason of `signal`, what `connect` throws, or what the work throws.
 */
export async function lend<Lent, Result>(
  pool: ConnectionPool<Lent>,
  { signal, isSettled }: { signal: AbortSignal; isSettled(error: unknown): boolean },
  work: (session: Lent) => Promise<Result>,
): Promise<Result> {
  const connection = await pool.connect();
  const loan = new Loan(connection);
  signal.addEventListener("abort", loan.interrupt);
  try {
    signal.throwIfAborted();
    return await work(connection.session);
  } catch (error) {
    if (!isSettled(error)) loan.giveUp();
    throw signal.aborted && !(error instanceof EngineRefusal) ? signal.reason : error;
  } finally {
    signal.removeEventListener("abort", loan.interrupt);
    await loan.end();
  }
}

/** A connection while it is lent. */
class Loan {
  readonly #connection: Connection<unknown>;
  #cancelling: Promise<void> | undefined;
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
    this.#cancelling = this.#connection.cancel();
    this.#timer = setTimeout(() => {
      this.#cancelling = this.#connection.cancel().finally(() => this.#connection.cut());
    }, cancelTime);
  };

  /** The connection is not used again. */
  giveUp(): void {
    this.#isBroken = true;
  }

  /** Gives the connection back, after a request to cancel it, which must meet nobody else's work. */
  async end(): Promise<void> {
    await this.#cancelling;
    clearTimeout(this.#timer);
    this.#connection.release(this.#isBroken);
  }
}
