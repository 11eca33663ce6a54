import { randomUUID } from "node:crypto";
import { once } from "node:events";
import type { Server, ServerResponse } from "node:http";
import { Server as NetServer, Socket } from "node:net";
import type { Duplex } from "node:stream";
import { setImmediate as nextTurn } from "node:timers/promises";
import { http } from "../base/node-http.ts";
import { Refusal, type RefusalCode } from "../base/refusal.ts";
import { sendRejection } from "./answer.ts";
import { closeSoon } from "./body.ts";
import type { Exchange } from "./exchange.ts";

/** Exceeds the think time of clients that send requests one after the other. */
const SILENCE_MS = 1000;
/** For connections that were accepted just before listening stopped. */
const LINGER_MS = 250;
/** More than a backlog holds. A limit in time could pass on a busy machine before any turn. */
const BACKLOG_TURNS = 1024;
/** Pipelined requests per connection. A client that exceeds it is disconnected. */
const MAX_WAITING = 64;

const violations: ReadonlyMap<string | undefined, RefusalCode> = new Map([
  ["HPE_HEADER_OVERFLOW", "headers_too_large"],
  ["ERR_HTTP_REQUEST_TIMEOUT", "request_timeout"],
]);

interface Service {
  begin(exchange: Exchange): void;
  finish(exchange: Exchange, bytes: number): void;
  finishBroken(broken: BrokenRequest): void;
}

interface ClientConnection {
  readonly socket: Socket;
  current: Exchange | undefined;
  latest: Exchange | undefined;
  readonly waiting: Exchange[];
}

/**
 * Tracks the listener's connections and shuts them down gracefully. Requests on one connection are
 * served one at a time, each by the rules in force after the responses before it.
 */
export class Connections {
  readonly #server: Server;
  readonly #service: Service;
  readonly #open = new Map<Duplex, ClientConnection>();
  readonly #encrypted = new Set<Socket>();
  /** Requests whose responses end the connection only because of the drain. */
  readonly #last = new WeakSet<Exchange>();
  /** Connections on which a violation of HTTP has been answered. */
  readonly #broken = new WeakSet<Duplex>();
  #accepted = 0;
  #isDraining = false;
  #closed: Promise<unknown> | undefined;

