import type { AnswerHead } from "./answer-head.ts";

/** Takes an answer as it comes. `onEnd` or `onError` is the last that it hears. */
export interface AnswerReceiver {
  /** The first byte has come. */
  onBytes(): void;
  /** An interim answer (RFC 9110, section 15.2). */
  onInterim(): void;
  onHead(head: AnswerHead): void;
  onData(piece: Buffer): void;
  /** @param last the last piece, if it came with the end */
  onEnd(last: Buffer | undefined): void;
  onError(error: Error): void;
}
