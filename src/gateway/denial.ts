import type { Exchange } from "./exchange.ts";

/**
 * Notes that a request was denied in the terms of its own protocol, for the audit and for the
 * answer's headers.
 *
 * @param status the HTTP status that the same refusal has elsewhere
 */
export function noteDenial(exchange: Exchange, code: string, status: number): void {
  exchange.reason = code;
  if (status < 500) exchange.decision = "deny";
}
