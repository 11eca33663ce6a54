import type { HashCosts } from "../access/password-hash.ts";
import type { Configuration } from "../config/schema.ts";

/** The configured costs of a new hash. */
export function configuredCosts({ auth }: Configuration): HashCosts {
  return {
    memory: auth.argon2_memory_cost,
    time: auth.argon2_time_cost,
    parallelism: auth.argon2_parallelism,
  };
}
