import * as z from "zod";
import type { CountedWindow, RequestCount } from "../access/rights.ts";
import type { FailureCounts } from "../identity/throttle.ts";
import { type Database, SHORT_TIMEOUT_MS } from "./database.ts";
import type { Store } from "./open.ts";

const BATCH = 1000;

/**
 * Adds local counts, removes keys without points, and reads the totals. Rows are locked in key
 * order, so that two replicas cannot deadlock.
 */
const countSql = `
  with given as (
    select * from unnest($1::text[], $2::text[], $3::int[], $4::float8[]) as g (name, key, points, ms)
  ),
  written as (
    insert into gatehouse.counters as c (name, key, count, ends, changed)
    select name, key, points, clock_timestamp() + ms * interval '1 ms', clock_timestamp()
      from given where points is not null order by name, key
    on conflict (name, key) do update set
      count = excluded.count + case when c.ends > clock_timestamp() then c.count else 0 end,
      ends = case when c.ends > clock_timestamp() then c.ends else excluded.ends end,
      changed = clock_timestamp()
    returning name, key, count, ends
  ),
  forgotten as (
    update gatehouse.counters c set count = 0, changed = clock_timestamp() from given g
      where g.points is null and (c.name, c.key) = (g.name, g.key)
  )
  select name, key, count,
    (extract(epoch from ends - clock_timestamp()) * 1000)::float8 as rest
  from (
    select name, key, count, ends from written
    union all
    select name, key, count, ends from gatehouse.counters c
      where changed > clock_timestamp() - make_interval(secs => $5) and ends > clock_timestamp()
      and not exists (select from given g where (g.name, g.key) = (c.name, c.key))
  ) counted`;

const sweepSql = `delete from gatehouse.counters where (name, key) in (
  select name, key from gatehouse.counters where ends < clock_timestamp()
  limit ${BATCH} for update skip locked)`;

const rowShape = z.object({ name: z.string(), key: z.string(), count: z.int(), rest: z.number() });

type CountedRow = z.infer<typeof rowShape>;

function parseCounted(row: unknown): CountedRow {
  return rowShape.parse(row);
}

const POLL_MS = 500;
const PAUSE_MS = 25;
const SWEEP_MS = 30_000;
/** Keys in memory; beyond that the oldest are dropped. */
const CAPACITY = 100_000;
/** A poll reads this far before the previous one, since a row is visible only after its commit. */
const OVERLAP_SECONDS = 5;
/** For the first poll, which reads everything. */
const EVER_SECONDS = 1e8;

interface Named {
  readonly name: string;
  readonly key: string;
}

interface Counter extends Named {
  /** The last known count in the store. `sent` is in transit and `pending` still has to be sent. */
  stored: number;
  sent: number;
  pending: number;
  /** By `performance.now()`. */
  ends: number;
  windowMs: number;
}

function idOf({ name, key }: Named): string {
  return `${name}\n${key}`;
}

/**
 * Counts in fixed windows that all replicas share. Each replica counts in memory, so no request
 * waits. One statement sends its counts and reads those of the others, right after urgent counts
 * and at least every half second. Together, replicas may exceed a limit by what each lets through
 * between two statements.
 *
 * Counts with an unknown write outcome are written again: a count may be too high, but is never too
 * low.
 */
export class SharedCounters {
  readonly #database: Database;
  readonly #known = new Map<string, Counter>();
  readonly #changed = new Set<Counter>();
  /** Keys to remove from the store. */
  readonly #forgotten = new Map<string, Named>();
  #read: { readonly monotonic: number; readonly wall: number } | undefined;
  #began = Number.NEGATIVE_INFINITY;
  #swept = performance.now();
  #running: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isUrgent = false;
  #isClosed = false;

  private constructor(database: Database) {
    this.#database = database;
  }

  /** Starts with the counts in the store. @throws Refusal `store_unreachable` */
  static async open(database: Database): Promise<SharedCounters> {
    const counters = new SharedCounters(database);
    await counters.#exchange();
    counters.#schedule();
    return counters;
  }

  find(name: string, key: string): { count: number; msLeft: number } | undefined {
    const counter = this.#find(idOf({ name, key }));
    if (counter === undefined) return undefined;
    const { stored, sent, pending, ends } = counter;
    return { count: stored + sent + pending, msLeft: ends - performance.now() };
  }

  /**
   * Adds to a count; the first call begins a window. @param isUrgent sends the count to other
   * replicas at once
   */
  add(name: string, key: string, points: number, windowMs: number, isUrgent = false): void {
    const counter = this.#find(idOf({ name, key })) ?? this.#begin(name, key, windowMs);
    counter.pending += points;
    // The window in the store may have expired, so that this count begins another one.
    counter.windowMs = windowMs;
    this.#isUrgent ||= isUrgent;
    this.#changed.add(counter);
    if (this.#running === undefined) this.#schedule();
  }

  /** Resets a key, including what other replicas have counted. */
  forget(name: string, key: string): void {
    const id = idOf({ name, key });
    const counter = this.#known.get(id);
    if (counter !== undefined) this.#drop(id, counter);
    this.#forgotten.set(id, { name, key });
    if (this.#running === undefined) this.#schedule();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    await this.#running;
    if (this.#hasNews) await this.#exchange().catch(() => {});
  }

  get #hasNews(): boolean {
    return this.#changed.size + this.#forgotten.size > 0;
  }

  #find(id: string): Counter | undefined {
    const counter = this.#known.get(id);
    if (counter === undefined || counter.ends > performance.now()) return counter;
    this.#drop(id, counter);
    return undefined;
  }

  #begin(name: string, key: string, windowMs: number): Counter {
    const ends = performance.now() + windowMs;
    const counter = { name, key, stored: 0, sent: 0, pending: 0, ends, windowMs };
    this.#known.set(idOf({ name, key }), counter);
    const [oldest] = this.#known;
    if (this.#known.size > CAPACITY && oldest !== undefined) this.#drop(...oldest);
    return counter;
  }

  #drop(id: string, counter: Counter): void {
    this.#known.delete(id);
    this.#changed.delete(counter);
  }

