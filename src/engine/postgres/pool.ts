import { Socket } from "node:net";
import { DatabaseError, Pool, type PoolClient } from "pg";
import { EngineRefusal } from "../refusal.ts";
import type { ServerAddress } from "./address.ts";
import { requestCancel } from "./cancel.ts";
import { ConnectionLost } from "./failures.ts";
import { PasswordMissing } from "./password.ts";
import { Session } from "./session.ts";
import { Slots } from "./slots.ts";

/** How long the server may take to take a connection, in milliseconds. */
const connectTimeout = 5000;

/** How long a connection is kept without work, in milliseconds. */
const idleTimeout = 30_000;

/** How long a statement may take to end once it is cancelled, in milliseconds. */
const cancelTime = 1000;

/** The connections to one PostgreSQL database. */
export class ConnectionPool {
  /** The place of the one transaction that is run again, so that such ones meet no other such. */
  readonly again = new Slots(1);
  readonly #address: ServerAddress;
  readonly #pool: Pool;
  #opened: Socket | undefined;

  /** Opens no connection yet; there will be `limit` of them at most. */
  constructor(address: ServerAddress, limit: number) {
    this.#address = address;
    const { host, port, user, database, ssl } = address;
    this.#pool = new Pool({
      host,
      port,
      user,
      database,
      ssl,
      password: () => address.password(),
      max: limit,
      connectionTimeoutMillis: connectTimeout,
      idleTimeoutMillis: idleTimeout,
      keepAlive: true,
      fallback_application_name: "gatehouse",
      stream: () => {
        this.#opened = new Socket();
        return this.#opened;
      },
    });
    // An idle connection that breaks is taken out of the pool, which is all there is to do.
    this.#pool.on("error", () => {});
  }

  /**
   * Lends a connection for the work. Once `signal` is aborted, what the server does for it is
   * cancelled and the connection given up.
   *
   * Throws the reason of `signal`, `ConnectionLost`, `PasswordMissing`, the server's error if it
   * refuses the connection, or what the work throws.
   */
  async lend<Result>(
    signal: AbortSignal,
    work: (session: Session) => Promise<Result>,
  ): Promise<Result> {
    const client = await this.#connect();
    const loan = new Loan(this.#address, client);
    signal.addEventListener("abort", loan.interrupt);
    try {
      signal.throwIfAborted();
      return await work(new Session(client));
    } catch (error) {
      if (!isSettled(error)) loan.giveUp();
      throw signal.aborted && !(error instanceof EngineRefusal) ? signal.reason : error;
    } finally {
      signal.removeEventListener("abort", loan.interrupt);
      await loan.end();
    }
  }

  /** Closes the connections once none of them is lent. */
  async close(): Promise<void> {
    await this.#pool.end();
  }

  async #connect(): Promise<PoolClient> {
    const connecting = this.#pool.connect();
    const socket = this.#takeOpened();
    try {
      return await connecting;
    } catch (error) {
      // The driver leaves a connection open that it has not got the password for.
      socket?.destroy();
      const isAnswer = error instanceof DatabaseError || error instanceof PasswordMissing;
      throw isAnswer ? error : new ConnectionLost(error);
    }
  }

  /** The socket of the connection that has just been begun, if a new one was. */
  #takeOpened(): Socket | undefined {
    const socket = this.#opened;
    this.#opened = undefined;
    return socket;
  }
}

/**
 * True for an error that leaves the connection fit for another statement: the server has refused
 * one, or none was under way. Anything else may have come in the middle of an answer.
 */
export function isSettled(error: unknown): boolean {
  return error instanceof DatabaseError || error instanceof EngineRefusal;
}

/** A connection while it is lent. */
class Loan {
  readonly #client: PoolClient;
  readonly #address: ServerAddress;
  #cancelling: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isBroken = false;

  constructor(address: ServerAddress, client: PoolClient) {
    this.#address = address;
    this.#client = client;
    client.on("error", this.#onError);
  }

  readonly #onError = (): void => {
    this.#isBroken = true;
  };

  /** Cancels what is under way; if that does not help, the connection is cut. */
  readonly interrupt = (): void => {
    this.#isBroken = true;
    this.#cancelling = requestCancel(this.#address, this.#client);
    this.#timer = setTimeout(() => this.#client.connection.stream.destroy(), cancelTime);
  };

  /** The connection is not used again. */
  giveUp(): void {
    this.#isBroken = true;
  }

  /** Gives the connection back, after a request to cancel it, which must meet nobody else's work. */
  async end(): Promise<void> {
    await this.#cancelling;
    clearTimeout(this.#timer);
    this.#client.off("error", this.#onError);
    this.#client.release(this.#isBroken);
  }
}
