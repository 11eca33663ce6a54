import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Test } from "tap";

export interface ReceivedRequest {
  method: string;
  url: string;
  headers: NodeJS.Dict<string | string[]>;
  rawHeaders: string[];
  body: Buffer;
}

export type Answer = (request: ReceivedRequest, response: ServerResponse) => void;

export class RecordingUpstream {
  readonly received: ReceivedRequest[] = [];
  answer: Answer = (_request, response) => {
    response.writeHead(200, { "content-type": "application/json" });
    response.end('{"status":"success","data":[]}');
  };
  readonly server: Server;

  constructor() {
    this.server = createServer((request, response) => void this.#receive(request, response));
  }

  async #receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    try {
      for await (const chunk of request) chunks.push(chunk);
    } catch {
      return;
    }
    const { method = "", url = "", headers, rawHeaders } = request;
    const received = { method, url, headers, rawHeaders, body: Buffer.concat(chunks) };
    this.received.push(received);
    this.answer(received, response);
  }

  /** Listens until the test ends, on a free port or a Unix socket. */
  async listen(t?: Pick<Test, "teardown">, socketPath?: string): Promise<this> {
    if (socketPath === undefined) this.server.listen(0, "127.0.0.1");
    else this.server.listen(socketPath);
    await once(this.server, "listening");
    t?.teardown(() => this.close());
    return this;
  }

  get url(): string {
    const address: AddressInfo | string | null = this.server.address();
    if (typeof address === "string") return `unix:${address}`;
    return `http://127.0.0.1:${address?.port}`;
  }

  take(): ReceivedRequest[] {
    return this.received.splice(0);
  }

  takeOne(): ReceivedRequest {
    const [request, ...more] = this.take();
    if (request === undefined || more.length > 0)
      throw new Error("not exactly one request arrived");
    return request;
  }

  async close(): Promise<void> {
    if (!this.server.listening) return;
    const closed = once(this.server, "close");
    this.server.close();
    this.server.closeAllConnections();
    await closed;
  }
}
