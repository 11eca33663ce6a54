import { connect as connectPlain, isIP, type Socket, type SocketConstructorOpts } from "node:net";
import { ConnectionError, hostAndPort, type UpstreamTarget } from "../target.ts";
import {
  type AnswerEnd,
  AnswerReader,
  type AnswerReceiver,
  BrokenAnswerError,
} from "./answer-reader.ts";

/**
 * All sockets read into this buffer, and what was read is copied out at once. New memory for each
 * read would cost more than the rest of handling a small response. With 64 KiB, a response of 10 MB
 * would take twice the CPU time.
 */
const readBuffer = Buffer.allocUnsafeSlow(256 * 1024);

/** In bytes. The memory of larger pieces is freed at once. */
const LARGE_PIECE = 16 * 1024;

/** Otherwise a few large bodies would trigger a full garbage collection. */
export function freeMemory(piece: Buffer): void {
  const { buffer: memory, length } = piece;
  if (length < LARGE_PIECE || memory.byteLength !== length) return;
  if (memory instanceof ArrayBuffer) memory.transfer(0);
}

let writes: (() => void)[] = [];

function writeAll(): void {
  const taken = writes;
  writes = [];
  for (const write of taken) write();
}

/**
 * Defers a write until all pending input is read, so that the writes of one event loop turn run in
 * a row. Waking a sleeping reader costs as much as the write itself. While it handles the first
 * write, the others find it awake.
 *
 * @param write must not throw
 */
export function writeTogether(write: () => void): void {
  if (writes.push(write) === 1) setImmediate(writeAll);
}

/**
 * Content up to this many bytes is sent as one string with its head, which takes one object less.
 * To copy longer content costs more than that.
 */
export const SENT_AS_TEXT = 4 * 1024;
/** TLS sends a request of up to this many bytes at once, but reports it one turn late. */
const SENT_AT_ONCE = 16 * 1024;

interface ConnectionTimeouts {
  readonly connectTimeoutMs: number;
  readonly responseTimeoutMs: number;
}

/** Unrequested or malformed data closes it, so no response is taken for that of another request. */
export class Connection {
  isClosed = false;
  readonly socket: Socket;
  readonly #isEncrypted: boolean;
  readonly #timeouts: ConnectionTimeouts;
  readonly #onIdle: (connection: Connection, keepSeconds: number | undefined) => void;
  #reader: AnswerReader | undefined;
  #isReady = false;
  #unsent: { readonly head: string; readonly body: Buffer; readonly isLast: boolean } | undefined;
  #isPaused = false;
  #hasNoTimeout = false;
  #sentAt = 0;