  constructor(server: Server, service: Service) {
    this.#server = server;
    this.#service = service;
    const isSecure = "setSecureContext" in server;
    server.on("connection", (socket: Socket) => {
      this.#accepted++;
      if (isSecure) this.#shakeHands(socket);
      else this.#enter(socket);
    });
    if (isSecure) server.on("secureConnection", (socket) => this.#enter(socket));
  }

  #enter(socket: Socket): void {
    const connection = { socket, current: undefined, latest: undefined, waiting: [] };
    this.#open.set(socket, connection);
    socket.once("close", () => this.#open.delete(socket));
    if (this.#isDraining) this.#closeOnceSilent(connection);
  }

  #shakeHands(socket: Socket): void {
    this.#encrypted.add(socket);
    socket.once("close", () => this.#encrypted.delete(socket));
    if (this.#isDraining) closeUnlessBegun(socket);
  }

  /** The raw socket of a failed TLS handshake, so that the response can be sent as plain text. */
  #underTls(socket: Duplex): Socket | undefined {
    if (!(socket instanceof Socket)) return undefined;
    const { remoteAddress, remotePort } = socket;
    return this.#encrypted
      .values()
      .find((raw) => raw.remotePort === remotePort && raw.remoteAddress === remoteAddress);
  }

  /** The requests that are being served. */
  *exchanges(): Generator<Exchange, undefined> {
    for (const { current } of this.#open.values()) if (current !== undefined) yield current;
  }

  /** True if a request that arrives now is served at once, neither queued nor dropped. */
  isFree(socket: Duplex): boolean {
    const connection = socket.writable ? this.#open.get(socket) : undefined;
    if (connection === undefined || connection.current !== undefined) return false;
    return connection.latest === undefined || !isLastResponse(connection.latest);
  }

  /**
   * Serves a request after the responses to earlier requests on its connection, unless one of them
   * ends the connection.
   */
  arrive(exchange: Exchange): void {
    const connection = this.#open.get(exchange.request.socket);
    if (connection === undefined) return;
    const { latest, waiting, socket } = connection;
    if (!socket.writable || (latest !== undefined && isLastResponse(latest))) return;
    connection.latest = exchange;
    if (this.#isDraining) this.#makeLast(exchange, latest);
    if (connection.current === undefined) this.#begin(connection, exchange);
    else if (waiting.push(exchange) > MAX_WAITING) socket.destroy();
  }

  #begin(connection: ClientConnection, exchange: Exchange): void {
    connection.current = exchange;
    const { bytesWritten } = connection.socket;
    exchange.response.on("close", () => this.#end(connection, exchange, bytesWritten));
    this.#service.begin(exchange);
  }

  #end(connection: ClientConnection, exchange: Exchange, writtenBefore: number): void {
    connection.current = undefined;
    const { waiting, socket } = connection;
    // An idle connection keeps nothing of its last request, such as the body.
    const isOver = exchange.request.complete && !isLastResponse(exchange);
    if (isOver && connection.latest === exchange) connection.latest = undefined;
    this.#service.finish(exchange, socket.bytesWritten - writtenBefore);
    // The response just sent may have been the last on the connection.
    if (!socket.writable) waiting.length = 0;
    const next = waiting.shift();
    if (next !== undefined) this.#begin(connection, next);
    // A response that began before the drain promised to keep its connection open.
    else if (this.#isDraining) this.#closeOnceSilent(connection);
  }

  /**
   * Stops accepting connections. Clients are not told yet: one that reconnected at once could reach
   * a process that is about to stop listening too, and its connection would be reset.
   */
  async stopListening(): Promise<void> {
    await this.#letIn();
    this.#closed = once(this.#server, "close");
    // `close` of the HTTP server would also cut kept-alive connections on which a request is
    // arriving.
    NetServer.prototype.close.call(this.#server);
  }

  /**
   * Stops accepting connections and lets requests in flight finish, including those still arriving
   * on kept-alive connections. Each connection ends with its last response, or after a moment of
   * silence.
   *
   * @param grace milliseconds after which remaining connections are cut
   */
  async drain(grace: number): Promise<void> {
    if (this.#closed === undefined) await this.stopListening();
    this.#isDraining = true;
    for (const connection of this.#open.values()) {
      const { current, latest } = connection;
      if (current !== undefined && latest !== undefined) this.#makeLast(latest);
      this.#closeOnceSilent(connection);
    }
    for (const socket of this.#encrypted) closeUnlessBegun(socket);
    const timer = setTimeout(() => this.#cut(), grace);
    await this.#closed;
    clearTimeout(timer);
    // The server counts a connection as closed before its `close` event ends the request.
    while (this.#open.size > 0) await nextTurn();
  }

  #cut(): void {
    for (const { socket } of this.#open.values()) socket.destroy();
    for (const socket of this.#encrypted) socket.destroy();
  }

  /** Accepts the connections in the backlog, which would be reset when the listener closes. */
  async #letIn(): Promise<void> {
    let before: number;
    let turns = 0;
    do {
      before = this.#accepted;
      // Each turn of the event loop accepts one connection, and the first turn may be half over.
      await nextTurn();
      await nextTurn();
    } while (this.#accepted > before && ++turns < BACKLOG_TURNS);
  }

  /** Marks a response as the last on its connection and unmarks the one before it. */
  #makeLast(exchange: Exchange, before?: Exchange): void {
    if (before !== undefined && this.#last.delete(before)) before.response.shouldKeepAlive = true;
    if (exchange.response.headersSent || !exchange.response.shouldKeepAlive) return;
    exchange.response.shouldKeepAlive = false;
    this.#last.add(exchange);
  }

  #closeOnceSilent(connection: ClientConnection): void {
    const { socket } = connection;
    const { bytesRead } = socket;
    closeLater(socket, SILENCE_MS, () => {
      return connection.current === undefined && socket.bytesRead === bytesRead;
    });
  }

  fail({ code }: NodeJS.ErrnoException, socket: Duplex): void {
    const plain = code === "ERR_SSL_HTTP_REQUEST" ? this.#underTls(socket) : undefined;
    const hasSentNothing = socket instanceof Socket && socket.bytesRead === 0;
    if (plain !== undefined) {
      const message = "This port uses TLS: use https:// instead of http://";
      this.refuse(new Refusal("bad_request", { message }), plain);
    } else if (code === "ECONNRESET" || code === "EPIPE" || hasSentNothing) {
      socket.destroy();
    } else {
      this.refuse(new Refusal(violations.get(code) ?? "bad_request"), socket);
    }
  }

  /**
   * Answers bytes that violate HTTP and closes the connection. Never writes into or ahead of
   * responses that are still pending on it.
   */
  refuse(refusal: Refusal, socket: Duplex): void {
    // Everything sent after the first error is part of it.
    if (this.#broken.has(socket)) return;
    this.#broken.add(socket);
    const latest = this.#open.get(socket)?.latest;
    if (latest === undefined || (latest.request.complete && latest.response.writableFinished)) {
      this.#endBroken(refusal, socket);
    } else if (latest.request.complete) {
      latest.response.once("close", () => this.#endBroken(refusal, socket));
    } else if (latest.body.isDropped) {
      latest.response.end();
    } else if (latest.response.socket === socket && !latest.response.headersSent) {
      latest.verdict.deny(refusal.code, refusal.status);
      latest.body.isLost = true;
      latest.response.shouldKeepAlive = false;
      sendRejection(latest, refusal);
      closeSoon(socket);
    } else {
      socket.destroy();
    }
  }

  #endBroken(refusal: Refusal, socket: Duplex): void {
    closeSoon(socket);
    if (!socket.writable) return;
    const requestId = randomUUID();
    const answer = rawAnswer(requestId, refusal);
    socket.end(answer);
    this.#service.finishBroken({ socket, requestId, refusal, bytes: answer.length });
  }
}

function closeLater(socket: Socket, milliseconds: number, isSilent: () => boolean): void {
  const look = () => {
    if (isSilent()) socket.destroy();
  };
  // Pending data is read first, because a busy process may handle timer and data late.
  const timer = setTimeout(() => setImmediate(look), milliseconds);
  socket.once("close", () => clearTimeout(timer));
}

function closeUnlessBegun(socket: Socket): void {
  closeLater(socket, LINGER_MS, () => socket.bytesRead === 0);
}

function isLastResponse({ response }: Exchange): boolean {
  return response.headersSent && !response.shouldKeepAlive;
}

/** Bytes on a connection that never became a request, and the response to them. */
export interface BrokenRequest {
  readonly socket: Duplex;
  readonly requestId: string;
  readonly refusal: Refusal;
  readonly bytes: number;
}

function rawAnswer(requestId: string, { code, status, message }: Refusal): Buffer {
  const body = JSON.stringify({ status: "error", message, code, request_id: requestId });
  const head = [
    `HTTP/1.1 ${status} ${http.STATUS_CODES[status]}`,
    "Content-Type: application/json; charset=utf-8",
    `Content-Length: ${Buffer.byteLength(body)}`,
    "Cache-Control: no-store",
    "X-Content-Type-Options: nosniff",
    `X-Request-Id: ${requestId}`,
    "X-Gatehouse-Decision: deny",
    "Connection: close",
  ];
  return Buffer.from(`${head.join("\r\n")}\r\n\r\n${body}`);
}

/** How often open answers are checked: a lost right cuts them within a second. */
const INTERVAL_MS = 500;

/** How long a client may read nothing of its answer. */
const CLIENT_TIMEOUT_MS = 60_000;

interface Stall {
  readonly flushed: number;
  readonly since: number;
}

/**
 * Cuts answers that the client does not read, because others need their buffers and their
 * connections to the upstream, and those that are no longer allowed. A request that is answered at
 * once pays nothing for this.
 *
 * @param open the answers under way; each must keep its identity between checks
 * @param cutOnceRefused cuts an answer that is no longer allowed
 */
export function limitAnswers<Answer extends { readonly response: ServerResponse }>(
  open: () => Iterable<Answer>,
  cutOnceRefused: (answer: Answer) => void,
  timeoutMs = CLIENT_TIMEOUT_MS,
): NodeJS.Timeout {
  const stalls = new WeakMap<ServerResponse, Stall>();

  function isStalled(response: ServerResponse): boolean {
    const { writableNeedDrain, writableEnded, socket } = response;
    // The socket of an answer that has been sent is gone.
    if (socket === null || !(writableNeedDrain || writableEnded)) return false;
    const flushed = socket.bytesWritten - socket.writableLength;
    const stall = stalls.get(response);
    const now = performance.now();
    if (stall?.flushed === flushed) return now - stall.since > timeoutMs;
    stalls.set(response, { flushed, since: now });
    return false;
  }

  return setInterval(
    () => {
      for (const answer of open()) {
        if (isStalled(answer.response)) answer.response.destroy();
        else cutOnceRefused(answer);
      }
    },
    Math.min(INTERVAL_MS, timeoutMs / 4),
  ).unref();
}
