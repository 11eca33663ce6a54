import { type DestinationStream, type Logger, pino } from "pino";
import { LineWriter } from "./line-writer.ts";

/** What a log says of an error that nobody foresaw. */
interface LoggedError {
  /** The error's name, or the type of what was thrown in the place of an error. */
  readonly type: string;
  /** The code, where the error has one: `ENOSPC`, `ERR_INVALID_ARG_TYPE`, an SQLSTATE. */
  readonly code?: string;
  /** The calls that led to it, a line each. */
  readonly stack?: string;
}

/** A name or a code as programs give them, and nothing that somebody may have sent. */
const word = /^[\w$.-]{1,64}$/;
/** What stands before the message of a stack: `TypeError: `, `TypeError [ERR_INVALID_URL]: `. */
const stackStart = /^[\w$]+(?: \[\w+\])?(?:: )?/;
const FIRST_CALL = "\n    at ";

/** Where a stack begins otherwise than it must, nobody knows what stands there: it is left out. */
function callsOf({ message, stack = "" }: Error): string | undefined {
  const start = stackStart.exec(stack)?.[0].length ?? 0;
  const behind = stack.slice(stack.startsWith(message, start) ? start + message.length : start);
  return behind.startsWith(FIRST_CALL) ? behind.slice(1) : undefined;
}

function codeOf(error: Error): string | undefined {
  const code = "code" in error ? error.code : undefined;
  return typeof code === "string" && word.test(code) ? code : undefined;
}

/**
 * An error as it is logged: what it is and where it came from, and never its message, which may
 * quote what was read. `JSON.parse` quotes the text that it could not read, and a database the row.
 */
function loggedError(error: unknown): LoggedError {
  if (!(error instanceof Error)) return { type: typeof error };
  const code = codeOf(error);
  const stack = callsOf(error);
  return {
    type: word.test(error.name) ? error.name : "Error",
    ...(code === undefined ? {} : { code }),
    ...(stack === undefined ? {} : { stack }),
  };
}

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
