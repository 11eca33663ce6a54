/** A thread that brings the index of the audit's files up to date, and ends. */
import { stat } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { workerData } from "node:worker_threads";
import { auditFilesOf, isCompressed } from "../observe/audit-files.ts";
import { extendIndex, removeOldIndexes } from "../observe/audit-index.ts";

const file = String(workerData);
const files = (await auditFilesOf(file, 0)).filter((one) => !isCompressed(one));
const inodes = await Promise.all(files.map(async (one) => String((await stat(one)).ino)));
removeOldIndexes(file, new Set(inodes));
// Half of the time is others'.
for (const one of files) await extendIndex(file, one, (ms) => delay(ms));
