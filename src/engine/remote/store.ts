import { setTimeout as delay } from "node:timers/promises";
import { sql } from "kysely";
import type { Logger } from "pino";
import { runCooperatively } from "../../core/base/cooperative-scheduling.ts";
import { anyone, FairQueue } from "../../core/base/queues.ts";
import type { QueryLimit } from "../../core/query/limits.ts";
import { LONG_BODY } from "../../core/query/parse.ts";
import { changesIn, type ParsedOperations } from "../../core/query/query.ts";
import type { Operation, OperationFields } from "../../core/query/tree.ts";
import { isChecked } from "../bindings.ts";
import { LimitCounter } from "../limits.ts";
import {
  describeSchema,
  openContext,
  performAll,
  performPreview,
  read,
  type Work,
} from "../perform.ts";
import { EngineRefusal, UnknownOutcome } from "../refusal.ts";
import { type Answer, jsonAnswer, type RowStream, Spool } from "../spool.ts";
import { isOfTables, isReading, returnsRows } from "../sql/answers.ts";
import { writeLongCells } from "../sql/values.ts";
import type { QueryRequest, SchemaPath, Store } from "../store.ts";
import { ConnectionLost, type Dialect, type Mode, type Session } from "./dialect.ts";
import { refused } from "./failures.ts";
import { ConnectionPool, type ConnectionSource } from "./pool.ts";
import { type TransactionOptions, Transactions } from "./transaction.ts";

/** Uses a connection of its own, so that it does not wait for queries. */
class DatabaseCheck<Leased extends Session> {
  readonly #pool: ConnectionPool<Leased>;
  readonly #transactions: Transactions<Leased>;
  #query = new AbortController();
  #running: Promise<void> | undefined;
  #isClosed = false;

  constructor(source: ConnectionSource<Leased>, dialect: Dialect<Leased>, timeLimit: number) {
    this.#pool = new ConnectionPool(source, 1);
    this.#transactions = new Transactions(this.#pool, dialect, timeLimit);
  }

  /** @throws ConnectionLost without an answer in time, or the server's error */
  async run(timeoutMs: number): Promise<void> {
    // Concurrent callers share one check, even if it outlasts their timeouts.
    this.#running ??= this.#start();
    const late = delay(timeoutMs, undefined, { ref: false }).then(() => {
      throw new ConnectionLost(new Error(`no answer within ${timeoutMs / 1000} seconds`));
    });
    await Promise.race([this.#running, late]);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#query.abort();
    await this.#pool.close();
  }

  async #start(): Promise<void> {
    try {
      if (!this.#isClosed) this.#query = new AbortController();
      await this.#transactions.run({ mode: "read only" }, this.#query, async (session) => {
        await session.run(sql`select 1`);
      });
    } finally {
      this.#running = undefined;
    }
  }
}

const FRESH_TIME_MS = 1000;

/** Logs once when the server is lost, and once when it is back. */
class Reachability {
  readonly #server: string;
  readonly #log: Logger;
  #isLost = false;
  /** `performance.now()` of the last answer. */
  #answeredAt = Number.NEGATIVE_INFINITY;

  constructor(server: string, log: Logger) {
    this.#server = server;
    this.#log = log;
  }

  /** True if the server has answered within the last second and nothing has failed since. */
  get hasJustAnswered(): boolean {
    return !this.#isLost && performance.now() - this.#answeredAt < FRESH_TIME_MS;
  }

  noteSuccess(): void {
    this.#answeredAt = performance.now();
    if (this.#isLost) this.#log.info(`${this.#server} is back`);
    this.#isLost = false;
  }

  /** `error` is about the connection, so its message holds nothing of a query. */
  noteFailure(error: unknown): void {
    if (!this.#isLost) {
      this.#log.error({ reason: innermostReason(error) }, `${this.#server} cannot be used`);
    }
    this.#isLost = true;
  }
}

/** The message of the innermost cause, which is the most specific. */
function innermostReason(error: unknown): string {
  if (!(error instanceof Error)) return "unknown";
  if (error.cause instanceof Error) return innermostReason(error.cause);
  const code = "code" in error ? `${error.code}: ` : "";
  return code + error.message;
}

const CHECK_TIMEOUT_MS = 1500;

/** The databases of one server. Every query is one transaction. */
class RemoteStore<Leased extends Session> implements Store {
  readonly readsBytes = false;
  readonly #dialect: Dialect<Leased>;
  readonly #pool: ConnectionPool<Leased>;
  readonly #check: DatabaseCheck<Leased>;
  readonly #transactions: Transactions<Leased>;
  readonly #slots: FairQueue;
  /** Limits streams to part of the slots, because a slow client holds one. */
  readonly #streamSlots: FairQueue;
  readonly #reachability: Reachability;

