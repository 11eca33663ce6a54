import type { Socket } from "node:net";
import { type AnswerHead, BrokenAnswerError, parseAnswerHead } from "./answer-head.ts";
import { ChunkedBody } from "./chunked-body.ts";
import { ConnectionError } from "./failure.ts";
import type { Loan, ReadBuffer } from "./read-buffer.ts";
import type { AnswerReceiver } from "./receiver.ts";

/** Bytes of the head of an answer, at most. */
const LARGEST_HEAD = 16 * 1024;
/** Bytes up to which head and body of a request are put together and sent with one call. */
const SENT_AT_ONCE = 16 * 1024;
/** Bytes up to which the last piece of an answer is handed over with its end. */
const SHORT_LAST = 4096;
const SWITCHING_PROTOCOLS = 101;
const headEnd = Buffer.from("\r\n\r\n");
const nothing = Buffer.alloc(0);

/** Milliseconds that are waited. */
export interface ConnectionTimeouts {
  /** For the connection. */
  readonly connect: number;
  /** For the head of an answer, and between two parts of its body. */
  readonly response: number;
}

/** What a connection is made on. */
export interface Wire {
  /** It connects just now. */
  readonly socket: Socket;
  readonly reads: ReadBuffer;
  /** What it emits when it may be written to: for TLS, once the peer is known. */
  readonly ready: "connect" | "secureConnect";
}

/**
 * One HTTP/1.1 connection to the upstream, with one request on it at a time. Whatever comes without
 * having been asked for, or does not follow the grammar, ends it: an answer is never taken for
 * another request's.
 */
export class Connection {
  /** True once it ends: it must not carry another request. */
  isOver = false;
  readonly #socket: Socket;
  readonly #timeouts: ConnectionTimeouts;
  readonly #onIdle: (connection: Connection, keepSeconds: number | undefined) => void;
  #receiver: AnswerReceiver | undefined;
  #head: AnswerHead | undefined;
  /** What has come of a head that is not complete. */
  #pending: Buffer = nothing;
  #left = 0;
  #chunks: ChunkedBody | undefined;
  /** What is sent as soon as the connection stands; undefined from then on. */
  #unsent: { head: string; body: Buffer }[] | undefined = [];
  #isPaused = false;
  #hasBytes = false;
  #sentAt = 0;

  /** @param onIdle is told when an answer has ended and the connection may carry another request */
  constructor(
    { socket, reads, ready }: Wire,
    timeouts: ConnectionTimeouts,
    onIdle: (connection: Connection, keepSeconds: number | undefined) => void,
  ) {
    this.#socket = socket;
    this.#timeouts = timeouts;
    this.#onIdle = onIdle;
    socket.setTimeout(timeouts.connect);
    socket.on("timeout", () => this.#onTimeout());
    socket.once(ready, () => this.#onReady());
    reads.take = (bytes, loan) => this.#onBytes(bytes, loan);
    socket.once("end", () => this.#onSocketEnd());
    socket.on("error", (error) => this.#fail(error));
    socket.once("close", () => this.#fail(new ConnectionError("closed")));
  }

  /**
   * Sends a request; the answer goes to `receiver`.
   *
   * @param head request line and fields in Latin-1, with the empty line
   */
  send(head: string, body: Buffer, receiver: AnswerReceiver): void {
    this.#receiver = receiver;
    this.#head = undefined;
    this.#hasBytes = false;
    if (this.#unsent === undefined) this.#write(head, body);
    else this.#unsent.push({ head, body });
  }

  /** True as long as the connection does not stand, so that no byte of a request has gone out. */
  get isUnsent(): boolean {
    return this.#unsent !== undefined;
  }

  #onReady(): void {
    const unsent = this.#unsent ?? [];
    this.#unsent = undefined;
    this.#socket.setTimeout(this.#timeouts.response);
    for (const { head, body } of unsent) this.#write(head, body);
  }

  #write(head: string, body: Buffer): void {
    this.#sentAt = performance.now();
    if (head.length + body.length <= SENT_AT_ONCE) {
      const bytes = Buffer.allocUnsafe(head.length + body.length);
      bytes.write(head, "latin1");
      body.copy(bytes, head.length);
      this.#socket.write(bytes);
      return;
    }
    this.#socket.cork();
    this.#socket.write(head, "latin1");
    this.#socket.write(body);
    this.#socket.uncork();
  }

  pause(): void {
    this.#isPaused = true;
    this.#socket.pause();
  }

  resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    // The time for which nobody wanted to read is not the upstream's.
    if (!this.isOver) this.#socket.setTimeout(this.#timeouts.response);
    this.#socket.resume();
  }

  /** Ends the connection; whoever waits for an answer on it is told `error`. */
  abort(error: Error): void {
    this.#fail(error);
  }

  /** Ends the connection for which nobody waits. */
  destroy(): void {
    this.isOver = true;
    this.#socket.destroy();
  }

  #fail(error: Error): void {
    this.destroy();
    const receiver = this.#receiver;
    this.#receiver = undefined;
    receiver?.onError(error);
  }

  #onTimeout(): void {
    if (this.#isPaused) return;
    this.#fail(
      new ConnectionError(this.#unsent === undefined ? "response-timeout" : "connect-timeout"),
    );
  }

  #onSocketEnd(): void {
    // Without a length, the end of the connection is the end of the answer.
    if (this.#receiver !== undefined && this.#head?.framing === "close") this.#finish(undefined);
    else this.#fail(new ConnectionError("closed"));
  }

  #onBytes(bytes: Buffer, loan: Loan): void {
    const receiver = this.#receiver;
    if (receiver === undefined) {
      this.destroy();
      return;
    }
    try {
      if (!this.#hasBytes) {
        this.#hasBytes = true;
        receiver.onBytes();
      }
      if (this.#head === undefined) this.#readHead(bytes, loan, receiver);
      else this.#readBody(bytes, loan, this.#head, receiver);
    } catch (error) {
      this.#fail(error instanceof Error ? error : new BrokenAnswerError("unreadable"));
    }
  }

  #readHead(bytes: Buffer, loan: Loan, receiver: AnswerReceiver): void {
    const known = this.#pending.length === 0 ? bytes : Buffer.concat([this.#pending, bytes]);
    this.#pending = nothing;
    const end = known.indexOf(headEnd);
    if (end > LARGEST_HEAD || (end === -1 && known.length > LARGEST_HEAD)) {
      throw new BrokenAnswerError("the head of the answer is too large");
    }
    if (end === -1) {
      this.#requireInTime();
      this.#pending = Buffer.from(known);
      return;
    }
    const head = parseAnswerHead(known.toString("latin1", 0, end + 2));
    const rest = known.subarray(end + headEnd.length);
    if (head.status < 200) this.#skipInterim(head, rest, loan, receiver);
    else this.#startBody(head, rest, loan, receiver);
  }

  /** A head that comes bit by bit, or after many others, never lets the connection stand still. */
  #requireInTime(): void {
    if (performance.now() - this.#sentAt > this.#timeouts.response) {
      throw new ConnectionError("response-timeout");
    }
  }

