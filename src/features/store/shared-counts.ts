import { LRUCache } from "lru-cache";
import * as z from "zod";
import type { OpenCounts, WindowCount } from "../../core/identity/counts.ts";
import type { Database, Query } from "./database.ts";
import type { Store } from "./open.ts";

const BATCH = 1000;
/** Twice as many fit into the column, and no limit is as high. */
const MAX_POINTS = 1_000_000_000;

/**
 * Locks rows in key order, so that two replicas cannot deadlock. Replicas of the previous release
 * read what has `changed`.
 */
const countSql = `
  with given as (
    select * from unnest($1::text[], $2::text[], $3::int[], $4::float8[]) as g (name, key, points, ms)
  ),
  written as (
    insert into gatehouse.counters as c (name, key, count, ends, changed)
    select name, key, points, clock_timestamp() + ms * interval '1 ms', clock_timestamp()
      from given where points > 0 order by name, key
    on conflict (name, key) do update set
      count = least(${MAX_POINTS},
        excluded.count + case when c.ends > clock_timestamp() then c.count else 0 end),
      ends = case when c.ends > clock_timestamp() then c.ends else excluded.ends end,
      changed = clock_timestamp()
    returning name, key, count, ends
  )
  select name, key, count,
    (extract(epoch from ends - clock_timestamp()) * 1000)::float8 as rest
  from (
    select * from written
    union all
    select name, key, count, ends from gatehouse.counters c where ends > clock_timestamp()
      and exists (select from given g where (g.name, g.key) = (c.name, c.key) and points = 0)
  ) counted`;

/** Deletes the counts of this name whose keys end with a text. Replicas read that with their next count. */
export async function forgetCounts(query: Query, name: string, ending: string): Promise<void> {
  const sql = "delete from gatehouse.counters where name = $1 and right(key, length($2)) = $2";
  await query(sql, [name, ending]);
}

const sweepSql = `delete from gatehouse.counters where (name, key) in (
  select name, key from gatehouse.counters where ends < clock_timestamp()
  limit ${BATCH} for update skip locked)`;

const rowShape = z.object({ name: z.string(), key: z.string(), count: z.int(), rest: z.number() });

const TIMEOUT_MS = 2000;
const SWEEP_MS = 30_000;
const RETRY_MS = 500;
const CACHED_KEYS = 100_000;

interface Count {
  readonly count: number;
  /** By `performance.now()`. */
  readonly ends: number;
}

/** Points that the store does not have yet. */
interface Pending {
  readonly name: string;
  readonly key: string;
  readonly ends: number;
  windowMs: number;
  points: number;
  /** Without points of an earlier statement that failed. */
  added: number;
  total?: Count;
}

function countId({ name, key }: { name: string; key: string }): string {
  return `${name}\n${key}`;
}

function readTotal(row: unknown): [id: string, total: Count] {
  const { count, rest, ...names } = rowShape.parse(row);
  return [countId(names), { count, ends: performance.now() + rest }];
}

/**
 * Counts in fixed windows that all replicas share. Calls during one statement share the next.
 * While the store is unreachable, this process counts by itself and sends its points later. Points
 * with an unknown outcome are sent again, so a count may be too high, but never too low.
 */
export class SharedCounters {
  readonly #database: Database;
  /** Totals as last read, and points that were added since. */
  readonly #known = new LRUCache<string, Count>({ max: CACHED_KEYS });
  readonly #pending = new Map<string, Pending>();
  #running: Promise<void> = Promise.resolve();
  #next: Promise<void> | undefined;
  #isUnreachable = false;
  #timer: NodeJS.Timeout | undefined;
  #swept = performance.now();

  constructor(database: Database) {
    this.#database = database;
  }

