import { type DestinationStream, destination, type Logger, pino } from "pino";

/** Characters of lines that are written at once, however short ago the first of them came. */
const GATHERED_LENGTH = 32 * 1024;
/** Milliseconds after which a line is written, however few there are. */
const GATHERED_MS = 20;

/**
 * Takes lines for a file or a descriptor and writes several together: a call of the system for each
 * would cost more than the line. What is gathered is written when the process exits, too.
 */
export class LineWriter implements DestinationStream {
  /** What they are written to; `flush` comes before it is opened anew or closed. */
  readonly file: ReturnType<typeof destination>;
  #gathered = "";
  #timer: NodeJS.Timeout | undefined;

  /**
   * @param keptBytes that are kept while they cannot be written
   * @param mode of the file if it is made
   */
  constructor(dest: string | number, keptBytes: number, mode?: number) {
    this.file = destination({
      ...{ dest, sync: false, maxLength: keptBytes },
      ...(mode === undefined ? {} : { mode }),
    });
    process.once("exit", this.#writeLast);
    this.file.once("close", () => process.off("exit", this.#writeLast));
  }

  write(line: string): void {
    this.#gathered += line;
    if (this.#gathered.length >= GATHERED_LENGTH) this.flush();
    else this.#timer ??= setTimeout(this.flush, GATHERED_MS).unref();
  }

  /** Hands over what is gathered. */
  readonly flush = (): void => {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const lines = this.#gathered;
    this.#gathered = "";
    if (lines !== "") this.file.write(lines);
  };

  /** Writes all that is not written yet, before it returns. @throws the file system's error */
  flushNow(): void {
    this.flush();
    this.file.flushSync();
  }

  readonly #writeLast = (): void => {
    try {
      this.flushNow();
    } catch {
      // It cannot be written, and there is nobody left to tell.
    }
  };
}

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

/**
 * Lets the gateway live through an error that nobody caught, from a callback or a forgotten
 * promise: it is logged, and at most the request that it belongs to is lost. No decision depends on
 * state that such an error could leave half-changed, since snapshots are swapped whole.
 */
export function outliveErrors(log: Log): void {
  process.on("uncaughtException", (error, origin) => {
    log.error({ origin, err: error }, "an error that nobody caught");
  });
}

/**
 * Ends the process with such an error, as Node does by itself; but Node would print the error's
 * message.
 */
export function endWithErrors(log: Log): void {
  process.on("uncaughtException", (error, origin) => {
    log.fatal({ origin, err: error }, "an error that nobody caught");
    process.exit(1);
  });
}
