import { connect as connectPlain, type OnReadOpts, type Socket } from "node:net";
import { ConnectionError, hostAndPort, type UpstreamTarget } from "../target.ts";
import { Connection, type ConnectionTimeouts, ReadBuffer } from "./connection.ts";

/** How long a connection is kept idle, unless the upstream announces a timeout. */
const IDLE_MS = 4000;
/** How long before the upstream's own timeout an idle connection is no longer used. */
const IDLE_MARGIN_MS = 1000;
const LONGEST_IDLE_MS = 600_000;

interface Idle {
  readonly connection: Connection;
  /** `performance.now()` until which it may be used. */
  readonly until: number;
}

function socketMaker({ origin, socketPath }: UpstreamTarget): (onread: OnReadOpts) => Socket {
  if (socketPath !== undefined) return (onread) => connectPlain({ path: socketPath, onread });
  const address = hostAndPort(origin);
  if (!origin.startsWith("https:")) {
    return (onread) => connectPlain({ ...address, noDelay: true, onread });
  }
  const options = { ...address, servername: address.host, ALPNProtocols: ["http/1.1"] };
  // Loaded only for https targets, because TLS takes 5 MB.
  const { connect: connectTls } = process.getBuiltinModule("node:tls");
  return (onread) => {
    const withReads = { ...options, onread };
    return connectTls(withReads);
  };
}

export class ConnectionPool {
  readonly #open: (onread: OnReadOpts) => Socket;
  readonly #timeouts: ConnectionTimeouts;
  readonly #all = new Set<Connection>();
  /** Idle connections. The one used last is reused first. */
  readonly #idle: Idle[] = [];

  constructor(target: UpstreamTarget, timeouts: ConnectionTimeouts) {
    this.#open = socketMaker(target);
    this.#timeouts = timeouts;
  }

  /** An idle connection if there is one, otherwise a new one. */
  take(): Connection {
    const now = performance.now();
    for (let next = this.#idle.pop(); next !== undefined; next = this.#idle.pop()) {
      if (!next.connection.isOver && now < next.until) return next.connection;
      next.connection.destroy();
    }
    return this.open();
  }

  /** Always opens a new connection. */
  open(): Connection {
    const reads = new ReadBuffer();
    const socket = this.#open(reads.onread);
    const ready = "encrypted" in socket ? "secureConnect" : "connect";
    const connection = new Connection({ socket, reads, ready }, this.#timeouts, this.#onIdle);
    this.#all.add(connection);
    socket.once("close", () => this.#all.delete(connection));
    return connection;
  }

  readonly #onIdle = (connection: Connection, keepSeconds: number | undefined): void => {
    const kept = keepSeconds === undefined ? IDLE_MS : keepSeconds * 1000 - IDLE_MARGIN_MS;
    if (kept <= 0) connection.destroy();
    else {
      const until = performance.now() + Math.min(kept, LONGEST_IDLE_MS);
      this.#idle.push({ connection, until });
    }
  };

  /** Closes all connections, including those that wait for a response. */
  close(): void {
    for (const connection of this.#all) connection.abort(new ConnectionError("closed"));
    this.#idle.length = 0;
  }
}
