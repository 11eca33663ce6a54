/** The program of the process that hashes for the gateway. */

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
 * Queries go first when the cores are short: a core that both want goes to hashes for about a
 * tenth of the time. The threads that do the work inherit it, since they are started later.
 */
const NICENESS = 10;

try {
  setPriority(NICENESS);
} catch {
  // Where the system does not allow it, hashes are bounded in number all the same.
}

leaveSignalsToParent();
openParentChannel<HashCalls, NoCalls, string>(
  {
    async derive(order) {
      try {
        return await deriveHere(order);
      } catch {
        // What went wrong could quote what was asked; that it did is enough.
        throw new Error("a hash failed");
      }
    },
  },
  messageCodec,
);

// However the gateway ended, there is nothing to finish or to keep; a hash is not waited for.
process.once("disconnect", () => process.kill(process.pid, "SIGKILL"));
