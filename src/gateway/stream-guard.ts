import { epochSeconds } from "../clock.ts";
import { identify } from "../identity/authenticate.ts";
import { Refusal } from "../refusal.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";

/** Milliseconds between two looks whether an open stream may go on. */
const INTERVAL_MS = 500;

/** @throws Refusal if the caller's token would not be accepted any more */
function requireStillIdentified(gateway: Gateway, { caller }: Exchange): void {
  if (caller === undefined) return;
  if (caller.token.expiresAt <= epochSeconds()) throw new Refusal("token_expired");
  identify(gateway.access.snapshot, gateway.revocations, caller.token);
}

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
  const { principal } = exchange;
  if (principal === undefined) return;
  cutWhen(gateway, exchange, () => {
    principal.requireStillGood();
    exchange.requireStillAllowed?.();
  });
}

/**
 * Cuts an open stream within a second of its token's expiry or revocation, or of the loss of the
 * grant that opened it.
 *
 * @param authorize throws a Refusal if the caller would not be let in any more
 */
export function guardStream(gateway: Gateway, exchange: Exchange, authorize: () => void): void {
  if (exchange.caller === undefined) return;
  cutWhen(gateway, exchange, () => {
    requireStillIdentified(gateway, exchange);
    authorize();
  });
}
