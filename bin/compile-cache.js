import { existsSync, mkdirSync, statSync } from "node:fs";
import { enableCompileCache } from "node:module";
import { homedir } from "node:os";
import path from "node:path";

/** Makes a directory unless it is there. @returns true if nobody else can put anything into it */
function isOwn(directory) {
  if (!existsSync(directory)) mkdirSync(directory, 0o700);
  const { uid, mode } = statSync(directory);
  return uid === process.getuid?.() && (mode & 0o022) === 0;
}

/**
 * Keeps compiled modules for the next start, which then takes half as long, and for the processes that this one starts. What
 * lies there is run: a directory that others may write is not used, nor one that cannot be made.
 */
export function keepCompiledModules({ env } = process) {
  if (env.NODE_COMPILE_CACHE !== undefined) return;
  const base = env.XDG_CACHE_HOME || path.join(homedir(), ".cache");
  const directory = path.join(base, "gatehouse");
  try {
    if (!isOwn(base) || !isOwn(directory)) return;
  } catch {
    return;
  }
  enableCompileCache(directory);
  env.NODE_COMPILE_CACHE = directory;
}