  /** Adds points, of which the first begin a window. Resolves to the total; 0 points only read. */
  async add(name: string, key: string, points: number, windowMs: number): Promise<WindowCount> {
    const id = countId({ name, key });
    const now = performance.now();
    const known = this.#known.get(id);
    const isOpen = known !== undefined && known.ends > now;
    const { count, ends } = isOpen ? known : { count: 0, ends: now + windowMs };
    // Reading a key without a count must not evict others.
    if (points > 0 || isOpen) this.#known.set(id, { count: count + points, ends });
    const pending = this.#pending.get(id) ?? {
      name,
      key,
      ends,
      windowMs,
      points: 0,
      added: 0,
    };
    pending.points += points;
    pending.added += points;
    // If the window has expired in the store, these points begin another one.
    pending.windowMs = windowMs;
    if (points > 0 || !this.#isUnreachable) this.#pending.set(id, pending);
    const added = pending.added;
    if (!this.#isUnreachable) await this.#exchange();
    const { total } = pending;
    if (total === undefined) return { count: count + points, msLeft: ends - now };
    // Without the points of later calls in the same statement.
    return {
      count: total.count - (pending.added - added),
      msLeft: total.ends - performance.now(),
    };
  }

  /** Resets a count, including what other replicas have counted. It stays while the store is unreachable. */
  async forget(name: string, key: string): Promise<void> {
    const id = countId({ name, key });
    this.#known.delete(id);
    this.#pending.delete(id);
    if (this.#isUnreachable) return;
    const sql = "delete from gatehouse.counters where name = $1 and key = $2";
    await this.#database.query(sql, [name, key], TIMEOUT_MS).catch(() => {});
  }

  /** Resets all counts of this name whose keys end with a text. */
  async forgetEnding(name: string, ending: string): Promise<void> {
    for (const id of [...this.#known.keys(), ...this.#pending.keys()]) {
      if (!id.startsWith(`${name}\n`) || !id.endsWith(ending)) continue;
      this.#known.delete(id);
      this.#pending.delete(id);
    }
    await forgetCounts(this.#database.query, name, ending);
  }

  async close(): Promise<void> {
    if (this.#pending.size > 0) await this.#exchange();
    clearTimeout(this.#timer);
  }

  /** Resolves when the store has what is pending now, or cannot be reached. */
  #exchange(): Promise<void> {
    this.#next ??= this.#running.then(() => {
      this.#next = undefined;
      this.#running = this.#sendAll();
      return this.#running;
    });
    return this.#next;
  }

  async #sendAll(): Promise<void> {
    try {
      // Points added in the meantime wait for the next exchange, so that this one ends.
      const all = [...this.#pending.values()];
      for (let at = 0; at < all.length; at += BATCH) {
        const batch = all.slice(at, at + BATCH);
        await this.#send(batch.filter((one) => this.#pending.get(countId(one)) === one));
      }
      this.#isUnreachable = false;
      if (performance.now() - this.#swept < SWEEP_MS) return;
      this.#swept = performance.now();
      await this.#database.query(sweepSql, [], TIMEOUT_MS);
    } catch {
      // Calls do not wait for the store again until it has answered.
      this.#isUnreachable = true;
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => void this.#exchange(), RETRY_MS).unref();
    }
  }

  async #send(sent: readonly Pending[]): Promise<void> {
    for (const one of sent) this.#pending.delete(countId(one));
    try {
      const columns = [
        sent.map(({ name }) => name),
        sent.map(({ key }) => key),
        sent.map(({ points }) => Math.min(points, MAX_POINTS)),
        sent.map(({ windowMs }) => windowMs),
      ];
      const rows = await this.#database.query(countSql, columns, TIMEOUT_MS);
      const totals = new Map(rows.map((row) => readTotal(row)));
      for (const one of sent) {
        const id = countId(one);
        const total = totals.get(id) ?? { count: 0, ends: one.ends };
        one.total = total;
        const more = this.#pending.get(id)?.points ?? 0;
        if (total.count + more > 0) this.#known.set(id, { ...total, count: total.count + more });
        else this.#known.delete(id);
      }
    } catch (error) {
      for (const one of sent) this.#requeue(one);
      throw error;
    }
  }

  #requeue(one: Pending): void {
    if (one.points === 0 || one.ends <= performance.now()) return;
    const newer = this.#pending.get(countId(one));
    if (newer === undefined) this.#pending.set(countId(one), one);
    else newer.points += one.points;
  }
}

export function openCounts({ database }: Store, opened: AsyncDisposableStack): OpenCounts {
  const counters = new SharedCounters(database);
  opened.defer(() => counters.close());
  return (name) => ({
    add: (key, points, windowMs) => counters.add(name, key, points, windowMs),
    forget: (key) => counters.forget(name, key),
    forgetEnding: (ending) => counters.forgetEnding(name, ending),
  });
}
