import { openSync } from "node:fs";
import { Worker } from "node:worker_threads";
import { leaveSignalsToParent, openParentChannel } from "../../ipc/channel.ts";
import { siblingModule } from "../../ipc/child-program.ts";
import { Spool, type SpooledAnswer } from "../spool.ts";
import { Databases } from "./databases.ts";
import { executeQuery, executeSchema, executeSelect } from "./execute.ts";
import {
  type EngineCalls,
  type Task,
  type TaskFailure,
  taskErrors,
  type WorkerCalls,
} from "./protocol.ts";

/**
 * Program of a worker, which runs one task after another. Its argument is the directory of the
 * databases.
 */

/** The engine is notified each time this many bytes of streamed rows are added. */
const TELLING_STEP = 1024 * 1024;

const [directory] = process.argv.slice(2);
if (directory === undefined) throw new Error("A worker is started with a directory");

leaveSignalsToParent();
new Worker(siblingModule(import.meta.url, "watchdog")).unref();

const databases = new Databases(directory);

function run({ work, spoolPath }: Task): SpooledAnswer {
  const stream = work.kind === "rows" ? { form: work.form, onSpilled: spillTeller() } : undefined;
  const spool = new Spool(() => openSync(spoolPath, "wx", 0o600), stream);
  try {
    if (work.kind === "query") executeQuery(databases, work, spool, tellCommit);
    else if (work.kind === "rows") executeSelect(databases, work, spool);
    else executeSchema(databases, work.place, spool);
    return spool.finish();
  } finally {
    spool.close();
  }
}

/** Reports the first bytes in a task's file, and then every further `TELLING_STEP`. */
function spillTeller(): (byteLength: number) => void {
  let next = 0;
  return (byteLength) => {
    if (byteLength < next) return;
    next = byteLength + TELLING_STEP;
    // The engine may be gone.
    engine.ask("spilled", byteLength).catch(() => {});
  };
}

/** The message is delivered although the commit blocks this process from now on. */
function tellCommit(): void {
  engine.ask("committing", undefined).catch(() => {});
}

function forget(database: string): undefined {
  databases.forget(database);
}

const engine = openParentChannel<EngineCalls, WorkerCalls, TaskFailure>(
  { run, forget },
  taskErrors,
);

process.once("disconnect", () => {
  databases.close();
  process.exit();
});
