/** Worker thread that searches the audit files, so that requests do not wait for it. */
import { parentPort, workerData } from "node:worker_threads";
import { searchAudit } from "../../core/observe/audit-search.ts";
import { summarizeAudit } from "../../core/observe/audit-summary.ts";

const answer = "hours" in workerData ? summarizeAudit(workerData) : searchAudit(workerData);
parentPort?.postMessage(await answer);
