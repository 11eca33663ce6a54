/** Starts Node processes quickly. */
import { fileURLToPath } from "node:url";

/** Node's compile cache, which halves the time of a start. */
const compiled = fileURLToPath(
  new URL("../../node_modules/.cache/gatehouse-tests", import.meta.url),
);

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
  return ["env", [...settings, ...through, process.execPath, ...flags]];
}
