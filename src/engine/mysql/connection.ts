import { connect, type Socket } from "node:net";
import { Duplex } from "node:stream";
import { type Connection as Client, createConnection, type RowDataPacket } from "mysql2";
import type { Connection } from "../remote/dialect.ts";
import { guardReading } from "../remote/reading.ts";
import type { ServerAddress } from "./address.ts";
import { resultOf } from "./failures.ts";
import { MysqlSession, readTraits, settings, traitsQuery } from "./session.ts";

const LONGEST_PACKET = 0xffffff;

/** The length in three bytes, and a number. A packet of the greatest length goes on in the next. */
const framing = {
  headerBytes: 4,
  lengthAt: (bytes: Buffer, at: number) => bytes.readUIntLE(at, 3),
  goesOn: (length: number) => length === LONGEST_PACKET,
};

/** Includes the settings. */
const CONNECT_TIMEOUT_MS = 5000;

const CANCEL_TIMEOUT_MS = 2000;

export class MysqlConnection implements Connection<MysqlSession> {
  readonly session: MysqlSession;
  readonly #address: ServerAddress;
  readonly #client: Client;
  readonly #socket: Socket;
  #isBroken = false;

  private constructor(address: ServerAddress, { client, socket }: Opened, session: MysqlSession) {
    this.#address = address;
    this.#client = client;
    this.#socket = socket;
    this.session = session;
    socket.once("close", () => {
      this.#isBroken = true;
    });
  }

  /** @throws ConnectionLost, or the server's error if it refuses the connection */
  static async open(address: ServerAddress, limitMs: number): Promise<MysqlConnection> {
    const opened = open(address, address.connectTimeoutMs ?? CONNECT_TIMEOUT_MS);
    try {
      await opened.ready;
      const [row = []] = await resultOf<RowDataPacket[][]>((done) =>
        opened.client.query(traitsQuery, done),
      );
      const server = readTraits(row);
      const session = new MysqlSession(opened.client, server, address);
      for (const words of settings(server)) await session.command(words);
      await session.limitTime(limitMs);
      // With TLS, it is not the socket.
      const { client } = opened;
      if ("stream" in client && client.stream instanceof Duplex) {
        guardReading(client.stream, framing);
      }
      return new MysqlConnection(address, opened, session);
    } catch (error) {
      opened.socket.destroy();
      throw error;
    } finally {
      opened.stopTimer();
    }
  }

  get isUsable(): boolean {
    return !this.#isBroken;
  }

  /** Kills the connection by its id. The server rolls back. */
  async cancel(): Promise<void> {
    if (this.#isBroken) return;
    const { client, socket, ready, stopTimer } = open(this.#address, CANCEL_TIMEOUT_MS);
    try {
      await ready;
      await resultOf((done) => client.query(`kill ${this.#client.threadId}`, done));
    } catch {
      // The connection is cut in any case, and the server's time limit ends a read.
    } finally {
      stopTimer();
      socket.destroy();
    }
  }

  cut(): void {
    this.#isBroken = true;
    this.#socket.destroy();
  }

  async end(): Promise<void> {
    if (this.#socket.closed) return;
    await new Promise<void>((resolve) => {
      this.#socket.once("close", () => resolve());
      this.#client.end(() => this.#socket.destroy());
    });
  }
}

/** Per connection. The server allows 16,382 for all clients. */
const PREPARED_STATEMENTS = 32;

interface Opened {
  readonly client: Client;
  readonly socket: Socket;
  readonly ready: Promise<unknown>;
  stopTimer(): void;
}

/** Creates the socket, since the driver does not reject pending calls when it closes its own. */
function open(address: ServerAddress, timeoutMs: number): Opened {
  const { host, port, socketPath, user, password, ssl } = address;
  const socket = socketPath === undefined ? connect(port, host) : connect(socketPath);
  socket.setNoDelay(true).setKeepAlive(true);
  const client = createConnection({
    host,
    user,
    ...(socketPath === undefined ? {} : { socketPath }),
    ...(password === undefined ? {} : { password }),
    ...(ssl === undefined ? {} : { ssl }),
    // A fake server can read no local file and gets no password in clear text.
    flags: ["-LOCAL_FILES"],
    enableCleartextPlugin: false,
    multipleStatements: false,
    connectAttributes: { program_name: "gatehouse" },
    maxPreparedStatements: PREPARED_STATEMENTS,
    disableEval: true,
    rowsAsArray: true,
    supportBigNumbers: true,
    bigNumberStrings: true,
    dateStrings: true,
    jsonStrings: true,
    stream: () => socket,
  });
  client.on("error", () => {});
  const ready = resultOf<unknown>((done) => client.connect((error) => done(error, undefined)));
  const timer = setTimeout(() => socket.destroy(), timeoutMs);
  return { client, socket, ready, stopTimer: () => clearTimeout(timer) };
}
