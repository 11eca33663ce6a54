import { constants } from "node:os";
import { styleText } from "node:util";
import { Refusal } from "../core/base/refusal.ts";
import { escapeCharacters } from "../core/base/suggestion.ts";
import { ConfigurationError } from "../core/config/problem.ts";

export const FAILURE = 1;
export const USAGE = 2;

/** The command line is invalid. The message says what is allowed. */
export class UsageError extends Error {}

const stopSignals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

export class Cancelled extends Error {
  /** As in shells. */
  readonly status: number;

  constructor(signal: (typeof stopSignals)[number] = "SIGINT") {
    super("cancelled");
    this.status = 128 + constants.signals[signal];
  }
}

/** For a command that has to clean up. A second signal ends it at once. */
export function onStop(stop: (cancelled: Cancelled) => void): void {
  for (const signal of stopSignals) process.once(signal, () => stop(new Cancelled(signal)));
}

const fileProblems = new Map([
  ["ENOENT", "does not exist"],
  ["EISDIR", "is a directory"],
  ["EACCES", "is not accessible to this user"],
]);

export function explain(error: unknown): string {
  if (error instanceof ConfigurationError) return error.message;
  if (error instanceof Refusal) {
    const { code, message, detail } = error;
    const isLast = code === "last_administrator" || code === "last_owner";
    const remedy = isLast ? "; --force allows it" : "";
    return message + remedy + (detail === undefined ? "" : ` (${detail})`);
  }
  if (!(error instanceof Error)) return "unknown error";
  const problem = "code" in error ? fileProblems.get(String(error.code)) : undefined;
  return problem !== undefined && "path" in error ? `${error.path} ${problem}` : error.message;
}

export function failureLabel(): string {
  return styleText("red", "gatehouse:", { stream: process.stderr });
}

export function reportFailure(error: unknown): void {
  for (const line of harmless(explain(error)).split("\n")) {
    process.stderr.write(`${failureLabel()} ${line}\n`);
  }
  const isUsage =
    error instanceof UsageError ||
    (error instanceof ConfigurationError &&
      error.problems.every(({ source }) => source?.startsWith("--")));
  const status = error instanceof Cancelled ? error.status : FAILURE;
  process.exitCode = isUsage ? USAGE : status;
}

export function warn(sentence: string): void {
  process.stderr.write(`warning: ${harmless(sentence)}\n`);
}

export function print(text: string): void {
  process.stdout.write(`${visible(text)}\n`);
}

/** Formats a caller's text as one table cell. Text that could look like other cells is quoted. */
export function plainly(text: string): string {
  return /[\p{C}\p{Z}"]/u.test(text) ? plainJson(text) : text;
}

/** JSON without characters that a terminal would obey. */
export function plainJson(value: unknown): string {
  return escapeCharacters(JSON.stringify(value), /[\p{Cc}\p{Cf}]/gu);
}

/** Escapes invisible characters, which could reorder a terminal's line, or end it. */
function visible(text: string): string {
  return escapeCharacters(text, /[\p{Cf}\p{Zl}\p{Zp}]/gu);
}

/** Also escapes what a terminal would obey, for text without style. */
export function harmless(text: string): string {
  return escapeCharacters(visible(text), /(?!\n)\p{Cc}/gu);
}

function printTable(head: readonly string[], rows: readonly (readonly string[])[]): void {
  // Not Math.max(...rows): the number of call arguments is limited.
  const widths = head.map((name, at) =>
    rows.reduce((widest, row) => Math.max(widest, row[at]?.length ?? 0), name.length),
  );
  const line = (cells: readonly string[]) =>
    cells
      .map((cell, at) => cell.padEnd(widths[at] ?? 0))
      .join("  ")
      .trimEnd();
  print([styleText("bold", line(head)), ...rows.map(line)].join("\n"));
}

export function formatMoment(seconds: number): string {
  return new Date(seconds * 1000).toISOString();
}

/** Returns null for 0, which means never. */
export function momentOrNull(seconds: number): string | null {
  return seconds === 0 ? null : formatMoment(seconds);
}

export function printJson(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value, null, 2)}\n`);
}

export function printList<Item>(
  items: readonly Item[],
  { json }: { readonly json?: true },
  head: readonly string[],
  cellsOf: (item: Item) => readonly string[],
  viewOf: (item: Item) => unknown = (item) => item,
): void {
  if (json) printJson(items.map(viewOf));
  else printTable(head, items.map(cellsOf));
}
