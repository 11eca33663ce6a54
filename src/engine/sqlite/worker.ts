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
 * The program of a worker: it takes one task after the other and answers each. Its argument is
 * the directory of the databases.
 */

/** Bytes of streamed rows after which the engine is told how many there are. */
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

/** Tells of the first bytes in the file of a task, and then whenever a good many more are there. */
function spillTeller(): (byteLength: number) => void {
  let next = 0;
  return (byteLength) => {
    if (byteLength < next) return;
    next = byteLength + TELLING_STEP;
    // An engine that is gone needs to be told nothing.
    engine.ask("spilled", byteLength).catch(() => {});
  };
}

/** It arrives although this process is busy with the commit from now on. */
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
