import { Refusal } from "../base/refusal.ts";
import type { Durations, TargetMetrics, UpstreamMetrics } from "../observe/metrics.ts";
import type { QueryLimit } from "../query/limits.ts";
import type { Query } from "../query/query.ts";
import {
  type AnswerSink,
  BufferedAnswer,
  type BufferedAnswerOptions,
  type QueryAnswer,
} from "./answer-stream.ts";
import type { StreamForward } from "./reverse-proxy.ts";

export interface RunReport {
  /** Rows changed and rows returned, if known. */
  readonly affected?: number | undefined;
  readonly rows?: number | undefined;
  /** The form of streamed rows, whose number grows until the end. */
  readonly format?: "csv" | "ndjson" | undefined;
  /** The code of the caller's limit that denied the query. */
  readonly denied?: string | undefined;
}

interface Asked {
  /** Slots are shared fairly between users. */
  readonly user: string;
  readonly requestId: string;
  /** Header fields for a foreign upstream; the engine needs none. */
  readonly fields: string;
  /**
   * Called after it has waited for a slot.
   *
   * @throws Refusal if it may no longer be run
   */
  readonly judgeAgain?: (() => void) | undefined;
}

/** A query that was judged, with what the judgment limits. */
export interface DatabaseQuery extends Asked {
  readonly query: Query;
  /** The bytes for a foreign upstream. */
  readonly body: Buffer;
  /** A query that only reads may be sent again if its connection breaks before a response. */
  readonly isRead: boolean;
  readonly limits: readonly QueryLimit[];
  /** False if part of the schema is hidden from the caller, including in errors. */
  readonly seesSchema: boolean;
  /** The client's `Accept` header, which may ask for rows as CSV or NDJSON. */
  readonly accept?: string | undefined;
  /** Called by the engine before an answer begins. */
  readonly report?: ((report: RunReport) => void) | undefined;
}

/** Asks for the databases, the tables of a database, or the columns of a table. */
export interface SchemaQuery extends Asked {
  readonly schema: readonly string[];
}

/** A request in the interface of another database server, with its body in memory. */
export interface ForwardedRequest extends Asked {
  readonly method: string;
  /** With its query. */
  readonly path: string;
  readonly body: Buffer;
  /** A request that only reads may be sent again if its connection breaks before a response. */
  readonly isRead: boolean;
}

/** One place that can be up or down: the database of the engine, or one of several backends. */
export interface DatabaseTarget extends TargetMetrics {
  readonly isLive: boolean;
  readonly waiting: number;
}

/** Where queries are run: the engine in this process, or a foreign upstream. */
export interface Database {
  /** True for the engine, which enforces limits itself and returns a Preview's digest. */
  readonly isEngine: boolean;
  /** True if it runs the bytes of a query, not its tree. */
  readonly readsBytes: boolean;
  readonly targets: readonly DatabaseTarget[];
  run(query: DatabaseQuery | SchemaQuery, sink: AnswerSink): void;
  /** The engine has no interface besides queries, and fails the sink with Refusal `not_found`. */
  forward(request: ForwardedRequest, sink: AnswerSink): void;
  /** @throws Refusal as a reverse proxy does */
  forwardStream(stream: StreamForward): Promise<void>;
  isUp(): Promise<boolean>;
}

const MAX_NAMED = 8;

/** Maps each database of a query to where it is. */
export class DatabaseRouting {
  readonly #home: Database;
  readonly #elsewhere: ReadonlyMap<string, Database>;

  constructor(home: Database, elsewhere: ReadonlyMap<string, Database>) {
    this.#home = home;
    this.#elsewhere = elsewhere;
  }

  get isSingle(): boolean {
    return this.#elsewhere.size === 0;
  }

