import { connect, type Socket } from "node:net";
import { type Connection as Client, type ConnectionOptions, createConnection } from "mysql2";
import type { ServerAddress } from "./address.ts";
import { answered } from "./answered.ts";

/** Statements that one connection keeps prepared; the server keeps 16,382 for all of its clients. */
const preparedStatements = 32;

/** A connection that has been begun. */
export interface Opened {
  readonly client: Client;
  readonly socket: Socket;
  /** Resolves when the server has taken the connection. */
  readonly ready: Promise<unknown>;
  /** It is cut after the time given, unless this is called. */
  stopTimer(): void;
}

/**
 * Begins a connection, which has `timeout` milliseconds. The socket is our own: of one that the
 * driver has closed it tells nobody who waits.
 */
export function open(address: ServerAddress, timeout: number): Opened {
  const { host, port, socketPath } = address;
  const socket = socketPath === undefined ? connect(port, host) : connect(socketPath);
  socket.setNoDelay(true).setKeepAlive(true);
  const client = createConnection({ ...optionsOf(address), stream: () => socket });
  // Whoever waits for an answer is told by other means.
  client.on("error", () => {});
  const ready = answered<unknown>((done) => client.connect((error) => done(error, undefined)));
  const timer = setTimeout(() => socket.destroy(), timeout);
  return { client, socket, ready, stopTimer: () => clearTimeout(timer) };
}

/** A server that is not what it seems reads no file here, and gets no password in clear text. */
function optionsOf({ host, socketPath, user, password, ssl }: ServerAddress): ConnectionOptions {
  return {
    host,
    user,
    ...(socketPath === undefined ? {} : { socketPath }),
    ...(password === undefined ? {} : { password }),
    ...(ssl === undefined ? {} : { ssl }),
    flags: ["-LOCAL_FILES"],
    multipleStatements: false,
    enableCleartextPlugin: false,
    connectAttributes: { program_name: "gatehouse" },
    maxPreparedStatements: preparedStatements,
    disableEval: true,
    rowsAsArray: true,
    supportBigNumbers: true,
    bigNumberStrings: true,
    dateStrings: true,
    jsonStrings: true,
  };
}
