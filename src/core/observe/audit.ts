import { closeSync, openSync } from "node:fs";
import * as z from "zod";
import { errorMessage } from "../base/client-error.ts";
import { isoTime } from "../base/clock.ts";
import { APPEND_FLAGS, appendWhole, parseLine } from "../base/files/guarded.ts";
import type { AuditRecord } from "./audit-line.ts";
import { LineWriter, type Log } from "./log.ts";

const MODE = 0o600;
const MAX_BUFFER_BYTES = 16 * 1024 * 1024;
const SERVER_ERROR = 500;

/** `warn` if the caller was denied, `error` if the gateway or the upstream failed. */
const auditLevel = z.enum(["info", "warn", "error"]);
type AuditLevel = z.infer<typeof auditLevel>;
const writtenLine = z.looseObject({ level: auditLevel, time: z.string(), msg: z.string() });

/** Writes one line for each decision, login, administrative change and reload. */
export interface Audit {
  request(record: AuditRecord): void;
  /**
   * For changes by commands, edits of the access file and similar events. The line has the version of
   * the access file in force unless `fields` has one.
   */
  event(name: string, fields: object, level?: AuditLevel): void;
  /** Resolves when the lines just added are written, or cannot be. */
  flush(): Promise<void>;
  reopen(): void;
  close(): void;
}

function chooseLevel({ status, decision }: AuditRecord): AuditLevel {
  if (status >= SERVER_ERROR) return "error";
  return decision === "deny" ? "warn" : "info";
}

/** A line in the format of the log. @param fields at least one */
function formatLine(name: string, fields: object, level: AuditLevel): string {
  const members = JSON.stringify(fields).slice(1, -1);
  return `{"level":"${level}","time":"${isoTime()}",${members},"msg":"${name}"}\n`;
}

/** Creates the file if it does not exist. @throws the file system's error */
function requireWritable(file: string): void {
  closeSync(openSync(file, APPEND_FLAGS, MODE));
}

/** Appends a change by a command. @throws the file system's error */
export async function appendChange(file: string, fields: object): Promise<void> {
  await appendWhole(file, formatLine("change", fields, "info"));
}

/**
 * Writes the audit to `file`, or to the log if no file is configured. While the disk is full, lines
 * go to the log, and the file gets them later.
 *
 * @param accessVersion of the access file in force; undefined until it is loaded
 * @throws Error if the file cannot be opened for writing
 */
export function createAudit(
  file: string | undefined,
  log: Log,
  accessVersion: () => string | undefined,
): Audit {
  const inLog = log.child({ audit: true });
  if (file === undefined) {
    return {
      request: (record) => inLog[chooseLevel(record)](record, "request"),
      event: (name, fields, level = "info") =>
        inLog[level]({ accessVersion: accessVersion(), ...fields }, name),
      flush: () => new Promise((resolve) => inLog.flush(() => resolve())),
      reopen: () => {},
      close: () => {},
    };
  }
  try {
    requireWritable(file);
  } catch (cause) {
    throw new Error(`the audit file cannot be written: ${errorMessage(cause)}`, { cause });
  }
  const stream = new LineWriter(file, MAX_BUFFER_BYTES, MODE);
  stream.onFailure = ({ message: reason }) => {
    log.error({ file, reason }, "the audit file cannot be written; its lines go to the log");
    for (const text of stream.unwritten.split("\n")) {
      const { level, time, msg, ...fields } = parseLine(writtenLine, text) ?? {};
      if (level !== undefined) inLog[level]({ at: time, ...fields }, msg);
    }
  };
  stream.onRecovery = () => log.info({ file }, "the audit file can be written again");
  function write(name: string, fields: object, level: AuditLevel): void {
    stream.write(formatLine(name, fields, level));
    if (stream.isFailing) inLog[level](fields, name);
  }
  return {
    request: (record) => write("request", record, chooseLevel(record)),
    event: (name, fields, level = "info") =>
      write(name, { accessVersion: accessVersion(), ...fields }, level),
    flush: () => new Promise((resolve) => stream.flush(resolve)),
    reopen() {
      try {
        requireWritable(file);
        stream.flush();
        stream.file.reopen();
      } catch (error) {
        // The old file stays in use.
        log.error({ file, reason: errorMessage(error) }, "the audit file cannot be reopened");
      }
    },
    close: stream.close,
  };
}

/**
 * Version, trace id, parent id and flags; no id is all zeros. Versions after the first may have
 * more fields (W3C Trace Context, section 3.2).
 */
const traceParent =
  /^(?!ff|00.{54})[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?$/;

/** The trace id of a `traceparent` header; undefined if the header is malformed. */
export function parseTraceId(header: string | string[] | undefined): string | undefined {
  return typeof header === "string" ? traceParent.exec(header)?.[1] : undefined;
}
