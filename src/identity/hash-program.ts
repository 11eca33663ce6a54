/** The program of the process that hashes for the gateway: an answer for each order it is sent. */

import { setPriority } from "node:os";
import { deriveHere } from "./hash.ts";
import type { BEAT, HashAnswer, NumberedOrder } from "./hash-process.ts";

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

// A signal to the whole group is for the gateway, which lets its logins finish.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => {});

async function answer({ id, order }: NumberedOrder): Promise<HashAnswer> {
  try {
    return { id, hash: await deriveHere(order) };
  } catch {
    // What went wrong could quote what was asked; that it did is enough.
    return { id, hash: undefined };
  }
}

process.on("message", async (message: NumberedOrder | typeof BEAT) => {
  const answered = typeof message === "string" ? message : await answer(message);
  if (process.connected) process.send?.(answered);
});

// However the gateway ended, there is nothing to finish or to keep; a hash is not waited for.
process.once("disconnect", () => process.kill(process.pid, "SIGKILL"));
