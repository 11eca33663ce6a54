import { randomBytes, timingSafeEqual } from "node:crypto";
import {
  formatPasswordHash,
  type HashCosts,
  type PasswordHash,
  parsePasswordHash,
} from "../access/password-hash.ts";
import type { Configuration } from "../config/schema.ts";
import { Refusal } from "../refusal.ts";
import { areSameCosts, type Derive, deriveHere } from "./hash.ts";

const SALT_BYTES = 16;
const HASH_BYTES = 32;
const MIN_CHARACTERS = 8;
const MAX_BYTES = 1024;

/**
 * The password as it is hashed: the same characters are the same password, whether a keyboard
 * composes an accent with its letter or not (RFC 8265, section 4.2.1).
 */
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

/** False for what no password can be, so that nobody buys work with it. */
function isPossible(password: string): boolean {
  return password.isWellFormed() && Buffer.byteLength(normalized(password)) <= MAX_BYTES;
}

/** Hashes a password with Argon2id (RFC 9106), with a fresh salt unless one is given. */
export async function hashPassword(
  password: string,
  costs: HashCosts,
  { salt = randomBytes(SALT_BYTES), derive = deriveHere }: { salt?: Buffer; derive?: Derive } = {},
): Promise<string> {
  const order = { password: normalized(password), salt, costs, length: HASH_BYTES };
  return formatPasswordHash({ costs, salt, hash: Buffer.from(await derive(order)) });
}

/** A hash that no password matches. */
function nobodysHash(costs: HashCosts): PasswordHash {
  return { costs, salt: randomBytes(SALT_BYTES), hash: randomBytes(HASH_BYTES) };
}

/**
 * Verifies a password against the hash on file.
 *
 * The work is the same for every user, one without a hash (unknown, or not to log in) included: a
 * hash at each of `costs`, one of which is compared with the hash on file. Time that is made up for
 * by an estimate would still tell the users of one cost from those of another.
 *
 * @param costs all that occur in the access file: a hash of any other costs matches nothing
 */
export async function verifyPassword(
  password: string,
  onFile: string | undefined,
  costs: readonly HashCosts[],
  derive: Derive = deriveHere,
): Promise<boolean> {
  const stored = onFile === undefined ? undefined : parsePasswordHash(onFile);
  if (!isPossible(password)) return false;
  let isRight = false;
  for (const each of costs) {
    const isOwn = stored !== undefined && areSameCosts(stored.costs, each);
    const { salt, hash } = isOwn ? stored : nobodysHash(each);
    const order = { password: normalized(password), salt, costs: each, length: hash.length };
    const isEqual = timingSafeEqual(await derive(order), hash);
    if (isOwn) isRight = isEqual;
  }
  return isRight;
}

/** True if a hash was made with lower costs than are configured now. */
export function isWeaker(onFile: string, costs: HashCosts): boolean {
  const stored = parsePasswordHash(onFile)?.costs;
  if (stored === undefined) return false;
  const isLower = stored.memory < costs.memory || stored.time < costs.time;
  return isLower && stored.memory <= costs.memory && stored.time <= costs.time;
}

/** The hash of the same password and salt at the configured costs. */
export async function strengthenHash(
  password: string,
  onFile: string,
  costs: HashCosts,
  derive: Derive,
): Promise<string> {
  const salt = parsePasswordHash(onFile)?.salt;
  return hashPassword(password, costs, { derive, ...(salt && { salt }) });
}

/** Asked wherever a password is set. @throws Refusal saying why it may not be */
export type PasswordRule = (password: string) => void;

/** Common passwords, in lower case. */
async function commonPasswords(): Promise<ReadonlySet<string>> {
  // Loaded here, since it is large and most gateways do without.
  const { dictionary } = await import("@zxcvbn-ts/language-common");
  return new Set(dictionary["passwords-common"].map((password) => password.toLowerCase()));
}

/** What a password must be where this configuration holds. */
export async function openPasswordRule({ auth }: Configuration): Promise<PasswordRule> {
  if (!auth.refuse_common_passwords) return requireUsablePassword;
  const common = await commonPasswords();
  return (password) => {
    requireUsablePassword(password);
    if (common.has(normalized(password).toLowerCase())) throw new Refusal("password_common");
  };
}
