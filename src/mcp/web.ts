/** Between node:http and the Fetch API that the protocol's library speaks. */
import { randomUUID } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import {
  type CallToolResult,
  type JSONRPCMessage,
  McpServer,
  type ServerOptions,
  type Transport,
} from "@modelcontextprotocol/server";
import { errorCode, reasonOf, setHeaders } from "./json-rpc.ts";
import type { ToolResult } from "./tools/result.ts";

/**
 * Holds the structured content of a call's result while the protocol's library writes the answer
 * around it. The library gets a small object in its place: it would hold the whole several times,
 * and write it in one go.
 */
export class ResultSlot {
  readonly #mark = { [randomUUID()]: true };
  #structured: Buffer = Buffer.alloc(0);

  /** Takes a result, and gives what stands for it. */
  take({ text, structured }: ToolResult): CallToolResult {
    this.#structured = structured;
    return { content: [{ type: "text", text }], structuredContent: this.#mark };
  }

  /** The answer as the library wrote it, with the structured content in its place. */
  fill(answer: string): Buffer[] {
    const [before = "", ...after] = answer.split(JSON.stringify(this.#mark));
    if (after.length === 0) return [Buffer.from(before)];
    return [Buffer.from(before), this.#structured, Buffer.from(after.join(""))];
  }
}

/** Request headers that mean something to the protocol; a credential is not among them. */
const passed = /^(?:accept|content-type|last-event-id|mcp-.*)$/;

/** A request in the Fetch API's form, with the server that is to answer it. */
export class WebRequest extends Request {
  /** The library asks for a server by the request alone. */
  createServer: (() => McpServer) | undefined;
  /** As it was given: the one that the Fetch API makes of it costs more than all else of a request. */
  override readonly signal: AbortSignal;

  constructor(url: string, init: RequestInit, signal: AbortSignal) {
    super(url, init);
    this.signal = signal;
  }
}

/** The request in the Fetch API's form, without its body, aborted when its answer is over. */
export function toWebRequest(request: IncomingMessage, response: ServerResponse): WebRequest {
  const client = new AbortController();
  response.once("close", () => response.writableFinished || client.abort());
  const headers = new Headers();
  for (const [name, value] of Object.entries(request.headers)) {
    if (passed.test(name) && value !== undefined) headers.set(name, String(value));
  }
  // Only the body and the headers count; where the server is reached is not its concern.
  const { method = "" } = request;
  return new WebRequest("http://localhost/mcp", { method, headers }, client.signal);
}

function writeHead(answer: Response, response: ServerResponse, added: readonly string[]): void {
  for (const [name, value] of answer.headers) response.setHeader(name, value);
  if (!response.hasHeader("cache-control")) response.setHeader("Cache-Control", "no-store");
  response.setHeader("X-Content-Type-Options", "nosniff");
  setHeaders(response, added);
  response.writeHead(answer.status);
}

/**
 * Sends an answer of the Fetch API, at its reader's pace. Its head goes out with the first part of
 * its body, by when it is known what was decided. Resolves when it has gone out or broken off.
 *
 * @param answerHeaders what is added to the head: names and values in turn
 */
export async function sendWebResponse(
  answer: Response,
  response: ServerResponse,
  answerHeaders: () => readonly string[],
): Promise<void> {
  if (response.destroyed) {
    await answer.body?.cancel();
    return;
  }
  if (answer.body === null) {
    writeHead(answer, response, answerHeaders());
    response.end();
    return;
  }
  async function* headed(parts: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    for await (const part of parts) {
      if (!response.headersSent) writeHead(answer, response, answerHeaders());
      yield part;
    }
    if (!response.headersSent) writeHead(answer, response, answerHeaders());
  }
  try {
    await pipeline(Readable.fromWeb(answer.body), headed, response);
  } catch {
    // Half an answer must not look like a whole one; the pipeline has cut the connection.
  }
}

/** Bytes that are given to the client's connection at a time. */
const PIECE_BYTES = 64 * 1024;

function* piecesOf(buffers: readonly Buffer[]): Generator<Buffer> {
  for (const buffer of buffers) {
    for (let at = 0; at < buffer.length; at += PIECE_BYTES) {
      yield buffer.subarray(at, at + PIECE_BYTES);
    }
  }
}

/**
 * Sends the answer to a call of a tool, at its reader's pace, with what the slot holds in its place.
 * Resolves when it has gone out or broken off, or was handed over in one piece.
 */
export async function sendInPieces(
  answer: Response,
  response: ServerResponse,
  answerHeaders: () => readonly string[],
  slot: ResultSlot,
): Promise<void> {
  try {
    const buffers = slot.fill(await answer.text());
    if (response.destroyed) return;
    const length = buffers.reduce((sum, buffer) => sum + buffer.length, 0);
    response.setHeader("Content-Length", length);
    writeHead(answer, response, answerHeaders());
    if (length <= PIECE_BYTES) response.end(Buffer.concat(buffers));
    else await pipeline(Readable.from(piecesOf(buffers)), response);
  } catch {
    // The client has gone away; half an answer must not look like a whole one.
    response.destroy();
  }
}

type Implementation = ConstructorParameters<typeof McpServer>[0];

/** Why a message is no success; undefined if it is one, or no answer. */
function failureIn(message: JSONRPCMessage): string | undefined {
  if ("error" in message) return reasonOf(message.error.code);
  const isFailedCall = "result" in message && message.result.isError === true;
  return isFailedCall ? reasonOf(errorCode("invalidParams")) : undefined;
}

/** A server that tells of each answer that is no success, before it goes out. */
export class ObservedServer extends McpServer {
  readonly #onFailure: (reason: string) => void;

  /** @param onFailure takes the reason's stable code */
  constructor(
    implementation: Implementation,
    options: ServerOptions,
    onFailure: (reason: string) => void,
  ) {
    super(implementation, options);
    this.#onFailure = onFailure;
  }

  override async connect(transport: Transport): Promise<void> {
    const send = transport.send.bind(transport);
    transport.send = (message, options) => {
      const reason = failureIn(message);
      if (reason !== undefined) this.#onFailure(reason);
      return send(message, options);
    };
    await super.connect(transport);
  }
}
