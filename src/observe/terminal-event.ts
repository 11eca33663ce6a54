import type { PrettyOptions } from "pino-pretty";

/** A line of the log, as it was parsed. */
export type LogLine = Readonly<Record<string, unknown>>;

/** Functions that colour text, or leave it as it is where there are no colours. */
export type Colors = Parameters<
  Extract<PrettyOptions["messageFormat"], (...args: never[]) => string>
>[3]["colors"];

/** Members of a list that are shown; the JSON log has them all. */
const SHOWN = 5;
const laidOutElsewhere = new Set(["time", "level", "msg", "name", "audit", "err"]);

/**
 * `text` without what a terminal would obey instead of showing: some of what is logged, such as a
 * path, was sent by strangers.
 */
export function visible(text: string): string {
  return text.replace(
    /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu,
    (character) => `\\u{${character.codePointAt(0)?.toString(16)}}`,
  );
}

/** `grantsRaised` as `grants raised`. */
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

/** What is said of an error beside the line, and the calls that stand below it. */
function errorOf({ err }: LogLine): { what: string[]; calls: string[] } {
  const fields: LogLine = typeof err === "object" && err !== null ? { ...err } : {};
  const { type, code, stack } = fields;
  const what = [type, code].filter((word) => typeof word === "string");
  return { what, calls: typeof stack === "string" ? stack.split("\n") : [] };
}

/** One line for anything but a request; the calls that led to an error stand below it. */
export function eventLine(line: LogLine, colors: Colors): string {
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
