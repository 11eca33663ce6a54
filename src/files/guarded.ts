import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
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
 * Opens a file that holds secrets or decides access, so that what was checked is what is read.
 *
 * @throws UnsafeFileError if it is no regular file, too large, or its permissions are too wide, and
 *   the error of the file system if it cannot be read
 */
async function openGuarded(
  file: string,
  { checkRead, maxBytes = Number.POSITIVE_INFINITY }: GuardedOptions,
): Promise<{ handle: FileHandle; size: number }> {
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
    return { handle, size: stat.size };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** Reads a file that holds secrets or decides access, whole. @throws what opening it does */
export async function readGuardedBytes(file: string, options: GuardedOptions): Promise<Buffer> {
  const { handle } = await openGuarded(file, options);
  await using _ = handle;
  return await handle.readFile();
}

/** Bytes that are compared at a time. */
const COMPARED = 1 << 20;

/**
 * True if such a file holds `bytes` and nothing else. It is read in pieces into one buffer, so that asking takes no memory.
 *
 * @throws what opening it does
 */
export async function holdsBytes(
  file: string,
  bytes: Buffer,
  options: GuardedOptions,
): Promise<boolean> {
  const { handle, size } = await openGuarded(file, options);
  await using _ = handle;
  if (size !== bytes.length) return false;
  const piece = Buffer.allocUnsafe(Math.min(COMPARED, size + 1));
  for (let at = 0; ; ) {
    const { bytesRead } = await handle.read(piece, 0, piece.length, at);
    if (bytesRead === 0) return at === size;
    if (!piece.subarray(0, bytesRead).equals(bytes.subarray(at, at + bytesRead))) return false;
    at += bytesRead;
  }
}

/** Reads such a file as text. @throws UnsafeFileError also if it is not UTF-8 */
export async function readGuarded(file: string, options: GuardedOptions): Promise<string> {
  return runAtOnce(decodeSteps(file, await readGuardedBytes(file, options)));
}
