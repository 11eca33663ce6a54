/** Worker thread that searches the audit files, so that requests do not wait for it. */
import { parentPort, workerData } from "node:worker_threads";
import { searchAsCsv } from "../../core/observe/audit-csv.ts";
import { searchAudit } from "../../core/observe/audit-search.ts";
import { summarizeAudit } from "./audit-summary.ts";

const programs = { search: searchAudit, csv: searchAsCsv, summary: summarizeAudit };
const { program, question }: { program: keyof typeof programs; question: never } = workerData;
parentPort?.postMessage(await programs[program](question));
