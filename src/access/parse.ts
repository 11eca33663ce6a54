import { createHash } from "node:crypto";
import { runAtOnce, runCooperatively, type Steps, visitEach } from "../cooperative-scheduling.ts";
import { decodeSteps, holdsBytes, readGuardedBytes } from "../files/guarded.ts";
import { parseToml, TomlSyntaxError } from "../toml/values.ts";
import { type AccessProblem, locate } from "./diagnostics.ts";
import { isExternalUsername } from "./identifiers.ts";
import { type PlainFile, readPlain } from "./incremental-parse.ts";
import { type AccessRecords, type RecordProblem, RecordsError, readRecords } from "./records.ts";
import type { Snapshot } from "./snapshot.ts";
import { type AccessIndex, changeIndex, indexRecords } from "./snapshot-index.ts";

/** The access file cannot be used; says where and why, never with text from the file. */
export class AccessFileError extends Error {
  readonly file: string;
  /** All that is wrong, in the order of the file; at least one. */
  readonly problems: readonly AccessProblem[];

  constructor(file: string, problems: readonly AccessProblem[]) {
    const lines = problems.map(({ line, reason }) =>
      line === undefined ? `${file}: ${reason}` : `${file}:${line}: ${reason}`,
    );
    super(lines.join("\n"));
    this.name = "AccessFileError";
    this.file = file;
    this.problems = problems;
  }
}

/** An access file, read. */
export interface ParsedAccess {
  readonly bytes: Buffer;
  readonly records: AccessRecords;
  readonly snapshot: Snapshot;
  readonly index: AccessIndex;
  /** Present if the file is written plainly: what the next reading may use again. */
  readonly plain: PlainFile | undefined;
}

const HASHED_PER_STEP = 1 << 20;

/** SHA-256 of a file's content, in hexadecimal digits. */
function* digestSteps(bytes: Buffer): Steps<string> {
  const hash = createHash("sha256");
  for (let at = 0; at < bytes.length; at += HASHED_PER_STEP) {
    hash.update(bytes.subarray(at, at + HASHED_PER_STEP));
    yield;
  }
  return hash.digest("hex");
}

/** Digits of the digest that make the version: enough to tell two files apart. */
const VERSION_DIGITS = 12;

/**
 * Reads the access file in steps.
 *
 * @param earlier an earlier reading, so that only what has changed is parsed
 * @throws AccessFileError with the line, if anything in the text is not as it must be, or
 *   UnsafeFileError if the bytes are no text
 */
export function* parseSteps(
  bytes: Buffer,
  file: string,
  earlier?: ParsedAccess,
): Steps<ParsedAccess> {
  try {
    const plain = yield* readPlain(bytes, file, earlier?.plain);
    const problems: RecordProblem[] = [];
    const report = (problem: RecordProblem) => problems.push(problem);
    const read =
      plain?.records ??
      readRecords(parseToml(yield* decodeSteps(file, bytes), file).values, report);
    const { users, grants, boundaries } = read;
    if (problems.length === 0 && users.length === 0 && grants.length === 0) {
      const reason = "holds no user and no grant: taken as truncated";
      throw new AccessFileError(file, [{ reason }]);
    }
    const version = (yield* digestSteps(bytes)).slice(0, VERSION_DIGITS);
    const changed =
      earlier && plain?.changes
        ? yield* changeIndex(earlier.index, plain.changes, plain.records, version)
        : undefined;
    const index = changed ?? (yield* indexRecords(read, version, report));
    if (problems.length > 0) throw new RecordsError(problems);
    const records = plain?.records ?? {
      users: users.filter((user) => user !== undefined),
      grants: grants.filter((grant) => grant !== undefined),
      boundaries: boundaries.filter((boundary) => boundary !== undefined),
    };
    return { bytes, records, snapshot: index.snapshot, index, plain };
  } catch (error) {
    if (error instanceof TomlSyntaxError) {
      const { line, reason } = error;
      throw new AccessFileError(file, [{ line, reason }]);
    }
    if (!(error instanceof RecordsError)) throw error;
    const text = yield* decodeSteps(file, bytes);
    throw new AccessFileError(file, yield* locate(text, error.problems));
  }
}

/** Bytes that the access file may have: room for about a million users. */
export const MAX_ACCESS_FILE_BYTES = 256 * 1024 * 1024;

/** Which access files are read. */
export interface ReadOptions {
  /** Also refuse a file that others may read. */
  readonly checkRead: boolean;
}

/** True if the access file still is what was read. @throws as `readAccessFile`, but for its content */
export function isStill(
  file: string,
  { bytes }: ParsedAccess,
  { checkRead }: ReadOptions,
): Promise<boolean> {
  return holdsBytes(file, bytes, { checkRead, maxBytes: MAX_ACCESS_FILE_BYTES });
}

/**
 * Reads the access file in slices, between which requests are served.
 *
 * @param earlier an earlier reading, which is returned if nothing has changed
 * @param name how the file is called in errors
 * @throws AccessFileError, UnsafeFileError if it is no text, no regular file, too large, or its
 *   permissions are too wide, and the error of the file system if it cannot be read
 */
export async function readAccessFile(
  file: string,
  options: ReadOptions,
  earlier?: ParsedAccess,
  name = file,
): Promise<ParsedAccess> {
  if (earlier !== undefined && (await isStill(file, earlier, options))) return earlier;
  const { checkRead } = options;
  const bytes = await readGuardedBytes(file, { checkRead, maxBytes: MAX_ACCESS_FILE_BYTES });
  return runCooperatively(parseSteps(bytes, name, earlier));
}

/** Reads the access file's text as a snapshot. @throws AccessFileError */
export function parseAccessFile(text: string, file: string): Snapshot {
  return runAtOnce(parseSteps(Buffer.from(text), file)).snapshot;
}

/** The names that have entries but no record: allowed for external users, else worth a warning. */
export function* namesWithoutRecord(snapshot: Snapshot): Steps<string[]> {
  const names: string[] = [];
  yield* visitEach(snapshot.grants.keys(), (name) => {
    if (!snapshot.users.has(name) && !isExternalUsername(name)) names.push(name);
  });
  return names;
}