  /** @param onIdle called when a response has ended and the connection can be reused */
  constructor(
    open: (options: SocketConstructorOpts) => Socket,
    timeouts: ConnectionTimeouts,
    onIdle: (connection: Connection, keepSeconds: number | undefined) => void,
  ) {
    const onRead = (length: number): boolean => {
      this.#onBytes(Buffer.from(readBuffer.subarray(0, length)));
      return true;
    };
    const socket = open({ onread: { buffer: readBuffer, callback: onRead } });
    this.socket = socket;
    this.#isEncrypted = "encrypted" in socket;
    this.#timeouts = timeouts;
    this.#onIdle = onIdle;
    socket.setTimeout(timeouts.connectTimeoutMs);
    socket.on("timeout", () => this.#onTimeout());
    // `secureConnect` comes after the peer has been verified.
    socket.once(this.#isEncrypted ? "secureConnect" : "connect", () => this.#onReady());
    socket.once("end", () => this.#onSocketEnd());
    socket.on("error", (error) => this.#fail(error));
    socket.once("close", () => this.#fail(new ConnectionError("closed")));
  }

  /**
   * @param head request line and fields in Latin-1, including the empty line
   * @param isLast true if the body is not used again, so that its memory can be freed at once
   */
  send(head: string, body: Buffer, receiver: AnswerReceiver, isLast = false): void {
    this.#reader = new AnswerReader(receiver, head.startsWith("HEAD "));
    this.#unsent = { head, body, isLast };
    if (this.#isReady) writeTogether(this.#write);
  }

  get isUnsent(): boolean {
    return this.#unsent !== undefined;
  }

  #onReady(): void {
    this.#isReady = true;
    this.socket.setTimeout(this.#timeouts.responseTimeoutMs);
    this.#write();
  }

  readonly #write = (): void => {
    if (this.isClosed || this.#unsent === undefined) return;
    const { head, body, isLast } = this.#unsent;
    this.#unsent = undefined;
    this.#sentAt = performance.now();
    if (body.length <= SENT_AS_TEXT) {
      this.socket.write(head + body.toString("latin1"), "latin1");
      return;
    }
    this.socket.cork();
    this.socket.write(head, "latin1");
    this.socket.write(body, () => isLast && freeMemory(body));
    this.socket.uncork();
  };

  pause(): void {
    this.#isPaused = true;
    this.socket.pause();
  }

  resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    // Time during which the client did not read does not count against the upstream.
    if (!this.isClosed && !this.#hasNoTimeout)
      this.socket.setTimeout(this.#timeouts.responseTimeoutMs);
    this.socket.resume();
  }

  disableTimeout(): void {
    this.#hasNoTimeout = true;
    this.socket.setTimeout(0);
  }

  abort(error: Error): void {
    this.#fail(error);
  }

  destroy(): void {
    this.isClosed = true;
    this.socket.destroy();
  }

  #fail(error: Error): void {
    this.destroy();
    const reader = this.#reader;
    this.#reader = undefined;
    reader?.stop();
    reader?.receiver.onError(error);
  }

  #onTimeout(): void {
    if (this.#isPaused) return;
    this.#fail(new ConnectionError(this.#isReady ? "response-timeout" : "connect-timeout"));
  }

  #onSocketEnd(): void {
    const reader = this.#reader;
    // Without a length, the end of the connection is the end of the response.
    if (reader?.head?.framing === "close") this.#finish(reader, undefined);
    else this.#fail(new ConnectionError("closed"));
  }

  #onBytes(bytes: Buffer): void {
    const reader = this.#reader;
    if (reader === undefined || this.#unsent !== undefined) {
      // For example a 408, with which an upstream ends an idle connection.
      this.#fail(new ConnectionError("closed"));
      return;
    }
    try {
      const end = reader.read(bytes);
      if (this.#reader !== reader) return;
      if (end !== undefined) this.#end(reader, end);
      // A head that arrives byte by byte, or after many interim ones, never triggers the socket's
      // idle timeout.
      else if (
        reader.head === undefined &&
        performance.now() > this.#sentAt + this.#timeouts.responseTimeoutMs
      ) {
        throw new ConnectionError("response-timeout");
      }
    } catch (error) {
      this.#fail(error instanceof Error ? error : new BrokenAnswerError("unreadable"));
    }
  }

  #end(reader: AnswerReader, { last, surplus }: AnswerEnd): void {
    const reported = this.#isEncrypted ? SENT_AT_ONCE : 0;
    // After an early response, the connection still holds unsent bytes of the request.
    if (surplus > 0 || this.socket.writableLength > reported) this.destroy();
    this.#finish(reader, last);
  }

  #finish({ receiver, head }: AnswerReader, last: Buffer | undefined): void {
    this.#reader = undefined;
    if (head?.isKept !== true) this.destroy();
    // Done before the response is delivered, so that the next request can use this connection.
    if (!this.isClosed) this.#becomeIdle(head?.keepSeconds);
    receiver.onEnd(last);
  }

  #becomeIdle(keepSeconds: number | undefined): void {
    if (this.#hasNoTimeout) this.socket.setTimeout(this.#timeouts.responseTimeoutMs);
    this.#hasNoTimeout = false;
    this.resume();
    this.#onIdle(this, keepSeconds);
  }
}

/** How long a connection is kept idle, unless the upstream announces a timeout. */
const IDLE_MS = 4000;
const IDLE_MARGIN_MS = 1000;
const LONGEST_IDLE_MS = 600_000;

/** Returns a function that connects to the target, and for https also shakes hands. */
export function socketMaker(target: UpstreamTarget): (options: SocketConstructorOpts) => Socket {
  const { origin, socketPath } = target;
  if (socketPath !== undefined) return (options) => connectPlain({ ...options, path: socketPath });
  const address = hostAndPort(origin);
  if (!origin.startsWith("https:")) {
    return (options) => connectPlain({ ...options, ...address, noDelay: true });
  }
  // TLS names no address to the server (RFC 6066, section 3). Its certificate is checked for `host`.
  const name = isIP(address.host) === 0 ? { servername: address.host } : {};
  // Loaded only for https targets, because TLS takes 5 MB.
  const { connect: connectTls } = process.getBuiltinModule("node:tls");
  return (options) => connectTls({ ...options, ...address, ...name, ALPNProtocols: ["http/1.1"] });
}

export class ConnectionPool {
  readonly #open: (options: SocketConstructorOpts) => Socket;
  readonly #timeouts: ConnectionTimeouts;
  readonly #all = new Set<Connection>();
  /** Idle connections and `performance.now()` until which they may be used, the last used last. */
  readonly #idle: { readonly connection: Connection; readonly until: number }[] = [];

  constructor(target: UpstreamTarget, timeouts: ConnectionTimeouts) {
    this.#open = socketMaker(target);
    this.#timeouts = timeouts;
  }

  take(): Connection {
    const now = performance.now();
    for (let next = this.#idle.pop(); next !== undefined; next = this.#idle.pop()) {
      if (!next.connection.isClosed && now < next.until) return next.connection;
      next.connection.destroy();
    }
    return this.open();
  }

  open(): Connection {
    const connection = new Connection(this.#open, this.#timeouts, this.#onIdle);
    this.#all.add(connection);
    connection.socket.once("close", () => this.#all.delete(connection));
    return connection;
  }

  readonly #onIdle = (connection: Connection, keepSeconds: number | undefined): void => {
    const kept = keepSeconds === undefined ? IDLE_MS : keepSeconds * 1000 - IDLE_MARGIN_MS;
    if (kept <= 0) connection.destroy();
    else {
      this.#idle.push({ connection, until: performance.now() + Math.min(kept, LONGEST_IDLE_MS) });
    }
  };

  close(): void {
    for (const connection of this.#all) connection.abort(new ConnectionError("closed"));
    this.#idle.length = 0;
  }
}
