import { randomBytes, timingSafeEqual } from "node:crypto";
import { argon2id, hash } from "argon2";
import {
  formatPasswordHash,
  type HashCosts,
  type PasswordHash,
  parsePasswordHash,
} from "../access/password-hash.ts";
import { Refusal } from "../refusal.ts";
import { boundedQueue } from "./bounded-queue.ts";

const SALT_BYTES = 16;
const HASH_BYTES = 32;
const MIN_CHARACTERS = 8;
const MAX_BYTES = 1024;
/** The hashing runs on libuv's four threads; two stay free for token signatures and files. */
const AT_ONCE = 2;
const WAITING = 64;

const queue = boundedQueue({ atOnce: AT_ONCE, waiting: WAITING });

/** @throws Refusal `password_too_short`, `password_too_long` or `invalid_body` */
export function requireUsablePassword(password: string): void {
  if (!password.isWellFormed()) {
    throw new Refusal("invalid_body", { message: "Password must be valid Unicode" });
  }
  if ([...password].length < MIN_CHARACTERS) throw new Refusal("password_too_short");
  if (Buffer.byteLength(password) > MAX_BYTES) throw new Refusal("password_too_long");
}

/** @throws Refusal `login_busy` when too many hashes wait already */
async function derive(
  password: string,
  salt: Buffer,
  costs: HashCosts,
  length: number,
): Promise<Buffer> {
  return queue.run(() =>
    hash(password, {
      type: argon2id,
      raw: true,
      salt,
      hashLength: length,
      memoryCost: costs.memory,
      timeCost: costs.time,
      parallelism: costs.parallelism,
    }),
  );
}

/** Hashes a password with Argon2id (RFC 9106), with a fresh salt unless one is given. */
export async function hashPassword(
  password: string,
  costs: HashCosts,
  salt: Buffer = randomBytes(SALT_BYTES),
): Promise<string> {
  const derived = await derive(password, salt, costs, HASH_BYTES);
  return formatPasswordHash({ costs, salt, hash: derived });
}

/** True if `password` is the one that `stored` was made of. */
async function matches(password: string, stored: PasswordHash): Promise<boolean> {
  const derived = await derive(password, stored.salt, stored.costs, stored.hash.length);
  return timingSafeEqual(derived, stored.hash);
}

/**
 * Verifies a password against the hash on file. Without a hash (an unknown user, or one that may
 * not log in) it spends the same time on a hash that nothing matches, and says no.
 */
export async function verifyPassword(
  password: string,
  onFile: string | undefined,
  costs: HashCosts,
): Promise<boolean> {
  const stored = onFile === undefined ? undefined : parsePasswordHash(onFile);
  // Longer than any password can be: never hashed, so that nobody buys work with it.
  if (Buffer.byteLength(password) > MAX_BYTES) return false;
  if (stored === undefined) {
    await derive(password, randomBytes(SALT_BYTES), costs, HASH_BYTES);
    return false;
  }
  return matches(password, stored);
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
): Promise<string> {
  const stored = parsePasswordHash(onFile);
  return hashPassword(password, costs, stored?.salt);
}
