import type { IncomingMessage, ServerResponse } from "node:http";
import { http } from "../node-http.ts";
import { hasBody, pathOf } from "./request-head.ts";
import { endpointFor, type Router } from "./route.ts";
import { endConnection } from "./unread-body.ts";

/** 16 bytes in base64 (RFC 6455, section 4.1). */
const key = /^[A-Za-z0-9+/]{22}==$/;

/** True for the wish to speak WebSocket and nothing else, as a client has to utter it. */
function isHandshake({ method, httpVersion, headers }: IncomingMessage): boolean {
  const isAsked = headers.upgrade?.toLowerCase() === "websocket";
  const isPlain = headers.expect === undefined && !hasBody(headers);
  const hasKey = key.test(headers["sec-websocket-key"] ?? "");
  return method === "GET" && httpVersion === "1.1" && isAsked && isPlain && hasKey;
}

/**
 * True for a WebSocket handshake where one is taken. Every other wish for another protocol is not
 * heard (RFC 9110, section 7.8): the request is served as if it had not been uttered.
 */
export function isWebSocketTaken(router: Router, request: IncomingMessage): boolean {
  if (!isHandshake(request)) return false;
  try {
    const match = router(pathOf(request));
    return match !== undefined && endpointFor(match.route, "GET")?.takesWebSocket === true;
  } catch {
    // What is wrong with the path is said when the request is served.
    return false;
  }
}

/**
 * The answer to a request whose connection the HTTP server has handed over. Unless the protocol
 * changes, the connection ends with it.
 *
 * @param head what the client has sent behind the request; nobody sees it before the upstream agrees
 */
export function answerOnItsOwn(request: IncomingMessage, head: Buffer): ServerResponse {
  const { socket } = request;
  const response = new http.ServerResponse(request);
  response.shouldKeepAlive = false;
  // Its end follows, by which everybody learns of it.
  socket.on("error", () => {});
  socket.once("end", () => {
    if (!response.headersSent) response.destroy();
  });
  if (head.length > 0) socket.unshift(head);
  response.assignSocket(socket);
  response.once("finish", () => {
    socket.resume();
    endConnection(socket);
  });
  return response;
}
