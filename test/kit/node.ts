/** Starts Node processes quickly. */
import { fileURLToPath } from "node:url";

/** Node's compile cache, which halves the time of a start. */
const compiled = fileURLToPath(
  new URL("../../node_modules/.cache/gatehouse-tests", import.meta.url),
);

/**
 * The flag that `bin/gatehouse.js` sets. Given at the start, it also chooses the place of the cache:
 * modules that were compiled without it, such as those of a test itself, would be refused there.
 */
const compiledAlike = ["--no-allocation-site-pretenuring"];

export interface NodeStart {
  readonly options?: string | undefined;
  /** A program with flags that runs it, such as `prlimit`. */
  readonly through?: readonly string[] | undefined;
}

/**
 * The command line of `node <flags>` without the modules that the test runner makes every Node load:
 * they slow the start down and write files.
 */
export function nodeCommand(
  flags: readonly string[],
  { options, through = [] }: NodeStart = {},
): [program: string, flags: string[]] {
  const own = options === undefined ? ["-u", "NODE_OPTIONS"] : [`NODE_OPTIONS=${options}`];
  const settings = [...own, `NODE_COMPILE_CACHE=${compiled}`];
  return ["env", [...settings, ...through, process.execPath, ...compiledAlike, ...flags]];
}
