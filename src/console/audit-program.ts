/** A thread that asks the audit's files, so that requests are not kept waiting meanwhile. */
import { parentPort, workerData } from "node:worker_threads";
import { searchAudit } from "../observe/audit-search.ts";

parentPort?.postMessage(await searchAudit(workerData));
