import { formatPasswordHash, type HashCosts, parsePasswordHash } from "../access/password-hash.ts";
import type { Snapshot } from "../access/snapshot.ts";
import { runCooperatively, type Steps, visitEach } from "../base/cooperative-scheduling.ts";
import type { Configuration } from "../config/schema.ts";

export function configuredCosts({ auth }: Configuration): HashCosts {
  return {
    memory: auth.argon2_memory_cost,
    time: auth.argon2_time_cost,
    parallelism: auth.argon2_parallelism,
  };
}

const nothing = Buffer.alloc(0);

/** The same text for the same costs. */
export function costsName(costs: HashCosts): string {
  return formatPasswordHash({ costs, salt: nothing, hash: nothing });
}

function* collect({ users }: Snapshot, configured: HashCosts): Steps<readonly HashCosts[]> {
  const all = new Map([[costsName(configured), configured]]);
  yield* visitEach(users.values(), ({ passwordHash = "" }) => {
    const costs = parsePasswordHash(passwordHash)?.costs;
    if (costs !== undefined) all.set(costsName(costs), costs);
  });
  return [...all.values()];
}

const collected = new WeakMap<Snapshot, Promise<readonly HashCosts[]>>();

/** The configured costs, and all in the access file. Every verification spends them all. */
export function costsInUse(
  snapshot: Snapshot,
  configured: HashCosts,
): Promise<readonly HashCosts[]> {
  const known = collected.get(snapshot) ?? runCooperatively(collect(snapshot, configured));
  collected.set(snapshot, known);
  return known;
}

/** Input of one hash (Argon2id, RFC 9106, section 3.1). */
export interface HashOrder {
  readonly password: string;
  readonly salt: Uint8Array;
  readonly costs: HashCosts;
  readonly length: number;
}

export type Derive = (order: HashOrder) => Promise<Uint8Array>;

/** Derives in this process. For commands, which have nothing else to do. */
export const deriveHere: Derive = async ({ password, salt, costs, length }) => {
  // Loaded on demand, since a gateway hashes in another process.
  const { argon2id, hash } = await import("argon2");
  return hash(password, {
    type: argon2id,
    raw: true,
    salt: Buffer.from(salt),
    hashLength: length,
    memoryCost: costs.memory,
    timeCost: costs.time,
    parallelism: costs.parallelism,
  });
};
