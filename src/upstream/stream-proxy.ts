import type { IncomingMessage, ServerResponse } from "node:http";
import { Agent } from "node:http";
import { createProxyServer } from "http-proxy-3";
import { Refusal } from "../refusal.ts";
import { isResponseHeader } from "./headers.ts";
import type { UpstreamTarget } from "./target.ts";

/** A request on a configured route, checked and ready to go up. */
export interface StreamForward {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** All that goes up: the client's headers that may pass and the gateway's own. */
  readonly headers: NodeJS.Dict<string | string[]>;
}

/** Carries requests of configured routes to the upstream, streaming both ways. */
export interface StreamProxy {
  /**
   * Resolves when the answer has gone out or broken off.
   *
   * @throws Refusal `upstream_unreachable` or `upstream_timeout` if there is no answer
   */
  forward(stream: StreamForward): Promise<void>;
  close(): void;
}

export interface StreamProxyOptions {
  readonly target: UpstreamTarget;
  /** Milliseconds of silence after which the upstream is given up. */
  readonly responseTimeout: number;
}

function proxyTarget({ origin, socketPath }: UpstreamTarget) {
  if (socketPath === undefined) return origin;
  return { host: "localhost", port: 80, protocol: "http:", socketPath };
}

function dropUnwantedHeaders(answer: IncomingMessage): void {
  const { connection } = answer.headers;
  for (const name of Object.keys(answer.headers)) {
    if (!isResponseHeader(name, connection)) delete answer.headers[name];
  }
}

function asRefusal(error: Error, timedOut: boolean): Refusal {
  const detail = "code" in error ? String(error.code) : error.message;
  return new Refusal(timedOut ? "upstream_timeout" : "upstream_unreachable", {
    detail,
    cause: error,
  });
}

/** Opens the proxy; nothing is connected until it is needed. */
export function createStreamProxy({ target, responseTimeout }: StreamProxyOptions): StreamProxy {
  const agent = new Agent({ keepAlive: false });
  const isTls = target.origin.startsWith("https:");
  const proxy = createProxyServer({
    target: proxyTarget(target),
    proxyTimeout: responseTimeout,
    ...(isTls ? {} : { agent }),
  });
  proxy.on("proxyRes", (answer, _request, response) => {
    dropUnwantedHeaders(answer);
    // Half an answer must not look like a whole one.
    answer.once("error", () => response.destroy());
  });

  return {
    async forward({ request, response, headers }) {
      // The proxy takes what it sends from here.
      request.headers = headers;
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      const started = performance.now();
      response.once("close", () => resolve());
      proxy.web(request, response, {}, (error: Error) => {
        if (response.headersSent) response.destroy();
        else reject(asRefusal(error, performance.now() - started >= responseTimeout));
      });
      await promise;
    },
    close() {
      proxy.close();
      agent.destroy();
    },
  };
}
