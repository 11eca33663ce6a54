import type { Snapshot, User } from "../../access/snapshot.ts";
import { credentialOf } from "../../identity/authenticate.ts";
import type { Revocations } from "../../identity/revocations.ts";

/**
 * Sessions, codes, grants and refresh tokens name their user together with the credential that it
 * logged in with: once the password is another one, they name nobody any more.
 */
export interface Account {
  readonly username: string;
  readonly credential: string;
}

/** The account as a text; a colon stands neither in a credential nor in the name of an own user. */
export function accountIdOf({ username, credential }: Account): string {
  return `${username}:${credential}`;
}

/** Reads it back. */
export function parseAccountId(id: string): Account {
  const at = id.lastIndexOf(":");
  return { username: id.slice(0, at), credential: id.slice(at + 1) };
}

/** What makes something good for nothing any more: its name and when it was issued. */
interface Issued {
  readonly tokenId: string;
  /** Epoch seconds. */
  readonly issuedAt: number;
}

/** Where users are looked up. */
export interface AccountContext {
  readonly snapshot: () => Snapshot;
  readonly revocations: Revocations;
}

/**
 * The user behind an account, as the access file has it now; undefined if the user is gone or
 * disabled, has another password, or if everything issued at that time was revoked.
 */
export function findUser(
  { snapshot, revocations }: AccountContext,
  accountId: string,
  issued: Issued | undefined,
): User | undefined {
  const { username, credential } = parseAccountId(accountId);
  const user = snapshot().users.get(username);
  if (user === undefined || user.disabled || user.passwordHash === undefined) return undefined;
  if (credentialOf(user) !== credential) return undefined;
  if (issued === undefined) return user;
  const isDead = issued.issuedAt <= user.tokensValidAfter;
  return isDead || revocations.isRevoked({ username, ...issued }) ? undefined : user;
}
