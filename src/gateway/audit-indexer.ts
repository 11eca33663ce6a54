import { stat } from "node:fs/promises";
import { Worker } from "node:worker_threads";
import { siblingModule } from "../ipc/child-program.ts";
import { auditFilesOf, isCompressed } from "../observe/audit-files.ts";
import { BLOCK_BYTES } from "../observe/audit-index.ts";
import type { Log } from "../observe/log.ts";

/** Milliseconds between two looks at how far the files have grown. */
const LOOK_MS = 10_000;
/** Milliseconds after the start in which nothing is done. */
const FIRST_LOOK_MS = 1000;

/** Whole blocks of the files that can be indexed. */
async function countBlocks(file: string): Promise<number> {
  const files = (await auditFilesOf(file, 0)).filter((one) => !isCompressed(one));
  const sizes = await Promise.all(files.map(async (one) => (await stat(one)).size));
  return sizes.reduce((sum, size) => sum + Math.floor(size / BLOCK_BYTES), 0);
}

/**
 * Keeps the index of the audit's files up to date, in a thread that runs when there is another block.
 *
 * @returns what ends that
 */
export function keepAuditIndexed(file: string, log: Log): () => Promise<void> {
  let known = 0;
  let running: Worker | undefined;

  function fail(error: unknown): void {
    const reason = error instanceof Error ? error.message : "unknown";
    log.warn({ file, reason }, "the audit cannot be indexed: questions to it take longer");
  }

  async function look(): Promise<void> {
    const blocks = await countBlocks(file);
    if (running !== undefined || blocks === known) return;
    known = blocks;
    if (blocks === 0) return;
    running = new Worker(siblingModule(import.meta.url, "audit-index-program"), {
      workerData: file,
    });
    running.once("error", fail).once("exit", () => (running = undefined));
    running.unref();
  }

  const lookAgain = () => void look().catch(fail);
  const first = setTimeout(lookAgain, FIRST_LOOK_MS).unref();
  const timer = setInterval(lookAgain, LOOK_MS).unref();
  return async () => {
    clearTimeout(first);
    clearInterval(timer);
    await running?.terminate();
  };
}
