import { createHash } from "node:crypto";
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { pipeline } from "node:stream";
import { Refusal } from "../../core/base/refusal.ts";
import { answerHeaders } from "../../core/upstream/headers.ts";
import type { StreamForward } from "../../core/upstream/reverse-proxy.ts";

/** The GUID for proving that a server has read the handshake (RFC 6455, section 1.3). */
const HANDSHAKE_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/** Half-closed sockets are closed after this much silence. */
const FAREWELL_MS = 5000;
/** Two pipelines and the server listen for a connection's end, which is not a leak. */
const MAX_LISTENERS = 24;

/** True only for an agreement to this very handshake. */
function isAgreement({ headers }: IncomingMessage, key: string): boolean {
  const accept = createHash("sha1").update(`${key}${HANDSHAKE_GUID}`).digest("base64");
  const isWebSocket = headers.upgrade?.toLowerCase() === "websocket";
  const isFramed =
    headers["content-length"] !== undefined || headers["transfer-encoding"] !== undefined;
  return isWebSocket && !isFramed && headers["sec-websocket-accept"] === accept;
}

function splice(client: Socket, upstream: Socket, idleTimeout: number): void {
  // All bytes of both directions pass through here, so one timer is enough.
  client.setTimeout(idleTimeout, () => client.destroy());
  for (const side of [client, upstream]) {
    side.setNoDelay(true).setMaxListeners(MAX_LISTENERS);
    // An error after both directions have ended concerns no one.
    side.on("error", () => {});
    side.once("end", () => client.setTimeout(Math.min(idleTimeout, FAREWELL_MS)));
  }
  // When one side breaks, the other is closed. When one side ends, the other may still send.
  pipeline(client, upstream, () => {});
  pipeline(upstream, client, () => {});
}

/** Client data is forwarded only after the upstream has agreed to the handshake. */
export function asWebSocket(stream: StreamForward, idleTimeoutMs: number): StreamForward {
  const { request, response, headers, addedHeaders } = stream;
  const ofConnection = ["Connection", "Upgrade", "Upgrade", "websocket"];
  return {
    ...stream,
    headers: { ...headers, connection: "Upgrade", upgrade: "websocket" },
    upgrade(answer, upstream, head) {
      if (!isAgreement(answer, String(headers["sec-websocket-key"]))) {
        throw new Refusal("upstream_broken", { detail: "no valid answer to the handshake" });
      }
      response.writeHead(101, [
        ...answerHeaders(answer.rawHeaders),
        ...ofConnection,
        ...addedHeaders,
      ]);
      response.flushHeaders();
      if (head.length > 0) upstream.unshift(head);
      splice(request.socket, upstream, idleTimeoutMs);
    },
  };
}
