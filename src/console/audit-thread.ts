import { Worker } from "node:worker_threads";
import { siblingModule } from "../ipc/child-program.ts";
import type { AuditAnswer, AuditQuestion } from "../observe/audit-search.ts";
import { Refusal } from "../refusal.ts";

/** Questions that are answered at one time. */
const MOST_QUESTIONS = 2;
/** Megabytes of objects that one may hold. */
const MOST_MEMORY = 128;

let asked = 0;

/**
 * Asks the audit's files in a thread of its own.
 *
 * @param signal gives it up
 * @throws Refusal `busy`, or the file system's error
 */
export async function askAudit(question: AuditQuestion, signal: AbortSignal): Promise<AuditAnswer> {
  if (asked >= MOST_QUESTIONS) throw new Refusal("busy", { retryAfter: 2 });
  asked += 1;
  const worker = new Worker(siblingModule(import.meta.url, "audit-program"), {
    workerData: question,
    resourceLimits: { maxOldGenerationSizeMb: MOST_MEMORY },
  });
  const giveUp = () => void worker.terminate();
  signal.addEventListener("abort", giveUp, { once: true });
  try {
    const { promise, resolve, reject } = Promise.withResolvers<AuditAnswer>();
    worker.once("message", resolve).once("error", reject);
    worker.once("exit", () => reject(new Refusal("busy", { retryAfter: 2 })));
    return await promise;
  } finally {
    asked -= 1;
    signal.removeEventListener("abort", giveUp);
    giveUp();
  }
}
