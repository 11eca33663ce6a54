/** How rows are written: in a JSON answer, as lines of JSON objects, or as RFC 4180 has it. */
export type RowForm = "json" | "ndjson" | "csv";

/** Takes the rows of a Select as they come. */
export interface RowOutput {
  readonly form: RowForm;
  write(text: string): void;
  /** Writes text in UTF-8. The bytes are not to be changed before `release` is called. */
  writeBytes(bytes: Buffer, release?: () => void): void;
  /** Told at their end how many rows were written. */
  countRows(count: number): void;
  /** Set while whoever takes the rows is behind: resolves once he has caught up or is gone. */
  readonly backlog: Promise<void> | undefined;
}

/** An output whose rows go out while others are still to come. */
export interface RowStream extends RowOutput {
  /** True once something has gone out, which cannot be taken back. */
  readonly hasBegun: boolean;
  /** Drops what was written, none of which has gone out. */
  reset(): void;
  /** True if, since this was asked last, something has gone out or was waited for to be taken. */
  hasMoved(): boolean;
}
