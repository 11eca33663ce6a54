import { type DestinationStream, destination } from "pino";

/** Bytes of lines that are written at once, however short ago the first of them came. */
const GATHERED_BYTES = 8 * 1024;
/** Milliseconds after which a line is written, however few there are. */
const GATHERED_MS = 20;

/**
 * Takes lines for a file or a descriptor and writes several together: a call of the system for each
 * would cost more than the line. What is gathered is written when the process exits, too.
 */
export class LineWriter implements DestinationStream {
  /** What they are written to. */
  readonly file: ReturnType<typeof destination>;
  #isOpen = true;
  /** True if lines came since all were last written, as far as the file tells. */
  #isPending = false;
  #timer: NodeJS.Timeout | undefined;

  /**
   * @param keptBytes that are kept while they cannot be written
   * @param mode of the file if it is made
   */
  constructor(dest: string | number, keptBytes: number, mode?: number) {
    this.file = destination({
      ...{ dest, sync: false, minLength: GATHERED_BYTES, maxLength: keptBytes },
      ...(mode === undefined ? {} : { mode }),
    });
    this.file.on("drain", () => {
      // What came while a write was under way, or failed, is still to be written.
      if (this.#isPending) this.#flushSoon();
      this.#isPending = false;
    });
    this.file.on("close", () => {
      this.#isOpen = false;
    });
  }

  write(line: string): void {
    this.file.write(line);
    this.#isPending = true;
    this.#flushSoon();
  }

  #flushSoon(): void {
    this.#timer ??= setTimeout(this.#flush, GATHERED_MS).unref();
  }

  readonly #flush = (): void => {
    this.#timer = undefined;
    if (this.#isOpen) this.file.flush();
  };
}
