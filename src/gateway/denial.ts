import type { Exchange } from "./exchange.ts";

/**
 * Notes that a request was denied in the terms of its own protocol, whose answer is a success of
 * HTTP: for the audit, and for the answer's headers as long as they have not gone out.
 *
 * @param status the HTTP status that the same refusal has elsewhere
 */
export function noteDenial(exchange: Exchange, code: string, status: number): void {
  exchange.reason = code;
  if (status >= 500) return;
  exchange.decision = "deny";
  const { response } = exchange;
  if (!response.headersSent) response.setHeader("X-Gatehouse-Decision", "deny");
}
