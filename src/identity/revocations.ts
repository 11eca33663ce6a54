import type { TokenClaims } from "./token.ts";

/** The revocations at one moment. */
export interface Revocations {
  isRevoked(token: Pick<TokenClaims, "tokenId" | "username" | "issuedAt">): boolean;
  /** The least `iat`, in epoch seconds, that a token of this user may have. */
  earliestIssue(username: string): number;
}

/**
 * Revocations, wherever they are held for good: the revocations file is one such place
 * (`live-revocations.ts`), and what it looks like concerns nobody else.
 */
export interface RevocationStore {
  /** Those that are held now, and how many there are. */
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
  /** Reads now; resolves when what is held is in force or was refused. */
  reload(): Promise<void>;
  close(): Promise<void>;
}
