import path from "node:path";
import { fileURLToPath } from "node:url";

const runsFromSources = import.meta.url.endsWith(".ts");

function inClone(): string {
  const command = fileURLToPath(new URL("../gatehouse", import.meta.url));
  try {
    if (process.cwd() === path.dirname(command)) return "./gatehouse";
  } catch {
    // The working directory is gone: whatever needs it says so.
  }
  return command;
}

/**
 * How this command is called from where it was called, for help and hints: in a clone, which runs
 * its sources, by a path; where it is installed, it is on the path of commands. Never by npm, which
 * outside a clone would fetch another package of that name.
 */
export const invocation = runsFromSources ? inClone() : "gatehouse";
