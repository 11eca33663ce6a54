import type { Logger } from "pino";
import type { Operation } from "../../query/operation-types.ts";
import type { OperationFields, ReadingName } from "../../query/operations.ts";
import { jsonAnswer, openUnnamedFile, takeAnswer } from "../answers.ts";
import { LimitCounter, type QueryLimit } from "../limits.ts";
import { parseBodyExactly } from "../parse.ts";
import { EngineRefusal } from "../refusal.ts";
import { type RowStream, Spool } from "../spool.ts";
import { isOfTables, isReading, previewedIn, returnsRows } from "../sql/answers.ts";
import type { Answer, QueryRequest, SchemaPlace, Store } from "../store.ts";
import { ConcurrencyLimiter } from "./concurrency-limiter.ts";
import type { Dialect, Mode } from "./dialect.ts";
import { refused } from "./failures.ts";
import { type HealthCheck, Reachability } from "./health-check.ts";
import { performAll, performPreview, placeOf, read, type Work } from "./operations.ts";
import type { ConnectionPool } from "./pool.ts";
import type { Session } from "./session.ts";
import { type Conditions, Transactions } from "./transaction.ts";

/** How long the server may take to answer a health check, in milliseconds. */
const CHECK_PATIENCE_MS = 1500;

/** What a store over a server is made of. */
export interface RemoteStoreOptions<Leased extends Session> {
  readonly dialect: Dialect<Leased>;
  readonly pool: ConnectionPool<Leased>;
  /** How many queries are carried out at a time, each on a connection; the others wait in turn. */
  readonly poolSize: number;
  readonly check: HealthCheck<Leased>;
  /** How long a query may take in the database, in milliseconds. */
  readonly timeLimit: number;
  readonly log: Logger;
}

/**
 * The databases of one server. Every query is one transaction, whose answer is whole before a byte
 * of it is sent, unless its rows are streamed.
 */
export class RemoteStore<Leased extends Session> implements Store {
  readonly #dialect: Dialect<Leased>;
  readonly #pool: ConnectionPool<Leased>;
  readonly #check: HealthCheck<Leased>;
  readonly #transactions: Transactions<Leased>;
  readonly #slots: ConcurrencyLimiter;
  /** Of them those for rows that go out as they come: a client that reads slowly holds one. */
  readonly #streamSlots: ConcurrencyLimiter;
  readonly #reachability: Reachability;

  constructor({ dialect, pool, poolSize, check, timeLimit, log }: RemoteStoreOptions<Leased>) {
    this.#dialect = dialect;
    this.#pool = pool;
    this.#check = check;
    this.#transactions = new Transactions(pool, dialect, timeLimit);
    this.#slots = new ConcurrencyLimiter(poolSize);
    this.#streamSlots = new ConcurrencyLimiter(Math.ceil(poolSize / 2));
    this.#reachability = new Reachability(dialect.name, log);
  }

