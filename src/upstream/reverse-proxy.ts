import { once } from "node:events";
import type { ClientRequest, IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { pipeline, Readable } from "node:stream";
import { createProxyServer } from "http-proxy-3";
import { http } from "../node-http.ts";
import { Refusal } from "../refusal.ts";
import { asRefusal } from "./failure.ts";
import { answerHeaders } from "./headers.ts";
import {
  isContradictory,
  maySpareContent,
  NOT_MODIFIED,
  RESET_CONTENT,
  withoutLength,
} from "./http1/answer-reader.ts";
import type { UpstreamTarget } from "./target.ts";

/** A request that was checked and is ready to go up. */
export interface StreamForward {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /**
   * All that goes up: the client's headers that may pass and the gateway's own. The client's body goes
   * up if they say how long it is, and nothing at all if they do not.
   */
  readonly headers: NodeJS.Dict<string | string[]>;
  /** Headers that the gateway adds to the answer: names and values in turn. */
  readonly answerHeaders: readonly string[];
  /**
   * Takes both connections over once the upstream has agreed to another protocol; without it,
   * nobody asked for one.
   *
   * @param head what came behind the agreement already
   * @throws Refusal if it is no agreement to what was asked
   */
  readonly upgrade?: (answer: IncomingMessage, upstream: Socket, head: Buffer) => void;
}

/** Carries requests to the upstream, streaming both ways, with back-pressure. */
export interface StreamForwarder {
  /**
   * Resolves when the answer has gone out or broken off.
   *
   * @throws Refusal `upstream_unreachable`, `upstream_broken` or `upstream_timeout`, as long as
   *   nothing of an answer has gone out
   */
  forward(stream: StreamForward): Promise<void>;
}

/** A reverse proxy: one that has connections of its own. */
export interface ReverseProxy extends StreamForwarder {
  close(): void;
}

export interface ReverseProxyOptions {
  readonly target: UpstreamTarget;
  /** Milliseconds. */
  readonly connectTimeout: number;
  /** Milliseconds of silence after which the upstream is given up. */
  readonly responseTimeout: number;
}

/** A stream on its way, and how it fails. */
interface Underway {
  readonly stream: StreamForward;
  readonly fail: (error: Error) => void;
}

/**
 * What is sent in the place of the client's own body; undefined if that goes up as it comes. Without
 * a length, its bytes would be read as a request of their own (RFC 9112, section 6.3).
 */
function bodyOf({ headers }: StreamForward): Readable | undefined {
  const isFramed =
    headers["content-length"] !== undefined || headers["transfer-encoding"] !== undefined;
  return isFramed ? undefined : Readable.from([]);
}

function proxyTarget({ origin, socketPath }: UpstreamTarget) {
  if (socketPath === undefined) return origin;
  return { host: "localhost", port: 80, protocol: "http:", socketPath };
}

/** What a client is told of an answer that cannot be handed on. */
function asUnfit(cause: unknown): Refusal {
  return cause instanceof Refusal ? cause : new Refusal("upstream_broken", { cause });
}

/** @throws Refusal `upstream_broken` for content under a status that rules it out */
async function requireNoContradiction(answer: IncomingMessage, status: number): Promise<void> {
  const { "content-length": length, "transfer-encoding": encoding } = answer.headers;
  const refusal = () => new Refusal("upstream_broken", { detail: `content in a ${status}` });
  if (isContradictory(status, { length, encoding })) throw refusal();
  if (status !== RESET_CONTENT || length !== undefined) return;
  // Whether it is as empty as it says is known at its end alone.
  const [first] = await Promise.race([once(answer, "data"), once(answer, "end")]);
  if (first !== undefined) throw refusal();
}

async function passOn(answer: IncomingMessage, { stream, fail }: Underway): Promise<void> {
  const { request, response, headers: sent, answerHeaders: added } = stream;
  const { method } = request;
  const { statusCode: status = 0 } = answer;
  try {
    // One that changes the protocol and does not say to which: there is nothing to hand on.
    if (status === 101) throw new Refusal("upstream_broken", { detail: "101" });
    await requireNoContradiction(answer, status);
    const { rawHeaders: raw } = answer;
    const own =
      status === NOT_MODIFIED && !maySpareContent(method, sent) ? withoutLength(raw) : raw;
    response.writeHead(status, [...answerHeaders(own), ...added]);
  } catch (cause) {
    answer.destroy();
    fail(asUnfit(cause));
    return;
  }
  // A stream's head is worth something by itself, long before its first event.
  response.flushHeaders();
  // Half an answer must not look like a whole one: when one side breaks, so does the other.
  if (answer.readableEnded) response.end();
  else pipeline(answer, response, () => {});
}

function changeProtocol(
  answer: IncomingMessage,
  upstream: Socket,
  head: Buffer,
  { stream, fail }: Underway,
): void {
  try {
    if (stream.upgrade === undefined) throw new Refusal("upstream_broken", { detail: "101" });
    stream.upgrade(answer, upstream, head);
  } catch (cause) {
    upstream.destroy();
    fail(asUnfit(cause));
  }
}

/** Opens the reverse proxy; nothing is connected until it is needed. */
export function createReverseProxy({
  target,
  connectTimeout,
  responseTimeout,
}: ReverseProxyOptions): ReverseProxy {
  const agent = new http.Agent({ keepAlive: false });
  const isTls = target.origin.startsWith("https:");
  const underway = new WeakMap<IncomingMessage, Underway>();
  const proxy = createProxyServer({
    target: proxyTarget(target),
    proxyTimeout: responseTimeout,
    connectTimeout,
    // The path goes up as it was sent, and the upstream is addressed by its own name.
    toProxy: true,
    changeOrigin: true,
    selfHandleResponse: true,
    ...(isTls ? {} : { agent }),
  });
  // Set this late, the headers are what goes up: the proxy would tell a DELETE's body as empty.
  proxy.on("start", (request) => {
    request.headers = underway.get(request)?.stream.headers ?? {};
  });
  proxy.on("proxyReq", (upward: ClientRequest, request, response) => {
    // However the answer ends, also with a refusal, nothing more goes up.
    if (response.destroyed) upward.destroy();
    else response.once("close", () => upward.destroy());
    upward.once("timeout", () => underway.get(request)?.fail(new Refusal("upstream_timeout")));
    upward.once("upgrade", (answer, socket, head) => {
      const way = underway.get(request);
      if (way === undefined) socket.destroy();
      else changeProtocol(answer, socket, head, way);
    });
  });
  proxy.on("proxyRes", (answer, request) => {
    const way = underway.get(request);
    if (way === undefined) answer.destroy();
    else void passOn(answer, way);
  });

  return {
    async forward(stream) {
      const { request, response } = stream;
      if (response.destroyed) return;
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      const fail = (error: Error) => {
        if (response.headersSent) return;
        request.unpipe();
        reject(asRefusal(error));
      };
      underway.set(request, { stream, fail });
      response.once("close", resolve);
      const buffer = bodyOf(stream);
      proxy.web(request, response, buffer === undefined ? {} : { buffer }, fail);
      await promise;
    },
    close() {
      proxy.close();
      agent.destroy();
    },
  };
}
