import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import * as z from "zod";
import { errorMessage } from "../../core/base/client-error.ts";
import { Refusal } from "../../core/base/refusal.ts";
import type { StoreMetrics } from "../../core/observe/metrics.ts";
import { type Database, type Query, storeUnreachable } from "./database.ts";
import { FORM, parseEntry } from "./log.ts";
import { requireReadable, SharedState } from "./state.ts";

const POLL_MS = 500;
/** How long a lease outlasts the replica's own right to decide. */
const MARGIN_SECONDS = 5;
const BATCH = 500;
/** A starting replica must catch up within this many polls. */
const MAX_FIRST_POLLS = 1000;
/** A slower poll is abandoned and repeated on another connection. */
const POLL_TIMEOUT_MS = 4000;

/**
 * How far the wall clock may run ahead of the monotonic one between two polls. Beyond that, the
 * clock was set, and nothing is decided until the store knows how far ahead it is.
 */
export const CLOCK_TOLERANCE_MS = 200;

const pollSql = `
  with old as (select expires from gatehouse.leases where replica = $1),
  renewed as (
    insert into gatehouse.leases as l (replica, name, sent, expires, applied, form, ahead)
    values ($1, $2, clock_timestamp(), clock_timestamp() + make_interval(secs => $3), $4, $5,
      $6 - extract(epoch from clock_timestamp()))
    on conflict (replica) do update set sent = excluded.sent, expires = excluded.expires,
      applied = excluded.applied, form = excluded.form, ahead = excluded.ahead
  )
  select h.version, h.form,
    (select extract(epoch from expires - clock_timestamp()) * 1000 from old)::float8 as remaining_ms,
    exists (select from gatehouse.log where version = $4 and id = $7) as is_known,
    n.version as entry, n.id, n.at, n.author, n.kind, n.data
  from gatehouse.head h left join lateral (
    select * from gatehouse.log where version > $4 order by version limit ${BATCH}
  ) n on true order by n.version`;

const pollShape = z.object({
  version: z.int(),
  form: z.int(),
  /** Until the lease that this poll renews would have expired. */
  remaining_ms: z.number().nullable(),
  /** False if the log lacks the entry that was applied last. */
  is_known: z.boolean(),
});

interface ReplicaOptions {
  /** Seconds. */
  readonly maxStaleness: number;
  /** Called when the store becomes unreachable, and when the reason changes. */
  readonly onUnreachable: (reason: string) => void;
  readonly onReachable: () => void;
}

const never = { monotonic: Number.NEGATIVE_INFINITY, wall: Number.NEGATIVE_INFINITY };

function now(): typeof never {
  return { monotonic: performance.now(), wall: Date.now() };
}

/**
 * A process that decides with the shared state and holds a lease in the store. Each poll renews the
 * lease and reads new entries. An expired lease never belongs to a process that still decides,
 * since that needs a good poll sent less than `maxStaleness` ago.
 */
export class Replica implements StoreMetrics {
  readonly id: string = randomUUID();
  readonly name: string = `${hostname()}:${process.pid}`;
  readonly state: SharedState;
  readonly #database: Database;
  readonly #options: ReplicaOptions;
  readonly #maxStalenessMs: number;
  #sent = never;
  #headVersion = 0;
  #reason: string | undefined;
  #polling: Promise<void> | undefined;
  #isPollWanted = false;
  #timer: NodeJS.Timeout | undefined;
  #notices: { close(): Promise<void> } | undefined;

  private constructor(database: Database, state: SharedState, options: ReplicaOptions) {
    this.#database = database;
    this.state = state;
    this.#options = options;
    this.#maxStalenessMs = options.maxStaleness * 1000;
  }

  /** Takes a lease and reads the shared state. @throws what `SharedState.load` throws */
  static async open(database: Database, options: ReplicaOptions): Promise<Replica> {
    const state = await SharedState.load(database);
    const replica = new Replica(database, state, options);
    // The first poll only takes the lease, since its entries may be older than the lease.
    for (let polls = 0; polls < 2 || replica.#isPollWanted; polls++) {
      if (polls === MAX_FIRST_POLLS) throw storeUnreachable({ detail: "the store is too slow" });
      replica.#isPollWanted = false;
      await replica.#poll();
    }
    replica.#listen();
    replica.#schedule();
    return replica;
  }

