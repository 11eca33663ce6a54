import { memoizeLast } from "../../base/memoize.ts";

export class BrokenAnswerError extends Error {
  override readonly name = "BrokenAnswerError";
}

type Framing = "none" | "length" | "chunked" | "close";

export interface AnswerHead {
  readonly status: number;
  /** Alternating names and values as received. */
  readonly headers: readonly string[];
  readonly framing: Framing;
  readonly length: number;
  readonly isKept: boolean;
  /** The keep-alive timeout that the upstream announces, in seconds. */
  readonly keepSeconds: number | undefined;
}

const statusLine = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: [\t\x20-\x7e\x80-\xff]*)?\r\n/;
/** Strict header lines: no space before the colon, no line folding, no control characters. */
const fieldLines = /^(?:[\w!#$%&'*+.^`|~-]+:[\t\x20-\x7e\x80-\xff]*\r\n)*$/;
const digits = /^\d{1,15}$/;

const framingNames: ReadonlySet<string> = new Set([
  "content-length",
  "transfer-encoding",
  "connection",
  "keep-alive",
]);

function readFraming(fields: ReadonlyMap<string, string>, status: number, minor: string): Framing {
  const length = fields.get("content-length");
  const encoding = fields.get("transfer-encoding");
  if (encoding !== undefined) {
    if (length !== undefined) throw new BrokenAnswerError("Content-Length and Transfer-Encoding");
    const isChunked = encoding.toLowerCase() === "chunked" && minor === "1";
    if (!isChunked) throw new BrokenAnswerError("unknown Transfer-Encoding");
  }
  if (length !== undefined && !digits.test(length)) {
    throw new BrokenAnswerError("malformed Content-Length");
  }
  if (isContradictory(status, length, encoding)) {
    throw new BrokenAnswerError(`content in a ${status}`);
  }
  if (status < 200 || status === NO_CONTENT || status === NOT_MODIFIED) return "none";
  if (encoding !== undefined) return "chunked";
  return length === undefined ? "close" : "length";
}

function isSpace(code: number): boolean {
  return code === 0x20 || code === 0x09;
}

/** Unlike `trim`, removes nothing but spaces and tabs. */
function valueIn(block: string, from: number, to: number): string {
  let start = from;
  let end = to;
  while (start < end && isSpace(block.charCodeAt(start))) start++;
  while (end > start && isSpace(block.charCodeAt(end - 1))) end--;
  return block.slice(start, end);
}

/**
 * Parses the head of a response. Many heads are identical to the one before.
 *
 * @param text status line and fields in Latin-1, each with its CRLF, without the empty line
 * @throws BrokenAnswerError unless it follows RFC 9112 strictly
 */
export const parseAnswerHead: (text: string) => AnswerHead = memoizeLast((text: string) => {
  const line = statusLine.exec(text);
  if (line === null) throw new BrokenAnswerError("malformed status line");
  const [whole, minor = "", code] = line;
  const block = text.slice(whole.length);
  if (!fieldLines.test(block)) throw new BrokenAnswerError("malformed field");
  const headers: string[] = [];
  const fields = new Map<string, string>();
  for (let at = 0; at < block.length; ) {
    const colon = block.indexOf(":", at);
    const end = block.indexOf("\r\n", colon);
    const name = block.slice(at, colon);
    const value = valueIn(block, colon + 1, end);
    headers.push(name, value);
    at = end + 2;
    const framing = name.toLowerCase();
    if (!framingNames.has(framing)) continue;
    const before = fields.get(framing);
    if (before !== undefined && framing !== "connection" && framing !== "keep-alive") {
      throw new BrokenAnswerError(`several ${name}`);
    }
    fields.set(framing, before === undefined ? value : `${before},${value}`);
  }
  const status = Number(code);
  const framing = readFraming(fields, status, minor);
  const options = fields.get("connection")?.toLowerCase().split(",") ?? [];
  const isClosing = options.some((option) => option.trim() === "close");
  const keepAlive = /(?:^|[,;\s])timeout=(\d{1,6})/i.exec(fields.get("keep-alive") ?? "")?.[1];
  return {
    status,
    headers,
    framing,
    length: framing === "length" ? Number(fields.get("content-length")) : 0,
    isKept: minor === "1" && framing !== "close" && !isClosing,
    keepSeconds: keepAlive === undefined ? undefined : Number(keepAlive),
  };
});

/** Statuses without content (RFC 9110, sections 8.6 and 15). */
const NO_CONTENT = 204;
export const RESET_CONTENT = 205;
export const NOT_MODIFIED = 304;

/**
 * True for a head that announces content under a status that forbids it. One parser follows the
 * status. Another waits for the content and takes the next response for it.
 */
export function isContradictory(
  status: number,
  length: string | undefined,
  encoding: string | undefined,
): boolean {
  if (status < 200 || status === NO_CONTENT) return length !== undefined || encoding !== undefined;
  return status === RESET_CONTENT && length !== undefined && Number(length) !== 0;
}

/** True if a 304 may state the length of the content it replaces: for a conditional GET or HEAD. */
export function mayStateLength(
  method: string | undefined,
  headers: NodeJS.Dict<string | readonly string[]>,
): boolean {
  const isConditional =
    headers["if-none-match"] !== undefined || headers["if-modified-since"] !== undefined;
  return isConditional && (method === "GET" || method === "HEAD");
}

const LONGEST_SIZE_LINE = 1024;
const LONGEST_TRAILER = 16 * 1024;
const CR = 0x0d;
const LF = 0x0a;

/** A size of up to 12 hexadecimal digits, and extensions, which are ignored. */
const sizeLine = /^([0-9A-Fa-f]{1,12})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?$/;
const trailerLine = /^[\w!#$%&'*+.^`|~-]+:[\t\x20-\x7e\x80-\xff]*$/;

type Expected = "size" | "data" | "data-end" | "trailer";

/** RFC 9112, section 7.1. Trailer fields are dropped, as section 7.1.2 allows. */
class ChunkedBody {
  #expected: Expected = "size";
  #line = "";
  #left = 0;
  #trailer = 0;

  /**
   * @param onData called with each piece of content
   * @returns the offset in `bytes` at which the body ends, or -1 if it continues
   * @throws BrokenAnswerError
   */
  read(bytes: Buffer, onData: (piece: Buffer) => void): number {
    let at = 0;
    while (at < bytes.length) {
      if (this.#expected === "data") {
        const end = Math.min(bytes.length, at + this.#left);
        onData(bytes.subarray(at, end));
        this.#left -= end - at;
        if (this.#left === 0) this.#expected = "data-end";
        at = end;
        continue;
      }
      const end = bytes.indexOf(LF, at);
      this.#addToLine(bytes, at, end === -1 ? bytes.length : end);
      if (end === -1) return -1;
      at = end + 1;
      if (this.#endLine()) return at;
    }
    return -1;
  }

  #addToLine(bytes: Buffer, from: number, to: number): void {
    const limit = LONGEST_SIZE_LINE + (this.#expected === "trailer" ? LONGEST_TRAILER : 0);
    if (this.#line.length + to - from > limit) {
      throw new BrokenAnswerError("a line of the chunked body is too long");
    }
    this.#line += bytes.toString("latin1", from, to);
  }

  /** Returns true after the last line of the body. */
  #endLine(): boolean {
    if (this.#line.charCodeAt(this.#line.length - 1) !== CR) {
      throw new BrokenAnswerError("a line of the chunked body does not end with CRLF");
    }
    const line = this.#line.slice(0, -1);
    this.#line = "";
    if (this.#expected === "trailer") return this.#readTrailer(line);
    if (this.#expected === "size") this.#readSize(line);
    else if (line === "") this.#expected = "size";
    else throw new BrokenAnswerError("a chunk is longer than its size");
    return false;
  }

  #readSize(line: string): void {
    const size = sizeLine.exec(line)?.[1];
    if (size === undefined) throw new BrokenAnswerError("malformed size of a chunk");
    this.#left = Number.parseInt(size, 16);
    this.#expected = this.#left === 0 ? "trailer" : "data";
  }

  #readTrailer(line: string): boolean {
    if (line === "") return true;
    this.#trailer += line.length;
    if (this.#trailer > LONGEST_TRAILER || !trailerLine.test(line)) {
      throw new BrokenAnswerError("malformed trailer");
    }
    return false;
  }
}

const LARGEST_HEAD_BYTES = 16 * 1024;
/** A last piece of up to this many bytes is delivered together with the end. */
const SHORT_LAST = 15 * 1024;
const SWITCHING_PROTOCOLS = 101;
const headEnd = Buffer.from("\r\n\r\n");
const nothing = Buffer.alloc(0);

/** Receives a response as it arrives. `onEnd` or `onError` is the last call. */
export interface AnswerReceiver {
  onBytes(): void;
  onInterim(): void;
  onHead(head: AnswerHead): void;
  onData(piece: Buffer): void;
  /** @param last the last piece, if it is short and arrived with the end */
  onEnd(last: Buffer | undefined): void;
  onError(error: Error): void;
}

export interface AnswerEnd {
  readonly last: Buffer | undefined;
  /** Bytes after the response that were not requested. */
  readonly surplus: number;
}

/** Parses one response from the bytes of its connection and delivers it as it arrives. */
export class AnswerReader {
  readonly receiver: AnswerReceiver;
  head: AnswerHead | undefined;
  #pending: Buffer = nothing;
  #left = 0;
  #chunks: ChunkedBody | undefined;
  #hasBytes = false;
  readonly #isOfHead: boolean;
  #isStopped = false;

  /** @param isOfHead true for a response to HEAD, which has no content whatever its head says */
  constructor(receiver: AnswerReceiver, isOfHead: boolean) {
    this.receiver = receiver;
    this.#isOfHead = isOfHead;
  }

  /** Delivers nothing more, including data that is being read now. */
  stop(): void {
    this.#isStopped = true;
  }

  /**
   * @returns how the response ended, or undefined if it continues
   * @throws BrokenAnswerError
   */
  read(bytes: Buffer): AnswerEnd | undefined {
    if (!this.#hasBytes) {
      this.#hasBytes = true;
      this.receiver.onBytes();
    }
    return this.head === undefined ? this.#readHead(bytes) : this.#readBody(bytes, this.head);
  }

  #readHead(bytes: Buffer): AnswerEnd | undefined {
    const known = this.#pending.length === 0 ? bytes : Buffer.concat([this.#pending, bytes]);
    this.#pending = nothing;
    const end = known.indexOf(headEnd);
    if (end > LARGEST_HEAD_BYTES || (end === -1 && known.length > LARGEST_HEAD_BYTES)) {
      throw new BrokenAnswerError("the head of the response is too large");
    }
    if (end === -1) {
      this.#pending = Buffer.from(known);
      return undefined;
    }
    const head = parseAnswerHead(known.toString("latin1", 0, end + 2));
    const rest = known.subarray(end + headEnd.length);
    if (head.status >= 200) return this.#start(head, rest);
    if (head.status === SWITCHING_PROTOCOLS)
      throw new BrokenAnswerError("upgrade that was not requested");
    this.receiver.onInterim();
    return rest.length === 0 || this.#isStopped ? undefined : this.#readHead(rest);
  }

  #start(head: AnswerHead, rest: Buffer): AnswerEnd | undefined {
    this.head = head;
    this.#left = head.length;
    this.#chunks = head.framing === "chunked" ? new ChunkedBody() : undefined;
    this.receiver.onHead(head);
    if (this.#isStopped) return undefined;
    const hasNone = head.framing === "none" || (head.framing === "length" && head.length === 0);
    if (hasNone || this.#isOfHead) return { last: undefined, surplus: rest.length };
    return rest.length === 0 ? undefined : this.#readBody(rest, head);
  }

  #readBody(bytes: Buffer, { framing }: AnswerHead): AnswerEnd | undefined {
    if (framing === "length") return this.#readMeasured(bytes);
    if (this.#chunks !== undefined) return this.#readChunks(this.#chunks, bytes);
    this.receiver.onData(bytes);
    return undefined;
  }

  #readMeasured(bytes: Buffer): AnswerEnd | undefined {
    const surplus = bytes.length - this.#left;
    const piece = surplus > 0 ? bytes.subarray(0, this.#left) : bytes;
    if (surplus >= 0 && piece.length <= SHORT_LAST) return { last: piece, surplus };
    this.#left -= piece.length;
    this.receiver.onData(piece);
    return surplus >= 0 ? { last: undefined, surplus } : undefined;
  }

  #readChunks(chunks: ChunkedBody, bytes: Buffer): AnswerEnd | undefined {
    const end = chunks.read(bytes, (piece) => {
      if (!this.#isStopped) this.receiver.onData(piece);
    });
    return end === -1 ? undefined : { last: undefined, surplus: bytes.length - end };
  }
}
