import { Refusal } from "../refusal.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { requireStillGood } from "./still-good.ts";

/** Milliseconds between two looks whether an open stream may go on. */
const INTERVAL_MS = 500;

/** Looks again and again whether an open answer may go on, and cuts it once it may not. */
function cutWhen(gateway: Gateway, exchange: Exchange, requireStillAllowed: () => void): void {
  const { response, requestId } = exchange;
  const timer = setInterval(() => {
    try {
      requireStillAllowed();
    } catch (error) {
      const code = error instanceof Refusal ? error.code : "internal_error";
      gateway.log.info({ requestId, code }, "an open stream is cut");
      exchange.reason = code;
      response.destroy();
    }
  }, INTERVAL_MS);
  response.once("close", () => clearInterval(timer));
}

/**
 * Cuts an answer of `/mcp` within a second of its token's expiry or revocation, or of the loss of
 * the grant by which a tool was called.
 */
export function guardPrincipal(gateway: Gateway, exchange: Exchange): void {
  if (exchange.principal === undefined) return;
  cutWhen(gateway, exchange, () => {
    requireStillGood(gateway, exchange);
    exchange.requireStillAllowed?.();
  });
}

/**
 * Cuts an open stream within a second of its token's expiry or revocation, or of the loss of the
 * grant or the route that opened it.
 *
 * @param authorize throws a Refusal if the caller would not be let in any more
 */
export function guardStream(gateway: Gateway, exchange: Exchange, authorize: () => void): void {
  cutWhen(gateway, exchange, () => {
    requireStillGood(gateway, exchange);
    authorize();
  });
}