  get leaseAge(): number {
    const { monotonic, wall } = now();
    return Math.max(monotonic - this.#sent.monotonic, wall - this.#sent.wall);
  }

  get appliedVersion(): number {
    return this.state.position.version;
  }

  get lag(): number {
    return Math.max(0, this.#headVersion - this.appliedVersion);
  }

  get isReachable(): boolean {
    return this.#reason === undefined;
  }

  /** True while the last successful poll is recent enough to decide by. */
  get isFresh(): boolean {
    const { monotonic, wall } = now();
    const advance = wall - this.#sent.wall - (monotonic - this.#sent.monotonic);
    return this.leaseAge < this.#maxStalenessMs && !(advance > CLOCK_TOLERANCE_MS);
  }

  /** @throws Refusal `store_unreachable` unless `isFresh` */
  requireFresh(): void {
    if (!this.isFresh) throw storeUnreachable();
  }

  /** For what needs the store itself. @throws Refusal `store_unreachable` if it did not answer */
  async requireReachable(): Promise<void> {
    const isLate = () => this.leaseAge > 4 * POLL_MS;
    // A blocked event loop delays polls, which says nothing about the store.
    const isOpen = this.#notices !== undefined;
    if (isLate() && this.isReachable && isOpen) await (this.#polling ?? this.poll());
    this.requireFresh();
    if (!this.isReachable || isLate()) throw storeUnreachable();
  }

  /** Polls now, or again after a poll in progress; never throws. */
  poll(): Promise<void> {
    this.#isPollWanted = true;
    this.#polling ??= this.#pollWhileWanted().finally(() => {
      this.#polling = undefined;
      this.#schedule();
    });
    return this.#polling;
  }

  /** Releases the lease, so that no writer waits for it. Decide nothing after this call. */
  async close(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const notices = this.#notices;
    this.#notices = undefined;
    await notices?.close();
    await this.#polling;
    this.#sent = never;
    const sql = "delete from gatehouse.leases where replica = $1";
    await this.#database.query(sql, [this.id]).catch(() => {});
  }

  #schedule(): void {
    if (this.#notices === undefined) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.poll(), POLL_MS);
  }

  async #pollWhileWanted(): Promise<void> {
    while (this.#isPollWanted) {
      this.#isPollWanted = false;
      try {
        const before = this.appliedVersion;
        await this.#poll();
        // Another poll at once tells waiting writers that this replica has applied the new entries.
        if (this.appliedVersion !== before) this.#isPollWanted = true;
        if (this.isReachable) continue;
        this.#reason = undefined;
        // The listening connection may have died unnoticed.
        this.#listen();
        this.#options.onReachable();
      } catch (error) {
        const detail = error instanceof Refusal ? error.detail : undefined;
        const reason = detail ?? errorMessage(error);
        if (reason !== this.#reason) this.#options.onUnreachable(reason);
        this.#reason = reason;
      }
    }
  }

  #listen(): void {
    void this.#notices?.close();
    this.#notices = this.#database.listen(() => void this.poll());
  }

  async #poll(): Promise<void> {
    const sent = now();
    const { version, id } = this.state.position;
    const rows = await this.#database.query(
      pollSql,
      [
        this.id,
        this.name,
        this.#options.maxStaleness + MARGIN_SECONDS,
        version,
        FORM,
        sent.wall / 1000,
        id,
      ],
      Math.min(POLL_TIMEOUT_MS, this.#maxStalenessMs / 2),
    );
    const head = pollShape.parse(rows[0]);
    requireReadable(head);
    if (head.version < version || !head.is_known) {
      const detail =
        `the store is at version ${head.version} and lacks version ${version}, which is applied here: ` +
        "it has lost changes, for example in a failover. Restart this replica to use the store's state";
      throw storeUnreachable({ detail });
    }
    // Completed before the lease expired, so no writer has overlooked the lease (see `append`).
    const elapsed = performance.now() - sent.monotonic;
    const isLeaseUnbroken = head.remaining_ms !== null && elapsed < head.remaining_ms;
    const entries = rows.filter(({ entry }) => entry !== null);
    await this.state.apply(entries.map((row) => parseEntry({ ...row, version: row.entry })));
    this.#headVersion = head.version;
    if (isLeaseUnbroken && this.appliedVersion >= head.version) this.#sent = sent;
    else this.#isPollWanted = true;
  }
}

/** For a statement whose connection was cut silently. */
const TIMEOUT_MS = 3000;

/** Runs statements that need the store itself. Commands have no replica. */
export function queryIfReachable({ query }: Database, replica: Replica | undefined): Query {
  return async (sql, values) => {
    await replica?.requireReachable();
    return query(sql, values, TIMEOUT_MS);
  };
}
