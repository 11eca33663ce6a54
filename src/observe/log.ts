import { type DestinationStream, type Logger, pino } from "pino";
import { LineWriter } from "./line-writer.ts";
import { loggedError } from "./logged-error.ts";

export type Log = Logger;

/**
 * The log of a process: JSON lines on standard output, or lines for people on a terminal. What is
 * logged never holds a secret, token, hash or row: of an error that is logged as `err`, everything
 * but its message.
 */
export function createLog(
  options: { isTerminal: boolean; name?: string },
  stream: DestinationStream,
): Log {
  return pino(
    {
      base: options.name === undefined ? null : { name: options.name },
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: loggedError },
    },
    stream,
  );
}

/** Bytes of lines that are kept while they cannot be written. */
const KEPT_BYTES = 1024 * 1024;

/** Opens what a log's lines go to: standard output, or a terminal as people read it. */
export async function openLogStream(isTerminal: boolean): Promise<DestinationStream> {
  if (!isTerminal) {
    const stream = new LineWriter(1, KEPT_BYTES);
    // A full disk is no reason to drop requests; the lines follow when there is room again.
    stream.file.on("error", () => {});
    return stream;
  }
  // Loaded where there is one. Also knows NO_COLOR and terminals without colours.
  const { terminalStream } = await import("./terminal.ts");
  return terminalStream({ hasColors: process.stdout.hasColors() });
}
