import { setTimeout as delay } from "node:timers/promises";
import {
  isJSONRPCNotification,
  isJSONRPCRequest,
  isJSONRPCResponse,
  type JSONRPCMessage,
  type JSONRPCRequest,
  StreamableHTTPClientTransport,
} from "@modelcontextprotocol/client";
import { keepSpelling } from "../../json/exact-numbers.ts";
import { McpRefused, type MessageId } from "../json-rpc.ts";
import { type McpMessage, readMessage } from "../message.ts";
import { GatewayClient, isMendable } from "./gateway-client.ts";
import { fetchFromGateway, rpcErrorOf } from "./gateway-http.ts";

/** Milliseconds that the end of a session may take, so that closing is prompt. */
const GOODBYE_MS = 1000;
/** Milliseconds that the last answers may take once the lines of the client have ended. */
const LAST_ANSWERS_MS = 5000;

/** Where messages go, and how. */
interface BridgeOptions {
  /** The endpoint: the gateway's `/mcp`. */
  readonly url: URL;
  /** The bearer token of every request. */
  readonly token: string;
  /** Takes each message for the client, as one line of JSON without its end. */
  readonly write: (line: string) => void;
  readonly onError: (error: unknown) => void;
}

/** A request of the client that has no answer yet. */
interface Pending {
  /** True from 2026-07-28 on, where to hang up is to cancel. */
  readonly isStateless: boolean;
  readonly abort: AbortController;
}

/**
 * Carries messages between a client that speaks lines and a gateway that speaks Streamable HTTP, in
 * every revision of the protocol. Every request gets an answer, be it an error.
 */
export class StdioBridge {
  readonly #options: BridgeOptions;
  readonly #transport: StreamableHTTPClientTransport;
  readonly #gateway: GatewayClient;
  readonly #pending = new Map<MessageId, Pending>();
  /** When all that has to keep its order has been sent. */
  #sent = Promise.resolve();
  /** When all that was asked has its answer. */
  #answered = Promise.resolve();

  constructor(options: BridgeOptions) {
    this.#options = options;
    this.#transport = new StreamableHTTPClientTransport(options.url, {
      fetch: fetchFromGateway,
      requestInit: { headers: { Authorization: `Bearer ${options.token}` } },
    });
    this.#gateway = new GatewayClient(this.#transport, options.onError);
    this.#transport.onmessage = (message) => {
      if (!this.#gateway.settle(message)) this.#write(message);
    };
    this.#transport.onerror = (error) => {
      // Of what can be mended, only a failure to do so is worth telling.
      if (!isMendable(error)) options.onError(error);
    };
  }

  /** Must be called once, before anything else. */
  async start(): Promise<void> {
    await this.#transport.start();
  }

  /** Takes the lines of the client until they end, and waits a while for the last answers. */
  async takeAll(input: AsyncIterable<Buffer>): Promise<void> {
    for await (const line of readLines(input)) {
      if (line.toString("latin1").trim() !== "") this.take(line);
    }
    await Promise.race([this.#sent.then(() => this.#answered), delay(LAST_ANSWERS_MS)]);
  }

  /**
   * Takes a line of the client. Lines go up in their order, each once the gateway has taken the
   * one before; only the answers to requests are not waited for.
   */
  take(line: Buffer): void {
    this.#sent = this.#sent.then(() => this.#pass(line));
  }

  /** Gives up what is pending and ends the session, if there is one. */
  async close(): Promise<void> {
    this.#pending.clear();
    this.#transport.onmessage = () => {};
    this.#transport.onerror = () => {};
    const limit = setTimeout(() => void this.#transport.close(), GOODBYE_MS);
    // A gateway that is gone has no session to end.
    await this.#transport.terminateSession().catch(() => {});
    clearTimeout(limit);
    await this.#transport.close();
  }

  async #pass(line: Buffer): Promise<void> {
    try {
      const { read, message } = readLine(line);
      const cancelled = cancelledId(message);
      if (isJSONRPCRequest(message)) {
        const asked = this.#ask(message, read);
        this.#answered = this.#answered.then(() => asked);
      } else if (cancelled === undefined || !this.#hangUp(cancelled)) await this.#tell(message);
    } catch (error) {
      if (!(error instanceof McpRefused)) throw error;
      const { id = null, code, message } = error;
      this.#write({ jsonrpc: "2.0", id, error: { code, message } });
    }
  }

  /** Has a request answered, unless it is given up: then nothing more is said of it. */
  async #ask(request: JSONRPCRequest, read: McpMessage): Promise<void> {
    const { id } = request;
    const pending = {
      isStateless: read.protocolVersion !== undefined,
      abort: new AbortController(),
    };
    this.#pending.set(id, pending);
    const isWanted = () => this.#pending.get(id) === pending;
    try {
      const answer = await this.#gateway.request(request, read, pending.abort.signal);
      if (isWanted()) this.#write(answer);
    } catch (error) {
      if (!isWanted()) return;
      if (isMendable(error)) this.#options.onError(error);
      this.#write({ jsonrpc: "2.0", id, error: rpcErrorOf(error, this.#options.url) });
    } finally {
      if (isWanted()) this.#pending.delete(id);
    }
  }

  /** Sends what has no answer. */
  async #tell(message: JSONRPCMessage): Promise<void> {
    try {
      await this.#transport.send(message);
    } catch (error) {
      // Of everything else, the transport itself has told.
      if (isMendable(error)) this.#options.onError(error);
    }
  }

  /** Cancels a request; false if the gateway is to be told by the client's own message. */
  #hangUp(id: MessageId): boolean {
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    if (pending?.isStateless !== true) return false;
    pending.abort.abort();
    return true;
  }

  #write(message: object): void {
    this.#options.write(JSON.stringify(message));
  }
}

/** The lines of a client over stdio, each a message (MCP, stdio transport). */

const NEWLINE = 0x0a;

/**
 * The lines of a stream of bytes, without their ends, each as soon as it is whole. Only a line feed
 * ends one: what else editors take for a line's end may stand in a JSON string. What follows the
 * last line feed is no whole message and is dropped.
 */
async function* readLines(input: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let begun: Buffer[] = [];
  for await (const chunk of input) {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
      yield Buffer.concat([...begun, chunk.subarray(start, end)]);
      begun = [];
      start = end + 1;
    }
    if (start < chunk.length) begun.push(chunk.subarray(start));
  }
}

/** A line of the client: what counts of it, and the message as the library takes it. */
interface ReadLine {
  readonly read: McpMessage;
  readonly message: JSONRPCMessage;
}

/** Reads a line by the rules of the gateway itself. @throws McpRefused */
function readLine(line: Buffer): ReadLine {
  const read = readMessage(line);
  const message: unknown = JSON.parse(line.toString("utf8"), keepSpelling);
  const isMessage =
    isJSONRPCRequest(message) || isJSONRPCNotification(message) || isJSONRPCResponse(message);
  if (isMessage) return { read, message };
  const problem = "Invalid request: it has not the shape of a message";
  throw new McpRefused("invalidRequest", problem, { id: read.id });
}

/** The request that a `notifications/cancelled` is about; undefined for every other message. */
function cancelledId(message: JSONRPCMessage): MessageId | undefined {
  if (!("method" in message) || message.method !== "notifications/cancelled") return undefined;
  const id = message.params?.requestId;
  return typeof id === "string" || typeof id === "number" ? id : undefined;
}
