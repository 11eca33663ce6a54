import { existsSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { tmpdir, userInfo } from "node:os";
import path from "node:path";

/**
 * A directory of this machine that takes long to make, and is made once for all tests and runs.
 *
 * @param name changes with what is put in, such as the version of a program
 * @param make fills a new directory; it may run in several processes at a time, of which one wins
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
