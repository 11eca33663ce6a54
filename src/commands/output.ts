import { styleText } from "node:util";
import { ConfigurationError } from "../config/problem.ts";
import { Refusal } from "../refusal.ts";

/** Exit status of a command that was refused or failed. */
export const FAILURE = 1;
/** Exit status of a command line that makes no sense. */
export const USAGE = 2;

/** Exit status after a Ctrl-C: 128 and the number of SIGINT, as shells have it. */
const CANCELLED = 130;

/** The command line makes no sense; the message says what is allowed. */
export class UsageError extends Error {}

/** The operator has called it off at a prompt. */
export class Cancelled extends Error {
  constructor() {
    super("cancelled");
  }
}

/** Why something failed, in one or more lines. */
export function explain(error: unknown): string {
  if (error instanceof ConfigurationError) return error.message;
  if (error instanceof Refusal && error.detail !== undefined) {
    return `${error.message} (${error.detail})`;
  }
  if (!(error instanceof Error)) return "unknown error";
  const isMissing = "code" in error && error.code === "ENOENT" && "path" in error;
  return isMissing ? `${error.path} does not exist` : error.message;
}

/** What every line about a failure begins with. */
export function failureLabel(): string {
  return styleText("red", "gatehouse:", { stream: process.stderr });
}

/** True if nothing but the command line's own options is wrong. */
function isAboutOptions(error: unknown): boolean {
  if (!(error instanceof ConfigurationError)) return false;
  return error.problems.every(({ source }) => source?.startsWith("--"));
}

function exitStatusOf(error: unknown): number {
  if (error instanceof Cancelled) return CANCELLED;
  return error instanceof UsageError || isAboutOptions(error) ? USAGE : FAILURE;
}

/** Prints why a command failed and sets the exit status. */
export function reportFailure(error: unknown): void {
  for (const line of explain(error).split("\n")) {
    process.stderr.write(`${failureLabel()} ${line}\n`);
  }
  process.exitCode = exitStatusOf(error);
}

/** Warns on standard error, in a sentence. */
export function warn(sentence: string): void {
  process.stderr.write(`warning: ${sentence}\n`);
}

/** Prints a line of a command's answer. */
export function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** Text from callers as one cell of a table: what could pass for other cells is quoted. */
export function plainly(text: string): string {
  return /[\p{C}\p{Z}"]/u.test(text)
    ? JSON.stringify(text).replace(
        /\p{Cf}/gu,
        (character) => `\\u{${character.codePointAt(0)?.toString(16)}}`,
      )
    : text;
}

/** Prints a table with a head, its columns as wide as they need to be. */
function printTable(head: readonly string[], rows: readonly (readonly string[])[]): void {
  // Not spread: a call takes only so many arguments.
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

/** Epoch seconds as people and scripts read them. */
export function momentOf(seconds: number): string {
  return new Date(seconds * 1000).toISOString();
}

/** The same for lists; null for a moment that never was, which is 0. */
export function momentOrNull(seconds: number): string | null {
  return seconds === 0 ? null : momentOf(seconds);
}

/** Prints a value for scripts. */
export function printJson(value: unknown): void {
  print(JSON.stringify(value, null, 2));
}

/** Prints a list for scripts, or as a table for people. */
export function printList<Item>(
  items: readonly Item[],
  { json }: { readonly json?: true },
  head: readonly string[],
  cellsOf: (item: Item) => readonly string[],
): void {
  if (json) printJson(items);
  else printTable(head, items.map(cellsOf));
}
