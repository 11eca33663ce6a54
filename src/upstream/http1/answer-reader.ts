import { type AnswerHead, BrokenAnswerError, parseAnswerHead } from "./answer-head.ts";
import { ChunkedBody } from "./chunked-body.ts";
import type { Lease, Release } from "./read-buffer.ts";

/** Bytes of the head of an answer, at most. */
const LARGEST_HEAD = 16 * 1024;
/** Bytes up to which the last piece of an answer is handed over with its end. */
const SHORT_LAST = 4096;
const SWITCHING_PROTOCOLS = 101;
const headEnd = Buffer.from("\r\n\r\n");
const nothing = Buffer.alloc(0);

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

/** How an answer ended. */
export interface AnswerEnd {
  /** The last piece, if it is short and came with the end. */
  readonly last: Buffer | undefined;
  /** Bytes behind the answer, which nobody has asked for. */
  readonly surplus: number;
}

/** Reads one answer out of the bytes of its connection, and hands it on as it comes. */
export class AnswerReader {
  readonly receiver: AnswerReceiver;
  /** Undefined until it has come. */
  head: AnswerHead | undefined;
  /** What has come of a head that is not complete. */
  #pending: Buffer = nothing;
  /** Bytes of a measured body that are still to come. */
  #left = 0;
  #chunks: ChunkedBody | undefined;
  #hasBytes = false;
  #isStopped = false;

  constructor(receiver: AnswerReceiver) {
    this.receiver = receiver;
  }

  /** Hands nothing more on, also not of what is read just now. */
  stop(): void {
    this.#isStopped = true;
  }

  /**
   * Reads on.
   *
   * @returns how the answer ended; undefined if more of it is to come
   * @throws BrokenAnswerError
   */
  read(bytes: Buffer, lease: Lease): AnswerEnd | undefined {
    if (!this.#hasBytes) {
      this.#hasBytes = true;
      this.receiver.onBytes();
    }
    return this.head === undefined
      ? this.#readHead(bytes, lease)
      : this.#readBody(bytes, lease, this.head);
  }

  #readHead(bytes: Buffer, lease: Lease): AnswerEnd | undefined {
    const known = this.#pending.length === 0 ? bytes : Buffer.concat([this.#pending, bytes]);
    this.#pending = nothing;
    const end = known.indexOf(headEnd);
    if (end > LARGEST_HEAD || (end === -1 && known.length > LARGEST_HEAD)) {
      throw new BrokenAnswerError("the head of the answer is too large");
    }
    if (end === -1) {
      this.#pending = Buffer.from(known);
      return undefined;
    }
    const head = parseAnswerHead(known.toString("latin1", 0, end + 2));
    const rest = known.subarray(end + headEnd.length);
    return head.status < 200
      ? this.#skipInterim(head, rest, lease)
      : this.#start(head, rest, lease);
  }

  #skipInterim(head: AnswerHead, rest: Buffer, lease: Lease): AnswerEnd | undefined {
    if (head.status === SWITCHING_PROTOCOLS) throw new BrokenAnswerError("unasked for upgrade");
    this.receiver.onInterim();
    return rest.length === 0 || this.#isStopped ? undefined : this.#readHead(rest, lease);
  }

  #start(head: AnswerHead, rest: Buffer, lease: Lease): AnswerEnd | undefined {
    this.head = head;
    this.#left = head.length;
    this.#chunks = head.framing === "chunked" ? new ChunkedBody() : undefined;
    this.receiver.onHead(head);
    if (this.#isStopped) return undefined;
    const isEmpty = head.framing === "none" || (head.framing === "length" && head.length === 0);
    if (isEmpty) return { last: undefined, surplus: rest.length };
    return rest.length === 0 ? undefined : this.#readBody(rest, lease, head);
  }

  #readBody(bytes: Buffer, lease: Lease, { framing }: AnswerHead): AnswerEnd | undefined {
    if (framing === "length") return this.#readMeasured(bytes, lease);
    if (this.#chunks !== undefined) return this.#readChunks(this.#chunks, bytes, lease);
    this.receiver.onData(bytes, lease.hold());
    return undefined;
  }

  #readMeasured(bytes: Buffer, lease: Lease): AnswerEnd | undefined {
    const surplus = bytes.length - this.#left;
    const piece = surplus > 0 ? bytes.subarray(0, this.#left) : bytes;
    if (surplus >= 0 && piece.length <= SHORT_LAST) return { last: piece, surplus };
    this.#left -= piece.length;
    this.receiver.onData(piece, lease.hold());
    return surplus >= 0 ? { last: undefined, surplus } : undefined;
  }

  #readChunks(chunks: ChunkedBody, bytes: Buffer, lease: Lease): AnswerEnd | undefined {
    const end = chunks.read(bytes, (piece) => {
      if (!this.#isStopped) this.receiver.onData(piece, lease.hold());
    });
    return end === -1 ? undefined : { last: undefined, surplus: bytes.length - end };
  }
}
