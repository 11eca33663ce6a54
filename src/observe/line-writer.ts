import { type DestinationStream, destination } from "pino";

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
