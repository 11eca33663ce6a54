import { argon2id, hash } from "argon2";
import type { HashCosts } from "../access/password-hash.ts";

/** What one hash is derived from (Argon2id, RFC 9106, section 3.1). */
export interface HashOrder {
  readonly password: string;
  readonly salt: Uint8Array;
  readonly costs: HashCosts;
  /** Bytes of the hash. */
  readonly length: number;
}

/** Derives a hash, here or elsewhere. */
export type Derive = (order: HashOrder) => Promise<Uint8Array>;

/** Derives in this process, on a thread of its pool: for commands, which have nothing else to do. */
export const deriveHere: Derive = ({ password, salt, costs, length }) =>
  hash(password, {
    type: argon2id,
    raw: true,
    salt: Buffer.from(salt),
    hashLength: length,
    memoryCost: costs.memory,
    timeCost: costs.time,
    parallelism: costs.parallelism,
  });
