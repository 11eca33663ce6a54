import { appendFileSync, closeSync, existsSync, openSync } from "node:fs";
import { pino } from "pino";
import { isoTime } from "../clock.ts";
import { giveToDirectoryOwner } from "../files/guarded.ts";
import { memoize } from "../memoize.ts";
import type { AuditedOperation, AuditRecord } from "./audit-line.ts";
import { LineWriter, type Log } from "./log.ts";

const MODE = 0o600;
/** Bytes of lines that are kept in memory while the file cannot be written. */
const KEPT_BYTES = 16 * 1024 * 1024;

/** Creates the file if it does not exist. @throws the file system's error */
function requireWritable(file: string): void {
  closeSync(openSync(file, "a", MODE));
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : "unknown";
}

/**
 * Opens the audit file for appending. A full disk does not end the gateway: each line retries, and
 * kept lines are written once there is room.
 *
 * @throws Error if the file cannot be opened now
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
    /** True while lines cannot be written. They belong in the log then. */
    get isFailing() {
      return isFailing;
    },
    /** Opens the file again after rotation. On failure, the old one stays in use. */
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
      // Flushing would retry forever.
      if (isFailing) lines.destroy();
      else stream.flushNow();
    },
  };
}

/** Appends a change that a command has made. @throws the file system's error */
export function appendChange(file: string, fields: object): void {
  const isNew = !existsSync(file);
  const line = { level: "info", time: isoTime(), ...fields, msg: "change" };
  appendFileSync(file, `${JSON.stringify(line)}\n`, { mode: MODE });
  if (isNew) giveToDirectoryOwner(file);
}

/** Writes one line for each decision, login, administrative change and reload. */
export interface Audit {
  request(record: AuditRecord): void;
  /** Something other than a request: a change by a command, an edit of the access file. */
  event(name: string, fields: Readonly<Record<string, unknown>>, level?: AuditLevel): void;
  /** Opens the file again after rotation. */
  reopen(): void;
  close(): void;
}

/** `warn` if the caller was denied, `error` if the gateway or the upstream failed. */
export type AuditLevel = "info" | "warn" | "error";

const SERVER_ERROR = 500;

function levelOf({ status, decision }: AuditRecord): AuditLevel {
  if (status >= SERVER_ERROR) return "error";
  return decision === "deny" ? "warn" : "info";
}

/** Remembers texts that recur. */
const quoted = memoize((text) => JSON.stringify(text));

function member(name: string, text: string | undefined): string {
  return text === undefined ? "" : `,"${name}":${quoted(text)}`;
}

function count(name: string, value: number | undefined): string {
  return value === undefined ? "" : `,"${name}":${value}`;
}

function operationText(audited: AuditedOperation): string {
  const { operation, database, tables, role, entry, boundary, shape } = audited;
  return (
    `{"operation":${quoted(operation)},"database":${quoted(database)}` +
    `,"tables":[${tables.map(quoted).join(",")}]${member("role", role)}${member("entry", entry)}` +
    `${member("boundary", boundary)}` +
    // Not memoized, because it seldom repeats.
    `${shape === undefined ? "" : `,"shape":${JSON.stringify(shape)}`}}`
  );
}

/** The line exactly as the logger would write it, at a fraction of the cost. */
function requestLine(record: AuditRecord): string {
  const { requestId, traceId, address, method, path, user, tokenId, operations } = record;
  return (
    `{"level":"${levelOf(record)}","time":"${isoTime()}","requestId":${JSON.stringify(requestId)}` +
    // Never repeats and contains nothing to escape.
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
 * Writes the audit to `file`, or to the log if no file is configured.
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
