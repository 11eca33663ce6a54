import { createHash } from "node:crypto";
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { pipeline } from "node:stream";
import { Refusal } from "../refusal.ts";
import { answerHeaders } from "./headers.ts";
import type { StreamForward } from "./reverse-proxy.ts";

/** What a server proves with that it has read a WebSocket handshake (RFC 6455, section 1.3). */
const HANDSHAKE_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/** Milliseconds of silence after which a socket is closed of which one side has ended. */
const FAREWELL_MS = 5000;
/** Listeners of a connection that are no leak: two pipelines and the server want to know its end. */
const MAX_LISTENERS = 24;

/** True for an answer to this very handshake, and not to something else that looks like one. */
function isAgreement({ headers }: IncomingMessage, key: string): boolean {
  const accept = createHash("sha1").update(`${key}${HANDSHAKE_GUID}`).digest("base64");
  const isWebSocket = headers.upgrade?.toLowerCase() === "websocket";
  const isFramed =
    headers["content-length"] !== undefined || headers["transfer-encoding"] !== undefined;
  return isWebSocket && !isFramed && headers["sec-websocket-accept"] === accept;
}

/** Carries bytes both ways with back-pressure: each way as fast as they are taken. */
function splice(client: Socket, upstream: Socket, idleTimeout: number): void {
  // All that is said either way passes here: one clock is enough.
  client.setTimeout(idleTimeout, () => client.destroy());
  for (const side of [client, upstream]) {
    side.setNoDelay(true).setMaxListeners(MAX_LISTENERS);
    // One that comes when both ways are over has nobody left to tell.
    side.on("error", () => {});
    side.once("end", () => client.setTimeout(Math.min(idleTimeout, FAREWELL_MS)));
  }
  // When one side breaks, so does the other; when one ends, the other may say its last.
  pipeline(client, upstream, () => {});
  pipeline(upstream, client, () => {});
}

/**
 * The stream of a WebSocket handshake. Once the upstream has agreed, and no sooner, what the client
 * says goes up. Another answer than an agreement goes to the client as any answer does.
 *
 * @param stream the request, with a `Sec-WebSocket-Key`, and an answer that is written to a
 *   connection which nobody else reads
 * @param idleTimeout milliseconds without a byte either way (the idle timeout) until it is closed
 */
export function asWebSocket(stream: StreamForward, idleTimeout: number): StreamForward {
  const { request, response, headers, answerHeaders: added } = stream;
  const ofConnection = ["Connection", "Upgrade", "Upgrade", "websocket"];
  return {
    ...stream,
    headers: { ...headers, connection: "Upgrade", upgrade: "websocket" },
    upgrade(answer, upstream, head) {
      if (!isAgreement(answer, String(headers["sec-websocket-key"]))) {
        throw new Refusal("upstream_broken", { detail: "no agreement to the handshake" });
      }
      response.writeHead(101, [...answerHeaders(answer.rawHeaders), ...ofConnection, ...added]);
      response.flushHeaders();
      if (head.length > 0) upstream.unshift(head);
      splice(request.socket, upstream, idleTimeout);
    },
  };
}
