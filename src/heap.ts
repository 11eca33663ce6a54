import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

/**
 * Gives back the memory that a start has taken and needs no more. While modules and rules are read, V8 makes the room for young
 * objects as large as it goes, and keeps it; only a collection of this kind, about 30 ms, takes it down, and it grows again with
 * what there is to do. What was compiled stays, so that the first requests find it.
 */
export function releaseStartMemory(): void {
  setFlagsFromString("--expose-gc");
  const collect: NodeJS.GCFunction = runInNewContext("gc");
  // Set back at once: compiled modules are kept for a process with the same flags alone.
  setFlagsFromString("--no-expose-gc");
  setFlagsFromString("--no-flush-bytecode");
  collect({ type: "major", execution: "sync", flavor: "last-resort" });
  setFlagsFromString("--flush-bytecode");
}
