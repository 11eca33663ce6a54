import type { IncomingMessage, ServerResponse } from "node:http";

/** A query that was allowed and goes up. */
export interface QueryForward {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** The bytes that were judged, sent as they are. */
  readonly body: Buffer | Buffer[];
  readonly headers: Record<string, string | string[]>;
  /** A query that only reads may be sent again if its connection breaks before an answer. */
  readonly isRead: boolean;
  /** Headers that the gateway adds to the answer: names and values in turn. */
  readonly answerHeaders: readonly string[];
}
