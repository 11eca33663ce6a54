import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { runAtOnce, type Steps } from "../cooperative-scheduling.ts";
import { permissionProblem } from "./permissions.ts";

/** A file that holds secrets or decides access may not be used as it is. */
export class UnsafeFileError extends Error {
  readonly file: string;
  readonly reason: string;

  constructor(file: string, reason: string) {
    super(`${file}: ${reason}`);
    this.name = "UnsafeFileError";
    this.file = file;
    this.reason = reason;
  }
}

/** Bytes that are decoded between two chances to interrupt. */
const DECODED_PER_STEP = 1 << 21;

/** The bytes as text, in steps. @throws UnsafeFileError if they are not UTF-8 */
export function* decodeSteps(file: string, bytes: Buffer): Steps<string> {
  // A byte-order mark stays, so that the text is the file's own to the last byte.
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  const parts: string[] = [];
  try {
    for (let at = 0; at < bytes.length; at += DECODED_PER_STEP) {
      parts.push(decoder.decode(bytes.subarray(at, at + DECODED_PER_STEP), { stream: true }));
      yield;
    }
    parts.push(decoder.decode());
  } catch {
    throw new UnsafeFileError(file, "is not valid UTF-8");
  }
  return parts.join("");
}

/** How a file is read. */
export interface GuardedOptions {
  /** Also refuse a file that others may read. */
  readonly checkRead: boolean;
  /** Refuse a larger one; whole MiB. */
  readonly maxBytes?: number;
}

/**
 * Reads a file that holds secrets or decides access, through one descriptor, so that what was
 * checked is what is read.
 *
 * @throws UnsafeFileError if it is no regular file, too large, or its permissions are too wide, and
 *   the error of the file system if it cannot be read
 */
export async function readGuardedBytes(file: string, options: GuardedOptions): Promise<Buffer> {
  const { checkRead, maxBytes = Number.POSITIVE_INFINITY } = options;
  // Without O_NONBLOCK, opening a FIFO in the file's place would hang for ever.
  const handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const stat = await handle.stat();
    if (!stat.isFile()) throw new UnsafeFileError(file, "is not a regular file");
    const problem = permissionProblem(file, stat, checkRead);
    if (problem !== undefined) {
      throw new UnsafeFileError(file, `${problem.reason}; mend it with: ${problem.remedy}`);
    }
    if (stat.size > maxBytes) {
      throw new UnsafeFileError(file, `is larger than ${maxBytes / 1024 / 1024} MiB`);
    }
    return await handle.readFile();
  } finally {
    await handle.close();
  }
}

/** Reads such a file as text. @throws UnsafeFileError also if it is not UTF-8 */
export async function readGuarded(file: string, options: GuardedOptions): Promise<string> {
  return runAtOnce(decodeSteps(file, await readGuardedBytes(file, options)));
}
