import { setPriority } from "node:os";
import {
  leaveSignalsToParent,
  messageCodec,
  type NoCalls,
  openParentChannel,
} from "../ipc/channel.ts";
import { deriveHere } from "./hash.ts";
import type { HashCalls } from "./hashing.ts";

/**
 * Gives queries precedence when cores are scarce: hashes then get about a tenth of a contended
 * core. The worker threads inherit this because they start later.
 */
const NICENESS = 10;

try {
  setPriority(NICENESS);
} catch {
  // Not every system allows this. The number of hashes is limited anyway.
}

leaveSignalsToParent();
openParentChannel<HashCalls, NoCalls, string>(
  {
    async derive(order) {
      try {
        return await deriveHere(order);
      } catch {
        // No details, because an error could quote the password.
        throw new Error("a hash failed");
      }
    },
  },
  messageCodec,
);

// Nothing needs to be finished or saved, however the gateway ended, so this does not wait for a
// hash.
process.once("disconnect", () => process.kill(process.pid, "SIGKILL"));
