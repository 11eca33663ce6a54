import { Refusal } from "../refusal.ts";

const unreachable = new Set(["ECONNREFUSED", "ENOENT", "EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND"]);
const timeouts = new Set([
  "UND_ERR_CONNECT_TIMEOUT",
  "UND_ERR_HEADERS_TIMEOUT",
  "UND_ERR_BODY_TIMEOUT",
  "ECONNECT_TIMEOUT",
  "ETIMEDOUT",
]);
const brokenConnection = new Set(["UND_ERR_SOCKET", "ECONNRESET", "EPIPE"]);

function codeOf(error: Error): string {
  return "code" in error && typeof error.code === "string" ? error.code : "";
}

/** True if the connection broke, as one does that the upstream closed while it was idle. */
export function isBrokenConnection(error: Error): boolean {
  return brokenConnection.has(codeOf(error));
}

/** What a caller is told of an error on the way to the upstream; the log learns its code. */
export function asRefusal(error: Error): Refusal {
  if (error instanceof Refusal) return error;
  const code = codeOf(error);
  const options = { detail: code || error.message, cause: error };
  if (timeouts.has(code)) return new Refusal("upstream_timeout", options);
  if (unreachable.has(code)) return new Refusal("upstream_unreachable", options);
  return new Refusal("upstream_broken", options);
}
