import { createHash } from "node:crypto";
import { setImmediate } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import {
  runAtOnce,
  runCooperatively,
  type Steps,
  visitEach,
} from "../base/cooperative-scheduling.ts";
import { decodeUtf8, readGuardedBytes, UnsafeFileError } from "../base/files/guarded.ts";
import { siblingModule } from "../base/ipc.ts";
import { invocation } from "../base/product.ts";
import { Turns } from "../base/queues.ts";
import { lineLocator, parseToml, TomlSyntaxError } from "../base/toml.ts";
import type { Holder } from "./grant.ts";
import type { Change } from "./record-change.ts";
import {
  type AccessRecords,
  indexRecords,
  type RecordProblem,
  RecordsError,
  readRecords,
} from "./records.ts";
import { isKnownHolder, type Snapshot } from "./snapshot.ts";

/** A problem in the access file. Never quotes the file. */
export interface AccessProblem {
  /** From 1. Undefined for a problem of the whole file. */
  readonly line?: number | undefined;
  readonly reason: string;
}

export class AccessFileError extends Error {
  /** In the order of the file, at least one. */
  readonly problems: readonly AccessProblem[];

  constructor(file: string, problems: readonly AccessProblem[]) {
    const lines = problems.map(({ line, reason }) =>
      line === undefined ? `${file}: ${reason}` : `${file}:${line}: ${reason}`,
    );
    super(lines.join("\n"));
    this.name = "AccessFileError";
    this.problems = problems;
  }
}

/** The file is written in a form that cannot be edited line by line. */
export class UneditableError extends Error {}

const MAX_PROBLEMS = 50;

function locate(text: string, problems: readonly RecordProblem[]): readonly AccessProblem[] {
  const lineOf = lineLocator(text);
  const located = problems.slice(0, MAX_PROBLEMS).map(({ table, index, key, reason }) => {
    const path = index === -1 ? [] : [table, index];
    return { line: lineOf(key === undefined ? path : [...path, key]), reason };
  });
  located.sort((one, other) => (one.line ?? 0) - (other.line ?? 0));
  const more = problems.length - located.length;
  return more === 0 ? located : [...located, { reason: `and ${more} more problems` }];
}

/** Reads and checks the records of an access file. @throws AccessFileError with the lines */
export function checkRecords(bytes: Uint8Array, file: string): AccessRecords {
  let text = "";
  try {
    text = decodeUtf8(file, bytes);
    const problems: RecordProblem[] = [];
    const report = (problem: RecordProblem) => problems.push(problem);
    const read = readRecords(parseToml(text, file), report);
    const { users, groups, grants, boundaries } = read;
    if (problems.length === 0 && users.length === 0 && grants.length === 0) {
      const reason = "contains no user and no grant, so it may be truncated";
      throw new AccessFileError(file, [{ reason }]);
    }
    runAtOnce(indexRecords(read, "", report));
    if (problems.length > 0) throw new RecordsError(problems);
    return {
      users: users.filter((user) => user !== undefined),
      groups: groups.filter((group) => group !== undefined),
      grants: grants.filter((grant) => grant !== undefined),
      boundaries: boundaries.filter((boundary) => boundary !== undefined),
    };
  } catch (error) {
    if (error instanceof RecordsError) {
      throw new AccessFileError(file, locate(text, error.problems));
    }
    if (error instanceof TomlSyntaxError || error instanceof UnsafeFileError) {
      const { reason } = error;
      const line = error instanceof TomlSyntaxError ? error.line : undefined;
      throw new AccessFileError(file, [{ line, reason }]);
    }
    throw error;
  }
}

export interface FileWork {
  readonly bytes: Uint8Array;
  readonly file: string;
  readonly changes?: readonly Change[];
}

export type FileOutcome =
  | { readonly bytes: Uint8Array; readonly records: AccessRecords }
  | { readonly problems: readonly AccessProblem[] }
  | { readonly uneditable: string };

/** Up to this size, a file is read and edited at once, which takes at most some 20 ms. */
export const SMALL_BYTES = 64 * 1024;

/** The thread ends when it has had no work for this long. */
const IDLE_MS = 5000;
let thread: Worker | undefined;
let idle: NodeJS.Timeout | undefined;
const turns = new Turns();

