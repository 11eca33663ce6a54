import { once } from "node:events";
import type { Server } from "node:http";
import { Server as NetServer, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { setImmediate as nextTurn } from "node:timers/promises";
import type { Exchange } from "./exchange.ts";

/** Milliseconds for which a drained connection must have been silent before it is closed. */
const LINGER_MS = 250;

/** The connections of the front with the requests on them: what a drain must know. */
export class Connections {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #underway = new Set<Exchange>();
  readonly #latest = new WeakMap<Duplex, Exchange>();
  /** Requests whose answers say, because of the drain alone, that their connection ends. */
  readonly #last = new WeakSet<Exchange>();
  #taken = 0;
  #isDraining = false;

  constructor(server: Server) {
    this.#server = server;
    server.on("connection", (socket) => {
      this.#taken++;
      this.#sockets.add(socket);
      socket.once("close", () => this.#sockets.delete(socket));
      if (this.#isDraining) this.#closeOnceSilent(socket);
    });
  }

  /** The last request that a connection carried, if there was one. */
  latestOn(socket: Duplex): Exchange | undefined {
    return this.#latest.get(socket);
  }

  /** Forgets a request that will not be served: its connection is closed. */
  forget(exchange: Exchange): void {
    this.#underway.delete(exchange);
  }

  /**
   * Notes a request until it is over.
   *
   * @returns false if it must not be carried out: the answer before it ends the connection, so that
   *   its own could never be sent
   */
  begin(exchange: Exchange): boolean {
    const { request, response } = exchange;
    const { socket } = request;
    const before = this.#latest.get(socket);
    if (before !== undefined && isFarewell(before)) return false;
    this.#underway.add(exchange);
    this.#latest.set(socket, exchange);
    if (this.#isDraining) this.#makeLast(exchange, before);
    response.once("close", () => {
      this.#underway.delete(exchange);
      // An answer that began before the drain has promised to keep its connection.
      if (this.#isDraining) this.#closeOnceSilent(socket);
    });
    return true;
  }

  /**
   * Takes no more connections and lets requests in flight finish, those among them that are just
   * arriving on connections that were kept. Each connection is told so with its last answer, or
   * closed once it has been silent for a moment.
   *
   * @param grace milliseconds after which what is left is cut
   */
  async drain(grace: number): Promise<void> {
    this.#isDraining = true;
    await this.#letIn();
    const closed = once(this.#server, "close");
    // Not the HTTP server's own, which also cuts kept connections on which a request is arriving.
    NetServer.prototype.close.call(this.#server);
    for (const exchange of this.#underway) {
      if (this.#latest.get(exchange.request.socket) === exchange) this.#makeLast(exchange);
    }
    for (const socket of this.#sockets) this.#closeOnceSilent(socket);
    const timer = setTimeout(() => this.#server.closeAllConnections(), grace);
    await closed;
    clearTimeout(timer);
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

  #closeOnceSilent(socket: Socket): void {
    const { bytesRead } = socket;
    const timer = setTimeout(() => {
      const exchange = this.#latest.get(socket);
      const isBusy = exchange !== undefined && this.#underway.has(exchange);
      if (!isBusy && socket.bytesRead === bytesRead) socket.destroy();
    }, LINGER_MS);
    socket.once("close", () => clearTimeout(timer));
  }
}

/** True if the head of an answer has gone out that says its connection ends. */
function isFarewell({ response }: Exchange): boolean {
  return response.headersSent && !response.shouldKeepAlive;
}
