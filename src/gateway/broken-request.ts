import { randomUUID } from "node:crypto";
import type { Duplex } from "node:stream";
import { Refusal, type RefusalCode } from "../refusal.ts";
import { sendRejection } from "./answer.ts";
import type { Exchange } from "./exchange.ts";

/** Milliseconds that a client has to take the answer to what it could not say. */
const LINGER_MS = 1000;

function codeFor(error: NodeJS.ErrnoException): RefusalCode {
  if (error.code === "HPE_HEADER_OVERFLOW") return "headers_too_large";
  if (error.code === "ERR_HTTP_REQUEST_TIMEOUT") return "request_timeout";
  return "bad_request";
}

/** The answer to a head that never became a request, for which there is no response to write to. */
function rawAnswer({ code, status, message }: Refusal): string {
  const requestId = randomUUID();
  const body = JSON.stringify({ status: "error", message, code, request_id: requestId });
  const head = [
    `HTTP/1.1 ${status} ${code}`,
    "Content-Type: application/json; charset=utf-8",
    `Content-Length: ${Buffer.byteLength(body)}`,
    `X-Request-Id: ${requestId}`,
    "X-Gatehouse-Decision: deny",
    "Connection: close",
  ];
  return `${head.join("\r\n")}\r\n\r\n${body}`;
}

function closeSoon(socket: Duplex): void {
  const timer = setTimeout(() => socket.destroy(), LINGER_MS);
  socket.once("close", () => clearTimeout(timer));
}

/**
 * Answers what breaks the rules of HTTP or comes too slowly, then closes the connection. Nothing
 * is ever written into or between answers that are still to come on it.
 *
 * @param latest the last request that the connection carried, if there was one
 */
export function answerBrokenRequest(
  error: NodeJS.ErrnoException,
  socket: Duplex,
  latest: Exchange | undefined,
): void {
  const refusal = new Refusal(codeFor(error));
  const isBetweenRequests =
    latest === undefined || (latest.request.complete && latest.response.writableFinished);
  if (!socket.writable || error.code === "ECONNRESET") {
    socket.destroy();
  } else if (isBetweenRequests) {
    socket.end(rawAnswer(refusal));
    closeSoon(socket);
  } else if (!latest.request.complete && canAnswer(latest, socket)) {
    refuse(latest, refusal);
    closeSoon(socket);
  } else {
    socket.destroy();
  }
}

/** True if it is this request's turn to be answered and nothing of its answer is out. */
function canAnswer({ response }: Exchange, socket: Duplex): boolean {
  return response.socket === socket && !response.headersSent;
}

function refuse(exchange: Exchange, refusal: Refusal): void {
  exchange.reason = refusal.code;
  exchange.decision = "deny";
  exchange.response.shouldKeepAlive = false;
  sendRejection(exchange, refusal);
}

/**
 * Answers a request that does not name exactly one host, as HTTP/1.1 asks (RFC 9112, section 3.2).
 *
 * @returns true if there was something to refuse
 */
export function refuseWithoutHost(exchange: Exchange): boolean {
  const { httpVersion, headersDistinct } = exchange.request;
  const hosts = headersDistinct.host?.length ?? 0;
  if (hosts === 1 || (hosts === 0 && httpVersion === "1.0")) return false;
  refuse(exchange, new Refusal("bad_request"));
  return true;
}
