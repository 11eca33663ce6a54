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
/** `rita Delete main.users deny role_insufficient 403 2ms`; undefined if it is no request. */
function requestLine(line: LogLine, colors: Colors): string | undefined {
  const request = requestShape.safeParse(line).data;
  if (request === undefined) return undefined;
  const { user = "-", method, path, decision, reason, status, ms } = request;
  const shownPath = path?.slice(0, LONGEST_PATH) ?? "unknown path";
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

/** Members of a list that are shown. The JSON log has all of them. */
const SHOWN = 5;
const laidOutElsewhere = new Set(["time", "level", "msg", "name", "audit", "err"]);

/** Escapes what a terminal would obey. Logged text such as a path comes from strangers. */
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

/** A line for anything but a request, with the calls of an error below it. */
function eventLine(line: LogLine, colors: Colors): string {
  const error: LogLine = typeof line.err === "object" && line.err !== null ? { ...line.err } : {};
  const what = [error.type, error.code].filter((word) => typeof word === "string").join(" ");
  const fields = Object.entries(line).filter(([key]) => !laidOutElsewhere.has(key));
  const details = [
    ...(what === "" ? [] : [what]),
    ...fields.map(([key, value]) => `${inWords(key)}: ${textOf(value)}`),
  ];
  const speaker = typeof line.name === "string" ? `${line.name}: ` : "";
  const text = visible(`${speaker}${line.msg}`);
  const beside = details.length === 0 ? "" : ` ${colors.dim(visible(`(${details.join("; ")})`))}`;
  const calls = typeof error.stack === "string" ? error.stack.split("\n") : [];
  const below = calls.map((call) => `\n  ${visible(call)}`).join("");
  return `${levelOf(line, colors)}${text}${beside}${below}`;
}

/**
 * Turns the log's JSON lines into short lines for people. The audit is in the same stream. An audit
 * line that repeats the log line before it is left out.
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
    // This file lays out everything that a line shows.
    hideObject: true,
    customColors: { message: "reset" },
    ignore: "name,pid,hostname",
    timestampKey: "-",
    levelKey: "-",
    messageFormat(line, _key, _label, { colors }) {
      const localTime = new Date(String(line.time)).toTimeString().slice(0, 8);
      return `${colors.dim(localTime)} ${requestLine(line, colors) ?? eventLine(line, colors)}`;
    },
    ...(destination && { destination }),
  });
  let last = { isAudit: true, message: "", fields: "" };
  return {
    write(line) {
      const { time: _, level: __, audit, msg, ...rest } = JSON.parse(line);
      const [isAudit, message, fields] = [audit === true, String(msg), JSON.stringify(rest)];
      // The log has already reported the reload.
      const isReload = message === "change" && rest.accessVersion !== undefined;
      const isSame = !last.isAudit && fields === last.fields && last.message.startsWith(message);
      if (!isAudit || !(isReload || isSame)) output.write(line);
      last = { isAudit, message, fields };
    },
  };
}
