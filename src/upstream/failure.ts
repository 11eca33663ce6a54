import { Refusal } from "../refusal.ts";

export type ConnectionFailure = "closed" | "connect-timeout" | "response-timeout";

/** A connection to the upstream that ended or timed out before its response was complete. */
export class ConnectionError extends Error {
  readonly failure: ConnectionFailure;

  constructor(failure: ConnectionFailure) {
    super(`connection to the upstream: ${failure}`);
    this.failure = failure;
  }
}

const unreachable = new Set(["ECONNREFUSED", "ENOENT", "EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND"]);
const brokenConnection = new Set(["ECONNRESET", "EPIPE"]);

function codeOf(error: Error): string {
  return "code" in error && typeof error.code === "string" ? error.code : "";
}

function isBrokenConnection(error: unknown): boolean {
  if (error instanceof ConnectionError) return error.failure === "closed";
  return error instanceof Error && brokenConnection.has(codeOf(error));
}

function isTimeout(error: Error): boolean {
  if (error instanceof ConnectionError) return error.failure !== "closed";
  return codeOf(error) === "ETIMEDOUT";
}

/** The error for the caller. The log gets the underlying code. */
export function asRefusal(error: Error): Refusal {
  if (error instanceof Refusal) return error;
  const code = codeOf(error);
  const options = { detail: code || error.message, cause: error };
  if (isTimeout(error)) return new Refusal("upstream_timeout", options);
  if (unreachable.has(code)) return new Refusal("upstream_unreachable", options);
  return new Refusal("upstream_broken", options);
}

/** True if the connection broke, as when the upstream closes an idle connection. */
export function hasBroken({ cause }: Refusal): boolean {
  return isBrokenConnection(cause);
}
