import type { DestinationStream } from "pino";
import type { PrettyOptions } from "pino-pretty";
import pretty from "pino-pretty";
import * as z from "zod";
import { operationsInWords } from "./audit-filter.ts";

const LONGEST_PATH = 80;
const SERVER_ERROR = 500;

/** The fields of a request's audit line that are shown. */
const requestShape = z.object({
  audit: z.literal(true),
  msg: z.literal("request"),
  method: z.string(),
  path: z.string().optional(),
  user: z.string().optional(),
  operations: z.array(
    z.object({ operation: z.string(), database: z.string(), tables: z.array(z.string()) }),
  ),
  operationCount: z.number(),
  decision: z.enum(["allow", "deny"]).optional(),
  reason: z.string().optional(),
  status: z.number(),
  ms: z.number(),
});
type AuditedRequest = z.infer<typeof requestShape>;

function whatWasAsked({ operations, operationCount, method, path }: AuditedRequest): string {
  const known = operationsInWords(operations, operationCount);
  return known ?? `${method} ${path?.slice(0, LONGEST_PATH) ?? "unknown path"}`;
}

function decisionOf({ decision }: AuditedRequest, colors: Colors): string | undefined {
  return decision === "deny" ? colors.red(decision) : decision && colors.green(decision);
}

/**
 * A short line for a request, such as `rita Delete main.users deny role_insufficient 403 2ms`;
 * undefined for any other line.
 */
function requestLine(line: LogLine, colors: Colors): string | undefined {
  const request = requestShape.safeParse(line).data;
  if (request === undefined) return undefined;
  const { user, reason, status, ms } = request;
  const parts = [
    colors.bold(visible(user ?? "-")),
    visible(whatWasAsked(request)),
    decisionOf(request, colors),
    reason === undefined ? undefined : visible(reason),
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

/** Members of a list that are shown. The JSON log has all of them. */
const SHOWN = 5;
const laidOutElsewhere = new Set(["time", "level", "msg", "name", "audit", "err"]);

/**
 * Escapes characters that a terminal would obey instead of showing. Logged text such as a path comes from
 * strangers.
 */
function visible(text: string): string {
  return text.replace(
    /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu,
    (character) => `\\u{${character.codePointAt(0)?.toString(16)}}`,
  );
}

/** `grantsRaised` becomes `grants raised`. */
function inWords(key: string): string {
  return key.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
}

function textOf(value: unknown): string {
  if (Array.isArray(value)) {
    const shown = value.slice(0, SHOWN).map(textOf).join(", ");
    return value.length > SHOWN ? `${shown} and ${value.length - SHOWN} more` : shown;
  }
  return typeof value === "string" ? value : JSON.stringify(value);
}

function levelOf({ level }: LogLine, colors: Colors): string {
  if (level === "warn") return `${colors.yellow("WARN")} `;
  if (level === "error" || level === "fatal") return `${colors.red("ERROR")} `;
  return level === "debug" ? `${colors.dim("debug")} ` : "";
}

function errorOf({ err }: LogLine): { what: string[]; calls: string[] } {
  const fields: LogLine = typeof err === "object" && err !== null ? { ...err } : {};
  const { type, code, stack } = fields;
  const what = [type, code].filter((word) => typeof word === "string");
  return { what, calls: typeof stack === "string" ? stack.split("\n") : [] };
}

/** A line for anything but a request, with the calls of an error below it. */
function eventLine(line: LogLine, colors: Colors): string {
  const { what, calls } = errorOf(line);
  const fields = Object.entries(line).filter(([key]) => !laidOutElsewhere.has(key));
  const details = fields.map(([key, value]) => `${inWords(key)}: ${textOf(value)}`);
  if (what.length > 0) details.unshift(what.join(" "));
  const speaker = typeof line.name === "string" ? `${line.name}: ` : "";
  const text = visible(`${speaker}${line.msg}`);
  const beside = details.length === 0 ? "" : ` ${colors.dim(visible(`(${details.join("; ")})`))}`;
  const below = calls.map((call) => `\n  ${visible(call)}`).join("");
  return `${levelOf(line, colors)}${text}${beside}${below}`;
}

interface TerminalOptions {
  readonly hasColors: boolean;
  /** Default: standard output. */
  readonly destination?: NodeJS.WritableStream;
}

/** `12:03:04` in local time. */
function clockTime(time: unknown): string {
  return new Date(String(time)).toTimeString().slice(0, 8);
}

function toText(line: LogLine, colors: Colors): string {
  return `${colors.dim(clockTime(line.time))} ${requestLine(line, colors) ?? eventLine(line, colors)}`;
}

interface Content {
  readonly isAudit: boolean;
  readonly isToldOf: boolean;
  readonly message: string;
  readonly fields: string;
}

function contentOf(line: string): Content {
  const { time: _, level: __, audit, msg, ...fields } = JSON.parse(line);
  // The log has already reported the reload.
  const isToldOf = audit === true && msg === "change" && fields.accessVersion !== undefined;
  const text = JSON.stringify(fields);
  return { isAudit: audit === true, isToldOf, message: String(msg), fields: text };
}

/** True if the audit repeats what the log has just said. */
function repeats(content: Content, last: Content | undefined): boolean {
  if (content.isToldOf) return true;
  if (!content.isAudit || last === undefined || last.isAudit) return false;
  return content.fields === last.fields && last.message.startsWith(content.message);
}

/**
 * Turns the log's JSON lines into short lines for people. The audit is in the same stream. An audit
 * line that repeats the log line before it is left out.
 */
export function terminalStream({ hasColors, destination }: TerminalOptions): DestinationStream {
  const output = pretty({
    colorize: hasColors,
    sync: true,
    // This file lays out everything that a line shows.
    hideObject: true,
    customColors: { message: "reset" },
    ignore: "name,pid,hostname",
    timestampKey: "-",
    levelKey: "-",
    messageFormat: (line, _key, _label, { colors }) => toText(line, colors),
    ...(destination === undefined ? {} : { destination }),
  });
  let last: Content | undefined;
  return {
    write(line) {
      const content = contentOf(line);
      if (!repeats(content, last)) output.write(line);
      last = content;
    },
  };
}
