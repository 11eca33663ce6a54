import { readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const packageFile = new URL("../package.json", import.meta.url);
const described: Readonly<Record<string, unknown>> = JSON.parse(readFileSync(packageFile, "utf8"));

/** The version of this gateway. */
export const version = String(described.version);

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

/**
 * What the engine's `/healthz` says in its `Server` header (RFC 9110, section 10.2.4). By it the
 * gateway knows that the status is that of the database, and not that of one more HTTP server.
 */
export const engineName = "gatehouse-engine";

/** How the engine tells the gateway of the rows that a query has changed, and of those it answers. */
export const affectedHeader = "x-gatehouse-affected";
export const rowsHeader = "x-gatehouse-rows";
/** How the engine tells the gateway by which of the caller's limits it has denied a query: a code. */
export const deniedHeader = "x-gatehouse-denied";
