import { readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const packageFile = new URL("../../../package.json", import.meta.url);
const described: Readonly<Record<string, unknown>> = JSON.parse(readFileSync(packageFile, "utf8"));

export const version = String(described.version);

const runsFromSources = import.meta.url.endsWith(".ts");

function inClone(): string {
  const command = fileURLToPath(new URL("../../../gatehouse", import.meta.url));
  try {
    if (process.cwd() === path.dirname(command)) return "./gatehouse";
  } catch {
    // The working directory no longer exists; code that needs it reports that.
  }
  return command;
}

/**
 * How to call this command from the current directory, for help and hints. A clone runs its sources
 * by path; an installed command is on $PATH. Never through npm, which outside a clone would fetch
 * another package of that name.
 */
export const invocation = runsFromSources ? inClone() : "gatehouse";
