import { existsSync } from "node:fs";
import { open } from "node:fs/promises";
import path from "node:path";
import * as z from "zod";
import { isExternalUsername, isUsername } from "../access/roles.ts";
import { forgettableBefore, steadySeconds } from "../clock.ts";
import { LONGEST_TOKEN_SECONDS } from "../config/schema.ts";
import { runCooperatively, type Steps, visitEach } from "../cooperative-scheduling.ts";
import { replaceFile, syncDirectory } from "../files/atomic.ts";
import { decodeUtf8, giveToDirectoryOwner, readGuardedBytes } from "../files/guarded.ts";
import { withLock } from "../files/lock.ts";
import { watchFile } from "../files/watch.ts";
import { Refusal } from "../refusal.ts";
import {
  indexSteps,
  type LiveRevocations,
  type Revocation,
  type RevocationStore,
  type Revocations,
  revocationOfUser,
} from "./revocations.ts";

const seconds = z.int().nonnegative();
const username = z.string().refine((name) => isUsername(name) || isExternalUsername(name));
const tokenShape = z.strictObject({ jti: z.string().min(1).max(128), until: seconds });
const userShape = z.strictObject({ user: username, before: seconds });
export const lineShape = z.union([tokenShape, userShape]);

class RevocationFileError extends Error {
  readonly file: string;
  readonly line: number;

  constructor(file: string, line: number) {
    super(`${file}:${line}: is neither {"jti", "until"} nor {"user", "before"} as JSON`);
    this.name = "RevocationFileError";
    this.file = file;
    this.line = line;
  }
}

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

function* wholeLines(text: string): Generator<string, void, void> {
  let start = 0;
  for (let end = text.indexOf("\n"); end !== -1; end = text.indexOf("\n", start)) {
    yield text.slice(start, end);
    start = end + 1;
  }
}

function* contentsSteps(file: string, bytes: Buffer): Steps<Contents> {
  const text = decodeUtf8(file, bytes);
  const revocations: Revocation[] = [];
  yield* visitEach(wholeLines(text), (line, index) => {
    if (line.trim() === "") return;
    const revocation = parseLine(line);
    if (revocation === undefined) throw new RevocationFileError(file, index + 1);
    revocations.push(revocation);
  });
  // An incomplete line was never acknowledged, unless it was written by hand.
  const unfinished = text.slice(text.lastIndexOf("\n") + 1);
  const last = unfinished === "" ? undefined : parseLine(unfinished);
  if (last !== undefined) revocations.push(last);
  return { revocations, isTorn: unfinished !== "" };
}

async function readContents(file: string, checkRead: boolean): Promise<Contents> {
  if (!existsSync(file)) return { revocations: [], isTorn: false };
  return runCooperatively(contentsSteps(file, await readGuardedBytes(file, { checkRead })));
}

/**
 * Reads the revocations. A missing file holds none.
 *
 * @throws RevocationFileError, UnsafeFileError or the file system's error
 */
export async function readRevocations(
  file: string,
  options: { checkRead: boolean },
): Promise<readonly Revocation[]> {
  return (await readContents(file, options.checkRead)).revocations;
}

/** Epoch seconds at which every affected token has expired by itself. */
export function endOf(revocation: Revocation): number {
  return "jti" in revocation ? revocation.until : revocation.before + LONGEST_TOKEN_SECONDS;
}

/** The file's spelling, which also serves to compare revocations. */
function toLine(revocation: Revocation): string {
  return `${JSON.stringify(revocation)}\n`;
}

function* linesOf(revocations: Iterable<Revocation>): Steps<Set<string>> {
  const lines = new Set<string>();
  yield* visitEach(revocations, (revocation) => lines.add(toLine(revocation)));
  return lines;
}

/** Revocations of `some` that `others` lack and that still affect tokens. */
function* missingSteps(
  others: readonly Revocation[],
  some: readonly Revocation[],
): Steps<Revocation[]> {
  if (some.length === 0) return [];
  const held = yield* linesOf(others);
  const missing: Revocation[] = [];
  const now = steadySeconds();
  yield* visitEach(some, (revocation) => {
    if (endOf(revocation) >= now && !held.has(toLine(revocation))) missing.push(revocation);
  });
  return missing;
}

async function append(file: string, revocation: Revocation): Promise<void> {
  const isNew = !existsSync(file);
  const handle = await open(file, "a", 0o600);
  try {
    if (isNew) await giveToDirectoryOwner(file);
    const { size } = await handle.stat();
    try {
      await handle.writeFile(toLine(revocation));
      await handle.sync();
    } catch (error) {
      // A full disk may have kept a part of the line, which was not acknowledged.
      await handle.truncate(size);
      throw error;
    }
  } finally {
    await handle.close();
  }
  if (isNew) await syncDirectory(path.dirname(file));
}

