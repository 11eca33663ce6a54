import { randomUUID } from "node:crypto";
import { once } from "node:events";
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse,
} from "node:http";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";
import {
  createMcpHandler,
  type EventStore,
  isLegacyRequest,
  type JSONRPCMessage,
  type McpServer,
  type ServerOptions,
  WebStandardStreamableHTTPServerTransport,
} from "@modelcontextprotocol/server";
import type { Test } from "tap";
import { toWebRequest } from "../../src/features/mcp/embedded.ts";
import { createFixtureServer } from "./fixture-tools.ts";

interface FixtureRequest {
  readonly method: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/** Keeps the events of all sessions, in order. */
export function keepEvents(): EventStore {
  const sent: { stream: string; message: JSONRPCMessage }[] = [];
  return {
    async storeEvent(stream, message) {
      sent.push({ stream, message });
      return String(sent.length - 1);
    },
    async replayEventsAfter(last, { send }) {
      const stream = sent[Number(last)]?.stream ?? "";
      for (const [id, event] of sent.entries()) {
        if (id > Number(last) && event.stream === stream) await send(String(id), event.message);
      }
      return stream;
    },
  };
}

/**
 * An external MCP server on the official library: 2026-07-28 without sessions, earlier revisions
 * with them. It records each request.
 */
export class FixtureServer {
  readonly received: FixtureRequest[] = [];
  cancelled = 0;
  readonly #more: (server: McpServer) => void;
  readonly #options: ServerOptions;
  readonly #events: EventStore | undefined;
  readonly #sessions = new Map<string, WebStandardStreamableHTTPServerTransport>();
  readonly #stateless = createMcpHandler(() => this.#createServer(), { legacy: "reject" });
  readonly #server = createServer((request, response) => {
    this.#receive(request, response).catch(() => response.destroy());
  });

  /**
   * @param more registers additional tools
   * @param events stores the events of sessions; without it, streams cannot be resumed
   */
  constructor(
    more: (server: McpServer) => void = () => {},
    options: ServerOptions = {},
    events?: EventStore,
  ) {
    this.#more = more;
    this.#options = options;
    this.#events = events;
  }

  /** Listens until the test ends. Returns the server's URL. */
  async listen(t?: Pick<Test, "teardown">): Promise<string> {
    t?.teardown(() => this.close());
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    const address: AddressInfo | string | null = this.#server.address();
    return `http://127.0.0.1:${typeof address === "object" ? address?.port : ""}/serve/mcp`;
  }

  async close(): Promise<void> {
    await this.#stateless.close();
    for (const transport of this.#sessions.values()) await transport.close();
    this.#server.close();
    this.#server.closeAllConnections();
  }

  take(): FixtureRequest[] {
    return this.received.splice(0);
  }

  /** Loses every session, as after a restart. */
  async loseSessions(): Promise<void> {
    const lost = [...this.#sessions.values()];
    this.#sessions.clear();
    for (const transport of lost) await transport.close();
  }

  #createServer(): McpServer {
    const server = createFixtureServer(() => {
      this.cancelled++;
    }, this.#options);
    this.#more(server);
    return server;
  }

  async #receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = (await buffer(request)).toString();
    this.received.push({ method: request.method ?? "", headers: request.headers, body });
    const parsedBody: unknown = body === "" ? undefined : JSON.parse(body);
    const webRequest = toWebRequest(request, response);
    const isLegacy = await isLegacyRequest(webRequest, parsedBody);
    const options = parsedBody === undefined ? {} : { parsedBody };
    const answer = isLegacy
      ? await this.#answerInSession(webRequest, options)
      : await this.#stateless.fetch(webRequest, options);
    // A stream begins before its first event.
    response.writeHead(answer.status, Object.fromEntries(answer.headers)).flushHeaders();
    if (answer.body === null) response.end();
    else await pipeline(Readable.fromWeb(answer.body), response);
  }

  async #answerInSession(request: Request, options: { parsedBody?: unknown }): Promise<Response> {
    const id = request.headers.get("mcp-session-id");
    const transport = id === null ? await this.#newSession() : this.#sessions.get(id);
    if (transport === undefined) return Response.json({ error: "no session" }, { status: 404 });
    return transport.handleRequest(request, options);
  }

  async #newSession(): Promise<WebStandardStreamableHTTPServerTransport> {
    const transport = new WebStandardStreamableHTTPServerTransport({
      ...(this.#events === undefined ? {} : { eventStore: this.#events }),
      sessionIdGenerator: () => randomUUID(),
      onsessioninitialized: (id) => {
        this.#sessions.set(id, transport);
      },
      onsessionclosed: (id) => {
        this.#sessions.delete(id);
      },
    });
    await this.#createServer().connect(transport);
    return transport;
  }
}
