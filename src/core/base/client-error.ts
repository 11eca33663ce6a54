/**
 * An error that the client may see. Each protocol renders it in one place: `core/http/answer.ts` as
 * the gateway's JSON, `features/mcp/message.ts` as JSON-RPC, `features/oauth/server/http.ts` as
 * OAuth.
 */
export abstract class ClientError extends Error {
  /** Stable; clients may branch on it. */
  abstract readonly code: string;
  /** HTTP status. */
  abstract readonly status: number;
  /** For the log only; never sent to the client. */
  readonly detail: string | undefined;

  constructor(message: string, { detail, ...options }: ErrorOptions & { detail?: string } = {}) {
    super(message, options);
    this.name = new.target.name;
    this.detail = detail;
  }
}

/** For logs. Anything can be thrown, so it need not be an Error. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : "unknown";
}
