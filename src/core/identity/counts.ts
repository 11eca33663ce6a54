import type { CountRequests } from "../access/rights.ts";

export interface WindowCount {
  readonly count: number;
  readonly msLeft: number;
}

/** Counts points by key in fixed windows, which begin with the first point of a key. */
export interface KeyCounts {
  /** Resolves to the new total. 0 points only read. */
  add(key: string, points: number, windowMs: number): Promise<WindowCount>;
  forget(key: string): Promise<void>;
  /** Forgets all keys that end with this text. */
  forgetEnding(ending: string): Promise<void>;
}

/** Opens the counts of a name, which all workers and replicas share. */
export type OpenCounts = (name: string) => KeyCounts;

const CAPACITY = 100_000;

/** Counts in memory. When full, it drops the key whose window began first. */
export class MemoryCounts implements KeyCounts {
  readonly #capacity: number;
  readonly #known = new Map<string, { readonly count: number; readonly ends: number }>();

  constructor(capacity = CAPACITY) {
    this.#capacity = capacity;
  }

  get size(): number {
    return this.#known.size;
  }

  async add(key: string, points: number, windowMs: number): Promise<WindowCount> {
    const now = performance.now();
    const known = this.#known.get(key);
    const isOpen = known !== undefined && known.ends > now;
    if (!isOpen) this.#known.delete(key);
    const { count, ends } = isOpen ? known : { count: 0, ends: now + windowMs };
    if (points > 0) this.#known.set(key, { count: count + points, ends });
    for (const [oldest, { ends }] of this.#known) {
      if (ends > now && this.#known.size <= this.#capacity) break;
      this.#known.delete(oldest);
    }
    return { count: count + points, msLeft: ends - now };
  }

  async forget(key: string): Promise<void> {
    this.#known.delete(key);
  }

  async forgetEnding(ending: string): Promise<void> {
    for (const key of this.#known.keys()) if (key.endsWith(ending)) this.#known.delete(key);
  }
}

export function secondsLeft({ msLeft }: WindowCount): number {
  return Math.max(1, Math.ceil(msLeft / 1000));
}

export function requestCounter(counts: KeyCounts): CountRequests {
  return async ({ key, points, limit }) => {
    const total = await counts.add(key, points, limit.windowMs);
    return {
      counted: total.count,
      retryAfter: total.count <= limit.count ? 0 : secondsLeft(total),
    };
  };
}
