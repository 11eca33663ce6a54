import type { OnReadOpts, Socket } from "node:net";
import { ConnectionError } from "../failure.ts";
import {
  type AnswerEnd,
  AnswerReader,
  type AnswerReceiver,
  BrokenAnswerError,
} from "./answer-reader.ts";

/**
 * Bytes that are read at once. With 64 KiB an answer of 10 MB costs twice the processor time; the
 * system backs only the pages that are written to.
 */
const CAPACITY = 256 * 1024;
/** Bytes from which on what was read is lent as it lies, and not copied. */
const LENT_FROM = 8 * 1024;
/** Buffers that are kept besides the one that is read to. */
const SPARE = 2;

/** What to call, once, when lent bytes are of no more use. */
export type Release = () => void;

/** What was read, for as long as the call that hands it over; whoever wants it longer holds it. */
export interface Lease {
  hold(): Release;
}

/** The lease of a buffer. */
class BufferLease implements Lease {
  readonly #giveBack: Release;
  #holders = 0;

  constructor(giveBack: Release) {
    this.#giveBack = giveBack;
  }

  /** Lends to one more. */
  hold(): Release {
    this.#holders++;
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      this.#holders--;
      if (this.#holders === 0) this.#giveBack();
    };
  }
}

const nothing = (): void => {};
/** Of bytes that belong to whoever gets them. */
const owned: Lease = { hold: () => nothing };

/**
 * Where one socket reads to. New memory for each read would cost a small answer more than all that
 * is done with it, and have the collector go through the whole heap after every few large ones. So
 * what is short is copied out, and what is long is lent: the buffer serves again when all of it has
 * been given back, and meanwhile another one is read to.
 */
export class ReadBuffer {
  #bytes: Buffer<ArrayBuffer> = Buffer.allocUnsafeSlow(CAPACITY);
  readonly #spare: Buffer<ArrayBuffer>[] = [];
  /** Takes what was read. */
  take: (bytes: Buffer, lease: Lease) => void = nothing;

  /** What the socket is to be made with. */
  readonly onread: OnReadOpts = {
    buffer: () => this.#bytes,
    callback: (length) => {
      this.#onRead(length);
      return true;
    },
  };

  #onRead(length: number): void {
    const buffer = this.#bytes;
    const read = buffer.subarray(0, length);
    if (length < LENT_FROM) {
      this.take(Buffer.from(read), owned);
      return;
    }
    this.#bytes = this.#spare.pop() ?? Buffer.allocUnsafeSlow(CAPACITY);
    const lease = new BufferLease(() => {
      if (this.#spare.length < SPARE) this.#spare.push(buffer);
    });
    const release = lease.hold();
    this.take(read, lease);
    release();
  }
}

let writes: (() => void)[] = [];

function writeAll(): void {
  const taken = writes;
  writes = [];
  for (const write of taken) write();
}

/**
 * Puts off a write to a socket until all that has arrived was read, so that the writes of a turn of
 * the event loop are made one right after the other. A reader that is asleep has to be woken, which
 * costs as much as the write itself; while it reads the first, the others find it awake.
 *
 * @param write throws nothing
 */
export function writeTogether(write: () => void): void {
  if (writes.push(write) === 1) setImmediate(writeAll);
}

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
interface Wire {
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
