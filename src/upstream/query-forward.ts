import type { IncomingMessage, ServerResponse } from "node:http";
import type { RequestFields } from "./http1/request-head.ts";

/** A query that was allowed and goes up. */
export interface QueryForward {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** Who asks: connections are shared fairly between users. */
  readonly user: string;
  /** The bytes that were judged, sent as they are. */
  readonly body: Buffer | Buffer[];
  readonly headers: RequestFields;
  /** A query that only reads may be sent again if its connection breaks before an answer. */
  readonly isRead: boolean;
  /** Headers that the gateway adds to the answer: names and values in turn. */
  readonly answerHeaders: readonly string[];
}
