import { epochSeconds } from "../clock.ts";
import { runAtOnce, runCooperatively, type Steps, visitEach } from "../cooperative-scheduling.ts";
import { watchFile } from "../files/watch.ts";
import { Refusal } from "../refusal.ts";
import {
  addRevocations,
  missingSteps,
  type Revocation,
  readRevocations,
} from "./revocation-file.ts";
import type { TokenClaims } from "./token.ts";

/**
 * The revocations in force, wherever they are held: the revocations file is one such place. A
 * revocation is made when it is held for good and in force in every process of the gateway.
 */
export interface LiveRevocations {
  isRevoked(token: Pick<TokenClaims, "tokenId" | "username" | "issuedAt">): boolean;
  /** The least `iat`, in epoch seconds, that a token of this user may have. */
  earliestIssue(username: string): number;
  /** The same for every user that has a revocation; another map after each change. */
  readonly users: ReadonlyMap<string, number>;
  /** True while the file on disk is not what is in force. */
  readonly stale: boolean;
  /**
   * Revokes one token.
   *
   * @throws Refusal `revocation_failed`: then it is not revoked
   */
  revokeToken(token: Pick<TokenClaims, "tokenId" | "expiresAt">): Promise<void>;
  /**
   * Revokes every token that a user has by now, or those issued before a moment.
   *
   * @param before epoch seconds
   * @throws Refusal `revocation_failed`: then none is revoked
   */
  revokeUser(username: string, before?: number): Promise<void>;
  reload(): Promise<void>;
  close(): Promise<void>;
}

export interface RevocationOptions {
  /** Also refuse a file that others may read. */
  readonly checkRead: boolean;
  /** Told when the file cannot be used, or what it lacks cannot be written back. */
  readonly onFailure: (error: unknown) => void;
  /** Told how many revocations the file has lost, before they are written back. */
  readonly onLost: (count: number) => void;
  /** Has the other processes read what was just added; done once they have. */
  readonly tellOthers?: () => Promise<void>;
}

interface Index {
  readonly tokens: ReadonlySet<string>;
  readonly users: ReadonlyMap<string, number>;
}

function* indexSteps(revocations: readonly Revocation[]): Steps<Index> {
  const tokens = new Set<string>();
  const users = new Map<string, number>();
  yield* visitEach(revocations, (revocation) => {
    if ("jti" in revocation) tokens.add(revocation.jti);
    else {
      const { user, before } = revocation;
      users.set(user, Math.max(before, users.get(user) ?? 0));
    }
  });
  return { tokens, users };
}

/** What the revocations say, for whoever has no live ones. */
export function indexRevocations(
  revocations: readonly Revocation[],
): Pick<LiveRevocations, "isRevoked" | "earliestIssue"> {
  const index = runAtOnce(indexSteps(revocations));
  return {
    isRevoked: (token) => isRevokedBy(index, token),
    earliestIssue: (username) => index.users.get(username) ?? 0,
  };
}

function isRevokedBy(
  { tokens, users }: Index,
  { tokenId, username, issuedAt }: Parameters<LiveRevocations["isRevoked"]>[0],
): boolean {
  return tokens.has(tokenId) || issuedAt < (users.get(username) ?? 0);
}

/** The least `iat`, in epoch seconds, that a token of `username` may have. */
export function earliestIssue(revocations: readonly Revocation[], username: string): number {
  return runAtOnce(indexSteps(revocations)).users.get(username) ?? 0;
}

/**
 * A revocation of every token that `user` has by now, those of this very second among them.
 *
 * @param earliest the least `iat` so far, which tokens after an earlier revocation may have
 */
function revocationOfUser(user: string, earliest: number): Revocation {
  return { user, before: Math.max(epochSeconds(), earliest) + 1 };
}

/**
 * Adds revocations to the file; when this resolves they are on disk.
 *
 * @throws Refusal `revocation_failed`: then nothing was revoked
 */
export async function revoke(file: string, ...revocations: readonly Revocation[]): Promise<void> {
  try {
    await addRevocations(file, revocations);
  } catch (cause) {
    const detail = cause instanceof Error ? cause.message : "unknown";
    throw new Refusal("revocation_failed", { detail, cause });
  }
}

/**
 * Revokes in the file every token that a user has by now, for whoever has no live revocations.
 *
 * @throws Refusal `revocation_failed`
 */
export async function revokeTokensOf(file: string, username: string): Promise<void> {
  const known = await readRevocations(file, { checkRead: false }).catch((cause: unknown) => {
    throw new Refusal("revocation_failed", { detail: `${file} cannot be read`, cause });
  });
  await revoke(file, revocationOfUser(username, earliestIssue(known, username)));
}

/**
 * Loads the revocations and keeps them in step with the file. Whatever happens to the file later,
 * what was in force stays so: one that cannot be used changes nothing, and to one that holds less
 * than before, such as an older copy, what it lacks is written back.
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
  let reloading: Promise<void> = Promise.resolve();

  /** Puts in force what the file holds, besides what was in force. */
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
    } catch (error) {
      stale = true;
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
    isRevoked: (token) => isRevokedBy(index, token),
    get users() {
      return index.users;
    },
    earliestIssue: (username) => index.users.get(username) ?? 0,
    get stale() {
      return stale;
    },
    revokeToken: ({ tokenId, expiresAt }) => add({ jti: tokenId, until: expiresAt }),
    revokeUser: (user, before) =>
      add(
        before === undefined
          ? revocationOfUser(user, index.users.get(user) ?? 0)
          : { user, before },
      ),
    reload,
    async close() {
      await watch.close();
      await reloading;
    },
  };
}
