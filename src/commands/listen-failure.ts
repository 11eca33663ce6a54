import type { Configuration } from "../config/schema.ts";

/** Why the system lets nobody listen at an address, by its error code. */
const reasons = new Map([
  ["EADDRINUSE", "is taken by another process"],
  ["EACCES", "may not be listened on by this user"],
  ["EADDRNOTAVAIL", "is no address of this machine"],
]);

/**
 * A start that failed because an address cannot be listened on, told in a sentence that names the
 * address and what chooses another; any other error as it is.
 */
export function explainListenFailure(error: unknown, { server }: Configuration): unknown {
  if (!(error instanceof Error && "code" in error && "port" in error)) return error;
  const reason = reasons.get(String(error.code));
  if (reason === undefined || !("syscall" in error && error.syscall === "listen")) return error;
  const isFront = error.port === server.port;
  const host = isFront || !("address" in error) ? server.host : String(error.address);
  const place = `${host.includes(":") ? `[${host}]` : host}:${error.port}`;
  const remedy = isFront ? "--port (or server.port)" : "metrics.listen";
  return new Error(`${place} ${reason}: choose another one with ${remedy}`, { cause: error });
}
