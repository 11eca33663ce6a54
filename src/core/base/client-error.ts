/**
 * An error that the client may see. `core/http/answer.ts` renders it as JSON; each other protocol
 * renders it in a place of its own. It has no stack, which would be a tenth of the cost of a denied
 * request: what refuses is known by its code.
 */
export abstract class ClientError extends Error {
  /** Stable; clients may branch on it. */
  abstract readonly code: string;
  abstract readonly status: number;
  /** For the log only; never sent to the client. */
  readonly detail: string | undefined;

  constructor(
    message: string,
    { detail, ...options }: ErrorOptions & { detail?: string | undefined } = {},
  ) {
    const limit = Error.stackTraceLimit;
    Error.stackTraceLimit = 0;
    super(message, options);
    Error.stackTraceLimit = limit;
    this.name = new.target.name;
    this.detail = detail;
  }
}

/** The code of an error of the system, such as `ENOENT`. Empty for others. */
export function systemCode(error: unknown): string {
  if (!(error instanceof Error && "code" in error)) return "";
  return typeof error.code === "string" ? error.code : "";
}

/** For logs. Anything can be thrown, so it need not be an Error. */
export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : "unknown";
}
