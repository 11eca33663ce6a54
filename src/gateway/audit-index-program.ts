/** Worker thread that brings the index of the audit files up to date, then exits. */
import { stat } from "node:fs/promises";
import { constants, setPriority } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import { workerData } from "node:worker_threads";
import { extendIndex, removeOldIndexes } from "../observe/audit-index.ts";
import { auditFilesOf, isCompressed } from "../observe/audit-search.ts";

/** Idle time per unit of work. One twentieth of a CPU indexes a few thousand requests a second. */
const REST = 19;

const file = String(workerData);
const files = (await auditFilesOf(file, 0)).filter((one) => !isCompressed(one));
const inodes = await Promise.all(files.map(async (one) => String((await stat(one)).ino)));
removeOldIndexes(file, new Set(inodes));
// Queries take precedence. On Linux this sets the priority of this thread only.
setPriority(constants.priority.PRIORITY_LOW);
for (const one of files) await extendIndex(file, one, (ms) => delay(REST * ms));