/**
 * Adds revocations and syncs them to disk. Occasionally prunes those that have certainly ended, so
 * that a clock that jumps ahead loses none.
 *
 * @throws RevocationFileError, LockTimeoutError, LockRefusedError or the file system's error.
 * Nothing was revoked then.
 */
async function addRevocations(file: string, added: readonly Revocation[]): Promise<void> {
  await withLock(file, async () => {
    const { revocations, isTorn } = await readContents(file, false);
    const limit = forgettableBefore();
    const kept = revocations.filter((old) => endOf(old) >= limit);
    const isMostlyPast = kept.length < revocations.length / 2;
    const [only, ...others] = added;
    if (only !== undefined && others.length === 0 && !isTorn && !isMostlyPast) {
      await append(file, only);
      return;
    }
    const lines = await runCooperatively(linesOf([...kept, ...added]));
    await replaceFile(file, [...lines].join(""));
    await giveToDirectoryOwner(file);
  });
}

function failed(detail: string, cause: unknown): Refusal {
  return new Refusal("revocation_failed", { detail, cause });
}

/** @throws Refusal `revocation_failed`. Nothing was revoked then. */
async function revoke(file: string, ...revocations: readonly Revocation[]): Promise<void> {
  try {
    await addRevocations(file, revocations);
  } catch (cause) {
    throw failed(cause instanceof Error ? cause.message : "unknown", cause);
  }
}

/**
 * The revocations of a file without live updates, for example for a command.
 *
 * @param options.checkRead also refuse a file that others can read
 */
export function revocationsIn(file: string, options: { checkRead: boolean }): RevocationStore {
  async function read({ checkRead }: typeof options) {
    const revocations = await readRevocations(file, { checkRead });
    const index = await runCooperatively(indexSteps(revocations));
    return Object.assign(index, { count: revocations.length });
  }

  async function knownToChange(): Promise<Revocations> {
    try {
      return await read({ checkRead: false });
    } catch (cause) {
      throw failed(`${file} cannot be read`, cause);
    }
  }

  return {
    read: () => read(options),
    revokeToken: ({ tokenId, expiresAt }) => revoke(file, { jti: tokenId, until: expiresAt }),
    async revokeUser(user, before) {
      if (before !== undefined) return revoke(file, { user, before });
      return revoke(file, revocationOfUser(await knownToChange(), user));
    },
  };
}

interface RevocationOptions {
  readonly checkRead: boolean;
  readonly onFailure: (error: unknown) => void;
  /** Called with the number of revocations that the file has lost, before they are written back. */
  readonly onLost: (count: number) => void;
  /** Makes the other processes reload. Resolves when they have. */
  readonly tellOthers?: () => Promise<void>;
}

/**
 * Loads the revocations and reloads them when the file changes. Revocations in force stay in force
 * whatever happens to the file. An unusable file changes nothing. If a file lacks revocations, such
 * as an older copy, they are written back.
 *
 * @throws RevocationFileError, UnsafeFileError or the file system's error if the first load fails
 */
export async function openRevocations(
  file: string,
  options: RevocationOptions,
): Promise<LiveRevocations> {
  let inForce = await readRevocations(file, options);
  let index = await runCooperatively(indexSteps(inForce));
  let lost: readonly Revocation[] = [];
  let stale = false;
  let failure: string | undefined;
  let reloading: Promise<void> = Promise.resolve();

  /** Adds the file's content to what is in force. */
  async function join(): Promise<void> {
    watch.note();
    const read = await readRevocations(file, options);
    const missing = await runCooperatively(missingSteps(read, inForce));
    const all = [...missing, ...read];
    index = await runCooperatively(indexSteps(all));
    [inForce, lost] = [all, missing];
  }

  async function reloadNow(): Promise<void> {
    try {
      await join();
      if (lost.length > 0) {
        options.onLost(lost.length);
        await addRevocations(file, lost);
        await join();
      }
      stale = lost.length > 0;
      failure = undefined;
    } catch (error) {
      stale = true;
      failure = error instanceof Error ? error.message : "unknown";
      options.onFailure(error);
    }
  }

  function reload(): Promise<void> {
    reloading = reloading.then(reloadNow);
    return reloading;
  }

  async function add(revocation: Revocation): Promise<void> {
    await revoke(file, revocation, ...lost);
    await Promise.all([reload(), options.tellOthers?.()]);
  }

  const watch = watchFile(file, reload);
  return {
    isRevoked: (token) => index.isRevoked(token),
    earliestIssue: (username) => index.earliestIssue(username),
    get users() {
      return index.users;
    },
    get stale() {
      return stale;
    },
    get failure() {
      return failure;
    },
    revokeToken: ({ tokenId, expiresAt }) => add({ jti: tokenId, until: expiresAt }),
    revokeUser: (user, before) =>
      add(before === undefined ? revocationOfUser(index, user) : { user, before }),
    reload,
    async close() {
      await watch.close();
      await reloading;
    },
  };
}