  async execute({ body, limits }: QueryRequest, signal: AbortSignal): Promise<Answer> {
    const { isBatch, operations } = parseBodyExactly(body);
    const work = { isBatch, operations: operations.filter(isOfTables), limits };
    if (isBatch) this.#dialect.requireAtomic?.(work.operations);
    return this.#hold(signal, async () => {
      const [first] = operations;
      if (first?.name === "CreateDatabase") return this.#create(first.fields.database, signal);
      if (first?.name === "Preview") return this.#preview(first.fields, limits, signal);
      if (first?.name === "DropDatabase") return this.#drop(first.fields.database, signal);
      return this.#perform(work, signal);
    });
  }

  async stream({ body }: QueryRequest, stream: RowStream, signal: AbortSignal): Promise<void> {
    const [operation] = parseBodyExactly(body).operations.filter(isReading);
    if (operation === undefined) throw new Error("Rows were asked for of no Select");
    const { database } = operation.fields;
    const conditions = { mode: modeOf(operation), database, stream };
    await this.#streamSlots.hold(signal, () =>
      this.#hold(signal, () =>
        this.#transactions.run(conditions, signal, async (session) => {
          stream.reset();
          await read(this.#dialect, session, operation, stream);
        }),
      ),
    );
  }

  async readSchema(place: SchemaPlace, signal: AbortSignal): Promise<Answer> {
    return this.#hold(signal, async () => {
      const conditions = { mode: "read only", database: place.database } as const;
      const data = await this.#transactions.run(conditions, signal, (session) =>
        this.#describe(session, place),
      );
      return jsonAnswer({ status: "success", data });
    });
  }

  async check(): Promise<void> {
    if (this.#reachability.hasJustAnswered) return;
    try {
      await this.#check.run(CHECK_PATIENCE_MS);
      this.#reachability.noteSuccess();
    } catch (error) {
      this.#reachability.noteFailure(error);
      throw new EngineRefusal(...refused.unavailable);
    }
  }

  async close(): Promise<void> {
    await Promise.all([this.#pool.close(), this.#check.close()]);
  }

  /** Does the work when it is its turn; only refusals, and errors that may be logged, leave it. */
  async #hold<Result>(signal: AbortSignal, work: () => Promise<Result>): Promise<Result> {
    const { refusalOf, withoutWords } = this.#dialect.failures;
    return this.#slots.hold(signal, async () => {
      try {
        const answer = await work();
        this.#reachability.noteSuccess();
        return answer;
      } catch (error) {
        const refusal = refusalOf(error);
        if (refusal?.code === "database_unavailable") this.#reachability.noteFailure(error);
        throw refusal ?? withoutWords(error);
      }
    });
  }

  async #create(name: string, signal: AbortSignal): Promise<Answer> {
    await this.#transactions.run({ mode: "read committed" }, signal, (session) =>
      this.#dialect.createDatabase(session, name),
    );
    return jsonAnswer({ status: "success", message: `Database ${name} created` });
  }

  async #drop(name: string, signal: AbortSignal): Promise<Answer> {
    const { dropDatabase, requireDroppable } = this.#dialect;
    const drop = () =>
      this.#transactions.run({ mode: "read committed" }, signal, (session) =>
        dropDatabase(session, name),
      );
    if (requireDroppable === undefined) await drop();
    else {
      const conditions = { mode: "read only", database: name } as const;
      await this.#transactions.run(conditions, signal, requireDroppable);
      await this.#pool.without(name, drop);
    }
    return jsonAnswer({ status: "success", message: `Database ${name} dropped` });
  }

  async #perform(work: Work, signal: AbortSignal): Promise<Answer> {
    return this.#spool(this.#conditionsOf(work), signal, (session, spool) =>
      performAll(this.#dialect, session, work, spool),
    );
  }

  async #preview(
    fields: OperationFields["Preview"],
    limits: readonly QueryLimit[],
    signal: AbortSignal,
  ): Promise<Answer> {
    const { database } = previewedIn(fields).fields;
    const conditions = { mode: "serializable", database, end: "rollback" } as const;
    return this.#spool(conditions, signal, (session, spool) =>
      performPreview(this.#dialect, session, fields, spool, new LimitCounter(limits)),
    );
  }

  /** Answers what the work writes in a transaction. */
  async #spool(
    conditions: Conditions,
    signal: AbortSignal,
    work: (session: Leased, spool: Spool) => Promise<void>,
  ): Promise<Answer> {
    let spool = new Spool(openUnnamedFile);
    try {
      await this.#transactions.run(conditions, signal, async (session) => {
        // What an earlier attempt has written is not what this one finds.
        spool.close();
        spool = new Spool(openUnnamedFile);
        await work(session, spool);
        // Its room is taken before the commit: no committed query is reported as failed for it.
        spool.flush();
      });
      return takeAnswer(spool);
    } finally {
      spool.close();
    }
  }

  /** Where it matters which database it is, all operations are about the same. */
  #conditionsOf({ isBatch, operations, limits }: Work): Conditions {
    const [first] = operations;
    const database = first?.fields.database;
    const onlyReads = operations.every(isReading);
    // A Batch sees one state throughout, as if no other query ran beside it.
    if (isBatch) {
      const mode = onlyReads ? "snapshot, read only" : "serializable";
      // Rows that are answered may need room on the disk, which is taken before the commit.
      const isShort = !operations.some(
        (operation) => isReading(operation) || returnsRows(operation),
      );
      return { mode, database, endsWithLast: isShort && limits.length === 0 };
    }
    if (first !== undefined && isReading(first)) return { mode: modeOf(first), database };
    const readsBehind = this.#dialect.readsBehind && operations.some(returnsRows);
    // Between the look at the rows and their change nothing may happen.
    const isCompared = limits.some(({ touched }) => touched !== undefined);
    const mode = readsBehind || isCompared ? "serializable" : "read committed";
    // What is counted against a limit may have to be taken back.
    return { mode, database, endsWithLast: limits.length === 0 };
  }

  async #describe(session: Leased, { database, table }: SchemaPlace): Promise<object> {
    if (database === undefined) return { databases: await this.#dialect.listDatabases(session) };
    const place = placeOf(this.#dialect, session, database);
    if (table === undefined) return { tables: await this.#dialect.listTables(place) };
    return this.#dialect.describeTable(place, table);
  }
}

/** A page may take several statements, which are to see one state. */
function modeOf({ fields }: Operation<ReadingName>): Mode {
  return fields.after !== undefined && fields.after.length > 1
    ? "snapshot, read only"
    : "read only";
}
