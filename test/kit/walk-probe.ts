/**
 * Loaded into a gateway by `--import`. On SIGUSR2 it writes the source files whose functions ran
 * since the last signal to `$WALK_FILE`. The gateway does not use this signal.
 */
import { renameSync, writeFileSync } from "node:fs";
import { Session } from "node:inspector/promises";

const file = process.env.WALK_FILE ?? "";
const session = new Session();
session.connect();
await session.post("Profiler.enable");
await session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: false });

process.on("SIGUSR2", async () => {
  const { result } = await session.post("Profiler.takePreciseCoverage");
  const walked = result.filter(({ functions }) =>
    functions.some(
      ({ functionName, ranges: [range] }) =>
        // A module itself counts as a function without a name that begins at 0.
        range !== undefined && range.count > 0 && (functionName !== "" || range.startOffset > 0),
    ),
  );
  const sources = walked.flatMap(({ url }) => /\/src\/.*\.ts$/.exec(url)?.[0] ?? []);
  writeFileSync(`${file}.new`, JSON.stringify(sources));
  renameSync(`${file}.new`, file);
});
