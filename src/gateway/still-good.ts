import { epochSeconds } from "../clock.ts";
import { identify } from "../identity/authenticate.ts";
import { Refusal } from "../refusal.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";

/**
 * Looks again at who is calling, where time has passed since the token was shown: a body may have
 * been long on its way, and a stream is open for longer.
 *
 * @throws Refusal with one of the 401 codes if the token would not be accepted any more
 */
export function requireStillGood(gateway: Gateway, { caller, principal }: Exchange): void {
  principal?.requireStillGood();
  if (caller === undefined) return;
  if (caller.token.expiresAt <= epochSeconds()) throw new Refusal("token_expired");
  identify(gateway.access.snapshot, gateway.revocations, caller.token);
}
