import { setPriority } from "node:os";
import {
  leaveSignalsToParent,
  messageCodec,
  type NoCalls,
  openParentChannel,
} from "../base/ipc.ts";
import { deriveHere } from "./hash.ts";
import type { HashCalls } from "./hashing.ts";

/** Hashes get about a tenth of a contended core. Threads that start later inherit this. */
const NICENESS = 10;

try {
  setPriority(NICENESS);
} catch {
  // Not every system allows this.
}

leaveSignalsToParent();
openParentChannel<HashCalls, NoCalls, string>(
  {
    async derive(order) {
      try {
        return await deriveHere(order);
      } catch {
        // Without details, which could quote the password.
        throw new Error("a hash failed");
      }
    },
  },
  messageCodec,
);

// There is nothing to save, so this does not wait for a hash.
process.once("disconnect", () => process.kill(process.pid, "SIGKILL"));
