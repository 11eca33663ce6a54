import { hash } from "node:crypto";
import { parsePasswordHash } from "../access/password-hash.ts";
import type { Snapshot, User } from "../access/snapshot.ts";
import { Refusal } from "../refusal.ts";
import type { Revocations } from "./revocations.ts";
import type { TokenAuthority, TokenClaims } from "./token.ts";

const FINGERPRINT_BYTES = 8;
const credentials = new WeakMap<User, string>();

/** A fingerprint of the salt. It changes with every new password and reveals nothing about it. */
export function saltFingerprint(passwordHash: string): string | undefined {
  const salt = parsePasswordHash(passwordHash)?.salt;
  if (salt === undefined) return undefined;
  return hash("sha256", salt, "buffer").subarray(0, FINGERPRINT_BYTES).toString("base64url");
}

/** The `cred` claim of valid tokens. It changes with the password, and is empty without one. */
export function credentialOf(user: User): string {
  const { passwordHash = "" } = user;
  const credential = credentials.get(user) ?? saltFingerprint(passwordHash) ?? "";
  credentials.set(user, credential);
  return credential;
}

/** The earliest issue time, in epoch seconds, of tokens that are still valid for this user. */
export function earliestIssue(
  revocations: Pick<Revocations, "earliestIssue">,
  { username, tokensValidAfter }: User,
): number {
  return Math.max(tokensValidAfter + 1, revocations.earliestIssue(username));
}

export interface Caller {
  readonly user: User;
  readonly token: TokenClaims;
}

/** RFC 6750, section 2.1. @throws Refusal `unauthenticated`, `token_invalid` */
export function readBearerToken(header: string | undefined): string {
  if (header === undefined) throw new Refusal("unauthenticated");
  const match = /^bearer +([A-Za-z0-9._~+/-]+=*)$/i.exec(header);
  if (match?.[1] === undefined) throw new Refusal("token_invalid", { detail: "no bearer token" });
  return match[1];
}

/** Checks user and revocations of a verified token. @throws Refusal `user_gone`, `token_revoked` */
export function identify(
  snapshot: Snapshot,
  revocations: Pick<Revocations, "isRevoked">,
  token: Pick<TokenClaims, "username" | "credential" | "tokenId" | "issuedAt">,
): User {
  const user = snapshot.users.get(token.username);
  if (user === undefined) throw new Refusal("user_gone");
  const revoked = (detail: string) => new Refusal("token_revoked", { detail });
  if (user.disabled) throw revoked("user disabled");
  if (revocations.isRevoked(token)) throw revoked("revocations");
  if (token.issuedAt <= user.tokensValidAfter) throw revoked("tokens_valid_after");
  if (token.credential !== credentialOf(user)) throw revoked("password changed");
  return user;
}

/** @throws Refusal with one of the 401 codes */
export function authenticate(
  tokens: Pick<TokenAuthority, "verify">,
  snapshot: Snapshot,
  revocations: Pick<Revocations, "isRevoked">,
  header: string | undefined,
): Caller {
  const token = tokens.verify(readBearerToken(header));
  return { user: identify(snapshot, revocations, token), token };
}
