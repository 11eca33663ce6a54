import type { Socket } from "node:net";
import { type ReceivedRequest, RecordingUpstream } from "../kit/upstream.ts";

function idOf({ body }: ReceivedRequest): unknown {
  try {
    return JSON.parse(body.toString()).id ?? null;
  } catch {
    return null;
  }
}

export class Witness extends RecordingUpstream {
  connections = 0;
  #bytes = "";

  constructor() {
    super();
    this.server.on("connection", (socket: Socket) => {
      this.connections++;
      socket.on("data", (chunk: Buffer) => (this.#bytes += chunk.toString("latin1")));
    });
    this.answer = (request, response) => {
      response.writeHead(200, { "content-type": "application/json" });
      const result = { jsonrpc: "2.0", id: idOf(request), result: { content: [] } };
      const rows = { status: "success", data: [] };
      response.end(JSON.stringify(request.url === "/mcp" ? result : rows));
    };
  }

  /** Removes and returns all bytes received so far, as Latin-1 and with request ids masked. */
  takeBytes(): string {
    const bytes = this.#bytes;
    this.#bytes = "";
    this.take();
    return bytes.replaceAll(/^x-request-id: [0-9a-f-]{36}\r$/gm, "x-request-id: <id>\r");
  }
}
