/** An answer that does not follow RFC 9112, or that could be read in two ways. */
export class BrokenAnswerError extends Error {
  override readonly name = "BrokenAnswerError";
}

/** Where the body of an answer ends (RFC 9112, section 6.3). */
export type Framing = "none" | "length" | "chunked" | "close";

/** The head of an answer. */
export interface AnswerHead {
  readonly status: number;
  /** Names and values in turn, as they came. */
  readonly headers: readonly string[];
  readonly framing: Framing;
  /** Bytes of the body if `framing` is `length`. */
  readonly length: number;
  /** False if the connection ends with this answer. */
  readonly isKept: boolean;
  /** Seconds for which the upstream says it keeps the connection, if it says so. */
  readonly keepSeconds: number | undefined;
}

const statusLine = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: [\t\x20-\x7e\x80-\xff]*)?\r\n/;
/** Lines of a field each: no space before the colon, no folding, no control characters. */
const fieldLines = /^(?:[\w!#$%&'*+.^`|~-]+:[\t\x20-\x7e\x80-\xff]*\r\n)*$/;
const digits = /^\d{1,15}$/;

/** What the fields say of the framing, before the rules on them are applied. */
class FramingFields {
  length: string | undefined;
  encoding: string | undefined;
  connection = "";
  keepAlive = "";

  /** Takes note of a field by its lower-case name. @throws BrokenAnswerError for a second length */
  note(name: string, value: string): void {
    if (name === "content-length") {
      if (this.length !== undefined) throw new BrokenAnswerError("several Content-Length");
      this.length = value;
    } else if (name === "transfer-encoding") {
      if (this.encoding !== undefined) throw new BrokenAnswerError("several Transfer-Encoding");
      this.encoding = value;
    } else if (name === "connection") {
      this.connection += `,${value.toLowerCase()}`;
    } else if (name === "keep-alive") {
      this.keepAlive = value;
    }
  }
}

/** Length of the shortest name that says something of the framing, and of the longest. */
const SHORTEST = "connection".length;
const LONGEST = "transfer-encoding".length;

function framingOf(fields: FramingFields, status: number, minor: string): Framing {
  const { length, encoding } = fields;
  if (encoding !== undefined) {
    if (length !== undefined) throw new BrokenAnswerError("Content-Length and Transfer-Encoding");
    const isChunked = encoding.toLowerCase() === "chunked" && minor === "1";
    if (!isChunked) throw new BrokenAnswerError("unknown Transfer-Encoding");
  }
  if (length !== undefined && !digits.test(length)) {
    throw new BrokenAnswerError("malformed Content-Length");
  }
  if (isContradictory(status, fields)) throw new BrokenAnswerError(`content in a ${status}`);
  if (isBodiless(status)) return "none";
  if (encoding !== undefined) return "chunked";
  return length === undefined ? "close" : "length";
}

/** The head that was read before. Many are the same again, and most have the same names. */
let latest: { readonly text: string; readonly head: AnswerHead } | undefined;

/**
 * The name of a field; the very string that stood in its place in the head before, if it is the same
 * again: that costs less whoever looks it up.
 */
function nameIn(block: string, from: number, to: number, before: string | undefined): string {
  if (before?.length === to - from && block.startsWith(before, from)) return before;
  return block.slice(from, to);
}

function isSpace(code: number): boolean {
  return code === 0x20 || code === 0x09;
}

/** A field's value without the space around it. */
function valueIn(block: string, from: number, to: number): string {
  let start = from;
  let end = to;
  while (start < end && isSpace(block.charCodeAt(start))) start++;
  while (end > start && isSpace(block.charCodeAt(end - 1))) end--;
  return block.slice(start, end);
}

/**
 * Reads the head of an answer.
 *
 * @param text status line and fields in Latin-1, each with its CRLF, without the empty line
 * @throws BrokenAnswerError unless it follows RFC 9112 to the letter
 */
export function parseAnswerHead(text: string): AnswerHead {
  if (latest?.text === text) return latest.head;
  const head = parse(text, latest?.head.headers ?? []);
  latest = { text, head };
  return head;
}

/** @param before the headers of another head */
function parse(text: string, before: readonly string[]): AnswerHead {
  const line = statusLine.exec(text);
  if (line === null) throw new BrokenAnswerError("malformed status line");
  const [whole, minor = "", code] = line;
  const block = text.slice(whole.length);
  if (!fieldLines.test(block)) throw new BrokenAnswerError("malformed field");
  const headers: string[] = [];
  const fields = new FramingFields();
  for (let at = 0; at < block.length; ) {
    const colon = block.indexOf(":", at);
    const end = block.indexOf("\r\n", colon);
    const name = nameIn(block, at, colon, before[headers.length]);
    const value = valueIn(block, colon + 1, end);
    headers.push(name, value);
    const isAny = name.length >= SHORTEST && name.length <= LONGEST;
    if (isAny) fields.note(name.toLowerCase(), value);
    at = end + 2;
  }
  const status = Number(code);
  const framing = framingOf(fields, status, minor);
  return {
    status,
    headers,
    framing,
    length: framing === "length" ? Number(fields.length) : 0,
    isKept: minor === "1" && framing !== "close" && !isClosing(fields),
    keepSeconds: keepSecondsOf(fields.keepAlive),
  };
}

function isClosing({ connection }: FramingFields): boolean {
  if (connection === "" || connection === ",keep-alive") return false;
  return connection.split(",").some((option) => option.trim() === "close");
}

function keepSecondsOf(keepAlive: string): number | undefined {
  if (keepAlive === "") return undefined;
  const seconds = /(?:^|[,;\s])timeout=(\d{1,6})/i.exec(keepAlive)?.[1];
  return seconds === undefined ? undefined : Number(seconds);
}

/** Answers whose status says that they have no content (RFC 9110, sections 8.6 and 15). */

const NO_CONTENT = 204;
export const RESET_CONTENT = 205;
export const NOT_MODIFIED = 304;

/** How an answer's head says where its content ends; undefined for a field that is not there. */
export interface Framed {
  readonly length: string | undefined;
  readonly encoding: string | undefined;
}

/**
 * True for a head that tells of content which its status rules out: one reader goes by the status,
 * another one waits for the content, and takes the next answer for it.
 */
export function isContradictory(status: number, { length, encoding }: Framed): boolean {
  if (status < 200 || status === NO_CONTENT) return length !== undefined || encoding !== undefined;
  return status === RESET_CONTENT && length !== undefined && Number(length) !== 0;
}

/** True for a status under which no content follows, whatever the head says. */
function isBodiless(status: number): boolean {
  return status < 200 || status === NO_CONTENT || status === NOT_MODIFIED;
}

/** True if a 304 may say how long the content is that it spares: to a conditional GET or HEAD. */
export function maySpareContent(
  method: string | undefined,
  headers: NodeJS.Dict<string | readonly string[]>,
): boolean {
  const isConditional =
    headers["if-none-match"] !== undefined || headers["if-modified-since"] !== undefined;
  return isConditional && (method === "GET" || method === "HEAD");
}

/** The value of a field by its lower-case name; of several, all of them. */
export function fieldIn({ headers }: AnswerHead, name: string): string | undefined {
  let value: string | undefined;
  for (let at = 0; at + 1 < headers.length; at += 2) {
    const other = headers[at];
    if (other?.length !== name.length || other.toLowerCase() !== name) continue;
    value = value === undefined ? headers[at + 1] : `${value}, ${headers[at + 1]}`;
  }
  return value;
}

/** The headers, names and values in turn, without `Content-Length`. */
export function withoutLength(raw: readonly string[]): readonly string[] {
  return raw.filter((_, at) => raw[at - (at % 2)]?.toLowerCase() !== "content-length");
}
