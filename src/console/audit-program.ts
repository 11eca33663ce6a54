/** A thread that asks the audit's files, so that requests are not kept waiting meanwhile. */
import { parentPort, workerData } from "node:worker_threads";
import { searchAudit } from "../observe/audit-search.ts";
import { summarizeAudit } from "../observe/audit-summary.ts";

const answer = "hours" in workerData ? summarizeAudit(workerData) : searchAudit(workerData);
parentPort?.postMessage(await answer);
