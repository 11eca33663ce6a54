import { setFlagsFromString } from "node:v8";

/**
 * Ends what `bin/gatehouse.js` has set to keep memory small during the start. With the first requests the young generation
 * gets the room by which it is collected seldom, and what is old is marked beside them again.
 */
export function letMemoryGrow(): void {
  setFlagsFromString("--semi-space-growth-factor=8");
  setFlagsFromString("--incremental-marking");
}
