import type { FairQueue } from "../base/queues.ts";
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

interface DatabaseRequest {
  /** Slots are shared fairly between users. */
  readonly user: string;
  readonly requestId: string;
  /** Header fields for a foreign upstream; the engine needs none. */
  readonly fields: string;
  /**
   * Called after it has waited for a slot; undefined only for what no permission decides.
   *
   * @throws Refusal if it may no longer be run
   */
  readonly authorizeAgain: (() => void) | undefined;
}

/** A query that was judged, with what the judgment limits. */
export interface DatabaseQuery extends DatabaseRequest {
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
export interface SchemaQuery extends DatabaseRequest {
  readonly schema: readonly string[];
}

/** A request in the interface of another database server, with its body in memory. */
export interface ForwardedRequest extends DatabaseRequest {
  readonly method: string;
  /** With its query. */
  readonly path: string;
  readonly body: Buffer;
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

export function overloaded(): Refusal {
  return new Refusal("upstream_overloaded", { retryAfter: 1 });
}

/**
 * Calls `run` once the user holds a slot, which `run` must release. If the wait ends without one,
 * the sink fails, unless the limiter dismissed all waiters and `onDismissed` is set.
 */
export function withSlot(
  limiter: FairQueue,
  { user, authorizeAgain }: Pick<DatabaseRequest, "user" | "authorizeAgain">,
  sink: AnswerSink,
  run: () => void,
  onDismissed?: () => void,
): void {
  const entrant = { key: user };
  if (limiter.tryTake(entrant)) {
    run();
    return;
  }
  const cancel = limiter.wait(entrant, (end) => {
    sink.whenGone = undefined;
    if (end === "slot") {
      try {
        authorizeAgain?.();
      } catch (error) {
        limiter.release(entrant);
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
  readonly #limiters: Pick<FairQueue, "busy" | "waiting">[] = [];

  include(limiter: Pick<FairQueue, "busy" | "waiting">): void {
    this.#limiters.push(limiter);
  }

  get busy(): number {
    return this.#limiters.reduce((sum, { busy }) => sum + busy, 0);
  }

  get waiting(): number {
    return this.#limiters.reduce((sum, { waiting }) => sum + waiting, 0);
  }
}
