import type { ServerResponse } from "node:http";
import type { Dispatcher } from "undici";
import { Refusal } from "../refusal.ts";
import { asRefusal, isBrokenConnection } from "./failure.ts";
import { answerHeaders } from "./headers.ts";
import type { QueryForward } from "./query-forward.ts";

type RawHeaders = Dispatcher.DispatchController["rawHeaders"];

function headerTexts(raw: RawHeaders): string[] {
  if (!Array.isArray(raw)) return [];
  return raw.map((part) => (typeof part === "string" ? part : part.toString("latin1")));
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
  readonly #maxStall: number;
  #controller: Dispatcher.DispatchController | undefined;
  #hasStarted = false;
  #isClientGone = false;
  #stall: NodeJS.Timeout | undefined;

  /** @param maxStall milliseconds for which the client may take nothing of its answer */
  constructor(query: QueryForward, maxStall: number) {
    const { promise, resolve, reject } = Promise.withResolvers<boolean>();
    this.outcome = promise;
    this.#settle = { resolve, reject };
    this.#query = query;
    this.#response = query.response;
    this.#maxStall = maxStall;
    this.#response.once("close", this.#onClientClose);
    this.#response.on("drain", this.#onDrain);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    // It left while the connection was made: nothing has been sent yet.
    if (this.#isClientGone) controller.abort(new ClientGoneError());
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number): void {
    if (status < 200) return;
    try {
      const headers = answerHeaders(headerTexts(controller.rawHeaders));
      this.#response.writeHead(status, [...headers, ...this.#query.answerHeaders]);
      this.#hasStarted = true;
    } catch (error) {
      // A status or header that cannot be passed on: the upstream's fault, not the client's.
      controller.abort(new Refusal("upstream_broken", { cause: error }));
    }
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#response.write(chunk)) return;
    controller.pause();
    clearTimeout(this.#stall);
    // A connection to the upstream is too dear to wait for a client that has stopped reading.
    this.#stall = setTimeout(() => this.#response.destroy(), this.#maxStall);
  }

  onResponseEnd(): void {
    this.#release();
    this.#response.end();
    this.#settle.resolve(true);
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.#release();
    if (this.#isClientGone) {
      this.#settle.resolve(true);
    } else if (this.#hasStarted) {
      // Half an answer must not look like a whole one: the client sees a cut connection.
      this.#response.destroy();
      this.#settle.resolve(true);
    } else if (this.#query.isRead && isBrokenConnection(error)) {
      this.#settle.resolve(false);
    } else {
      this.#settle.reject(asRefusal(error));
    }
  }

  readonly #onDrain = (): void => {
    clearTimeout(this.#stall);
    this.#controller?.resume();
  };

  readonly #onClientClose = (): void => {
    this.#isClientGone = true;
    this.#controller?.abort(new ClientGoneError());
  };

  #release(): void {
    clearTimeout(this.#stall);
    this.#response.off("close", this.#onClientClose);
    this.#response.off("drain", this.#onDrain);
  }
}
