import type { Socket } from "node:net";
import type { Exchange } from "./exchange.ts";

/** Requests that may wait on one connection; who sends more without reading is cut. */
const MAX_WAITING = 64;

interface Waiting {
  readonly exchange: Exchange;
  readonly start: () => void;
}

/**
 * Has the requests of one connection served one after the other: each is judged by what is in force
 * when the answers before it are out, and a connection never costs more than one request does.
 */
export class Turns {
  readonly #lines = new WeakMap<Socket, Waiting[]>();
  readonly #drop: (exchange: Exchange) => void;

  /** @param drop told of each request whose connection ended before its turn */
  constructor(drop: (exchange: Exchange) => void) {
    this.#drop = drop;
  }

  /** Starts a request once those before it on its connection are answered. */
  take(exchange: Exchange, start: () => void): void {
    const { socket } = exchange.request;
    const line = this.#lines.get(socket);
    if (line === undefined) {
      this.#lines.set(socket, []);
      this.#begin({ exchange, start });
    } else {
      line.push({ exchange, start });
      if (line.length > MAX_WAITING) socket.destroy();
    }
  }

  #begin({ exchange, start }: Waiting): void {
    exchange.response.once("close", () => this.#next(exchange.request.socket));
    start();
  }

  #next(socket: Socket): void {
    const line = this.#lines.get(socket) ?? [];
    // The answer that is out may have been the connection's last.
    if (!socket.writable) for (const { exchange } of line.splice(0)) this.#drop(exchange);
    const next = line.shift();
    if (next === undefined) this.#lines.delete(socket);
    else this.#begin(next);
  }
}
