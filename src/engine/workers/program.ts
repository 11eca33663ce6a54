/**
 * The program of a worker: it takes one task after the other and answers each. Its argument is
 * the directory of the databases.
 */

import { openSync } from "node:fs";
import { Worker } from "node:worker_threads";
import { leaveSignalsToParent, type NoCalls, openParentChannel } from "../../ipc/channel.ts";
import { siblingModule } from "../../ipc/child-program.ts";
import { Spool, type SpooledAnswer } from "../spool.ts";
import { Databases } from "../sqlite/databases.ts";
import { executeQuery, executeSchema } from "../sqlite/execute.ts";
import { type EngineCalls, type Task, type TaskFailure, taskErrors } from "./protocol.ts";

const [directory] = process.argv.slice(2);
if (directory === undefined) throw new Error("A worker is started with a directory");

leaveSignalsToParent();
new Worker(siblingModule(import.meta.url, "watchdog")).unref();

const databases = new Databases(directory);

function run({ work, spoolPath }: Task): SpooledAnswer {
  const spool = new Spool(() => openSync(spoolPath, "wx", 0o600));
  try {
    if (work.kind === "query") executeQuery(databases, work, spool);
    else executeSchema(databases, work.place, spool);
    return spool.finish();
  } finally {
    spool.close();
  }
}

function forget(database: string): undefined {
  databases.forget(database);
}

openParentChannel<EngineCalls, NoCalls, TaskFailure>({ run, forget }, taskErrors);

process.once("disconnect", () => {
  databases.close();
  process.exit();
});
