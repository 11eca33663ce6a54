import * as z from "zod";
import { isAnyUsername } from "../access/roles.ts";
import { errorMessage } from "../base/client-error.ts";
import { epochSeconds, forgettableBefore, steadySeconds } from "../base/clock.ts";
import { runCooperatively, visitEach } from "../base/cooperative-scheduling.ts";
import {
  appendWhole,
  decodeUtf8,
  isThere,
  parseLine,
  readGuardedBytes,
  replaceFile,
  UnsafeFileError,
} from "../base/files/guarded.ts";
import { withLock } from "../base/files/lock.ts";
import { followFiles } from "../base/files/watch.ts";
import { Turns } from "../base/queues.ts";
import { Refusal } from "../base/refusal.ts";
import { LONGEST_TOKEN_SECONDS } from "../config/schema.ts";
import type { TokenClaims } from "./token.ts";

/** One token until it expires, or all tokens of a user before a moment, in epoch seconds. */
export type Revocation =
  | { readonly jti: string; readonly until: number }
  | { readonly user: string; readonly before: number };

/** None of the ids under which sign-ins and sessions of providers are revoked. */
export const tokenIdPattern = /^(?!session:|sign-in:)[!-~]{1,128}$/;

export interface Revocations {
  isRevoked(token: Pick<TokenClaims, "tokenId" | "username" | "issuedAt">): boolean;
  /** The earliest valid `iat` of this user's tokens. */
  earliestIssue(username: string): number;
}

/** Tells a user from an earlier one of the same name, whose tokens were all revoked. */
export function accountOf(revocations: Pick<Revocations, "earliestIssue">, name: string): string {
  const earliest = revocations.earliestIssue(name);
  // Names of issuers' users may have spaces, but none before the colon.
  return earliest === 0 ? name : `${earliest} ${name}`;
}

/** Storage of revocations, for example a file (`revocationsIn`). */
export interface RevocationStore {
  /** @throws UnsafeFileError or the file system's error */
  read(): Promise<Revocations & { readonly count: number }>;
  /** @throws Refusal `revocation_failed`. Nothing is revoked then. */
  revoke(revocation: Revocation): Promise<void>;
  /**
   * Revokes all tokens of a user that exist now.
   *
   * @param latestIssue when they were issued at the latest, if it is still to come
   * @throws Refusal `revocation_failed`. No token is revoked then.
   */
  revokeUser(username: string, latestIssue?: number): Promise<void>;
}

/** A new revocation resolves when it is in force in every process of the gateway. */
export interface LiveRevocations extends Revocations, Omit<RevocationStore, "read"> {
  /** Earliest valid issue time by user. Each change creates a new map. */
  readonly users: ReadonlyMap<string, number>;
  readonly stale: boolean;
  readonly failure?: string | undefined;
  /** Resolves when the stored revocations are in force or were refused. */
  reload(): Promise<void>;
  close(): Promise<void>;
}

export class RevocationIndex implements Revocations {
  readonly users = new Map<string, number>();
  readonly #tokens = new Set<string>();

  constructor(revocations: Iterable<Revocation> = []) {
    for (const revocation of revocations) this.add(revocation);
  }

  get size(): number {
    return this.#tokens.size + this.users.size;
  }

  add(revocation: Revocation): void {
    if ("jti" in revocation) this.#tokens.add(revocation.jti);
    else {
      const { user, before } = revocation;
      this.users.set(user, Math.max(before, this.earliestIssue(user)));
    }
  }

  isRevoked({ tokenId, username, issuedAt }: Parameters<Revocations["isRevoked"]>[0]): boolean {
    return this.#tokens.has(tokenId) || issuedAt < this.earliestIssue(username);
  }

  earliestIssue(username: string): number {
    return this.users.get(username) ?? 0;
  }
}

/** Includes tokens issued in this second, and those issued after an earlier revocation. */
export function revocationOfUser(
  known: Pick<Revocations, "earliestIssue">,
  user: string,
  latestIssue = 0,
  now: number = epochSeconds(),
): Revocation {
  return { user, before: Math.max(now, latestIssue, known.earliestIssue(user)) + 1 };
}

