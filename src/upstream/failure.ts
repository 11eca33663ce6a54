import { Refusal } from "../refusal.ts";

/** What went wrong with a connection. */
export type ConnectionFailure = "closed" | "connect-timeout" | "response-timeout";

/** A connection to the upstream that ended or stood still before its answer had ended. */
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

/** What a caller is told of an error on the way to the upstream; the log learns its code. */
export function asRefusal(error: Error): Refusal {
  if (error instanceof Refusal) return error;
  const code = codeOf(error);
  const options = { detail: code || error.message, cause: error };
  if (isTimeout(error)) return new Refusal("upstream_timeout", options);
  if (unreachable.has(code)) return new Refusal("upstream_unreachable", options);
  return new Refusal("upstream_broken", options);
}

/** True if the connection broke, as one does that the upstream closed while it was idle. */
export function hasBroken({ cause }: Refusal): boolean {
  return isBrokenConnection(cause);
}
