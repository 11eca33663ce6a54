/** The thread that reads and edits large access files. */
import { parentPort } from "node:worker_threads";
import { editAccess } from "./edit.ts";
import {
  AccessFileError,
  checkRecords,
  type FileOutcome,
  type FileWork,
  UneditableError,
} from "./parse.ts";
import type { AccessRecords } from "./records.ts";

/** The last content, because the next edit usually starts from it. */
let last: { readonly bytes: Uint8Array; readonly records: AccessRecords } | undefined;

function perform({ bytes, file, changes }: FileWork): FileOutcome {
  try {
    const isLast = last !== undefined && Buffer.compare(last.bytes, bytes) === 0;
    const records = last !== undefined && isLast ? last.records : checkRecords(bytes, file);
    last = changes === undefined ? { bytes, records } : editAccess(bytes, records, changes, file);
    return last;
  } catch (error) {
    if (error instanceof AccessFileError) return { problems: error.problems };
    if (error instanceof UneditableError) return { uneditable: error.message };
    throw error;
  }
}

parentPort?.on("message", (work: FileWork) => parentPort?.postMessage(perform(work)));
