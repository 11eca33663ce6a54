import { once } from "node:events";
import type { ClientRequest, IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { pipeline, Readable } from "node:stream";
import { createProxyServer } from "http-proxy-3";
import { http } from "../base/node-http.ts";
import { Refusal } from "../base/refusal.ts";
import { MAX_INTERIM, type SelectHeaders } from "./answer-stream.ts";
import { answerHeaders, flushHead, withoutLength } from "./headers.ts";
import {
  isContradictory,
  mayStateLength,
  NOT_MODIFIED,
  RESET_CONTENT,
} from "./http1/answer-reader.ts";
import { asRefusal, ConnectionError, type UpstreamTarget } from "./target.ts";

export interface StreamForward {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /**
   * All headers sent upstream: the client's that may pass, and the gateway's own. The client's body
   * is sent only if they state its length.
   */
  readonly headers: NodeJS.Dict<string | string[]>;
  /** Of the gateway itself, for the answer. */
  readonly addedHeaders: readonly string[];
  /** Absent if all may pass. */
  readonly selectHeaders?: SelectHeaders;
  /** Read instead of the request. Its errors end the stream. */
  readonly body?: Readable;
  /** True for an answer that may be silent for any time. */
  readonly isEndless?: boolean;
  /** Set if it takes one of `upstream.connections` for as long as it lasts. */
  readonly slot?: { readonly user: string; readonly authorizeAgain: () => void };
  /**
   * Takes over both connections once the upstream has agreed to another protocol. Absent if none
   * was requested.
   *
   * @param head bytes received after the agreement
   * @throws Refusal if the response does not agree to the request
   */
  readonly upgrade?: (answer: IncomingMessage, upstream: Socket, head: Buffer) => void;
}

interface PendingForward {
  readonly stream: StreamForward;
  readonly fail: (error: unknown) => void;
}

/** @throws Refusal `upstream_broken` for content under a status that forbids it */
async function requireNoContradiction(answer: IncomingMessage, status: number): Promise<void> {
  const { "content-length": length, "transfer-encoding": encoding } = answer.headers;
  const refusal = () => new Refusal("upstream_broken", { detail: `content in a ${status}` });
  if (isContradictory(status, length, encoding)) throw refusal();
  if (status !== RESET_CONTENT || length !== undefined) return;
  // Only its end shows whether it is really empty.
  const [first] = await Promise.race([once(answer, "data"), once(answer, "end")]);
  if (first !== undefined) throw refusal();
}

async function passOn(answer: IncomingMessage, { stream, fail }: PendingForward): Promise<void> {
  const { request, response, headers: sent, addedHeaders } = stream;
  const { method } = request;
  const { statusCode: status = 0 } = answer;
  try {
    // A 101 that names no protocol cannot be forwarded.
    if (status === 101) throw new Refusal("upstream_broken", { detail: "101" });
    await requireNoContradiction(answer, status);
    if (response.destroyed) return;
    const raw = stream.selectHeaders?.(status, answer.rawHeaders) ?? answer.rawHeaders;
    const own = status === NOT_MODIFIED && !mayStateLength(method, sent) ? withoutLength(raw) : raw;
    response.writeHead(status, [...answerHeaders(own), ...addedHeaders]);
  } catch (error) {
    answer.destroy();
    fail(error);
    return;
  }
  // The client can use a stream's head long before the first event.
  flushHead(response);
  // A partial response must not look complete. When one side breaks, the other is cut too.
  if (answer.readableEnded || method === "HEAD") response.end();
  else pipeline(answer, response, () => {});
}

function changeProtocol(
  answer: IncomingMessage,
  upstream: Socket,
  head: Buffer,
  { stream, fail }: PendingForward,
): void {
  try {
    if (stream.upgrade === undefined) throw new Refusal("upstream_broken", { detail: "101" });
    stream.upgrade(answer, upstream, head);
  } catch (error) {
    upstream.destroy();
    fail(error);
  }
}

export type ReverseProxy = ReturnType<typeof createReverseProxy>;

/**
 * Forwards requests upstream, streaming in both directions with back-pressure. Connects on first
 * use.
 *
 * @param responseTimeoutMs milliseconds of silence after which the upstream is given up
 */
export function createReverseProxy(
  target: UpstreamTarget,
  connectTimeoutMs: number,
  responseTimeoutMs: number,
) {
  const agent = new http.Agent({ keepAlive: false });
  const { origin, socketPath } = target;
  const isEncrypted = origin.startsWith("https:");
  const pending = new WeakMap<IncomingMessage, PendingForward>();
  const proxy = createProxyServer({
    target:
      socketPath === undefined
        ? origin
        : { host: "localhost", port: 80, protocol: "http:", socketPath },
    proxyTimeout: responseTimeoutMs,
    // The path is forwarded as sent, and `Host` names the upstream.
    toProxy: true,
    changeOrigin: true,
    selfHandleResponse: true,
    ...(isEncrypted ? {} : { agent }),
  });
  // Set this late, these are the headers that are sent. Otherwise the proxy would declare the body
  // of a DELETE empty.
  proxy.on("start", (request) => {
    request.headers = pending.get(request)?.stream.headers ?? {};
  });
  proxy.on("proxyReq", (sent: ClientRequest, request, response) => {
    const fail = (error: Error) => pending.get(request)?.fail(error);
    // The proxy's own limit would not include the TLS handshake.
    const timer = setTimeout(() => fail(new ConnectionError("connect-timeout")), connectTimeoutMs);
    for (const event of [isEncrypted ? "secureConnect" : "connect", "close"]) {
      sent.socket?.once(event, () => clearTimeout(timer));
    }
    // Once the response ends in any way, including a refusal, nothing more is sent upstream.
    if (response.destroyed) sent.destroy();
    else response.once("close", () => sent.destroy());
    sent.once("timeout", () => fail(new Refusal("upstream_timeout")));
    let interim = 0;
    sent.on("information", () => {
      interim++;
      if (interim <= MAX_INTERIM) return;
      fail(new Refusal("upstream_broken", { detail: "too many interim responses" }));
    });
    sent.once("upgrade", (answer, socket, head) => {
      const pendingForward = pending.get(request);
      if (pendingForward === undefined) socket.destroy();
      else changeProtocol(answer, socket, head, pendingForward);
    });
  });
  proxy.on("proxyRes", (answer, request) => {
    const pendingForward = pending.get(request);
    if (pendingForward === undefined) answer.destroy();
    else void passOn(answer, pendingForward);
  });

  return {
    /**
     * Resolves when the response has been sent or was cut off.
     *
     * @throws Refusal `upstream_unreachable`, `upstream_broken` or `upstream_timeout`, as long as
     * no part of a response has been sent
     */
    async forward(stream: StreamForward): Promise<void> {
      const { request, response } = stream;
      if (response.destroyed) return;
      if (stream.body?.errored) throw asRefusal(stream.body.errored);
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      const fail = (error: unknown) => {
        if (response.headersSent) return;
        request.unpipe();
        reject(asRefusal(error));
      };
      pending.set(request, { stream, fail });
      response.once("close", resolve);
      const { "content-length": length, "transfer-encoding": encoding } = stream.headers;
      const isFramed = length !== undefined || encoding !== undefined;
      // Without a length, the client's body would be read as a separate request (RFC 9112, 6.3).
      const body = isFramed ? stream.body : Readable.from([]);
      body?.once("error", fail);
      const options = {
        ...(body === undefined ? {} : { buffer: body }),
        // The proxy sets its own on the socket after any event that could change it.
        ...(stream.isEndless ? { proxyTimeout: 0 } : {}),
      };
      proxy.web(request, response, options, fail);
      await promise;
    },
    close(): void {
      proxy.close();
      agent.destroy();
    },
  };
}
