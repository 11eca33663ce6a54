import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { tmpdir, userInfo } from "node:os";
import path from "node:path";
import { promisify } from "node:util";

/**
 * Makes a directory for temporary files once for all tests and runs, since making it takes long.
 *
 * @param name identifies its content, such as the version of a program
 * @param make fills a new directory; if several processes do, the first one wins
 */
export async function preparedDirectory(
  name: string,
  make: (directory: string) => Promise<unknown>,
): Promise<string> {
  const directory = path.join(tmpdir(), `gatehouse-${name}-${userInfo().uid}`);
  if (existsSync(directory)) return directory;
  const own = mkdtempSync(`${directory}-`);
  try {
    await make(own);
    renameSync(own, directory);
  } catch (error) {
    rmSync(own, { recursive: true });
    // Another process was faster.
    if (!existsSync(directory)) throw error;
  }
  return directory;
}

/** Copies a directory with owners and modes, and shares its blocks where the file system can. */
export async function copyDirectory(from: string, to: string): Promise<void> {
  await promisify(execFile)("cp", ["-a", "--reflink=auto", from, to]);
}
