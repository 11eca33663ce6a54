import { BrokenAnswerError } from "./answer-head.ts";

/** Characters of a line that gives a chunk's size, with its extensions. */
const LONGEST_SIZE_LINE = 1024;
/** Characters of all trailer fields together. */
const LONGEST_TRAILER = 16 * 1024;
const CR = 0x0d;
const LF = 0x0a;

/** A size of up to 12 hexadecimal digits, and extensions, which mean nothing here. */
const sizeLine = /^([0-9A-Fa-f]{1,12})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?$/;
const trailerLine = /^[\w!#$%&'*+.^`|~-]+:[\t\x20-\x7e\x80-\xff]*$/;

type Expected = "size" | "data" | "data-end" | "trailer";

/**
 * Takes a chunked body apart as it comes (RFC 9112, section 7.1). Trailer fields are dropped, as a
 * recipient that does not know them may (section 7.1.2).
 */
export class ChunkedBody {
  #expected: Expected = "size";
  /** What has come of a line whose end has not. */
  #line = "";
  /** Bytes of the present chunk that are still to come. */
  #left = 0;
  #trailer = 0;

  /**
   * Reads bytes of the body.
   *
   * @param onData is given each piece of content
   * @returns where the body ends in `bytes`, or -1 if it goes on behind them
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
    if (this.#line.length + to - from > LONGEST_SIZE_LINE + this.#allowance()) {
      throw new BrokenAnswerError("a line of the chunked body is too long");
    }
    this.#line += bytes.toString("latin1", from, to);
  }

  #allowance(): number {
    return this.#expected === "trailer" ? LONGEST_TRAILER : 0;
  }

  /** Reads a line whose LF has come. @returns true if it was the body's last */
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
