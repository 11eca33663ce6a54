import { errorMessage, systemCode } from "../base/client-error.ts";
import { Refusal } from "../base/refusal.ts";

export interface UpstreamTarget {
  /** Scheme, host and port. `http://localhost` for a Unix socket. */
  readonly origin: string;
  readonly socketPath: string | undefined;
}

export function targetName({ origin, socketPath }: UpstreamTarget): string {
  return socketPath === undefined ? origin : `unix:${socketPath}`;
}

/** Parses `http://host:port`, `https://host:port` or `unix:/path`. */
export function parseTarget(url: string): UpstreamTarget {
  if (url.startsWith("unix:")) {
    return { origin: "http://localhost", socketPath: url.slice("unix:".length) };
  }
  return { origin: new URL(url).origin, socketPath: undefined };
}

/** The port that a URL means if it names none. */
export function portOf({ port, protocol }: URL): number {
  if (port !== "") return Number(port);
  return protocol === "https:" ? 443 : 80;
}

/** The host is without the brackets of an IPv6 address. */
export function hostAndPort(origin: string): { host: string; port: number } {
  const url = new URL(origin);
  return { host: url.hostname.replace(/^\[(.*)\]$/, "$1"), port: portOf(url) };
}

/** A connection to the upstream that ended or timed out before its response was complete. */
export class ConnectionError extends Error {
  readonly failure: "closed" | "connect-timeout" | "response-timeout";

  constructor(failure: ConnectionError["failure"]) {
    super(`connection to the upstream: ${failure}`);
    this.failure = failure;
  }
}

const unreachable = new Set(["ECONNREFUSED", "ENOENT", "EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND"]);
/** A certificate that cannot be verified. Other problems of TLS can also occur later. */
const refusedCertificate = /^(?!ERR_SSL_).*(?:CERT|UNABLE_TO_)/;
const brokenConnection = new Set(["ECONNRESET", "EPIPE"]);

/** The error for the caller. The log gets the underlying code. */
export function asRefusal(error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  const code = systemCode(error);
  const isUnverified = refusedCertificate.test(code);
  const detail = isUnverified || code === "" ? errorMessage(error) : code;
  const options = { detail, cause: error };
  const isTimeout =
    error instanceof ConnectionError ? error.failure !== "closed" : code === "ETIMEDOUT";
  if (isTimeout) return new Refusal("upstream_timeout", options);
  if (isUnverified || unreachable.has(code)) return new Refusal("upstream_unreachable", options);
  return new Refusal("upstream_broken", options);
}

/** True if the connection broke, as when the upstream closes an idle connection. */
export function hasBroken({ cause }: Refusal): boolean {
  if (cause instanceof ConnectionError) return cause.failure === "closed";
  return brokenConnection.has(systemCode(cause));
}

/** The path that describes all databases, one of them, or one of its tables. */
export function schemaPath(names: readonly string[]): string {
  return ["/schema", ...names.map(encodeURIComponent)].join("/");
}
