import { randomUUID } from "node:crypto";
import { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { Refusal } from "../refusal.ts";
import type { Exchange } from "./exchange.ts";
import { sendRejection } from "./rejection.ts";
import { requirePlainHead } from "./request-head.ts";

/** Milliseconds that a client has to take the answer to what it could not say. */
const LINGER_MS = 1000;

/** What came on a connection without ever becoming a request, and how it was answered. */
export interface BrokenRequest {
  readonly socket: Duplex;
  readonly requestId: string;
  readonly refusal: Refusal;
  /** Bytes of the answer. */
  readonly bytes: number;
}

/** What to say of an error on a connection; undefined if the client is gone. */
function refusalFor({ code }: NodeJS.ErrnoException): Refusal | undefined {
  if (code === "ECONNRESET" || code === "EPIPE") return undefined;
  if (code === "HPE_HEADER_OVERFLOW") return new Refusal("headers_too_large");
  if (code === "ERR_HTTP_REQUEST_TIMEOUT") return new Refusal("request_timeout");
  return new Refusal("bad_request");
}

/** True if nothing was ever said on the connection, so that there is nothing to answer. */
function isSilent(socket: Duplex): boolean {
  return socket instanceof Socket && socket.bytesRead === 0;
}

/** The answer to a head that never became a request, for which there is no response to write to. */
function rawAnswer(requestId: string, { code, status, message }: Refusal): Buffer {
  const body = JSON.stringify({ status: "error", message, code, request_id: requestId });
  const head = [
    `HTTP/1.1 ${status} ${code}`,
    "Content-Type: application/json; charset=utf-8",
    `Content-Length: ${Buffer.byteLength(body)}`,
    "Cache-Control: no-store",
    "X-Content-Type-Options: nosniff",
    `X-Request-Id: ${requestId}`,
    "X-Gatehouse-Decision: deny",
    "Connection: close",
  ];
  return Buffer.from(`${head.join("\r\n")}\r\n\r\n${body}`);
}

function closeSoon(socket: Duplex): void {
  const timer = setTimeout(() => socket.destroy(), LINGER_MS);
  socket.once("close", () => clearTimeout(timer));
}

/** True if it is this request's turn to be answered and nothing of its answer is out. */
function canAnswer({ response }: Exchange, socket: Duplex): boolean {
  return response.socket === socket && !response.headersSent;
}

function refuse(exchange: Exchange, refusal: Refusal): void {
  exchange.verdict.deny(refusal.code, refusal.status);
  exchange.body.isLost = true;
  exchange.response.shouldKeepAlive = false;
  sendRejection(exchange, refusal);
}

/**
 * Answers what breaks the rules of HTTP or comes too slowly, then closes the connection. Nothing
 * is ever written into or before answers that are still to come on it.
 */
export class BrokenRequests {
  readonly #answered = new WeakSet<Duplex>();
  readonly #note: (broken: BrokenRequest) => void;

  /** @param note told of each answer that belongs to no exchange */
  constructor(note: (broken: BrokenRequest) => void) {
    this.#note = note;
  }

  /**
   * Answers for an error of the parser, or of a clock that ran out.
   *
   * @param latest the last request that the connection carried, if there was one
   */
  fail(error: NodeJS.ErrnoException, socket: Duplex, latest: Exchange | undefined): void {
    const refusal = refusalFor(error);
    if (refusal === undefined || isSilent(socket)) socket.destroy();
    else this.refuse(refusal, socket, latest);
  }

  /** Answers with a refusal once it is its turn. */
  refuse(refusal: Refusal, socket: Duplex, latest: Exchange | undefined): void {
    // Whatever else is sent after a break is part of it.
    if (this.#answered.has(socket)) return;
    this.#answered.add(socket);
    if (latest === undefined || (latest.request.complete && latest.response.writableFinished)) {
      this.#end(refusal, socket);
    } else if (latest.request.complete) {
      latest.response.once("close", () => this.#end(refusal, socket));
    } else if (latest.body.isDropped) {
      latest.response.end();
    } else if (canAnswer(latest, socket)) {
      refuse(latest, refusal);
      closeSoon(socket);
    } else {
      socket.destroy();
    }
  }

  #end(refusal: Refusal, socket: Duplex): void {
    closeSoon(socket);
    if (!socket.writable) return;
    const requestId = randomUUID();
    const answer = rawAnswer(requestId, refusal);
    socket.end(answer);
    this.#note({ socket, requestId, refusal, bytes: answer.length });
  }
}

/**
 * Refuses a request whose head two readers could read differently.
 *
 * @returns true if there was something to refuse
 */
export function refuseOddHead(exchange: Exchange): boolean {
  try {
    requirePlainHead(exchange.request);
    return false;
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    refuse(exchange, error);
    return true;
  }
}
