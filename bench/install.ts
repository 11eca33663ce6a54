import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import path from "node:path";

/**
 * Runs a program that fetches what a benchmark needs, and shows how it is called.
 *
 * @throws Error if it fails
 */
export function fetchBy(command: string, flags: readonly string[]): void {
  console.error(`+ ${[command, ...flags].join(" ")}`);
  const { status } = spawnSync(command, flags, { stdio: ["ignore", "ignore", "inherit"] });
  if (status !== 0) throw new Error(`${command} failed; what the benchmark needs cannot be had`);
}

/** Installs the packages of a directory with a lock of its own, unless they are there. */
export function installPackages(directory: string): void {
  if (existsSync(path.join(directory, "node_modules"))) return;
  fetchBy("npm", ["ci", "--prefix", directory, "--no-audit", "--no-fund"]);
}
