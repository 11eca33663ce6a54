import { randomBytes, timingSafeEqual } from "node:crypto";
import { formatPasswordHash, type HashCosts, parsePasswordHash } from "../access/password-hash.ts";
import { Refusal } from "../base/refusal.ts";
import type { Configuration } from "../config/schema.ts";
import { costsName, type Derive, deriveHere } from "./hash.ts";

const SALT_BYTES = 16;
const HASH_BYTES = 32;
const MIN_CHARACTERS = 8;
const MAX_BYTES = 1024;

/** Composed and decomposed accents are the same (RFC 8265, section 4.2.1). */
function normalized(password: string): string {
  return password.normalize("NFC");
}

/** @throws Refusal `password_too_short`, `password_too_long` or `invalid_body` */
export function requireUsablePassword(password: string): void {
  if (!password.isWellFormed()) {
    throw new Refusal("invalid_body", { message: "Password must be valid Unicode" });
  }
  const characters = normalized(password);
  if ([...characters].length < MIN_CHARACTERS) throw new Refusal("password_too_short");
  if (Buffer.byteLength(characters) > MAX_BYTES) throw new Refusal("password_too_long");
}

/** Hashes a password with Argon2id (RFC 9106), with a fresh salt by default. */
export async function hashPassword(
  password: string,
  costs: HashCosts,
  { salt = randomBytes(SALT_BYTES), derive = deriveHere }: { salt?: Buffer; derive?: Derive } = {},
): Promise<string> {
  const order = { password: normalized(password), salt, costs, length: HASH_BYTES };
  return formatPasswordHash({ costs, salt, hash: Buffer.from(await derive(order)) });
}

/**
 * Derives one hash at each of `costs` for every user, even without a password, so that the time
 * tells nothing about users. A hash with other costs never matches.
 */
export async function verifyPassword(
  password: string,
  passwordHash: string | undefined,
  costs: readonly HashCosts[],
  derive: Derive = deriveHere,
): Promise<boolean> {
  const stored = passwordHash === undefined ? undefined : parsePasswordHash(passwordHash);
  if (!password.isWellFormed()) return false;
  if (Buffer.byteLength(normalized(password)) > MAX_BYTES) return false;
  let isRight = false;
  for (const each of costs) {
    const isOwn = stored !== undefined && costsName(stored.costs) === costsName(each);
    const decoy = { salt: randomBytes(SALT_BYTES), hash: randomBytes(HASH_BYTES) };
    const { salt, hash } = isOwn ? stored : decoy;
    const order = { password: normalized(password), salt, costs: each, length: hash.length };
    const isEqual = timingSafeEqual(await derive(order), hash);
    if (isOwn) isRight = isEqual;
  }
  return isRight;
}

export type PasswordRule = (password: string) => void;

export async function openPasswordRule({ auth }: Configuration): Promise<PasswordRule> {
  if (!auth.refuse_common_passwords) return requireUsablePassword;
  // Loaded on demand, because it is large.
  const { dictionary } = await import("@zxcvbn-ts/language-common");
  const common = new Set(dictionary["passwords-common"].map((password) => password.toLowerCase()));
  return (password) => {
    requireUsablePassword(password);
    if (common.has(normalized(password).toLowerCase())) throw new Refusal("password_common");
  };
}
