import { randomUUID } from "node:crypto";
import { once } from "node:events";
import type { Server } from "node:http";
import { Server as NetServer, Socket } from "node:net";
import type { Duplex } from "node:stream";
import { setImmediate as nextTurn } from "node:timers/promises";
import { Refusal } from "../refusal.ts";
import { sendRejection } from "./answer.ts";
import { type Exchange, requirePlainHead } from "./exchange.ts";

/**
 * Milliseconds for which a drained connection must have been silent before it is closed: longer than
 * clients think that send one request after the other, so that none of theirs meets its end.
 */
const SILENCE_MS = 1000;
/** Milliseconds for those that come before nobody listens any more, and have said nothing yet. */
const LINGER_MS = 250;
/** Requests that may wait on one connection; who sends more without reading is cut. */
const MAX_WAITING = 64;

/** What is done with a request. */
interface Service {
  /** Its turn has come. */
  serve(exchange: Exchange): void;
  /**
   * Its answer is out, or its connection has ended.
   *
   * @param bytes that went out, head and body
   */
  finish(exchange: Exchange, bytes: number): void;
}

/** A client's connection, with the requests on it. */
class ClientConnection {
  readonly socket: Socket;
  /** The request that is served. */
  current: Exchange | undefined;
  /** The last that has come. */
  latest: Exchange | undefined;
  readonly waiting: Exchange[] = [];

  constructor(socket: Socket) {
    this.socket = socket;
  }
}

/**
 * The connections of the listener, and their graceful shutdown. The requests of one are served one
 * after the other: each is judged by what is in force when the answers before it are out, and a
 * connection never costs more than one request does.
 */
export class Connections {
  readonly #server: Server;
  readonly #service: Service;
  readonly #open = new Map<Duplex, ClientConnection>();
  /** What lies under the connections that speak TLS. */
  readonly #encrypted = new Set<Socket>();
  /** Requests whose answers say, because of the drain alone, that their connection ends. */
  readonly #last = new WeakSet<Exchange>();
  #taken = 0;
  #isDraining = false;
  /** Set when nobody listens any more; resolves when the last connection is closed. */
  #closed: Promise<unknown> | undefined;

