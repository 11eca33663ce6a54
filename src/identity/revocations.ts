import { existsSync } from "node:fs";
import { epochSeconds } from "../clock.ts";
import { watchFile } from "../files/watch.ts";
import { Refusal } from "../refusal.ts";
import { addRevocation, type Revocation, readRevocations } from "./revocation-file.ts";
import type { TokenClaims } from "./token.ts";

/** The revocations as they are in force, kept up to date with the disk. */
export interface LiveRevocations {
  isRevoked(token: TokenClaims): boolean;
  /** The least `iat`, in epoch seconds, that a token of this user may have. */
  earliestIssue(username: string): number;
  /** True while the file on disk is not what is in force. */
  readonly stale: boolean;
  /**
   * Revokes one token.
   *
   * @throws Refusal `revocation_failed`: then it is not revoked
   */
  revokeToken(token: Pick<TokenClaims, "tokenId" | "expiresAt">): Promise<void>;
  /**
   * Revokes every token that a user has by now.
   *
   * @throws Refusal `revocation_failed`: then none is revoked
   */
  revokeUser(username: string): Promise<void>;
  reload(): Promise<void>;
  close(): Promise<void>;
}

interface Index {
  readonly tokens: ReadonlySet<string>;
  readonly users: ReadonlyMap<string, number>;
}

function indexOf(revocations: readonly Revocation[]): Index {
  const tokens = new Set<string>();
  const users = new Map<string, number>();
  for (const revocation of revocations) {
    if ("jti" in revocation) tokens.add(revocation.jti);
    else {
      const { user, before } = revocation;
      users.set(user, Math.max(before, users.get(user) ?? 0));
    }
  }
  return { tokens, users };
}

/** The least `iat`, in epoch seconds, that a token of `username` may have. */
export function earliestIssue(revocations: readonly Revocation[], username: string): number {
  return indexOf(revocations).users.get(username) ?? 0;
}

/** A revocation of every token that `user` has by now, those of this very second among them. */
export function revocationOfUser(user: string): Revocation {
  return { user, before: epochSeconds() + 1 };
}

/**
 * Loads the revocations and keeps them in step with the file. Whatever happens to the file later,
 * the last good state stays in force.
 *
 * @throws RevocationFileError, UnsafeFileError or the file system's error if the first load fails
 */
export async function openRevocations(
  file: string,
  options: { checkRead: boolean; onFailure: (error: unknown) => void },
): Promise<LiveRevocations> {
  let index = indexOf(await readRevocations(file, options));
  let stale = false;
  let reloading: Promise<void> = Promise.resolve();

  async function reloadNow(): Promise<void> {
    try {
      const isGone = !existsSync(file) && index.tokens.size + index.users.size > 0;
      if (isGone) throw new Error(`${file}: is missing`);
      index = indexOf(await readRevocations(file, options));
      stale = false;
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
    try {
      await addRevocation(file, revocation);
    } catch (cause) {
      const detail = cause instanceof Error ? cause.message : "unknown";
      throw new Refusal("revocation_failed", { detail, cause });
    }
    await reload();
  }

  const watch = watchFile(file, reload);
  return {
    isRevoked({ tokenId, username, issuedAt }) {
      return index.tokens.has(tokenId) || issuedAt < (index.users.get(username) ?? 0);
    },
    earliestIssue: (username) => index.users.get(username) ?? 0,
    get stale() {
      return stale;
    },
    revokeToken: ({ tokenId, expiresAt }) => add({ jti: tokenId, until: expiresAt }),
    revokeUser: (username) => add(revocationOfUser(username)),
    reload,
    async close() {
      await watch.close();
      await reloading;
    },
  };
}
