import type { Socket } from "node:net";
import { ConnectionError } from "../failure.ts";
import { BrokenAnswerError } from "./answer-head.ts";
import { type AnswerEnd, AnswerReader, type AnswerReceiver } from "./answer-reader.ts";
import type { Lease, ReadBuffer } from "./read-buffer.ts";
import { writeTogether } from "./write-together.ts";

/** Bytes up to which head and body of a request are put together and sent with one call. */
const SENT_AT_ONCE = 16 * 1024;

/** Where a request is put together; memory of its own would cost each one more than the copy. */
let scratch = Buffer.allocUnsafeSlow(SENT_AT_ONCE);

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
  readonly #isEncrypted: boolean;
  readonly #timeouts: ConnectionTimeouts;
  readonly #onIdle: (connection: Connection, keepSeconds: number | undefined) => void;
  /** Of the answer that is waited for. */
  #reader: AnswerReader | undefined;
  /** True once it stands. */
  #isReady = false;
  /** The request that is still to be written. */
  #unsent: { readonly head: string; readonly body: Buffer } | undefined;
  #isPaused = false;
  /** True if the rest of an answer may come as slowly as it likes. */
  #isPatient = false;
  #sentAt = 0;

  /** @param onIdle is told when an answer has ended and the connection may carry another request */
  constructor(
    { socket, reads, ready }: Wire,
    timeouts: ConnectionTimeouts,
    onIdle: (connection: Connection, keepSeconds: number | undefined) => void,
  ) {
    this.#socket = socket;
    this.#isEncrypted = ready === "secureConnect";
    this.#timeouts = timeouts;
    this.#onIdle = onIdle;
    socket.setTimeout(timeouts.connect);
    socket.on("timeout", () => this.#onTimeout());
    socket.once(ready, () => this.#onReady());
    reads.take = (bytes, lease) => this.#onBytes(bytes, lease);
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
    this.#reader = new AnswerReader(receiver);
    this.#unsent = { head, body };
    if (this.#isReady) writeTogether(this.#write);
  }

  /** True as long as no byte of the request has gone out. */
  get isUnsent(): boolean {
    return this.#unsent !== undefined;
  }

  #onReady(): void {
    this.#isReady = true;
    this.#socket.setTimeout(this.#timeouts.response);
    this.#write();
  }

  readonly #write = (): void => {
    if (this.isOver || this.#unsent === undefined) return;
    const { head, body } = this.#unsent;
    this.#unsent = undefined;
    this.#sentAt = performance.now();
    // TLS reads what it encrypts later on.
    if (!this.#isEncrypted && head.length + body.length <= SENT_AT_ONCE) {
      scratch.write(head, "latin1");
      body.copy(scratch, head.length);
      this.#socket.write(scratch.subarray(0, head.length + body.length));
      // What the system has not taken at once is still to be read from there.
      if (this.#socket.writableLength > 0) scratch = Buffer.allocUnsafeSlow(SENT_AT_ONCE);
      return;
    }
    this.#socket.cork();
    this.#socket.write(head, "latin1");
    this.#socket.write(body);
    this.#socket.uncork();
  };

  pause(): void {
    this.#isPaused = true;
    this.#socket.pause();
  }

  resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    // The time for which nobody wanted to read is not the upstream's.
    if (!this.isOver && !this.#isPatient) this.#socket.setTimeout(this.#timeouts.response);
    this.#socket.resume();
  }

  /** Lets the rest of the answer come as slowly as it likes. */
  waitLong(): void {
    this.#isPatient = true;
    this.#socket.setTimeout(0);
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
    const reader = this.#reader;
    this.#reader = undefined;
    reader?.stop();
    reader?.receiver.onError(error);
  }

  #onTimeout(): void {
    if (this.#isPaused) return;
    this.#fail(new ConnectionError(this.#isReady ? "response-timeout" : "connect-timeout"));
  }

  #onSocketEnd(): void {
    const reader = this.#reader;
    // Without a length, the end of the connection is the end of the answer.
    if (reader?.head?.framing === "close") this.#finish(reader, undefined);
    else this.#fail(new ConnectionError("closed"));
  }

  #onBytes(bytes: Buffer, lease: Lease): void {
    const reader = this.#reader;
    if (reader === undefined || this.#unsent !== undefined) {
      // Such as a 408, by which an upstream ends a connection that was idle for too long.
      this.#fail(new ConnectionError("closed"));
      return;
    }
    try {
      const end = reader.read(bytes, lease);
      if (this.#reader !== reader) return;
      if (end !== undefined) this.#end(reader, end);
      else if (reader.head === undefined) this.#requireInTime();
    } catch (error) {
      this.#fail(error instanceof Error ? error : new BrokenAnswerError("unreadable"));
    }
  }

  /** A head that comes bit by bit, or after many others, never lets the connection stand still. */
  #requireInTime(): void {
    if (performance.now() - this.#sentAt > this.#timeouts.response) {
      throw new ConnectionError("response-timeout");
    }
  }

  #end(reader: AnswerReader, { last, surplus }: AnswerEnd): void {
    // An answer before the whole request was sent leaves the connection with a rest of that.
    if (surplus > 0 || this.#hasRest()) this.destroy();
    this.#finish(reader, last);
  }

  /** TLS tells a turn of the event loop later that a request is out; a short one is out at once. */
  #hasRest(): boolean {
    return this.#socket.writableLength > (this.#isEncrypted ? SENT_AT_ONCE : 0);
  }

  #finish({ receiver, head }: AnswerReader, last: Buffer | undefined): void {
    this.#reader = undefined;
    if (head?.isKept !== true) this.destroy();
    // Before the answer is handed on: who is served next takes this connection.
    if (!this.isOver) this.#becomeIdle(head?.keepSeconds);
    receiver.onEnd(last);
  }

  #becomeIdle(keepSeconds: number | undefined): void {
    if (this.#isPatient) this.#socket.setTimeout(this.#timeouts.response);
    this.#isPatient = false;
    this.resume();
    this.#onIdle(this, keepSeconds);
  }
}
