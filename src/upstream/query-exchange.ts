import type { ServerResponse } from "node:http";
import type { Dispatcher } from "undici";
import { Refusal } from "../refusal.ts";
import { isResponseHeader } from "./headers.ts";
import type { QueryForward } from "./query-client.ts";

const unreachable = new Set(["ECONNREFUSED", "ENOENT", "EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND"]);
const timeouts = new Set([
  "UND_ERR_CONNECT_TIMEOUT",
  "UND_ERR_HEADERS_TIMEOUT",
  "UND_ERR_BODY_TIMEOUT",
  "ETIMEDOUT",
]);
const brokenConnection = new Set(["UND_ERR_SOCKET", "ECONNRESET", "EPIPE"]);

function codeOf(error: Error): string {
  return "code" in error && typeof error.code === "string" ? error.code : "";
}

function asRefusal(error: Error): Refusal {
  const code = codeOf(error);
  const options = { detail: code || error.message, cause: error };
  if (timeouts.has(code)) return new Refusal("upstream_timeout", options);
  if (unreachable.has(code)) return new Refusal("upstream_unreachable", options);
  return new Refusal("upstream_broken", options);
}

type RawHeaders = Dispatcher.DispatchController["rawHeaders"];

/** The answer's headers that may reach the client: names and values in turn. */
function answerHeaders(raw: RawHeaders): string[] {
  if (!Array.isArray(raw)) return [];
  const texts = raw.map((part) => (typeof part === "string" ? part : part.toString("latin1")));
  const connection = texts.find(
    (_, at) => at % 2 === 1 && texts[at - 1]?.toLowerCase() === "connection",
  );
  const kept: string[] = [];
  for (let at = 0; at + 1 < texts.length; at += 2) {
    const name = texts[at] ?? "";
    if (isResponseHeader(name, connection)) kept.push(name, texts[at + 1] ?? "");
  }
  return kept;
}

/** The client went away: there is nobody to answer. */
class ClientGoneError extends Error {}

/**
 * One attempt to send a query up and its answer back, as undici's dispatch handler. `outcome`
 * resolves to true when there is nothing more to do, and to false if the query may be sent again.
 */
export class QueryExchange implements Dispatcher.DispatchHandler {
  readonly outcome: Promise<boolean>;
  readonly #query: QueryForward;
  readonly #response: ServerResponse;
  readonly #settle: { resolve: (isDone: boolean) => void; reject: (error: Error) => void };
  readonly #onClientClose = (): void => this.#give(new ClientGoneError());
  readonly #onDrain = (): void => this.#controller?.resume();
  /** Ends a query that waits too long for a free connection. */
  readonly #waiting: NodeJS.Timeout;
  #controller: Dispatcher.DispatchController | undefined;
  #hasStarted = false;
  #reason: Error | undefined;

  constructor(query: QueryForward, maxWait: number) {
    const { promise, resolve, reject } = Promise.withResolvers<boolean>();
    this.outcome = promise;
    this.#settle = { resolve, reject };
    this.#query = query;
    this.#response = query.response;
    this.#waiting = setTimeout(() => {
      this.#give(new Refusal("upstream_overloaded", { retryAfter: 1 }));
    }, maxWait);
    this.#response.once("close", this.#onClientClose);
    this.#response.on("drain", this.#onDrain);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    clearTimeout(this.#waiting);
    this.#controller = controller;
    if (this.#reason !== undefined) controller.abort(this.#reason);
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number): void {
    if (status < 200) return;
    try {
      const headers = [...answerHeaders(controller.rawHeaders), ...this.#query.answerHeaders];
      this.#response.writeHead(status, headers);
      this.#hasStarted = true;
    } catch (error) {
      // A status or header that cannot be passed on: the upstream's fault, not the client's.
      controller.abort(new Refusal("upstream_broken", { cause: error }));
    }
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (!this.#response.write(chunk)) controller.pause();
  }

  onResponseEnd(): void {
    this.#release();
    this.#response.end();
    this.#settle.resolve(true);
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.#release();
    if (error instanceof ClientGoneError || this.#reason instanceof ClientGoneError) {
      this.#settle.resolve(true);
    } else if (this.#hasStarted) {
      // Half an answer must not look like a whole one: the client sees a cut connection.
      this.#response.destroy();
      this.#settle.resolve(true);
    } else if (this.#query.isRead && brokenConnection.has(codeOf(error))) {
      this.#settle.resolve(false);
    } else {
      this.#settle.reject(error instanceof Refusal ? error : asRefusal(error));
    }
  }

  /** Gives the attempt up, also while it still waits for a connection. */
  #give(reason: Error): void {
    this.#reason = reason;
    this.#controller?.abort(reason);
    if (this.#controller !== undefined) return;
    this.#release();
    if (reason instanceof ClientGoneError) this.#settle.resolve(true);
    else this.#settle.reject(reason);
  }

  #release(): void {
    clearTimeout(this.#waiting);
    this.#response.off("close", this.#onClientClose);
    this.#response.off("drain", this.#onDrain);
  }
}
