import { once } from "node:events";
import type { Server } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { answerBrokenRequest } from "./broken-request.ts";
import type { Exchange } from "./exchange.ts";

/** The connections of the front with the requests on them: what a drain must know. */
export class Connections {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #underway = new Set<Exchange>();
  readonly #latest = new WeakMap<Duplex, Exchange>();
  #isDraining = false;

  constructor(server: Server) {
    this.#server = server;
    server.on("connection", (socket) => {
      this.#sockets.add(socket);
      socket.once("close", () => this.#sockets.delete(socket));
    });
    server.on("clientError", (error, socket) => {
      answerBrokenRequest(error, socket, this.#latest.get(socket));
    });
  }

  /** Notes a request until it is over. */
  begin(exchange: Exchange): void {
    const { request, response } = exchange;
    this.#underway.add(exchange);
    this.#latest.set(request.socket, exchange);
    if (this.#isDraining) response.shouldKeepAlive = false;
    response.once("close", () => {
      this.#underway.delete(exchange);
      // An answer that began before the drain has promised to keep its connection.
      if (this.#isDraining) this.#server.closeIdleConnections();
    });
  }

  /**
   * Takes no more connections and lets requests in flight finish.
   *
   * @param grace milliseconds after which what is left is cut
   */
  async drain(grace: number): Promise<void> {
    this.#isDraining = true;
    const closed = once(this.#server, "close");
    this.#server.close();
    for (const { response } of this.#underway) response.shouldKeepAlive = false;
    // Connections on which nothing was ever asked do not count as idle.
    for (const socket of this.#sockets) if (socket.bytesRead === 0) socket.destroy();
    const timer = setTimeout(() => this.#server.closeAllConnections(), grace);
    await closed;
    clearTimeout(timer);
  }
}