function openThread(): Worker {
  const worker = new Worker(siblingModule(import.meta.url, "file-program"));
  const onEnd = () => {
    if (thread === worker) thread = undefined;
  };
  return worker.on("error", onEnd).on("exit", onEnd);
}

async function sendToThread(work: FileWork): Promise<FileOutcome> {
  clearTimeout(idle);
  thread ??= openThread();
  const worker = thread;
  const { promise, resolve, reject } = Promise.withResolvers<FileOutcome>();
  const onExit = () => reject(new Error("the thread that reads the access file has ended"));
  worker.once("message", resolve).once("error", reject).once("exit", onExit).ref();
  worker.postMessage(work);
  try {
    return await promise;
  } finally {
    worker.off("message", resolve).off("error", reject).off("exit", onExit).unref();
    idle = setTimeout(() => {
      thread = undefined;
      void worker.terminate();
    }, IDLE_MS).unref();
  }
}

/** @throws AccessFileError or UneditableError */
export async function workInThread(work: FileWork) {
  const outcome = await turns.run(() => sendToThread(work));
  // Receiving the records takes a while, so serve requests before the next step.
  await setImmediate();
  if ("problems" in outcome) throw new AccessFileError(work.file, outcome.problems);
  if ("uneditable" in outcome) throw new UneditableError(outcome.uneditable);
  return outcome;
}

export interface ParsedAccess {
  readonly bytes: Buffer;
  readonly records: AccessRecords;
  readonly snapshot: Snapshot;
}

export async function indexAccess(bytes: Buffer, records: AccessRecords): Promise<ParsedAccess> {
  return { bytes, records, snapshot: await runCooperatively(snapshotSteps(bytes, records)) };
}

function snapshotSteps(bytes: Buffer, records: AccessRecords): Steps<Snapshot> {
  const version = createHash("sha256").update(bytes).digest("hex").slice(0, 12);
  return indexRecords(records, version, (problem) => {
    throw new RecordsError([problem]);
  });
}

/** @throws AccessFileError */
export async function parseAccess(bytes: Buffer, file: string): Promise<ParsedAccess> {
  const { records } =
    bytes.length > SMALL_BYTES
      ? await workInThread({ bytes, file })
      : { records: checkRecords(bytes, file) };
  return indexAccess(bytes, records);
}

/** As `parseAccess`, at once. @throws AccessFileError */
export function parseAccessFile(text: string, file: string): Snapshot {
  const bytes = Buffer.from(text);
  return runAtOnce(snapshotSteps(bytes, checkRecords(bytes, file)));
}

export const MAX_ACCESS_FILE_BYTES = 16 * 1024 * 1024;
/** Follows "is" or "would be". */
export const TOO_LARGE = `larger than 16 MiB: import it into a store with \`${invocation} store import\``;

export interface ReadOptions {
  /** Also refuse a file that other users of the system can read. */
  readonly checkRead: boolean;
  /** The file is to be imported into the store, so it may be larger. */
  readonly isImport?: boolean;
}

/**
 * @throws UnsafeFileError if it is not a regular file, too large, or its permissions are too wide,
 * and the file system's error if it cannot be read
 */
function readAccessBytes(file: string, { checkRead, isImport }: ReadOptions) {
  const most = isImport
    ? { bytes: 256 * 1024 * 1024, reason: "is larger than 256 MiB" }
    : { bytes: MAX_ACCESS_FILE_BYTES, reason: `is ${TOO_LARGE}` };
  return readGuardedBytes(file, { checkRead, most });
}

/**
 * @param earlier an earlier reading, returned if nothing has changed
 * @param name the file's name in errors
 * @throws AccessFileError and as `readAccessBytes`
 */
export async function readAccessFile(
  file: string,
  options: ReadOptions,
  earlier?: ParsedAccess,
  name = file,
): Promise<ParsedAccess> {
  const bytes = await readAccessBytes(file, options);
  return earlier?.bytes.equals(bytes) ? earlier : parseAccess(bytes, name);
}

export function* holdersWithoutRecord(snapshot: Snapshot): Steps<Holder[]> {
  const holders: Holder[] = [];
  yield* visitEach(snapshot.grants.keys(), (holder) => {
    if (!isKnownHolder(snapshot, holder)) holders.push(holder);
  });
  return holders;
}
