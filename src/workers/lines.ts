import type { Readable } from "node:stream";
import type { DestinationStream } from "pino";

/** Passes text on in whole lines; what has no end when the source has one is dropped. */
export function passLinesOn(source: Readable, output: DestinationStream): void {
  let begun = "";
  source.setEncoding("utf8").on("data", (text: string) => {
    const end = text.lastIndexOf("\n") + 1;
    if (end === 0) {
      begun += text;
      return;
    }
    output.write(begun + text.slice(0, end));
    begun = text.slice(end);
  });
}
