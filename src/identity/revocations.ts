import { epochSeconds } from "../clock.ts";
import { type Steps, visitEach } from "../cooperative-scheduling.ts";
import type { TokenClaims } from "./token.ts";

/**
 * Revokes one token until it expires, or all tokens of a user issued before a moment. Times are
 * epoch seconds.
 */
export type Revocation =
  | { readonly jti: string; readonly until: number }
  | { readonly user: string; readonly before: number };

export const tokenIdPattern = /^[!-~]{1,128}$/;

export interface Revocations {
  isRevoked(token: Pick<TokenClaims, "tokenId" | "username" | "issuedAt">): boolean;
  /** The earliest valid `iat` of this user's tokens, in epoch seconds. */
  earliestIssue(username: string): number;
}

/** Storage of revocations, for example a file (`revocation-file.ts`). */
export interface RevocationStore {
  /**
   * @throws RevocationFileError, UnsafeFileError or the file system's error if it cannot be read
   */
  read(): Promise<Revocations & { readonly count: number }>;
  /** @throws Refusal `revocation_failed`. The token is not revoked then. */
  revokeToken(token: Pick<TokenClaims, "tokenId" | "expiresAt">): Promise<void>;
  /**
   * Revokes a user's tokens: all that exist now, or those issued before a moment.
   *
   * @param before epoch seconds
   * @throws Refusal `revocation_failed`. No token is revoked then.
   */
  revokeUser(username: string, before?: number): Promise<void>;
}

/**
 * The revocations in force. A new one resolves when it is stored and in force in every process of
 * the gateway.
 */
export interface LiveRevocations extends Revocations, Omit<RevocationStore, "read"> {
  /** Earliest valid issue time by user. Each change creates a new map. */
  readonly users: ReadonlyMap<string, number>;
  /** True while the stored revocations are not in force. */
  readonly stale: boolean;
  readonly failure?: string | undefined;
  /** Resolves when the stored revocations are in force or were refused. */
  reload(): Promise<void>;
  close(): Promise<void>;
}

export class RevocationIndex implements Revocations {
  readonly users = new Map<string, number>();
  readonly #tokens = new Set<string>();

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

export function* indexSteps(revocations: readonly Revocation[]): Steps<RevocationIndex> {
  const index = new RevocationIndex();
  yield* visitEach(revocations, (revocation) => index.add(revocation));
  return index;
}

/**
 * Revokes all of a user's tokens up to now. This includes tokens issued in this second, and those
 * issued after an earlier revocation.
 *
 * @param now epoch seconds
 */
export function revocationOfUser(
  known: Revocations,
  user: string,
  now: number = epochSeconds(),
): Revocation {
  return { user, before: Math.max(now, known.earliestIssue(user)) + 1 };
}