  constructor(
    { dialect, connections }: Server<Leased>,
    { poolSize, timeLimit, log }: RemoteOptions,
    check: DatabaseCheck<Leased>,
  ) {
    this.#dialect = dialect;
    this.#pool = new ConnectionPool(connections, poolSize);
    this.#check = check;
    this.#transactions = new Transactions(this.#pool, dialect, timeLimit);
    this.#slots = new FairQueue({ slots: poolSize });
    this.#streamSlots = new FairQueue({ slots: Math.ceil(poolSize / 2) });
    this.#reachability = new Reachability(dialect.name, log);
  }

  async execute(
    { query: { operations: parsed }, limits }: QueryRequest,
    query: AbortController,
  ): Promise<Answer> {
    if (parsed.body.length >= LONG_BODY) await parseLong(parsed);
    const { isBatch, all: operations } = parsed;
    const work = { isBatch, operations: operations.filter(isOfTables), limits };
    if (isBatch) this.#dialect.requireAtomic?.(work.operations);
    const [first] = operations;
    const answer = this.#hold(query, () => {
      if (first?.name === "CreateDatabase") return this.#create(first.fields.database, query);
      if (first?.name === "Preview") return this.#preview(first.fields, limits, query);
      if (first?.name === "DropDatabase") return this.#drop(first.fields.database, query);
      return this.#perform(work, query);
    });
    return answer.catch((error: unknown) => {
      throw error instanceof EngineRefusal ? error.quote(parsed.body) : error;
    });
  }

  async stream(
    { query: { operations }, limits }: QueryRequest,
    stream: RowStream,
    query: AbortController,
  ): Promise<void> {
    if (operations.body.length >= LONG_BODY) await parseLong(operations);
    const [operation] = operations.all.filter(isReading);
    if (operation === undefined) throw new Error("Only a Select can be streamed");
    const { database } = operation.fields;
    const options = { mode: readMode(operation), database, stream };
    await this.#streamSlots.hold(anyone, query.signal, () =>
      this.#hold(query, () =>
        this.#transactions.run(options, query, async (session) => {
          stream.reset();
          const context = openContext(this.#dialect, session, database, new LimitCounter(limits));
          await read(this.#dialect, context, operation.fields, stream);
        }),
      ),
    );
  }

  async readSchema(path: SchemaPath, query: AbortController): Promise<Answer> {
    const { database, table } = path;
    const options = { mode: "read only", database } as const;
    const data = await this.#hold(query, () =>
      this.#transactions.run(options, query, async (session): Promise<object> => {
        if (database !== undefined) return describeSchema(this.#dialect, session, database, table);
        return { databases: await this.#dialect.listDatabases(session) };
      }),
    );
    return jsonAnswer({ status: "success", data });
  }

  async isUp(): Promise<boolean> {
    if (this.#reachability.hasJustAnswered) return true;
    try {
      await this.#check.run(CHECK_TIMEOUT_MS);
      this.#reachability.noteSuccess();
      return true;
    } catch (error) {
      this.#reachability.noteFailure(error);
      return false;
    }
  }

  async close(): Promise<void> {
    await Promise.all([this.#pool.close(), this.#check.close()]);
  }

  /** Runs `work` in a slot. Only refusals and errors that may be logged leave this method. */
  async #hold<Result>({ signal }: AbortController, work: () => Promise<Result>): Promise<Result> {
    try {
      const answer = await this.#slots.hold(anyone, signal, work);
      this.#reachability.noteSuccess();
      return answer;
    } catch (error) {
      const { refusalOf } = this.#dialect.failures;
      const failure = error instanceof UnknownOutcome ? error.cause : error;
      // If the engine itself cut the connection, that says nothing about the server.
      if (!signal.aborted && refusalOf(failure)?.message === refused.unavailable[1]) {
        this.#reachability.noteFailure(failure);
      }
      throw refusalOf(error) ?? error;
    }
  }

  async #create(name: string, query: AbortController): Promise<Answer> {
    await this.#transactions.run({ mode: "read committed" }, query, (session) =>
      this.#dialect.createDatabase(session, name),
    );
    return jsonAnswer({ status: "success", message: `Database ${name} created` });
  }

  async #drop(name: string, query: AbortController): Promise<Answer> {
    const { dropDatabase, requireDroppable } = this.#dialect;
    const drop = () =>
      this.#transactions.run({ mode: "read committed" }, query, (session) =>
        dropDatabase(session, name),
      );
    if (requireDroppable === undefined) await drop();
    else {
      const options = { mode: "read only", database: name } as const;
      await this.#transactions.run(options, query, requireDroppable);
      await this.#pool.without(name, drop);
    }
    return jsonAnswer({ status: "success", message: `Database ${name} dropped` });
  }

  #perform(work: Work, query: AbortController): Promise<Answer> {
    return this.#spool(this.#optionsFor(work), query, (session, spool) =>
      performAll(this.#dialect, session, work, spool),
    );
  }

  #preview(
    fields: OperationFields["Preview"],
    limits: readonly QueryLimit[],
    query: AbortController,
  ): Promise<Answer> {
    const operations = changesIn(fields);
    if (fields.Batch !== undefined) this.#dialect.requireAtomic?.(operations);
    const database = operations[0]?.fields.database;
    const options = { mode: "serializable", database, end: "rollback" } as const;
    return this.#spool(options, query, (session, spool) =>
      performPreview(this.#dialect, session, fields, spool, new LimitCounter(limits)),
    );
  }

  async #spool(
    options: TransactionOptions,
    query: AbortController,
    work: (session: Leased, spool: Spool) => Promise<void>,
  ): Promise<Answer> {
    let spool: Spool | undefined;
    try {
      const whole = await this.#transactions.run(options, query, async (session) => {
        // Discards what an earlier attempt has written.
        spool?.close();
        spool = new Spool();
        await work(session, spool);
        // Reserves disk space before the commit, so that a full disk never reports a committed
        // query as failed.
        spool.flush();
        return spool;
      });
      return whole.finish();
    } finally {
      spool?.close();
    }
  }

  /** Where the database matters, all operations name the same one. */
  #optionsFor({ isBatch, operations, limits }: Work): TransactionOptions {
    const [first] = operations;
    const database = first?.fields.database;
    const onlyReads = operations.every(isReading);
    // A Batch sees one state throughout, as if no other query ran at the same time.
    if (isBatch) {
      const mode = onlyReads ? "snapshot, read only" : "serializable";
      // Returned rows may need disk space, which must be reserved before the commit. A change that
      // is not as expected must still be rolled back.
      const isShort = !operations.some(
        (operation) => isReading(operation) || returnsRows(operation) || isChecked(operation),
      );
      const changes = isShort && limits.length === 0 ? operations.length : 0;
      return { mode, database, changes };
    }
    if (first !== undefined && isReading(first)) return { mode: readMode(first), database };
    const isFiltered = limits.some((limit) => "written" in limit);
    const readsAfterChange =
      this.#dialect.readsAfterChange && (isFiltered || operations.some(returnsRows));
    // Nothing may happen between reading the rows and changing them.
    const isCompared = limits.some((limit) => "touched" in limit);
    const mode = readsAfterChange || isCompared ? "serializable" : "read committed";
    // A change that exceeds a limit must still be rolled back.
    return { mode, database, changes: limits.length === 0 ? 1 : 0 };
  }
}

