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
