import { existsSync } from "node:fs";
import { open } from "node:fs/promises";
import path from "node:path";
import * as z from "zod";
import { isExternalUsername, isUsername } from "../access/names.ts";
import { epochSeconds } from "../clock.ts";
import { replaceFile, syncDirectory } from "../files/atomic.ts";
import { readGuarded } from "../files/guarded.ts";
import { withLock } from "../files/lock.ts";
import { giveToDirectoryOwner } from "../files/ownership.ts";

/** Seconds for which the longest token lives: a revocation older than that has nothing to revoke. */
export const LONGEST_TOKEN_LIFETIME = 366 * 24 * 3600;

const seconds = z.int().nonnegative();
const username = z.string().refine((name) => isUsername(name) || isExternalUsername(name));
const tokenShape = z.strictObject({ jti: z.string().min(1).max(128), until: seconds });
const userShape = z.strictObject({ user: username, before: seconds });
const lineShape = z.union([tokenShape, userShape]);

/**
 * One line of the revocations file: a token until it expires, or every token of a user that was
 * issued before a moment. Times in epoch seconds.
 */
export type Revocation = z.infer<typeof lineShape>;

/** The revocations file cannot be used. */
export class RevocationFileError extends Error {
  readonly file: string;
  readonly line: number;

  constructor(file: string, line: number) {
    super(`${file}:${line}: is neither {"jti", "until"} nor {"user", "before"} as JSON`);
    this.name = "RevocationFileError";
    this.file = file;
    this.line = line;
  }
}

/** What the file holds, and whether its last line was cut off while it was written. */
interface Contents {
  readonly revocations: readonly Revocation[];
  readonly isTorn: boolean;
}

function parseLine(line: string): Revocation | undefined {
  try {
    return lineShape.safeParse(JSON.parse(line)).data;
  } catch {
    return undefined;
  }
}

function parseContents(text: string, file: string): Contents {
  const lines = text.split("\n");
  const unfinished = lines.pop() ?? "";
  const revocations = lines.flatMap((line, index) => {
    if (line.trim() === "") return [];
    const revocation = parseLine(line);
    if (revocation === undefined) throw new RevocationFileError(file, index + 1);
    return [revocation];
  });
  // A line without an end was never acknowledged, unless somebody wrote it by hand.
  const last = unfinished === "" ? undefined : parseLine(unfinished);
  const isTorn = unfinished !== "";
  return { revocations: last === undefined ? revocations : [...revocations, last], isTorn };
}

async function readContents(file: string, checkRead: boolean): Promise<Contents> {
  if (!existsSync(file)) return { revocations: [], isTorn: false };
  return parseContents(await readGuarded(file, { checkRead }), file);
}

/**
 * Reads the revocations; a file that does not exist holds none.
 *
 * @throws RevocationFileError, UnsafeFileError or the file system's error
 */
export async function readRevocations(
  file: string,
  options: { checkRead: boolean },
): Promise<readonly Revocation[]> {
  return (await readContents(file, options.checkRead)).revocations;
}

/** True once every token that the revocation is about has expired by itself. */
export function isPast(revocation: Revocation): boolean {
  const end = "jti" in revocation ? revocation.until : revocation.before + LONGEST_TOKEN_LIFETIME;
  return end < epochSeconds();
}

/** The revocation as the file holds it, by which two can be compared. */
export function toLine(revocation: Revocation): string {
  return `${JSON.stringify(revocation)}\n`;
}

async function append(file: string, revocation: Revocation): Promise<void> {
  const isNew = !existsSync(file);
  const handle = await open(file, "a", 0o600);
  try {
    if (isNew) await giveToDirectoryOwner(file);
    await handle.writeFile(toLine(revocation));
    await handle.sync();
  } finally {
    await handle.close();
  }
  if (isNew) await syncDirectory(path.dirname(file));
}

/**
 * Adds a revocation; when this resolves it is on disk. Past ones are pruned on occasion.
 *
 * @param lost what the file must hold besides, since it did before somebody took it away
 * @throws RevocationFileError, LockTimeoutError, LockRefusedError or the file system's error; then
 *   nothing was revoked
 */
export async function addRevocation(
  file: string,
  revocation: Revocation,
  lost: readonly Revocation[] = [],
): Promise<void> {
  await withLock(file, async () => {
    const { revocations, isTorn } = await readContents(file, false);
    const kept = revocations.filter((old) => !isPast(old));
    const isMostlyPast = kept.length < revocations.length / 2;
    if (isTorn || isMostlyPast || lost.length > 0) {
      const lines = new Set([...kept, ...lost, revocation].map(toLine));
      await replaceFile(file, [...lines].join(""));
      await giveToDirectoryOwner(file);
    } else await append(file, revocation);
  });
}
