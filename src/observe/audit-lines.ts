/** Lines of an audit file among its bytes. */

/** A line that is longer was not written by the gateway. */
export const LONGEST_LINE = 4 * 1024 * 1024;
export const NEWLINE = 0x0a;

/** Whole lines of a file, one behind the other, and at which byte of it they begin. */
export interface Piece {
  readonly start: number;
  readonly lines: Buffer;
}

/** Puts bytes that come in chunks together to whole lines. */
export async function* wholeLines(chunks: AsyncIterable<Buffer>): AsyncGenerator<Piece> {
  let rest: Buffer = Buffer.alloc(0);
  let start = 0;
  for await (const chunk of chunks) {
    const end = chunk.lastIndexOf(NEWLINE) + 1;
    if (end > 0) {
      const whole = chunk.subarray(0, end);
      const lines = rest.length === 0 ? whole : Buffer.concat([rest, whole]);
      yield { start, lines };
      start += lines.length;
      rest = Buffer.from(chunk.subarray(end));
    } else if (rest.length + chunk.length <= LONGEST_LINE) rest = Buffer.concat([rest, chunk]);
    else {
      start += rest.length + chunk.length;
      rest = Buffer.alloc(0);
    }
  }
  if (rest.length > 0) yield { start, lines: rest };
}

/** Calls `take` with each of the lines that holds all needles, in their order. */
export function findLines(
  { lines }: Piece,
  needles: readonly string[],
  take: (line: Buffer) => void,
): void {
  // The longest is the rarest, as a rule.
  const [first, ...others] = needles.toSorted((a, b) => b.length - a.length);
  const needle = first === undefined ? undefined : Buffer.from(first);
  for (let at = 0; at < lines.length; ) {
    const found = needle === undefined ? at : lines.indexOf(needle, at);
    if (found === -1) return;
    const newline = lines.indexOf(NEWLINE, found);
    const end = newline === -1 ? lines.length : newline;
    const line = lines.subarray(Math.max(at, lines.lastIndexOf(NEWLINE, found) + 1), end);
    if (others.every((other) => line.includes(other))) take(line);
    at = end + 1;
  }
}
