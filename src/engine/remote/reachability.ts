import type { Logger } from "pino";

/** How long an answer of the server counts, in milliseconds. */
const FRESH_TIME_MS = 1000;

/** Tells the log when the server is lost and when it is back, once each. */
export class Reachability {
  readonly #server: string;
  readonly #log: Logger;
  #isLost = false;
  /** `performance.now()` of its last answer. */
  #answeredAt = Number.NEGATIVE_INFINITY;

  /** `server` is the name of its kind, such as `PostgreSQL`. */
  constructor(server: string, log: Logger) {
    this.#server = server;
    this.#log = log;
  }

  /** True if it has answered within the last second, and nothing has failed since. */
  get hasJustAnswered(): boolean {
    return !this.#isLost && performance.now() - this.#answeredAt < FRESH_TIME_MS;
  }

  noteSuccess(): void {
    this.#answeredAt = performance.now();
    if (this.#isLost) this.#log.info(`${this.#server} is back`);
    this.#isLost = false;
  }

  /** `error` is one of the connection, whose words hold nothing of a query. */
  noteFailure(error: unknown): void {
    if (!this.#isLost) {
      this.#log.error({ reason: reasonOf(error) }, `${this.#server} cannot be used`);
    }
    this.#isLost = true;
  }
}

/** What an error of the connection says, or the one below it, which knows more. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return "unknown";
  if (error.cause instanceof Error) return reasonOf(error.cause);
  const code = "code" in error ? `${error.code}: ` : "";
  return code + error.message;
}
