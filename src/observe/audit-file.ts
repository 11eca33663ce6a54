import { closeSync, openSync } from "node:fs";
import type { DestinationStream } from "pino";
import { LineWriter } from "./line-writer.ts";
import type { Log } from "./log.ts";

/** The file of the audit, while it is open. */
export interface AuditFile {
  readonly stream: DestinationStream;
  /** True while lines cannot be written: they belong into the log then. */
  readonly isFailing: boolean;
  /** Opens the file again, after it was moved away; if that fails, the old one goes on. */
  reopen(): void;
  /** Writes what is still to be written. */
  close(): void;
}

const MODE = 0o600;
/** Bytes of lines that are kept while they cannot be written. */
const KEPT_BYTES = 16 * 1024 * 1024;

/** Makes the file if there is none. @throws the error of the file system */
function requireWritable(file: string): void {
  closeSync(openSync(file, "a", MODE));
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : "unknown";
}

/**
 * Opens the audit's file for appending. A disk that is full later on does not end the gateway: each
 * line tries anew, and what was kept meanwhile is written when there is room.
 *
 * @throws Error if it cannot be opened now
 */
export function openAuditFile(file: string, log: Log): AuditFile {
  try {
    requireWritable(file);
  } catch (cause) {
    throw new Error(`the audit file cannot be written: ${reasonOf(cause)}`, { cause });
  }
  let isFailing = false;
  const stream = new LineWriter(file, KEPT_BYTES, MODE);
  const { file: lines } = stream;
  lines.on("error", (error: Error) => {
    if (!isFailing) {
      log.error({ file, reason: error.message }, "the audit cannot be written; it is in the log");
    }
    isFailing = true;
  });
  lines.on("drain", () => {
    if (isFailing) log.info({ file }, "the audit is written again");
    isFailing = false;
  });
  return {
    stream,
    get isFailing() {
      return isFailing;
    },
    reopen() {
      try {
        requireWritable(file);
        stream.flush();
        lines.reopen();
      } catch (error) {
        log.error({ file, reason: reasonOf(error) }, "the audit file cannot be opened again");
      }
    },
    close() {
      // To flush would be to try for ever.
      if (isFailing) lines.destroy();
      else stream.flushNow();
    },
  };
}
