import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import type { Test } from "tap";

/** Called with each complete request. */
export type OnRequest = (socket: Socket, request: string, connection: number) => void;

function lengthOf(head: string): number {
  return Number(/^content-length: *(\d+)/im.exec(head)?.[1] ?? 0);
}

/** An upstream on plain sockets, so that a test can send malformed answers. */
export class RawUpstream {
  connections = 0;
  /** The complete requests in latin1. */
  readonly requests: string[] = [];
  closed = 0;
  readonly server: Server;
  readonly #sockets = new Set<Socket>();

  constructor(onRequest: OnRequest) {
    this.server = createServer((socket) => this.#accept(socket, onRequest));
  }

  #accept(socket: Socket, onRequest: OnRequest): void {
    // Counts from the first byte: the gateway opens a connection at its start without using it.
    let connection = 0;
    let rest = "";
    this.#sockets.add(socket);
    socket.on("error", () => {});
    socket.once("close", () => {
      if (connection > 0) this.closed++;
      this.#sockets.delete(socket);
    });
    socket.setEncoding("latin1").on("data", (text) => {
      if (connection === 0) connection = ++this.connections;
      rest += text;
      const end = rest.indexOf("\r\n\r\n");
      if (end === -1) return;
      const size = end + 4 + lengthOf(rest.slice(0, end));
      if (rest.length < size) return;
      const request = rest.slice(0, size);
      rest = rest.slice(size);
      this.requests.push(request);
      onRequest(socket, request, connection);
    });
  }

  /** Listens on a free port until the test ends. */
  async listen(t?: Pick<Test, "teardown">): Promise<this> {
    this.server.listen(0, "127.0.0.1");
    await once(this.server, "listening");
    t?.teardown(() => this.close());
    return this;
  }

  get url(): string {
    const address: AddressInfo | string | null = this.server.address();
    return `http://127.0.0.1:${typeof address === "object" ? address?.port : ""}`;
  }

  async close(): Promise<void> {
    if (!this.server.listening) return;
    const closed = once(this.server, "close");
    this.server.close();
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }
}

export function wireAnswer(body: string, headers = ""): string {
  const length = Buffer.byteLength(body);
  return `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n${headers}Content-Length: ${length}\r\n\r\n${body}`;
}
