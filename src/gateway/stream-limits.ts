import type { ServerResponse } from "node:http";
import { Refusal } from "../refusal.ts";
import { requireStillGood } from "./authentication.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";

const INTERVAL_MS = 500;

function whileOpen(response: ServerResponse, milliseconds: number, step: () => void): void {
  // A closed response emits no other `close`, so nothing would stop the timer.
  if (response.closed) return;
  const timer = setInterval(step, milliseconds);
  response.once("close", () => clearInterval(timer));
}

/** Cuts a response within a second of losing its token or what its decision relied on. */
export function guardStream(gateway: Gateway, exchange: Exchange): void {
  const { response, requestId, verdict } = exchange;
  whileOpen(response, INTERVAL_MS, () => {
    try {
      requireStillGood(gateway, exchange);
      verdict.requireStillAllowed?.();
    } catch (error) {
      const code = error instanceof Refusal ? error.code : "internal_error";
      gateway.log.info({ requestId, code }, "an open stream is cut");
      verdict.reason = code;
      response.destroy();
    }
  });
}

const CLIENT_TIMEOUT_MS = 60_000;

/** Cuts a response that the client does not read, because its buffers are needed for others. */
export function cutWhenStalled(response: ServerResponse, timeout = CLIENT_TIMEOUT_MS): void {
  let since: number | undefined;
  whileOpen(response, timeout / 60, () => {
    const { writableNeedDrain, writableEnded, writableFinished } = response;
    const isWaiting = writableNeedDrain || (writableEnded && !writableFinished);
    since = isWaiting ? (since ?? performance.now()) : undefined;
    if (since !== undefined && performance.now() - since > timeout) response.destroy();
  });
  response.on("drain", () => {
    since = undefined;
  });
}