  #skipInterim(head: AnswerHead, rest: Buffer, loan: Loan, receiver: AnswerReceiver): void {
    this.#requireInTime();
    if (head.status === SWITCHING_PROTOCOLS) throw new BrokenAnswerError("unasked for upgrade");
    receiver.onInterim();
    if (rest.length > 0 && this.#receiver === receiver) this.#readHead(rest, loan, receiver);
  }

  #startBody(head: AnswerHead, rest: Buffer, loan: Loan, receiver: AnswerReceiver): void {
    this.#head = head;
    this.#left = head.length;
    this.#chunks = head.framing === "chunked" ? new ChunkedBody() : undefined;
    receiver.onHead(head);
    if (this.#receiver !== receiver) return;
    const isEmpty = head.framing === "none" || (head.framing === "length" && head.length === 0);
    if (isEmpty) this.#end(undefined, rest.length);
    else if (rest.length > 0) this.#readBody(rest, loan, head, receiver);
  }

  #readBody(bytes: Buffer, loan: Loan, { framing }: AnswerHead, receiver: AnswerReceiver): void {
    if (framing === "length") {
      this.#readMeasured(bytes, loan, receiver);
    } else if (this.#chunks !== undefined) {
      const onData = (piece: Buffer) => this.#receiver?.onData(piece, loan.hold());
      const end = this.#chunks.read(bytes, onData);
      if (end !== -1 && this.#receiver === receiver) this.#end(undefined, bytes.length - end);
    } else {
      receiver.onData(bytes, loan.hold());
    }
  }

  /** Reads of a body whose length the head has told. */
  #readMeasured(bytes: Buffer, loan: Loan, receiver: AnswerReceiver): void {
    const surplus = bytes.length - this.#left;
    const piece = surplus > 0 ? bytes.subarray(0, this.#left) : bytes;
    if (surplus >= 0 && piece.length <= SHORT_LAST) {
      this.#end(piece, surplus);
      return;
    }
    this.#left -= piece.length;
    receiver.onData(piece, loan.hold());
    if (surplus >= 0 && this.#receiver === receiver) this.#end(undefined, surplus);
  }

  /** @param surplus bytes behind the answer, which nobody has asked for */
  #end(last: Buffer | undefined, surplus: number): void {
    // An answer before the whole request was sent leaves the connection with a rest of that.
    if (surplus > 0 || this.#socket.writableLength > 0) this.destroy();
    this.#finish(last);
  }

  #finish(last: Buffer | undefined): void {
    const receiver = this.#receiver;
    const head = this.#head;
    this.#receiver = undefined;
    if (head?.isKept !== true) this.destroy();
    receiver?.onEnd(last);
    if (this.isOver) return;
    this.resume();
    this.#onIdle(this, head?.keepSeconds);
  }
}
