import { epochSeconds } from "../clock.ts";
import { type Steps, visitEach } from "../cooperative-scheduling.ts";
import type { TokenClaims } from "./token.ts";

/**
 * What is held: a token until it expires, or every token of a user that was issued before a moment.
 * Times in epoch seconds.
 */
export type Revocation =
  | { readonly jti: string; readonly until: number }
  | { readonly user: string; readonly before: number };

/** A token's id: what a `jti` has to be to be one. */
export const tokenIdPattern = /^[!-~]{1,128}$/;

/** The revocations at one moment. */
export interface Revocations {
  isRevoked(token: Pick<TokenClaims, "tokenId" | "username" | "issuedAt">): boolean;
  /** The least `iat`, in epoch seconds, that a token of this user may have. */
  earliestIssue(username: string): number;
}

/**
 * Revocations, wherever they are held for good: the revocations file is one such place
 * (`revocation-file.ts`), and what it looks like concerns nobody else.
 */
export interface RevocationStore {
  /**
   * Those that are held now, and how many there are.
   *
   * @throws RevocationFileError, UnsafeFileError or the file system's error if they cannot be read
   */
  read(): Promise<Revocations & { readonly count: number }>;
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
}

/**
 * The revocations in force. Here a revocation is made when it is held for good and in force in
 * every process of the gateway.
 */
export interface LiveRevocations extends Revocations, Omit<RevocationStore, "read"> {
  /** The earliest issue of every user that has a revocation; another map after each change. */
  readonly users: ReadonlyMap<string, number>;
  /** True while what is held is not what is in force. */
  readonly stale: boolean;
  /** Why it is not, where that is known. */
  readonly failure?: string | undefined;
  /** Reads now; resolves when what is held is in force or was refused. */
  reload(): Promise<void>;
  close(): Promise<void>;
}

/** Revocations as they are looked up. */
export class RevocationIndex implements Revocations {
  readonly users = new Map<string, number>();
  readonly #tokens = new Set<string>();

  /** How many tokens and users have one. */
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

/** Indexes revocations. */
export function* indexSteps(revocations: readonly Revocation[]): Steps<RevocationIndex> {
  const index = new RevocationIndex();
  yield* visitEach(revocations, (revocation) => index.add(revocation));
  return index;
}

/**
 * A revocation of every token that `user` has by now, those of this very second, and those issued
 * after an earlier revocation, among them.
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
