import type { Steps } from "../base/cooperative-scheduling.ts";
import { JsonFault } from "./fault.ts";
import { spaceEnd, trailingData } from "./lexical.ts";
import { Tape, UNIQUE } from "./tape.ts";

/**
 * Checks that a body is UTF-8 and one JSON value, with unique keys in all objects and at most 64
 * levels deep. All parsers read such a body alike.
 *
 * @throws JsonFault
 */
export function requireOneReading(bytes: Buffer): void {
  new Tape(bytes, true, UNIQUE).run();
}

const STEP_BYTES = 32 * 1024;

/** The same in steps, for a long body. @throws JsonFault */
export function* requireOneReadingInSteps(bytes: Buffer): Steps<void> {
  const tape = new Tape(bytes, false, UNIQUE);
  while (!tape.run(STEP_BYTES)) yield;
}

const NEWLINE = 0x0a;

/** Checks each line of NDJSON as `requireOneReading` checks a body. */
export class LineReading {
  readonly #tape: Tape;

  /** @throws JsonFault for invalid UTF-8 and a byte-order mark */
  constructor(bytes: Buffer) {
    this.#tape = new Tape(bytes, false, UNIQUE);
  }

  /**
   * @returns the offset of the newline, or the length of the last line
   * @throws JsonFault
   */
  lineEnd(start: number): number {
    const { bytes } = this.#tape;
    const newline = bytes.indexOf(NEWLINE, start);
    const lineEnd = newline < 0 ? bytes.length : newline;
    const valueEnd = this.#tape.valueEnd(start);
    if (valueEnd > lineEnd) {
      throw new JsonFault("invalid_json", "the line ends before its value", lineEnd);
    }
    const next = spaceEnd(bytes, valueEnd);
    if (next < lineEnd) throw trailingData(next);
    return lineEnd;
  }
}
