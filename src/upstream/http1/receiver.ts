import type { AnswerHead } from "./answer-head.ts";
import type { Release } from "./read-buffer.ts";

/** Takes an answer as it comes. `onEnd` or `onError` is the last that it hears. */
export interface AnswerReceiver {
  /** The first byte has come. */
  onBytes(): void;
  /** An interim answer (RFC 9110, section 15.2). */
  onInterim(): void;
  onHead(head: AnswerHead): void;
  /** @param release to be called when the piece is of no more use: its memory serves again */
  onData(piece: Buffer, release: Release): void;
  /** @param last the last piece, if it is short and came with the end; not to be kept */
  onEnd(last: Buffer | undefined): void;
  onError(error: Error): void;
}
