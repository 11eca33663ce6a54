import { Socket } from "node:net";
import { Client, DatabaseError } from "pg";
import type { Connection } from "../remote/connection.ts";
import { ConnectionLost } from "../remote/connection-lost.ts";
import type { ServerAddress } from "./address.ts";
import { requestCancel } from "./cancel.ts";
import { PasswordMissing } from "./password.ts";
import { PostgresSession } from "./session.ts";

/** How long the server may take to take a connection, in milliseconds. */
const connectTimeout = 5000;

/** How long the server may take to hear that a connection is left, in milliseconds. */
const patience = 1000;

/** A connection to one PostgreSQL database. */
export class PostgresConnection implements Connection<PostgresSession> {
  readonly session: PostgresSession;
  readonly #address: ServerAddress;
  readonly #client: Client;
  #isBroken = false;

  private constructor(address: ServerAddress, client: Client) {
    this.session = new PostgresSession(client);
    this.#address = address;
    this.#client = client;
    client.on("error", this.#onBreak);
    client.on("end", this.#onBreak);
  }

  /** Throws `ConnectionLost`, `PasswordMissing` or the server's error if it refuses it. */
  static async open(address: ServerAddress, database: string): Promise<PostgresConnection> {
    const { host, port, user, ssl } = address;
    const socket = new Socket();
    const client = new Client({
      host,
      port,
      user,
      database,
      ssl,
      password: () => address.password(database),
      connectionTimeoutMillis: connectTimeout,
      keepAlive: true,
      fallback_application_name: "gatehouse",
      stream: () => socket,
    });
    const connection = new PostgresConnection(address, client);
    try {
      await client.connect();
      return connection;
    } catch (error) {
      // The driver leaves a connection open that it has not got the password for.
      socket.destroy();
      const isAnswer = error instanceof DatabaseError || error instanceof PasswordMissing;
      throw isAnswer ? error : new ConnectionLost(error);
    }
  }

  get isUsable(): boolean {
    return !this.#isBroken;
  }

  readonly #onBreak = (): void => {
    this.#isBroken = true;
  };

  cancel(): Promise<void> {
    return requestCancel(this.#address, this.#client);
  }

  cut(): void {
    // The driver destroys a socket on which something is under way, and else takes leave.
    void this.#client.end();
  }

  async end(): Promise<void> {
    const timer = setTimeout(() => this.#client.connection.stream.destroy(), patience);
    await this.#client.end();
    clearTimeout(timer);
  }
}
