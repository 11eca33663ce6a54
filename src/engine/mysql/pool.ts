import type { ConnectionPool } from "../remote/loan.ts";
import type { ServerAddress } from "./address.ts";
import { MysqlConnection } from "./connection.ts";
import type { MysqlSession } from "./session.ts";

/** How long a connection is kept without work, in milliseconds. */
const idleTimeout = 30_000;

/** The connections to one server; as many as are asked for at a time. */
export class MysqlPool implements ConnectionPool<MysqlSession> {
  readonly #address: ServerAddress;
  readonly #timeLimit: number;
  /** Those without work, each with the timer that ends it; the last one is taken first. */
  readonly #idle = new Map<MysqlConnection, NodeJS.Timeout>();
  #isClosed = false;

  /** Opens no connection yet; a statement takes `timeLimit` milliseconds at the most. */
  constructor(address: ServerAddress, timeLimit: number) {
    this.#address = address;
    this.#timeLimit = timeLimit;
  }

  async connect(): Promise<MysqlConnection> {
    for (const [connection] of [...this.#idle].reverse()) {
      this.#forget(connection);
      if (connection.isUsable) return connection;
    }
    return MysqlConnection.open(this.#address, this.#timeLimit, this.#takeBack);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    const all = [...this.#idle.keys()];
    for (const connection of all) this.#forget(connection);
    await Promise.all(all.map((connection) => connection.end()));
  }

  readonly #takeBack = (connection: MysqlConnection): void => {
    if (!connection.isUsable) return;
    if (this.#isClosed) {
      void connection.end();
      return;
    }
    const timer = setTimeout(() => {
      this.#idle.delete(connection);
      void connection.end();
    }, idleTimeout);
    this.#idle.set(connection, timer.unref());
  };

  #forget(connection: MysqlConnection): void {
    clearTimeout(this.#idle.get(connection));
    this.#idle.delete(connection);
  }
}
