import { once } from "node:events";
import { appendFileSync } from "node:fs";
import { type DestinationStream, destination, type Logger, pino } from "pino";

const MAX_BUFFER_LENGTH = 128 * 1024;
const FLUSH_MS = 20;
const LONGEST_WRITE_MS = 1000;
const RETRY_MS = 1000;

/** Buffers lines, because a system call per line would cost more than the line. */
export class LineWriter implements DestinationStream {
  /** Call `flush` before you reopen or close the file. */
  readonly file: ReturnType<typeof destination>;
  #buffer = "";
  /** Lines that the file has been given since all were written. */
  #given = "";
  isFailing = false;
  onFailure = (_error: Error): void => {};
  onRecovery = (): void => {};
  #isClosed = false;
  /** Until then, a full pipe is tried again. */
  #deadline = Number.POSITIVE_INFINITY;
  readonly #appendSync: (lines: string) => void;
  readonly #maxLength: number;
  #timer: NodeJS.Timeout | undefined;
  #retry: NodeJS.Timeout | undefined;

  /** @param maxBytes of lines that cannot be written @param mode of a new file */
  constructor(dest: string | number, maxBytes: number, mode?: number) {
    const retryEAGAIN = () => performance.now() < this.#deadline;
    const options = { dest, sync: false, maxLength: maxBytes, retryEAGAIN };
    this.file = destination({ ...options, ...(mode && { mode }) });
    this.#appendSync = (lines) => appendFileSync(dest, lines, { mode });
    this.#maxLength = maxBytes;
    // A full disk must not end the gateway. Waiting lines are written once there is room.
    this.file.on("error", (error) => {
      if (!this.isFailing) this.onFailure(error);
      this.isFailing = true;
      clearTimeout(this.#retry);
      this.#retry = setTimeout(() => this.#isClosed || this.file.write(""), RETRY_MS).unref();
    });
    this.file.on("drain", () => {
      this.#given = "";
      if (this.isFailing) this.onRecovery();
      this.isFailing = false;
    });
    // Before the listener of the library.
    process.prependOnceListener("exit", this.close);
    this.file.once("close", () => process.off("exit", this.close));
  }

  /** The latest lines, in full unless the file is slow. All that are not written are among them. */
  get unwritten(): string {
    return this.#given + this.#buffer;
  }

  write(line: string): void {
    this.#buffer += line;
    if (this.#buffer.length >= MAX_BUFFER_LENGTH) this.flush();
    else if (!this.#isClosed) this.#timer ??= setTimeout(() => this.flush(), FLUSH_MS).unref();
  }

  /** @param done called when the lines are written or cannot be, or after a second */
  readonly flush = (done?: () => void): void => {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const lines = this.#buffer;
    const isWriting = this.#given !== "" && !this.isFailing;
    if (isWriting && done === undefined && lines.length < this.#maxLength) {
      // Lines that the library keeps until the end of a write would be lost at the exit.
      if (!this.#isClosed) this.#timer = setTimeout(() => this.flush(), FLUSH_MS).unref();
    } else if (lines !== "") {
      this.#buffer = "";
      this.#given = (this.#given.length < this.#maxLength ? this.#given : "") + lines;
      this.file.write(lines);
    }
    if (done === undefined) return;
    once(this.file, "drain", { signal: AbortSignal.timeout(LONGEST_WRITE_MS) }).then(done, done);
  };

  /** Writes everything synchronously. Tries once, a full pipe for a second. */
  readonly close = (): void => {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#deadline = performance.now() + LONGEST_WRITE_MS;
    // At the exit, the library would repeat a write that fails forever.
    Object.assign(this.file, { sync: true, flushSync() {} });
    try {
      if (this.#given !== "" && !this.isFailing) {
        // Fails as a write that has begun may fail, which cannot be waited for.
        this.#appendSync(this.#buffer);
        this.#buffer = "";
      }
      this.flush();
      this.file.write("");
    } catch (error) {
      this.file.emit("error", error);
    }
  };
}

/** Matches only names and codes of programs, so that no input is logged. */
const word = /^[\w$.-]{1,64}$/;
/** The part of a stack before the message: `TypeError: `, `TypeError [ERR_INVALID_URL]: `. */
const stackStart = /^[\w$]+(?: \[\w+\])?(?:: )?/;
const FIRST_CALL = "\n    at ";

/** Undefined for an unexpected format, which may contain the message. */
function stackCalls({ message, stack = "" }: Error): string | undefined {
  const start = stackStart.exec(stack)?.[0].length ?? 0;
  const rest = stack.slice(stack.startsWith(message, start) ? start + message.length : start);
  return rest.startsWith(FIRST_CALL) ? rest.slice(1) : undefined;
}

/**
 * An error as it is logged: type, code such as `ENOSPC` or an SQLSTATE, and calls, never the
 * message. Messages may quote input: `JSON.parse` quotes the text that it could not read, and a
 * database quotes the row.
 */
function loggedError(error: unknown): object {
  if (!(error instanceof Error)) return { type: typeof error };
  const code = "code" in error ? error.code : undefined;
  return {
    type: word.test(error.name) ? error.name : "Error",
    code: typeof code === "string" && word.test(code) ? code : undefined,
    stack: stackCalls(error),
  };
}

export type Log = Logger;

/**
 * Creates the log: JSON lines on standard output, or readable lines on a terminal. The log never
 * contains a secret, token, hash or row. An error logged as `err` appears without its message.
 */
export function createLog(stream: DestinationStream): Log {
  return pino(
    {
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: loggedError },
    },
    stream,
  );
}

const MAX_WAITING_BYTES = 1024 * 1024;

export async function openLogStream(isTerminal: boolean): Promise<DestinationStream> {
  if (!isTerminal) return new LineWriter(1, MAX_WAITING_BYTES);
  // Loaded only for terminals. Also handles NO_COLOR and terminals without colors.
  const { terminalStream } = await import("./terminal.ts");
  return terminalStream(process.stdout.hasColors());
}

/** Continues after an uncaught error. Decisions stay correct, since snapshots are immutable. */
export function logUncaughtErrors(log: Log): void {
  process.on("uncaughtException", (error, origin) => {
    log.error({ origin, err: error }, "uncaught error");
  });
}
