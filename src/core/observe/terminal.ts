import type { DestinationStream } from "pino";
import type { PrettyOptions } from "pino-pretty";
import pretty from "pino-pretty";
import { escapeCharacters } from "../base/suggestion.ts";
import { eventInWords, operationsInWords, parseRecord } from "./audit-filter.ts";
import type { AuditedChange } from "./audit-line.ts";

const MAX_PATH_LENGTH = 80;
const SERVER_ERROR = 500;

/** `rita Delete main.users deny role_insufficient 403 2ms`; undefined for other lines. */
function requestLine(line: LogLine, colors: Colors): string | undefined {
  if (line.audit !== true || line.msg !== "request") return undefined;
  const request = parseRecord(line);
  if (request === undefined) return undefined;
  const { user = "-", method, path, decision, reason, status = 0, ms = 0 } = request;
  const shownPath = path?.slice(0, MAX_PATH_LENGTH) ?? "unknown path";
  const operations = operationsInWords(request.operations, request.operationCount);
  const parts = [
    colors.bold(visible(user)),
    visible(operations ?? `${method} ${shownPath}`),
    decision === "deny" ? colors.red(decision) : decision && colors.green(decision),
    reason && visible(reason),
    status >= SERVER_ERROR ? colors.red(String(status)) : String(status),
    colors.dim(`${Math.ceil(ms)}ms`),
  ];
  return parts.filter((part) => part !== undefined).join(" ");
}

type LogLine = Readonly<Record<string, unknown>>;

/** Functions that color text, or return it unchanged without color support. */
type Colors = Parameters<
  Extract<PrettyOptions["messageFormat"], (...args: never[]) => string>
>[3]["colors"];

/** Members of a list that are printed. The JSON log has all of them. */
const MAX_MEMBERS = 5;
const formattedElsewhere = new Set([
  "time",
  "level",
  "msg",
  "name",
  "audit",
  "err",
  "accessVersion",
]);

/** Changes of users and grants, not those of keys and tokens. */
const inAccessFile = /^(?:user|group|grant|boundary) /;

/** Escapes control characters, because clients choose logged text such as a path. */
function visible(text: string): string {
  return escapeCharacters(text, /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu);
}

function inWords(key: string): string {
  return key.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
}

function formatValue(value: unknown): string {
  if (Array.isArray(value)) {
    const first = value.slice(0, MAX_MEMBERS).map(formatValue).join(", ");
    return value.length > MAX_MEMBERS ? `${first} and ${value.length - MAX_MEMBERS} more` : first;
  }
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** `root (cli) token issued rita 5d93cd21`; undefined for all but changes and approvals. */
function changeLine(line: LogLine): string | undefined {
  if (line.audit !== true || !/^(?:change$|approval_)/.test(String(line.msg))) return undefined;
  const record = parseRecord(line);
  if (record === undefined) return undefined;
  const changes = record.changes.slice(0, MAX_MEMBERS);
  const words = eventInWords({ ...record, changes }, (word) => word);
  const more = record.changes.length - changes.length;
  return visible([...words, ...(more > 0 ? [`and ${more} more`] : [])].join("  "));
}

function formatLevel({ level }: LogLine, colors: Colors): string {
  if (level === "warn") return `${colors.yellow("WARN")} `;
  if (level === "error" || level === "fatal") return `${colors.red("ERROR")} `;
  return level === "debug" ? `${colors.dim("debug")} ` : "";
}

/** A line for anything but a request, with the calls of an error below it. */
function eventLine(line: LogLine, colors: Colors): string {
  const error: LogLine = typeof line.err === "object" && line.err !== null ? { ...line.err } : {};
  const what = [error.type, error.code].filter((word) => typeof word === "string").join(" ");
  const fields = Object.entries(line).filter(([key]) => !formattedElsewhere.has(key));
  const details = [
    ...(what === "" ? [] : [what]),
    ...fields.map(([key, value]) => `${inWords(key)}: ${formatValue(value)}`),
  ];
  const program = typeof line.name === "string" ? `${line.name}: ` : "";
  const text = visible(`${program}${line.msg}`);
  const beside = details.length === 0 ? "" : ` ${colors.dim(visible(`(${details.join("; ")})`))}`;
  const calls = typeof error.stack === "string" ? error.stack.split("\n") : [];
  const below = calls.map((call) => `\n  ${visible(call)}`).join("");
  return `${formatLevel(line, colors)}${text}${beside}${below}`;
}

/**
 * Turns JSON lines of log and audit into short lines for people. Omits an audit line that repeats the
 * log line before it.
 *
 * @param destination default: standard output
 */
export function terminalStream(
  hasColors: boolean,
  destination?: NodeJS.WritableStream,
): DestinationStream {
  const output = pretty({
    colorize: hasColors,
    sync: true,
    hideObject: true,
    customColors: { message: "reset" },
    ignore: "name,pid,hostname",
    timestampKey: "-",
    levelKey: "-",
    messageFormat(line, _key, _label, { colors }) {
      const localTime = new Date(String(line.time)).toTimeString().slice(0, 8);
      const short = requestLine(line, colors) ?? changeLine(line) ?? eventLine(line, colors);
      return `${colors.dim(localTime)} ${short}`;
    },
    ...(destination && { destination }),
  });
  let last = { isAudit: true, message: "", fields: "" };
  return {
    write(line) {
      const { time: _, level: __, accessVersion: ___, audit, msg, ...rest } = JSON.parse(line);
      const isAudit = audit === true;
      const message = String(msg);
      const fields = JSON.stringify(rest);
      // The log has already reported the reload.
      const isReload =
        isAudit &&
        message === "change" &&
        rest.changes.every(({ change }: AuditedChange) => inAccessFile.test(change));
      const isSame = !last.isAudit && fields === last.fields && last.message.startsWith(message);
      if (!isAudit || !(isReload || isSame)) output.write(line);
      last = { isAudit, message, fields };
    },
  };
}