const seconds = z.int().nonnegative();
const username = z.string().refine(isAnyUsername);
const tokenShape = z.strictObject({ jti: z.string().min(1).max(128), until: seconds });
const userShape = z.strictObject({ user: username, before: seconds });
export const lineShape = z.union([tokenShape, userShape]);

const lineForm = 'must be JSON of the form {"jti", "until"} or {"user", "before"}';

/** Also the key by which revocations are compared. */
function toLine(revocation: Revocation): string {
  return `${JSON.stringify(revocation)}\n`;
}

function* contentsSteps(file: string, bytes: Buffer) {
  const lines = decodeUtf8(file, bytes).split("\n");
  const unfinished = lines.pop() ?? "";
  /** By line. */
  const revocations = new Map<string, Revocation>();
  yield* visitEach(lines, (line, index) => {
    if (line.trim() === "") return;
    const revocation = parseLine(lineShape, line);
    if (revocation === undefined) throw new UnsafeFileError(`${file}:${index + 1}`, lineForm);
    revocations.set(toLine(revocation), revocation);
  });
  // An incomplete line was not acknowledged, but a complete one may lack its newline.
  const last = parseLine(lineShape, unfinished);
  if (last !== undefined) revocations.set(toLine(last), last);
  return { revocations, isTorn: unfinished !== "" };
}

async function readContents(file: string, checkRead: boolean) {
  if (!isThere(file)) return { revocations: new Map<string, Revocation>(), isTorn: false };
  return runCooperatively(contentsSteps(file, await readGuardedBytes(file, { checkRead })));
}

/** @throws UnsafeFileError or the file system's error */
export async function readRevocations(
  file: string,
  { checkRead }: { checkRead: boolean },
): Promise<readonly Revocation[]> {
  return [...(await readContents(file, checkRead)).revocations.values()];
}

/** Epoch seconds at which every affected token has expired. */
export function revocationEnd(revocation: Revocation): number {
  return "jti" in revocation ? revocation.until : revocation.before + LONGEST_TOKEN_SECONDS;
}

/** Joins the revocations in force with those in the file. */
function* joinSteps(
  current: ReadonlyMap<string, Revocation>,
  read: ReadonlyMap<string, Revocation>,
) {
  const now = steadySeconds();
  const inForce = new Map<string, Revocation>();
  const index = new RevocationIndex();
  /** In force, but missing in the file. */
  const lost: Revocation[] = [];
  const take = ([line, revocation]: readonly [string, Revocation]) => {
    inForce.set(line, revocation);
    index.add(revocation);
  };
  yield* visitEach(current, (one) => {
    const [line, revocation] = one;
    if (read.has(line) || revocationEnd(revocation) < now) return;
    take(one);
    lost.push(revocation);
  });
  yield* visitEach(read, take);
  return { inForce, index, lost };
}

/** Chooses what to add, by what the file has while it is locked. */
type Choose = (written: Pick<Revocations, "earliestIssue">) => readonly Revocation[];

/** Syncs to disk. Deletes only revocations that have ended even if the clock is wrong. */
async function addRevocations(file: string, checkRead: boolean, choose: Choose): Promise<void> {
  await withLock(file, async () => {
    const { revocations, isTorn } = await readContents(file, checkRead);
    const limit = forgettableBefore();
    const kept = [...revocations].flatMap(([line, old]) =>
      revocationEnd(old) >= limit ? line : [],
    );
    const isMostlyExpired = kept.length < revocations.size / 2;
    const added = choose(new RevocationIndex(revocations.values()));
    const [first, ...others] = added;
    if (first !== undefined && others.length === 0 && !isTorn && !isMostlyExpired) {
      await appendWhole(file, toLine(first));
      return;
    }
    await replaceFile(file, [...new Set([...kept, ...added.map(toLine)])].join(""));
  });
}

