import { availableParallelism } from "node:os";
import type { HashCosts } from "../access/password-hash.ts";
import type { HashMetrics } from "../observe/component-metrics.ts";
import { Times } from "../observe/time-histogram.ts";
import type { Derive, HashOrder } from "./hash.ts";
import { HashProcess } from "./hash-process.ts";
import { type HashBounds, type HashClient, HashQueue } from "./hash-queue.ts";
import { RecentLogins } from "./recent-logins.ts";

/** Hashes at one time on a machine of any size: with 64 MiB each, 256 MiB. */
const MOST_AT_ONCE = 4;
/** Tasks that may wait; at a tenth of a second each, the last one waits for seconds. */
const WAITING = 64;

/** All hashing of a gateway, whoever asks for it: one queue, one process, while it lives. */
export interface Hashing {
  /**
   * Runs work that derives one hash after the other, when it is its turn.
   *
   * @param costs of all that is derived
   * @throws Refusal `login_busy` if there is no place, or the client goes while it waits
   */
  run<T>(
    costs: readonly HashCosts[],
    client: HashClient,
    work: (derive: Derive) => Promise<T>,
  ): Promise<T>;
  close(): Promise<void>;
}

/** Hashing in a process of this one's own. */
export interface HashingHere extends Hashing {
  readonly metrics: HashMetrics;
}

/**
 * How much is hashed at one time: a hash has a thread for each of its lanes, so as many hashes as
 * make no more threads than there are cores, and one at least.
 */
export function hashBounds(costs: HashCosts, cores = availableParallelism()): HashBounds {
  const atOnce = Math.min(MOST_AT_ONCE, Math.max(1, Math.floor(cores / costs.parallelism)));
  return { atOnce, memory: atOnce * costs.memory, waiting: WAITING };
}

/**
 * Opens the hashing of a gateway with these configured costs.
 *
 * @param onLost told why a process that hashed is replaced
 * @param recent who has places of its own
 */
export function openHashing(
  configured: HashCosts,
  onLost: (reason: string) => void = () => {},
  recent = new RecentLogins(),
): HashingHere {
  const bounds = hashBounds(configured);
  const queue = new HashQueue(bounds, recent);
  const hashes = new HashProcess(bounds.atOnce, onLost);
  const times = new Times();
  async function derive(order: HashOrder): Promise<Uint8Array> {
    const startedAt = performance.now();
    const hash = await hashes.derive(order);
    times.add((performance.now() - startedAt) / 1000);
    return hash;
  }
  return {
    metrics: {
      times,
      get running() {
        return queue.running;
      },
      get waiting() {
        return queue.waiting;
      },
    },
    run(costs, client, work) {
      const memory = Math.max(...costs.map((cost) => cost.memory));
      return queue.run(memory, client, () => work(derive));
    },
    close: () => hashes.close(),
  };
}
