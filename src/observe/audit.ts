import { closeSync, openSync } from "node:fs";
import { pino } from "pino";
import { isoTime } from "../clock.ts";
import { memoize } from "../memoize.ts";
import type { AuditedOperation, AuditRecord } from "./audit-line.ts";
import { LineWriter, type Log } from "./log.ts";

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
function openAuditFile(file: string, log: Log) {
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
    /** True while lines cannot be written: they belong into the log then. */
    get isFailing() {
      return isFailing;
    },
    /** Opens the file again, after it was moved away; if that fails, the old one goes on. */
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

/** Writes one line for each decision, login, administration change and reload. */
export interface Audit {
  request(record: AuditRecord): void;
  /** An event that is no request: a change by a command, an edit of the access file. */
  event(name: string, fields: Readonly<Record<string, unknown>>, level?: AuditLevel): void;
  /** Opens the file again, after it was moved away for rotation. */
  reopen(): void;
  close(): void;
}

/** `warn` for what is denied, `error` for what fails through no fault of who asks. */
export type AuditLevel = "info" | "warn" | "error";

const SERVER_ERROR = 500;

function levelOf({ status, decision }: AuditRecord): AuditLevel {
  if (status >= SERVER_ERROR) return "error";
  return decision === "deny" ? "warn" : "info";
}

/** Text as JSON, for what comes again and again. */
const quoted = memoize((text) => JSON.stringify(text));

function member(name: string, text: string | undefined): string {
  return text === undefined ? "" : `,"${name}":${quoted(text)}`;
}

function count(name: string, value: number | undefined): string {
  return value === undefined ? "" : `,"${name}":${value}`;
}

/** An operation as the logger would write it. */
function operationText(audited: AuditedOperation): string {
  const { operation, database, tables, role, entry, boundary, shape } = audited;
  return (
    `{"operation":${quoted(operation)},"database":${quoted(database)}` +
    `,"tables":[${tables.map(quoted).join(",")}]${member("role", role)}${member("entry", entry)}` +
    `${member("boundary", boundary)}` +
    // Seldom the same as the last ones.
    `${shape === undefined ? "" : `,"shape":${JSON.stringify(shape)}`}}`
  );
}

/** The line of a request, as the logger would write it; a fraction of what that costs. */
function requestLine(record: AuditRecord): string {
  const { requestId, traceId, address, method, path, user, tokenId, operations } = record;
  return (
    `{"level":"${levelOf(record)}","time":"${isoTime()}","requestId":${JSON.stringify(requestId)}` +
    // Never the same twice: there is nothing to remember, and nothing in it to be escaped.
    (traceId === undefined ? "" : `,"traceId":"${traceId}"`) +
    member("address", address) +
    member("method", method) +
    member("path", path) +
    member("user", user) +
    member("tokenId", tokenId) +
    member("via", record.via) +
    member("client", record.client) +
    member("issuer", record.issuer) +
    `,"operations":[${operations.map(operationText).join(",")}]` +
    `,"operationCount":${record.operationCount}` +
    member("decision", record.decision) +
    member("reason", record.reason) +
    member("detail", record.detail) +
    member("narrowed", record.narrowed) +
    member("approval", record.approval) +
    (record.rates === undefined ? "" : `,"rates":${JSON.stringify(record.rates)}`) +
    count("affected", record.affected) +
    count("rows", record.rows) +
    (record.author === undefined ? "" : `,"author":${JSON.stringify(record.author)}`) +
    (record.changes === undefined ? "" : `,"changes":${JSON.stringify(record.changes)}`) +
    member("accessVersion", record.accessVersion) +
    `,"status":${record.status},"ms":${record.ms},"bytes":${record.bytes},"msg":"request"}\n`
  );
}

/**
 * The audit's lines go to `file`, or to the log where none is configured.
 *
 * @throws Error if the file cannot be opened for writing
 */
export function createAudit(file: string | undefined, log: Log): Audit {
  const inLog = log.child({ audit: true });
  if (file === undefined) {
    return {
      request: (record) => inLog[levelOf(record)](record, "request"),
      event: (name, fields, level = "info") => inLog[level](fields, name),
      reopen: () => {},
      close: () => {},
    };
  }
  const auditFile = openAuditFile(file, log);
  const inFile = pino(
    {
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
    },
    auditFile.stream,
  );
  function write(fields: object, name: string, level: AuditLevel): void {
    inFile[level](fields, name);
    if (auditFile.isFailing) inLog[level](fields, name);
  }
  return {
    request(record) {
      if (auditFile.isFailing) write(record, "request", levelOf(record));
      else auditFile.stream.write(requestLine(record));
    },
    event: (name, fields, level = "info") => write(fields, name, level),
    reopen: () => auditFile.reopen(),
    close: () => auditFile.close(),
  };
}
