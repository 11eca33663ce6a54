/** Processes of Node that tests start, without what slows their starts down. */
import { fileURLToPath } from "node:url";

/** Where Node keeps compiled sources, so that the next process starts in half the time. */
const compiled = fileURLToPath(
  new URL("../../node_modules/.cache/gatehouse-tests", import.meta.url),
);

export interface NodeStart {
  readonly options?: string | undefined;
  /** A program with flags that runs it in its turn, such as `prlimit`. */
  readonly through?: readonly string[] | undefined;
}

/**
 * The command line of `node <flags>` without what the test runner would have each Node load first:
 * it would slow every start down, and write files of its own.
 *
 * @returns the program, and its flags
 */
export function nodeCommand(
  flags: readonly string[],
  { options, through = [] }: NodeStart = {},
): [program: string, flags: string[]] {
  const own = options === undefined ? ["-u", "NODE_OPTIONS"] : [`NODE_OPTIONS=${options}`];
  const settings = [...own, `NODE_COMPILE_CACHE=${compiled}`];
  return ["env", [...settings, ...through, process.execPath, ...flags]];
}
