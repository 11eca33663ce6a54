/** The thread that reads and edits large access files. */
import { parentPort, workerData } from "node:worker_threads";
import { editAccess } from "./edit.ts";
import {
  AccessFileError,
  type FileOutcome,
  type FileWork,
  readRecordsOf,
  UneditableError,
} from "./parse.ts";

function perform({ bytes, file, changes }: FileWork): FileOutcome {
  try {
    const records = readRecordsOf(bytes, file);
    return changes === undefined ? { records } : editAccess(bytes, records, changes, file);
  } catch (error) {
    if (error instanceof AccessFileError) return { problems: error.problems };
    if (error instanceof UneditableError) return { uneditable: error.message };
    throw error;
  }
}

parentPort?.postMessage(perform(workerData));