/** @throws Refusal `revocation_failed` */
async function revoke(file: string, checkRead: boolean, choose: Choose): Promise<void> {
  try {
    await addRevocations(file, checkRead, choose);
  } catch (cause) {
    throw new Refusal("revocation_failed", { detail: errorMessage(cause), cause });
  }
}

/** @param options.checkRead also refuse a file that others can read */
export function revocationsIn(
  file: string,
  { checkRead }: { checkRead: boolean },
): RevocationStore {
  return {
    async read() {
      const revocations = await readRevocations(file, { checkRead });
      return Object.assign(new RevocationIndex(revocations), { count: revocations.length });
    },
    revoke: (revocation) => revoke(file, checkRead, () => [revocation]),
    revokeUser: (user, latestIssue) =>
      revoke(file, checkRead, (written) => [revocationOfUser(written, user, latestIssue)]),
  };
}

/** Pause between attempts to write back what the file lacks. */
const RETRY_MS = 2000;

/**
 * Reloads when the file changes. Revocations stay in force whatever happens to the file, and are
 * written back if the file loses them.
 *
 * @param options.onLost called with the number of revocations that are missing in the file
 * @param options.broadcastReload resolves when the other workers have reloaded
 * @throws UnsafeFileError or the file system's error if the first load fails
 */
export async function openRevocations(
  file: string,
  options: {
    readonly checkRead: boolean;
    readonly onFailure: (error: unknown) => void;
    readonly onLost: (count: number) => void;
    readonly broadcastReload?: () => Promise<void>;
  },
): Promise<LiveRevocations> {
  const { checkRead, onFailure, onLost, broadcastReload } = options;
  let inForce: ReadonlyMap<string, Revocation> = (await readContents(file, checkRead)).revocations;
  let index = new RevocationIndex(inForce.values());
  let lost: readonly Revocation[] = [];
  let stale = false;
  let failure: string | undefined;
  let retry: NodeJS.Timeout | undefined;

  async function readAndJoin(): Promise<void> {
    following.note();
    const { revocations } = await readContents(file, checkRead);
    ({ inForce, index, lost } = await runCooperatively(joinSteps(inForce, revocations)));
  }

  async function load(): Promise<void> {
    clearTimeout(retry);
    const known = lost.length;
    await readAndJoin();
    if (lost.length > 0) {
      if (lost.length > known) onLost(lost.length);
      await addRevocations(file, checkRead, () => lost);
      await readAndJoin();
    }
    stale = lost.length > 0;
    failure = undefined;
  }

  async function addNow(chosen: readonly Choose[]): Promise<void> {
    await revoke(file, checkRead, (written) => [
      ...chosen.flatMap((choose) => choose(written)),
      ...lost,
    ]);
    await Promise.all([following.reload(), broadcastReload?.()]);
  }

  const turns = new Turns();
  let next: { readonly chosen: Choose[]; readonly added: Promise<void> } | undefined;

  /** Those that arrive during a write are written together: a removal of thousands of users is one. */
  function add(choose: Choose): Promise<void> {
    if (next === undefined) {
      const chosen: Choose[] = [];
      const added = turns.run(() => {
        next = undefined;
        return addNow(chosen);
      });
      next = { chosen, added };
    }
    next.chosen.push(choose);
    return next.added;
  }

  const following = followFiles([file], load, (error) => {
    stale = true;
    const isKnown = errorMessage(error) === failure;
    failure = errorMessage(error);
    if (!isKnown) onFailure(error);
    // No file changes when a full disk has room again.
    if (lost.length > 0) retry = setTimeout(following.reload, RETRY_MS).unref();
  });
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
    revoke: (revocation) => add(() => [revocation]),
    revokeUser: (user, latestIssue) =>
      add((written) => {
        // Another process may just have revoked and issued tokens, and the file may have lost some.
        const earliestIssue = (name: string) =>
          Math.max(written.earliestIssue(name), index.earliestIssue(name));
        return [revocationOfUser({ earliestIssue }, user, latestIssue)];
      }),
    reload: following.reload,
    async close() {
      await following.close();
      clearTimeout(retry);
    },
  };
}
