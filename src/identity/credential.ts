import { createHash } from "node:crypto";
import { parsePasswordHash } from "../access/password-hash.ts";
import type { User } from "../access/snapshot.ts";

const FINGERPRINT_BYTES = 8;
const known = new WeakMap<User, string>();

/** The fingerprint of a hash's salt: changes with every new password, says nothing about it. */
export function saltFingerprint(passwordHash: string): string | undefined {
  const salt = parsePasswordHash(passwordHash)?.salt;
  if (salt === undefined) return undefined;
  return createHash("sha256")
    .update(salt)
    .digest()
    .subarray(0, FINGERPRINT_BYTES)
    .toString("base64url");
}

/**
 * The `cred` claim that a token of this user must carry now: a token of an older password has
 * another one. A user without a password has the empty one.
 */
export function credentialOf(user: User): string {
  const remembered = known.get(user);
  if (remembered !== undefined) return remembered;
  const { passwordHash } = user;
  const credential = passwordHash === undefined ? "" : (saltFingerprint(passwordHash) ?? "");
  known.set(user, credential);
  return credential;
}
