import { Socket } from "node:net";
import { DatabaseError, Pool, type PoolClient } from "pg";
import { ConnectionLost } from "../remote/connection-lost.ts";
import type { Connection, ConnectionPool } from "../remote/loan.ts";
import { connectionLimit } from "../remote/store.ts";
import type { ServerAddress } from "./address.ts";
import { requestCancel } from "./cancel.ts";
import { PasswordMissing } from "./password.ts";
import { PostgresSession } from "./session.ts";

/** How long the server may take to take a connection, in milliseconds. */
const connectTimeout = 5000;

/** How long a connection is kept without work, in milliseconds. */
const idleTimeout = 30_000;

/** The connections to one PostgreSQL database. */
export class PostgresPool implements ConnectionPool<PostgresSession> {
  readonly #address: ServerAddress;
  readonly #pool: Pool;
  #opened: Socket | undefined;

  /** Opens no connection yet. */
  constructor(address: ServerAddress) {
    this.#address = address;
    const { host, port, user, database, ssl } = address;
    this.#pool = new Pool({
      host,
      port,
      user,
      database,
      ssl,
      password: () => address.password(),
      max: connectionLimit,
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

  async connect(): Promise<PostgresConnection> {
    return new PostgresConnection(this.#address, await this.#open());
  }

  /** Closes the connections once none of them is lent. */
  async close(): Promise<void> {
    await this.#pool.end();
  }

  async #open(): Promise<PoolClient> {
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

/** A connection while it is taken out. */
class PostgresConnection implements Connection<PostgresSession> {
  readonly session: PostgresSession;
  readonly #client: PoolClient;
  readonly #address: ServerAddress;
  #isBroken = false;

  constructor(address: ServerAddress, client: PoolClient) {
    this.session = new PostgresSession(client);
    this.#address = address;
    this.#client = client;
    client.on("error", this.#onError);
  }

  readonly #onError = (): void => {
    this.#isBroken = true;
  };

  cancel(): Promise<void> {
    return requestCancel(this.#address, this.#client);
  }

  cut(): void {
    this.#client.connection.stream.destroy();
  }

  release(isBroken: boolean): void {
    this.#client.off("error", this.#onError);
    this.#client.release(isBroken || this.#isBroken);
  }
}
