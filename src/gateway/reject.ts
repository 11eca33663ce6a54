import { JsonFault } from "../json/fault.ts";
import { QueryRefused } from "../query/refusal.ts";
import { Refusal } from "../refusal.ts";
import { type Rejection, sendRejection } from "./answer.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";

/** What the client is told of an error; all that it is not told goes to the log. */
function asRejection(gateway: Gateway, exchange: Exchange, error: unknown): Rejection {
  if (error instanceof Refusal) {
    if (error.detail !== undefined) {
      const { code, detail } = error;
      const level = error.status >= 500 ? "warn" : "debug";
      gateway.log[level]({ requestId: exchange.requestId, code, detail }, "refused");
    }
    return error;
  }
  if (error instanceof QueryRefused) {
    return { code: error.code, status: 400, message: error.message };
  }
  if (error instanceof JsonFault) {
    return { code: error.code, status: 400, message: `Invalid request body: ${error.message}` };
  }
  gateway.log.error({ requestId: exchange.requestId, err: error }, "unexpected error");
  return new Refusal("internal_error");
}

function send(exchange: Exchange, rejection: Rejection): void {
  const { response } = exchange;
  exchange.verdict.deny(rejection.code, rejection.status);
  if (response.headersSent) response.destroy();
  else sendRejection(exchange, rejection);
}

/** Answers a request with what was thrown on its way: the one place where refusals end. */
export function reject(gateway: Gateway, exchange: Exchange, error: unknown): void {
  const { request, response, requestId } = exchange;
  // The client went away while its body was read: there is nobody to answer.
  if (request.destroyed && !request.complete) return;
  try {
    send(exchange, asRejection(gateway, exchange, error));
  } catch (failure) {
    gateway.log.error({ requestId, err: failure }, "an answer could not be sent");
    response.destroy();
  }
}
