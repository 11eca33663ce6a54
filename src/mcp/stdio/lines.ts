const NEWLINE = 0x0a;

/**
 * The lines of a stream of bytes, without their ends, each as soon as it is whole. Only a line feed
 * ends one: what else editors take for a line's end may stand in a JSON string. What follows the
 * last line feed is no whole message and is dropped.
 */
export async function* readLines(input: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let begun: Buffer[] = [];
  for await (const chunk of input) {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
      yield Buffer.concat([...begun, chunk.subarray(start, end)]);
      begun = [];
      start = end + 1;
    }
    if (start < chunk.length) begun.push(chunk.subarray(start));
  }
}
