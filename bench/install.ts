import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import path from "node:path";

/**
 * Runs a program that downloads what a benchmark needs, and prints the command.
 *
 * @throws Error if it fails
 */
export function fetchBy(command: string, flags: readonly string[]): void {
  console.error(`+ ${[command, ...flags].join(" ")}`);
  const { status } = spawnSync(command, flags, { stdio: ["ignore", "ignore", "inherit"] });
  if (status !== 0) throw new Error(`${command} failed, so the benchmark cannot run`);
}

/** Installs the packages of a directory with its own lock file, unless they are installed. */
export function installPackages(directory: string): void {
  if (existsSync(path.join(directory, "node_modules"))) return;
  fetchBy("npm", ["ci", "--prefix", directory, "--no-audit", "--no-fund"]);
}
