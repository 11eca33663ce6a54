import {
  isJSONRPCNotification,
  isJSONRPCRequest,
  isJSONRPCResponse,
  isJSONRPCResultResponse,
  type JSONRPCMessage,
  StreamableHTTPClientTransport,
} from "@modelcontextprotocol/client";
import { type McpMessage, readMessage } from "../body.ts";
import { McpRefused, type MessageId } from "../json-rpc.ts";
import { parseExactly } from "./exact-json.ts";
import { type RpcError, rpcErrorOf } from "./failure.ts";
import { fetchFromGateway } from "./http.ts";

/** Milliseconds that the end of a session may take, so that closing is prompt. */
const GOODBYE_MS = 1000;

/** Where messages go, and how. */
export interface RelayOptions {
  /** The endpoint: the gateway's `/mcp`. */
  readonly url: URL;
  /** The bearer token of every request. */
  readonly token: string;
  /** Takes each message for the client, as one line of JSON without its end. */
  readonly write: (line: string) => void;
  /** Told of everything that goes wrong. */
  readonly onError: (error: unknown) => void;
}

/** A request that has no answer yet. */
interface Pending {
  readonly method: string;
  /** True from 2026-07-28 on, where to hang up is to cancel. */
  readonly isStateless: boolean;
  readonly abort: AbortController;
}

function invalid(problem: string, id?: MessageId): McpRefused {
  return new McpRefused("invalidRequest", `Invalid request: ${problem}`, { id });
}

/** The message as the library takes it. */
function toLibrary(line: Buffer, { id }: McpMessage): JSONRPCMessage {
  const message = parseExactly(line.toString("utf8"));
  const isMessage =
    isJSONRPCRequest(message) || isJSONRPCNotification(message) || isJSONRPCResponse(message);
  if (!isMessage) throw invalid("it has not the shape of a message", id);
  return message;
}

/** The request that a `notifications/cancelled` is about. */
function cancelledId(message: JSONRPCMessage): MessageId | undefined {
  if (!("method" in message) || message.method !== "notifications/cancelled") return undefined;
  const id = message.params?.requestId;
  return typeof id === "string" || typeof id === "number" ? id : undefined;
}

/**
 * Carries messages between a client that speaks lines and a gateway that speaks Streamable HTTP, in
 * every revision of the protocol. Every request gets an answer, be it an error.
 */
export class Relay {
  readonly #options: RelayOptions;
  readonly #transport: StreamableHTTPClientTransport;
  readonly #pending = new Map<MessageId, Pending>();
  /** When all that has to keep its order has been sent. */
  #sent = Promise.resolve();

  constructor(options: RelayOptions) {
    this.#options = options;
    this.#transport = new StreamableHTTPClientTransport(options.url, {
      fetch: fetchFromGateway,
      requestInit: { headers: { Authorization: `Bearer ${options.token}` } },
    });
    this.#transport.onmessage = (message) => this.#receive(message);
    this.#transport.onerror = options.onError;
  }

  /** Must be called once, before anything else. */
  async start(): Promise<void> {
    await this.#transport.start();
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
      const read = readMessage(line);
      const message = toLibrary(line, read);
      const cancelled = cancelledId(message);
      if (read.kind === "request" && read.id !== undefined) void this.#ask(message, read, read.id);
      else if (cancelled === undefined || !this.#hangUp(cancelled)) await this.#tell(message);
    } catch (error) {
      if (!(error instanceof McpRefused)) throw error;
      const { id = null, code, message } = error;
      this.#answerError(id, { code, message });
    }
  }

  async #ask(message: JSONRPCMessage, read: McpMessage, id: MessageId): Promise<void> {
    const { method, protocolVersion } = read;
    const abort = new AbortController();
    this.#pending.set(id, { method, isStateless: protocolVersion !== undefined, abort });
    const onRequestStreamEnd = () => this.#fail(id, new Error("The answer broke off"));
    try {
      const options = { requestSignal: abort.signal, onRequestStreamEnd };
      await this.#transport.send(message, options);
    } catch (error) {
      this.#fail(id, error);
    }
  }

  /** Sends what has no answer; that it failed, `onerror` has told. */
  async #tell(message: JSONRPCMessage): Promise<void> {
    await this.#transport.send(message).catch(() => {});
  }

  /**
   * Cancels a request. Nothing more is said to the client about it.
   *
   * @returns false if the gateway is to be told by the client's own message
   */
  #hangUp(id: MessageId): boolean {
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    if (pending?.isStateless !== true) return false;
    pending.abort.abort();
    return true;
  }

  #receive(message: JSONRPCMessage): void {
    if (isJSONRPCResponse(message) && message.id !== undefined) {
      const pending = this.#pending.get(message.id);
      this.#pending.delete(message.id);
      const version = isJSONRPCResultResponse(message) && message.result.protocolVersion;
      if (pending?.method === "initialize" && typeof version === "string") {
        this.#transport.setProtocolVersion(version);
      }
    }
    this.#options.write(JSON.stringify(message));
  }

  /** Answers a request by what went wrong, unless it was answered or given up. */
  #fail(id: MessageId, error: unknown): void {
    if (this.#pending.delete(id)) this.#answerError(id, rpcErrorOf(error, this.#options.url));
  }

  #answerError(id: MessageId | null, error: RpcError): void {
    this.#options.write(JSON.stringify({ jsonrpc: "2.0", id, error }));
  }
}