  constructor(server: Server, service: Service) {
    this.#server = server;
    this.#service = service;
    const isSecure = "setSecureContext" in server;
    server.on("connection", (socket: Socket) => {
      this.#taken++;
      if (isSecure) this.#shakeHands(socket);
      else this.#enter(socket);
    });
    if (isSecure) server.on("secureConnection", (socket) => this.#enter(socket));
  }

  #enter(socket: Socket): void {
    const connection = new ClientConnection(socket);
    this.#open.set(socket, connection);
    socket.once("close", () => this.#open.delete(socket));
    if (this.#isDraining) this.#closeOnceSilent(connection);
  }

  /** Keeps a connection under TLS in view, which may never become one on which HTTP is spoken. */
  #shakeHands(socket: Socket): void {
    this.#encrypted.add(socket);
    socket.once("close", () => this.#encrypted.delete(socket));
    if (this.#isDraining) closeUnlessBegun(socket);
  }

  /** The connection on which a TLS handshake has failed, to answer in plain text. */
  underTls(socket: Duplex): Socket | undefined {
    if (!(socket instanceof Socket)) return undefined;
    const { remoteAddress, remotePort } = socket;
    return this.#encrypted
      .values()
      .find((raw) => raw.remotePort === remotePort && raw.remoteAddress === remoteAddress);
  }

  /** The last request that a connection carried, if there was one. */
  latestOn(socket: Duplex): Exchange | undefined {
    return this.#open.get(socket)?.latest;
  }

  /** True if a request that comes now is served at once, and not behind others or not at all. */
  isFree(socket: Duplex): boolean {
    const connection = this.#open.get(socket);
    if (connection === undefined || connection.current !== undefined) return false;
    return connection.latest === undefined || !isFarewell(connection.latest);
  }

  /**
   * Has a request served once those before it on its connection are answered. It is not carried out
   * if the answer before it ends the connection, so that its own could never be sent.
   */
  arrive(exchange: Exchange): void {
    const connection = this.#open.get(exchange.request.socket);
    if (connection === undefined) return;
    const { latest, waiting, socket } = connection;
    if (!socket.writable || (latest !== undefined && isFarewell(latest))) return;
    connection.latest = exchange;
    if (this.#isDraining) this.#makeLast(exchange, latest);
    if (connection.current === undefined) this.#begin(connection, exchange);
    else if (waiting.push(exchange) > MAX_WAITING) socket.destroy();
  }

  #begin(connection: ClientConnection, exchange: Exchange): void {
    connection.current = exchange;
    const { bytesWritten } = connection.socket;
    exchange.response.on("close", () => this.#end(connection, exchange, bytesWritten));
    this.#service.serve(exchange);
  }

  #end(connection: ClientConnection, exchange: Exchange, writtenBefore: number): void {
    connection.current = undefined;
    exchange.whenClosed?.();
    const { waiting, socket } = connection;
    this.#service.finish(exchange, socket.bytesWritten - writtenBefore);
    // The answer that is out may have been the connection's last.
    if (!socket.writable) waiting.length = 0;
    const next = waiting.shift();
    if (next !== undefined) this.#begin(connection, next);
    // An answer that began before the drain has promised to keep its connection.
    else if (this.#isDraining) this.#closeOnceSilent(connection);
  }

  /**
   * Takes no more connections. No client is told so yet: one that came back at once could still be
   * let in by a process that is about to stop listening too, and be reset by its end.
   */
  async stopListening(): Promise<void> {
    await this.#letIn();
    this.#closed = once(this.#server, "close");
    // Not the HTTP server's own, which also cuts kept connections on which a request is arriving.
    NetServer.prototype.close.call(this.#server);
  }

  /**
   * Takes no more connections and lets requests in flight finish, those among them that are just
   * arriving on connections that were kept. Each connection is told so with its last answer, or
   * closed once it has been silent for a moment.
   *
   * @param grace milliseconds after which what is left is cut
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
    // The server counts a connection as closed before the connection says so, and its request ends.
    while (this.#open.size > 0) await nextTurn();
  }

  /** Cuts every connection, also those on which HTTP is spoken no more. */
  #cut(): void {
    for (const { socket } of this.#open.values()) socket.destroy();
    for (const socket of this.#encrypted) socket.destroy();
  }

  /** Takes the connections that wait to be taken: with the listener they would be reset. */
  async #letIn(): Promise<void> {
    const deadline = performance.now() + LINGER_MS;
    let before: number;
    do {
      before = this.#taken;
      // One of them is taken in a turn of the event loop, and the first turn may be half over.
      await nextTurn();
      await nextTurn();
    } while (this.#taken > before && performance.now() < deadline);
  }

  /** Has the answer say that the connection ends with it, and no more the one before it. */
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
}

/**
 * Closes a connection after a time if it is silent then. What had arrived is read first, since a
 * process that is busy may come to both only later.
 */
function closeLater(socket: Socket, milliseconds: number, isSilent: () => boolean): void {
  const look = () => {
    if (isSilent()) socket.destroy();
  };
  const timer = setTimeout(() => setImmediate(look), milliseconds);
  socket.once("close", () => clearTimeout(timer));
}

/** Closes a connection soon on which not even a handshake has begun. */
function closeUnlessBegun(socket: Socket): void {
  closeLater(socket, LINGER_MS, () => socket.bytesRead === 0);
}

/** True if the head of an answer has gone out that says its connection ends. */
function isFarewell({ response }: Exchange): boolean {
  return response.headersSent && !response.shouldKeepAlive;
}

/** Milliseconds that a client has to take the answer to what it could not say. */
const UNREAD_LINGER_MS = 1000;

/** What came on a connection without ever becoming a request, and how it was answered. */
export interface BrokenRequest {
  readonly socket: Duplex;
  readonly requestId: string;
  readonly refusal: Refusal;
  /** Bytes of the answer. */
  readonly bytes: number;
}

/** What to say of an error on a connection; undefined if the client is gone. */
function refusalFor({ code }: NodeJS.ErrnoException): Refusal | undefined {
  if (code === "ECONNRESET" || code === "EPIPE") return undefined;
  if (code === "HPE_HEADER_OVERFLOW") return new Refusal("headers_too_large");
  if (code === "ERR_HTTP_REQUEST_TIMEOUT") return new Refusal("request_timeout");
  return new Refusal("bad_request");
}

/** True if nothing was ever said on the connection, so that there is nothing to answer. */
function isSilent(socket: Duplex): boolean {
  return socket instanceof Socket && socket.bytesRead === 0;
}

/** The answer to a head that never became a request, for which there is no response to write to. */
function rawAnswer(requestId: string, { code, status, message }: Refusal): Buffer {
  const body = JSON.stringify({ status: "error", message, code, request_id: requestId });
  const head = [
    `HTTP/1.1 ${status} ${code}`,
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

function closeSoon(socket: Duplex): void {
  const timer = setTimeout(() => socket.destroy(), UNREAD_LINGER_MS);
  socket.once("close", () => clearTimeout(timer));
}

/** True if it is this request's turn to be answered and nothing of its answer is out. */
function canAnswer({ response }: Exchange, socket: Duplex): boolean {
  return response.socket === socket && !response.headersSent;
}

function refuse(exchange: Exchange, refusal: Refusal): void {
  exchange.verdict.deny(refusal.code, refusal.status);
  exchange.body.isLost = true;
  exchange.response.shouldKeepAlive = false;
  sendRejection(exchange, refusal);
}

/**
 * Answers what breaks the rules of HTTP or comes too slowly, then closes the connection. Nothing
 * is ever written into or before answers that are still to come on it.
 */
export class BrokenRequests {
  readonly #answered = new WeakSet<Duplex>();
  readonly #note: (broken: BrokenRequest) => void;

  /** @param note told of each answer that belongs to no exchange */
  constructor(note: (broken: BrokenRequest) => void) {
    this.#note = note;
  }

  /**
   * Answers for an error of the parser, or of a clock that ran out.
   *
   * @param latest the last request that the connection carried, if there was one
   */
  fail(error: NodeJS.ErrnoException, socket: Duplex, latest: Exchange | undefined): void {
    const refusal = refusalFor(error);
    if (refusal === undefined || isSilent(socket)) socket.destroy();
    else this.refuse(refusal, socket, latest);
  }

  /** Answers with a refusal once it is its turn. */
  refuse(refusal: Refusal, socket: Duplex, latest: Exchange | undefined): void {
    // Whatever else is sent after a break is part of it.
    if (this.#answered.has(socket)) return;
    this.#answered.add(socket);
    if (latest === undefined || (latest.request.complete && latest.response.writableFinished)) {
      this.#end(refusal, socket);
    } else if (latest.request.complete) {
      latest.response.once("close", () => this.#end(refusal, socket));
    } else if (latest.body.isDropped) {
      latest.response.end();
    } else if (canAnswer(latest, socket)) {
      refuse(latest, refusal);
      closeSoon(socket);
    } else {
      socket.destroy();
    }
  }

  #end(refusal: Refusal, socket: Duplex): void {
    closeSoon(socket);
    if (!socket.writable) return;
    const requestId = randomUUID();
    const answer = rawAnswer(requestId, refusal);
    socket.end(answer);
    this.#note({ socket, requestId, refusal, bytes: answer.length });
  }
}

/**
 * Refuses a request whose head two readers could read differently.
 *
 * @returns true if there was something to refuse
 */
export function refuseOddHead(exchange: Exchange): boolean {
  try {
    requirePlainHead(exchange.request);
    return false;
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    refuse(exchange, error);
    return true;
  }
}
