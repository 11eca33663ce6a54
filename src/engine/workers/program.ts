/**
 * The program of a worker: it takes one task after the other and answers each. Its argument is
 * the directory of the databases.
 */

import { openSync } from "node:fs";
import { Worker } from "node:worker_threads";
import { EngineRefusal } from "../refusal.ts";
import { Spool } from "../spool.ts";
import { Databases } from "../sqlite/databases.ts";
import { executeQuery, executeSchema } from "../sqlite/execute.ts";
import { siblingModule } from "./modules.ts";
import type { Order, Outcome, Task } from "./protocol.ts";

const [directory] = process.argv.slice(2);
if (directory === undefined) throw new Error("A worker is started with a directory");

// A signal to the whole group is for the engine, which lets its workers finish.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => {});
new Worker(siblingModule(import.meta.url, "watchdog")).unref();

const databases = new Databases(directory);

function answer({ work, spoolPath }: Task): Outcome {
  const spool = new Spool(() => openSync(spoolPath, "wx", 0o600));
  try {
    if (work.kind === "query") executeQuery(databases, Buffer.from(work.body), spool);
    else executeSchema(databases, work.place, spool);
    return { kind: "done", answer: spool.finish() };
  } catch (error) {
    if (!(error instanceof EngineRefusal)) return { kind: "failed", error };
    return { kind: "refused", code: error.code, message: error.message };
  } finally {
    spool.close();
  }
}

process.on("message", (order: Order) => {
  if (order.kind === "forget") databases.forget(order.database);
  else process.send?.(answer(order));
});

process.once("disconnect", () => {
  databases.close();
  process.exit();
});
