import type { ServerResponse } from "node:http";

/** Who waits for an answer that is streamed. */
export interface ClientSink {
  readonly response: ServerResponse;
  /** Called when it has gone away, and when the answer is out. */
  whenClosed: (() => void) | undefined;
}

/** A query that was allowed and goes up. */
export interface ForwardedQuery {
  readonly sink: ClientSink;
  /** Who asks: connections are shared fairly between users. */
  readonly user: string;
  /** The bytes that were judged, sent as they are. */
  readonly body: Buffer;
  /** The lines of its header fields. */
  readonly fields: string;
  /** A query that only reads may be sent again if its connection breaks before an answer. */
  readonly isRead: boolean;
  /** Headers that the gateway adds to the answer: names and values in turn. */
  readonly answerHeaders: readonly string[];
  /**
   * Told why there is no answer, as long as nothing of one has gone out: Refusal
   * `upstream_unreachable`, `upstream_broken`, `upstream_timeout` or `upstream_overloaded`.
   */
  fail(error: unknown): void;
}
