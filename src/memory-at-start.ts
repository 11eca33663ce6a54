import { setFlagsFromString } from "node:v8";

/**
 * Reverts the settings by which `bin/gatehouse.js` keeps memory small during the start. From the
 * first requests on, the young generation is large enough to be collected rarely, and old objects
 * are marked concurrently again.
 */
export function letMemoryGrow(): void {
  setFlagsFromString("--semi-space-growth-factor=8");
  setFlagsFromString("--incremental-marking");
}
