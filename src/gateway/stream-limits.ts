import type { ServerResponse } from "node:http";
import { Refusal } from "../refusal.ts";
import { requireStillGood } from "./authentication.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";

const INTERVAL_MS = 500;

/** Cuts a response within a second of losing its token or what its decision relied on. */
export function guardStream(gateway: Gateway, exchange: Exchange): void {
  const { response, requestId, verdict } = exchange;
  const timer = setInterval(() => {
    try {
      requireStillGood(gateway, exchange);
      verdict.requireStillAllowed?.();
    } catch (error) {
      const code = error instanceof Refusal ? error.code : "internal_error";
      gateway.log.info({ requestId, code }, "an open stream is cut");
      verdict.reason = code;
      response.destroy();
    }
  }, INTERVAL_MS);
  response.once("close", () => clearInterval(timer));
}

const CLIENT_TIMEOUT_MS = 60_000;

/** Cuts a response that the client does not read, because its buffers are needed for others. */
export function cutWhenStalled(response: ServerResponse, timeout = CLIENT_TIMEOUT_MS): void {
  let since: number | undefined;
  const timer = setInterval(() => {
    const { writableNeedDrain, writableEnded, writableFinished } = response;
    const isWaiting = writableNeedDrain || (writableEnded && !writableFinished);
    since = isWaiting ? (since ?? performance.now()) : undefined;
    if (since !== undefined && performance.now() - since > timeout) response.destroy();
  }, timeout / 60);
  response.on("drain", () => {
    since = undefined;
  });
  response.once("close", () => clearInterval(timer));
}
