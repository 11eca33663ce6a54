import { once } from "node:events";
import { connect as connectSocket, isIP, Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { Client, DatabaseError } from "pg";
import type { KnownTables } from "../remote/known-tables.ts";
import { type Connection, ConnectionLost } from "../remote/session.ts";
import { PasswordMissing, type ServerAddress } from "./address.ts";
import { PostgresSession } from "./session.ts";
import type { PostgresTable } from "./tables.ts";

/** How long the server may take to take a connection unless its URL says so, in milliseconds. */
const CONNECT_TIMEOUT_MS = 5000;

/** How long the server may take to hear that a connection is left, in milliseconds. */
const END_TIMEOUT_MS = 1000;

/** A connection to one PostgreSQL database. */
export class PostgresConnection implements Connection<PostgresSession> {
  readonly session: PostgresSession;
  readonly #address: ServerAddress;
  readonly #client: Client;
  #isBroken = false;

  private constructor(address: ServerAddress, client: Client, tables: KnownTables<PostgresTable>) {
    this.session = new PostgresSession(client, tables);
    this.#address = address;
    this.#client = client;
    client.on("error", this.#onBreak);
    client.on("end", this.#onBreak);
  }

  /** @throws ConnectionLost, PasswordMissing or the server's error if it refuses it */
  static async open(
    address: ServerAddress,
    database: string,
    tables: KnownTables<PostgresTable>,
  ): Promise<PostgresConnection> {
    const { host, port, user, ssl, connectTimeout = CONNECT_TIMEOUT_MS } = address;
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
      application_name: address.applicationName,
      fallback_application_name: "gatehouse",
      stream: () => socket,
    });
    const connection = new PostgresConnection(address, client, tables);
    let timer: NodeJS.Timeout | undefined;
    try {
      await client.connect();
      timer = setTimeout(() => socket.destroy(), connectTimeout);
      await connection.session.prepareIfDirect();
      return connection;
    } catch (error) {
      // The driver leaves a connection open that it has not got the password for.
      socket.destroy();
      const isAnswer = error instanceof DatabaseError || error instanceof PasswordMissing;
      throw isAnswer ? error : new ConnectionLost(error);
    } finally {
      clearTimeout(timer);
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
    const timer = setTimeout(() => this.#client.connection.stream.destroy(), END_TIMEOUT_MS);
    await this.#client.end();
    clearTimeout(timer);
  }
}

/** How long the server may take to take the request, in milliseconds. */
const CANCEL_TIMEOUT_MS = 2000;

/** The codes that stand where a protocol version would (PostgreSQL, "Message Formats"). */
const CANCEL_CODE = 80_877_102;
const TLS_CODE = 80_877_103;

/**
 * Asks the server to end what a connection of ours is doing, on a connection of its own, as the
 * protocol wants it. It is a request: nobody says whether it came in time.
 */
export async function requestCancel(address: ServerAddress, client: Client): Promise<void> {
  const key = keyOf(client);
  if (key === undefined) return;
  const socket = open(address);
  socket.on("error", () => socket.destroy());
  socket.setTimeout(CANCEL_TIMEOUT_MS, () => socket.destroy());
  try {
    await once(socket, "connect");
    const secured = address.ssl === false ? socket : await secure(address, socket);
    secured.end(message(CANCEL_CODE, ...key));
    await once(secured, "close");
  } catch {
    // The connection is given up in any case, and the statement ends by its time limit.
  } finally {
    socket.destroy();
  }
}

/** What the server has told the driver to show with such a request. */
function keyOf(client: Client): [number, number] | undefined {
  const id = "processID" in client ? client.processID : undefined;
  const secret = "secretKey" in client ? client.secretKey : undefined;
  return typeof id === "number" && typeof secret === "number" ? [id, secret] : undefined;
}

function open({ host, port }: ServerAddress): Socket {
  return host.startsWith("/")
    ? connectSocket(`${host}/.s.PGSQL.${port}`)
    : connectSocket(port, host);
}

async function secure({ host, ssl }: ServerAddress, socket: Socket): Promise<Socket> {
  socket.write(message(TLS_CODE));
  const [answer] = await once(socket, "data");
  if (String(answer) !== "S") throw new Error("The server takes no TLS");
  const options = typeof ssl === "object" ? ssl : {};
  const name = isIP(host) === 0 ? { servername: host } : {};
  const secured = connectTls({ host, ...name, ...options, socket });
  secured.on("error", () => secured.destroy());
  await once(secured, "secureConnect");
  return secured;
}

function message(...numbers: number[]): Buffer {
  const bytes = Buffer.alloc(4 * (numbers.length + 1));
  bytes.writeInt32BE(bytes.length, 0);
  for (const [index, number] of numbers.entries()) bytes.writeInt32BE(number, 4 * (index + 1));
  return bytes;
}
