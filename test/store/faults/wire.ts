import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";
import type { Teardown } from "../kit.ts";

/** A relay to a server that can drop everything, as a broken network does, or be slow. */
export class Wire {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly port: number;
  #target: number;
  #isCut = false;
  delayMs = 0;

  constructor(server: Server, port: number, target: number) {
    this.#server = server;
    this.port = port;
    this.#target = target;
  }

  /** @param target a port of this machine */
  static async to(t: Teardown, target: number, host = "127.0.0.1"): Promise<Wire> {
    const server = createServer();
    server.listen(0, host);
    await once(server, "listening");
    const address = server.address();
    if (typeof address === "string" || address === null) throw new Error("no port");
    const wire = new Wire(server, address.port, target);
    server.on("connection", (client) => wire.#join(client));
    t.teardown(() => wire.close());
    return wire;
  }

  #join(client: Socket): void {
    const onward = connect(this.#target, "127.0.0.1");
    for (const socket of [client, onward]) {
      this.#sockets.add(socket);
      socket.on("error", () => socket.destroy()).on("close", () => this.#sockets.delete(socket));
    }
    // A cut network does not transmit the end of a connection either.
    client.on("close", () => this.#isCut || onward.destroy());
    onward.on("close", () => this.#isCut || client.destroy());
    this.#relay(client, onward);
    this.#relay(onward, client);
  }

  #relay(from: Socket, to: Socket): void {
    const late: (string | Buffer)[] = [];
    from.on("data", (bytes) => {
      if (this.#isCut) return;
      if (this.delayMs === 0 && late.length === 0) {
        to.write(bytes);
        return;
      }
      late.push(bytes);
      // In order, even if the delay has changed.
      setTimeout(() => to.write(late.shift() ?? ""), this.delayMs);
    });
  }

  /** Drops everything without closing connections. */
  cut(): void {
    this.#isCut = true;
  }

  /** Accepts new connections again. Connections that were cut are closed. */
  restore(): void {
    this.#end();
    this.#isCut = false;
  }

  /** Leads to another server, and closes connections to the previous one. */
  redirect(target: number): void {
    this.#target = target;
    this.#end();
  }

  #end(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  async close(): Promise<void> {
    this.#end();
    this.#server.close();
    await once(this.#server, "close");
  }
}