/** Nothing may block the event loop for long. */
async function parseLong(operations: ParsedOperations): Promise<void> {
  await runCooperatively(operations.parse());
  for (const { fields } of operations.all) await runCooperatively(writeLongCells(fields));
}

/** A page and `include` may take several statements, which must see one state. */
function readMode({ fields: { after = [], include } }: Operation<"Select">): Mode {
  return after.length > 1 || include !== undefined ? "snapshot, read only" : "read only";
}

const START_TIMEOUT_MS = 5000;

export interface RemoteOptions {
  readonly timeLimit: number;
  readonly log: Logger;
  /** Concurrent queries, each on a connection. */
  readonly poolSize: number;
}

interface Server<Leased extends Session> {
  readonly dialect: Dialect<Leased>;
  readonly connections: ConnectionSource<Leased>;
  /** The host and port, or the Unix socket. */
  readonly place: string;
  /** The end of the error message: `to database shop` or `of user ann`. */
  readonly requested: string;
}

/**
 * Opens a store over a server. Until the server is reachable, queries are answered with 503.
 *
 * @throws Error that says why the server refuses the engine, without the password
 */
export async function openRemoteStore<Leased extends Session>(
  server: Server<Leased>,
  options: RemoteOptions,
): Promise<Store> {
  const { dialect, connections, place, requested } = server;
  const check = new DatabaseCheck(connections, dialect, options.timeLimit);
  try {
    await check.run(START_TIMEOUT_MS);
  } catch (error) {
    // A server that is too busy has not refused the engine.
    const isSlow = error instanceof EngineRefusal && error.code === "query_timeout";
    if (!isSlow && !dialect.failures.isUnavailable(error)) {
      await check.close();
      throw new Error(
        `${dialect.name} on ${place} refuses the connection ${requested}: ${innermostReason(error)}`,
      );
    }
  }
  return new RemoteStore(server, options, check);
}