  #schedule(): void {
    if (this.#isClosed) return;
    clearTimeout(this.#timer);
    const pause = this.#hasNews ? PAUSE_MS : POLL_MS;
    const wait = this.#isUrgent ? 0 : this.#began + pause - performance.now();
    this.#timer = setTimeout(() => this.#run(), Math.max(0, wait)).unref();
  }

  #run(): void {
    this.#running = this.#exchange()
      .then(() => this.#sweep())
      // The replica reports that the store is unreachable. Local counts still apply.
      .catch(() => {
        this.#isUrgent = false;
        this.#began = performance.now() + POLL_MS;
      })
      .finally(() => {
        this.#running = undefined;
        this.#schedule();
      });
  }

  async #exchange(): Promise<void> {
    this.#began = performance.now();
    this.#isUrgent = false;
    const now = { monotonic: this.#began, wall: Date.now() };
    const forgotten = this.#forgotten.values().take(BATCH).toArray();
    const given = this.#takeChanged();
    const all: readonly Named[] = [...given, ...forgotten];
    try {
      const values = [
        ...[all.map(({ name }) => name), all.map(({ key }) => key)],
        [...given.map(({ sent }) => sent), ...forgotten.map(() => null)],
        [...given.map(({ windowMs }) => windowMs), ...forgotten.map(() => null)],
        this.#secondsBack(now),
      ];
      const rows = await this.#database.query(countSql, values, SHORT_TIMEOUT_MS);
      for (const counter of given) counter.sent = 0;
      for (const row of rows) this.#apply(parseCounted(row));
      this.#read = now;
    } catch (error) {
      for (const counter of given) this.#takeBack(counter);
      // The removal failed: keys that the store still holds count again.
      if (forgotten.length > 0) this.#read = undefined;
      throw error;
    } finally {
      for (const one of forgotten) this.#forgotten.delete(idOf(one));
    }
  }

  /** Takes counts whose window has not expired, except keys that the store must remove first. */
  #takeChanged(): Counter[] {
    const given: Counter[] = [];
    for (const counter of this.#changed) {
      if (given.length === BATCH) break;
      const id = idOf(counter);
      if (this.#forgotten.has(id)) continue;
      this.#changed.delete(counter);
      if (this.#find(id) !== counter) continue;
      counter.sent = counter.pending;
      counter.pending = 0;
      given.push(counter);
    }
    return given;
  }

  /** Seconds back to the previous poll, by whichever clock has advanced more. */
  #secondsBack({ monotonic, wall }: { monotonic: number; wall: number }): number {
    if (this.#read === undefined) return EVER_SECONDS;
    const passed = Math.max(monotonic - this.#read.monotonic, wall - this.#read.wall);
    return passed / 1000 + OVERLAP_SECONDS;
  }

  #takeBack(counter: Counter): void {
    if (this.#find(idOf(counter)) !== counter) return;
    counter.pending += counter.sent;
    counter.sent = 0;
    this.#changed.add(counter);
  }

  #apply({ name, key, count, rest }: CountedRow): void {
    const id = idOf({ name, key });
    if (this.#forgotten.has(id)) return;
    const counter = this.#find(id) ?? this.#begin(name, key, rest);
    counter.stored = count;
    counter.ends = performance.now() + rest;
  }

  async #sweep(): Promise<void> {
    if (performance.now() - this.#swept < SWEEP_MS) return;
    this.#swept = performance.now();
    for (const [id, counter] of this.#known) {
      if (counter.ends <= performance.now()) this.#drop(id, counter);
    }
    await this.#database.query(sweepSql, [], SHORT_TIMEOUT_MS);
  }
}

/** Counts failed logins, which are sent to the other replicas at once. */
function failureCountsOf(counters: SharedCounters, name: string, seconds: number): FailureCounts {
  return {
    window: seconds,
    find: async (key) => counters.find(name, key),
    async add(key) {
      counters.add(name, key, 1, this.window * 1000, true);
    },
    async forget(key) {
      counters.forget(name, key);
    },
  };
}

const REQUESTS = "requests";

function countRequestIn(
  counters: SharedCounters,
  { key, points, limit: { count: limit, windowMs } }: CountedWindow,
): RequestCount {
  const { count, msLeft } = counters.find(REQUESTS, key) ?? { count: 0, msLeft: windowMs };
  const secondsOf = (ms: number) => Math.max(1, Math.ceil(ms / 1000));
  // A full window refuses, however often it is checked.
  if (count >= limit) return { counted: count, retryAfter: secondsOf(msLeft) };
  counters.add(REQUESTS, key, points, windowMs);
  const counted = count + points;
  return { counted, retryAfter: counted <= limit ? 0 : secondsOf(msLeft) };
}

/** Counts failed logins and requests across all replicas. Counting ends with the stack. */
export async function openCounts({ database }: Store, opened: AsyncDisposableStack) {
  const counters = await SharedCounters.open(database);
  opened.defer(() => counters.close());
  return {
    openFailureCounts: (name: string, seconds: number) => failureCountsOf(counters, name, seconds),
    countRequests: async (window: CountedWindow) => countRequestIn(counters, window),
  };
}
