import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import path from "node:path";

/** The last line, where programs say what failed. */
function lastLine(text: string): string {
  return text.trim().split("\n").at(-1)?.slice(0, 200) ?? "";
}

/** In one line: the beginning of the message, and its end if it has several lines. */
export function reasonOf(error: unknown): string {
  const { message } = error instanceof Error ? error : new Error(String(error));
  const [first = "", ...more] = message.trim().split("\n");
  return more.length === 0 ? first : `${first.slice(0, 200)} ${lastLine(message)}`;
}

/**
 * Runs a program that downloads or builds what a benchmark needs, and prints the command.
 *
 * @throws Error with its last line if it fails
 */
export function fetchBy(command: string, flags: readonly string[], cwd?: string): void {
  console.error(`+ ${[command, ...flags].join(" ")}`);
  const stdio = ["ignore", "ignore", "pipe"] as const;
  const { status, stderr, error } = spawnSync(command, flags, { stdio: [...stdio], cwd });
  if (status === 0) return;
  throw new Error(`${command} failed: ${error?.message ?? lastLine(stderr.toString())}`);
}

/** Installs the packages of a directory with its own lock file, unless they are installed. */
export function installPackages(directory: string): void {
  if (existsSync(path.join(directory, "node_modules"))) return;
  fetchBy("npm", ["ci", "--prefix", directory, "--no-audit", "--no-fund"]);
}
