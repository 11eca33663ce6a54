import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";

/** How a wire is laid. */
export interface WireOptions {
  /** The address that it is reached at; by default of this machine alone. */
  readonly host?: string;
  /** The port that it is reached at; by default a free one. */
  readonly port?: number;
}

/** A way to a server that can be cut without a word, as a network that drops packets, or be slow. */
export class Wire {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly port: number;
  #target: number;
  #isCut = false;
  /** Milliseconds that what is sent takes, each way. */
  delay = 0;

  constructor(server: Server, port: number, target: number) {
    this.#server = server;
    this.port = port;
    this.#target = target;
  }

  /** Lays a wire to a port of this machine. */
  static async to(
    t: { teardown(work: () => unknown): void },
    target: number,
    { host = "127.0.0.1", port = 0 }: WireOptions = {},
  ): Promise<Wire> {
    const server = createServer();
    server.listen(port, host);
    await once(server, "listening");
    const address = server.address();
    if (typeof address === "string" || address === null) throw new Error("no port");
    const wire = new Wire(server, address.port, target);
    server.on("connection", (client) => wire.#join(client));
    t.teardown(() => wire.close());
    return wire;
  }

  #join(client: Socket): void {
    const upward = connect(this.#target, "127.0.0.1");
    for (const socket of [client, upward]) {
      this.#sockets.add(socket);
      socket.on("error", () => socket.destroy()).on("close", () => this.#sockets.delete(socket));
    }
    // Nor does the end of one side come through a way that is cut.
    client.on("close", () => this.#isCut || upward.destroy());
    upward.on("close", () => this.#isCut || client.destroy());
    this.#carry(client, upward);
    this.#carry(upward, client);
  }

  #carry(from: Socket, to: Socket): void {
    const late: (string | Buffer)[] = [];
    from.on("data", (bytes) => {
      if (this.#isCut) return;
      if (this.delay === 0 && late.length === 0) {
        to.write(bytes);
        return;
      }
      late.push(bytes);
      // In order, also where the delay has changed.
      setTimeout(() => to.write(late.shift() ?? ""), this.delay);
    });
  }

  /** From now on nothing comes through, and nobody is told. */
  cut(): void {
    this.#isCut = true;
  }

  /** From now on new connections work; those that were cut are ended. */
  mend(): void {
    this.#end();
    this.#isCut = false;
  }

  /** Leads to another server from now on; connections to the one before are ended. */
  leadTo(target: number): void {
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