  /** @throws Refusal `batch_across_upstreams` if the query's databases are in different groups */
  databaseFor(query: Query): Database {
    if (this.isSingle) return this.#home;
    const groups = new Set(query.accesses.map(({ database }) => this.databaseOf(database)));
    const [group = this.#home] = groups;
    if (groups.size <= 1) return group;
    const names = [...new Set(query.accesses.map(({ database }) => database))];
    const more = names.length > MAX_NAMED ? ` and ${names.length - MAX_NAMED} more` : "";
    const listed = names.slice(0, MAX_NAMED).join(", ") + more;
    const message = `A Batch can use only one upstream, and these databases are on several: ${listed}`;
    throw new Refusal("batch_across_upstreams", { message });
  }

  databaseOf(database: string | undefined): Database {
    return (database === undefined ? undefined : this.#elsewhere.get(database)) ?? this.#home;
  }

  get upstreams(): { database: Database; holds(name: string): boolean }[] {
    return this.#groups.map((database) => ({
      database,
      holds: (name) => this.databaseOf(name) === database,
    }));
  }

  get #groups(): Database[] {
    return [this.#home, ...new Set(this.#elsewhere.values())];
  }

  get targets(): DatabaseTarget[] {
    return this.#groups.flatMap(({ targets }) => targets);
  }

  databasesAt(target: DatabaseTarget): string[] | undefined {
    if (this.#home.targets.includes(target)) return undefined;
    const here = this.#elsewhere.entries().filter(([, group]) => group.targets.includes(target));
    return here.map(([database]) => database).toArray();
  }

  async isUp(): Promise<boolean> {
    const answers = await Promise.all(this.#groups.map((group) => group.isUp()));
    return !answers.includes(false);
  }
}

/** Runs a query and buffers its answer. */
export function ask(
  database: Database,
  query: (DatabaseQuery | SchemaQuery) & BufferedAnswerOptions,
): Promise<QueryAnswer> {
  const sink = new BufferedAnswer(query);
  database.run(query, sink);
  return sink.answer;
}

const MOST_ZEROS = 1024;

/**
 * Sums by name, such as what each user holds. Names whose sum is zero are kept up to a number. To
 * delete and add one in each request would make V8 rebuild the map's table again and again, and old
 * tables keep each other alive until the whole heap is collected.
 */
export class Sums {
  readonly #byName = new Map<string, number>();

  of(name: string): number {
    return this.#byName.get(name) ?? 0;
  }

  add(name: string, amount: number): void {
    const sum = this.of(name) + amount;
    if (sum !== 0 || this.#byName.size < MOST_ZEROS) this.#byName.set(name, sum);
    else this.#byName.delete(name);
  }
}

/** How a wait ends. `dismissed` by `dismissAll`; `cancelled` also if it takes too long. */
type WaitEnd = "slot" | "dismissed" | "cancelled";

interface Waiter {
  readonly user: string;
  readonly since: number;
  readonly timer: NodeJS.Timeout;
  readonly onEnd: (end: WaitEnd) => void;
}

interface FairLimiterOptions {
  readonly slots: number;
  readonly maxWaiting: number;
  readonly timeoutMs: number;
}

/**
 * Concurrency limiter that is fair between users.
 *
 * While slots are free, every request gets one. When requests have to wait, the next free slot goes
 * to the waiting user who holds the fewest slots. Ties go to the user served least recently. A user
 * who floods the queue therefore delays only their own requests, and others wait at most one turn.
 */
export class FairLimiter {
  readonly #options: FairLimiterOptions;
  readonly #waits: { add(seconds: number): void };
  readonly #slots = new Sums();
  /** Waiters by user. The user served least recently comes first. */
  readonly #queues = new Map<string, Waiter[]>();
  #busy = 0;
  #waiting = 0;
  #isAssigning = false;

  /** @param waits records waiting times in seconds */
  constructor(options: FairLimiterOptions, waits: { add(seconds: number): void }) {
    this.#options = options;
    this.#waits = waits;
  }

  get busy(): number {
    return this.#busy;
  }

  get waiting(): number {
    return this.#waiting;
  }

  /** Takes a free slot. While there is one, no one is waiting. */
  tryTake(user: string): boolean {
    if (this.#busy >= this.#options.slots) return false;
    this.#busy++;
    this.#slots.add(user, 1);
    return true;
  }

  /**
   * Starts waiting. Call it only if no slot is free. If too many wait already, the last waiter of
   * the user with the longest queue is removed.
   *
   * @param onEnd called once, when the wait ends
   * @returns a function that cancels the wait; undefined if too many wait and the user's own queue
   * is among the longest
   */
  wait(user: string, onEnd: (end: WaitEnd) => void): (() => void) | undefined {
    if (this.#waiting >= this.#options.maxWaiting && !this.#makeRoom(user)) return undefined;
    const cancel = () => this.#remove(waiter, "cancelled");
    const timer = setTimeout(cancel, this.#options.timeoutMs).unref();
    const waiter: Waiter = { user, since: performance.now(), timer, onEnd };
    const queue = this.#queues.get(user);
    if (queue === undefined) this.#queues.set(user, [waiter]);
    else queue.push(waiter);
    this.#waiting++;
    return cancel;
  }

  release(user: string): void {
    this.#slots.add(user, -1);
    this.#busy--;
    // A waiter may release its slot at once, and the loop prevents recursion.
    if (this.#isAssigning) return;
    this.#isAssigning = true;
    try {
      for (let next = this.#next(); next !== undefined; next = this.#next()) {
        this.tryTake(next.user);
        this.#remove(next, "slot");
      }
    } finally {
      this.#isAssigning = false;
    }
  }

  /** The waiter for the next free slot, whose user then counts as served most recently. */
  #next(): Waiter | undefined {
    if (this.#busy >= this.#options.slots) return undefined;
    let fewest = Number.POSITIVE_INFINITY;
    let next: Waiter[] | undefined;
    for (const [user, queue] of this.#queues) {
      const slots = this.#slots.of(user);
      if (slots >= fewest) continue;
      fewest = slots;
      next = queue;
      if (slots === 0) break;
    }
    const [first] = next ?? [];
    if (first === undefined || next === undefined) return undefined;
    this.#queues.delete(first.user);
    this.#queues.set(first.user, next);
    return first;
  }

  /** Removes the last waiter of the longest queue if it exceeds the user's own. */
  #makeRoom(user: string): boolean {
    let longest: Waiter[] = [];
    for (const queue of this.#queues.values()) if (queue.length > longest.length) longest = queue;
    const last = longest.at(-1);
    const own = this.#queues.get(user)?.length ?? 0;
    if (last === undefined || longest.length <= own + 1) return false;
    this.#remove(last, "cancelled");
    return true;
  }

  dismissAll(): void {
    for (const waiter of [...this.#queues.values()].flat()) this.#remove(waiter, "dismissed");
  }

  #remove(waiter: Waiter, end: WaitEnd): void {
    const queue = this.#queues.get(waiter.user) ?? [];
    const at = queue.indexOf(waiter);
    if (at === -1) return;
    queue.splice(at, 1);
    if (queue.length === 0) this.#queues.delete(waiter.user);
    this.#waiting--;
    clearTimeout(waiter.timer);
    this.#waits.add((performance.now() - waiter.since) / 1000);
    waiter.onEnd(end);
  }
}

export function overloaded(): Refusal {
  return new Refusal("upstream_overloaded", { retryAfter: 1 });
}

/**
 * Calls `run` once the user holds a slot, which `run` must release. If the wait ends without one,
 * the sink fails, unless the limiter dismissed all waiters and `onDismissed` is set.
 */
export function withSlot(
  limiter: FairLimiter,
  { user, judgeAgain }: Pick<Asked, "user" | "judgeAgain">,
  sink: AnswerSink,
  run: () => void,
  onDismissed?: () => void,
): void {
  if (limiter.tryTake(user)) {
    run();
    return;
  }
  const cancel = limiter.wait(user, (end) => {
    sink.whenGone = undefined;
    if (end === "slot") {
      try {
        judgeAgain?.();
      } catch (error) {
        limiter.release(user);
        sink.fail(error);
        return;
      }
      run();
    } else if (sink.isGone) return;
    else if (end === "dismissed" && onDismissed !== undefined) onDismissed();
    else sink.fail(overloaded());
  });
  if (cancel === undefined) sink.fail(overloaded());
  else sink.whenGone = cancel;
}

export class QueryMetrics implements UpstreamMetrics {
  readonly waits: Durations = { add() {} };
  readonly answers: Durations = { add() {} };
  onCut: () => void = () => {};
  readonly #limiters: FairLimiter[] = [];

  include(limiter: FairLimiter): void {
    this.#limiters.push(limiter);
  }

  get busy(): number {
    return this.#limiters.reduce((sum, { busy }) => sum + busy, 0);
  }

  get waiting(): number {
    return this.#limiters.reduce((sum, { waiting }) => sum + waiting, 0);
  }
}
