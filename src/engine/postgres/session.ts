import { PostgresQueryCompiler, sql } from "kysely";
import {
  type Client,
  DatabaseError,
  Query,
  type QueryArrayConfig,
  type QueryArrayResult,
} from "pg";
import { RowTooLong, UnknownOutcome } from "../refusal.ts";
import { ConnectionLost, type Mode, type QueryContext, type Session } from "../remote/dialect.ts";
import { KnownTables, OutdatedTable } from "../remote/known-tables.ts";
import type { RowOutput } from "../spool.ts";
import { compileForServer, type Fragment } from "../sql/fragment.ts";
import type { PostgresTable } from "./kinds.ts";

/** Values in PostgreSQL's text format, in the order of the columns. */
export type Row = (string | null)[];

/** OIDs of the columns' types. */
export type ResultTypes = readonly { readonly dataTypeID: number }[];

/** Maximum number of prepared statements per connection, and of characters in one. */
const PREPARED_LIMIT = 100;
const LONGEST_PREPARED = 4096;

/** The server ends the session if a transaction is idle for this long. */
const IDLE_LIMIT_MS = 60_000;

const characteristics: Record<Mode, string> = {
  "read only": "read only",
  "read committed": "isolation level read committed",
  "snapshot, read only": "isolation level repeatable read, read only",
  serializable: "isolation level serializable",
};

/** @param timeLimit in milliseconds per statement, 0 for none */
function settings(words: "set" | "set local", timeLimit: number): string {
  const values = {
    statement_timeout: timeLimit,
    idle_in_transaction_session_timeout: IDLE_LIMIT_MS,
    timezone: "UTC",
    datestyle: "ISO, YMD",
    bytea_output: "hex",
    extra_float_digits: 3,
  };
  const entries = Object.entries(values);
  return entries.map(([name, value]) => `${words} ${name} = '${value}'`).join("; ");
}

/** Where the server could not read the text of a value. */
const ofParameter = /parameter \$(\d+)/;

/** That text, by the server's error. */
const unreadTexts = new WeakMap<DatabaseError, unknown>();

export function unreadText(error: DatabaseError): unknown {
  return unreadTexts.get(error);
}

/**
 * Sends statements without waiting for the replies to earlier ones. Each ends with a `Sync`, so the
 * server carries out what follows a failed statement; in a failed transaction, it refuses that. If
 * `begin` itself fails, what follows is outside a transaction. It can still change nothing, because
 * the connection is read-only except in transactions that say otherwise.
 *
 * Behind a pooler, settings hold only for one transaction. Statements then wait for its `begin`.
 *
 * Methods throw PostgreSQL's `DatabaseError` or `ConnectionLost`.
 */
export class PostgresSession implements Session {
  /** Shared with other sessions until the transaction defines a table. */
  tables: KnownTables<PostgresTable>;
  isUntouched = false;
  readonly #shared: KnownTables<PostgresTable>;
  readonly #client: Client;
  readonly #timeLimit: number;
  readonly #plans: number;
  readonly #names = new Map<string, string>();
  #isDirect = false;
  #isReadOnlyByDefault = false;
  #isOutdated = false;
  #isCorked = false;
  #beginning: string | undefined;
  #begun: Promise<unknown> | undefined;
  #ended: Promise<unknown> | undefined;
  #changesToCome = 0;
  #isAnswered = false;
  /** True after a failed statement, whose consequences tell nothing of outdated plans. */
  #hasFailed = false;
  #reliesOnKnown = false;
  #onLastSent: (() => void) | undefined;

  /** @param timeLimit usual limit, in milliseconds per statement */
  constructor(client: Client, tables: KnownTables<PostgresTable>, timeLimit: number) {
    this.#client = client;
    this.tables = tables;
    this.#shared = tables;
    this.#timeLimit = timeLimit;
    this.#plans = tables.plans;
  }

  /** Finds out whether the connection keeps to one server process, and if so, sets it up. */
  async open(): Promise<void> {
    const { rows } = await this.#client.query<(string | null)[]>({
      text: `select pg_catalog.pg_backend_pid(),
        pg_catalog.current_setting('default_transaction_read_only', true)`,
      rowMode: "array",
    });
    const [[id, readOnly] = []] = rows;
    // A pooler gives the client a process id of its own.
    if (id !== String(keyOf(this.#client)?.[0])) return;
    await this.#client.query(
      `${settings("set", this.#timeLimit)}; set default_transaction_read_only = on`,
    );
    this.#isDirect = true;
    this.#isReadOnlyByDefault = readOnly === "on";
  }

  /** True if the connection has prepared too many statements, or some that are outdated. */
  get isWornOut(): boolean {
    const isFull = this.#names.size >= PREPARED_LIMIT;
    return isFull || this.#isOutdated || this.#plans !== this.#shared.plans;
  }

  /** Sets up a transaction that begins with its first statement. Parameters as in `Dialect`. */
  begin(mode: Mode, timeLimit: number, changes: number): void {
    this.#beginning = this.#wordsToBegin(mode, timeLimit);
    this.#begun = undefined;
    this.#ended = undefined;
    this.#changesToCome = changes;
    this.#isAnswered = false;
    this.#hasFailed = false;
    this.isUntouched = false;
    this.tables = this.#shared;
    this.#reliesOnKnown = false;
    this.#onLastSent = undefined;
  }

  #wordsToBegin(mode: Mode, timeLimit: number): string | undefined {
    const words = `begin ${characteristics[mode]}`;
    if (!this.#isDirect) return `${words}; ${settings("set local", timeLimit)}`;
    const isUsual = timeLimit === this.#timeLimit;
    // Each statement is a transaction by itself.
    if (mode === "read only" && isUsual) return undefined;
    const mayWrite = !mode.endsWith("read only") && !this.#isReadOnlyByDefault;
    const limit = isUsual ? "" : `; set local statement_timeout = ${timeLimit}`;
    return `${words}${mayWrite ? ", read write" : ""}${limit}`;
  }

  knownTable(database: string, name: string): PostgresTable | undefined {
    const known = this.tables.find(database, name);
    if (known !== undefined) this.#reliesOnKnown = true;
    return known;
  }

  forgetTables(): boolean {
    if (this.#reliesOnKnown) this.#shared.forget();
    return this.#reliesOnKnown;
  }

  lastSent(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#onLastSent = resolve;
    return promise;
  }

  async rows(fragment: Fragment): Promise<Row[]> {
    return (await this.#ask(fragment)).rows;
  }

  async run(fragment: Fragment, isLast = false): Promise<number> {
    return (await this.#ask(fragment, isLast)).rowCount ?? 0;
  }

  async end(words: "commit" | "rollback"): Promise<void> {
    this.#beginning = undefined;
    const ended = this.#ended ?? (this.#begun && this.#client.query(words));
    this.#begun = undefined;
    try {
      await ended;
    } catch (error) {
      throw error instanceof DatabaseError ? error : new ConnectionLost(error);
    }
    if (this.tables !== this.#shared) this.#shared.forget();
  }

  /** Runs a definition. Known tables are outdated once it is committed. */
  async define(fragment: Fragment): Promise<void> {
    this.tables = new KnownTables();
    await this.run(fragment);
  }

  /**
   * Ends the transaction and runs a definition that PostgreSQL does not allow in one.
   *
   * @throws UnknownOutcome if the connection is lost
   */
  async defineAlone(fragment: Fragment): Promise<void> {
    await this.end("commit");
    this.#shared.forget();
    // The connection may change data from now on, so it is not used again.
    this.#isOutdated = true;
    try {
      const reset = "reset default_transaction_read_only";
      if (this.#isDirect) await this.#answerOf(this.#client.query(reset));
      await this.run(fragment);
    } catch (error) {
      throw error instanceof ConnectionLost ? new UnknownOutcome(error) : error;
    }
  }

  /** Passes on rows as they arrive. The server waits while the output has a backlog. */
  async stream(
    fragment: Fragment,
    output: RowOutput,
    write: (row: Row, types: ResultTypes) => void,
  ): Promise<void> {
    const query = new Query<Row>(await this.#prepare(fragment));
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const { stream } = this.#client.connection;
    let failure: unknown;
    query.on("row", (row, result) => {
      if (failure !== undefined) return;
      try {
        write(row, result?.fields ?? []);
      } catch (error) {
        // An error thrown to the connection would end the process.
        failure = error;
      }
      if (output.backlog === undefined || stream.isPaused()) return;
      stream.pause();
      void output.backlog.then(() => stream.resume());
    });
    query.on("error", reject).on("end", resolve);
    this.#client.query(query);
    await this.#answerOf(promise);
    if (failure !== undefined) throw failure;
  }

  async #ask(fragment: Fragment, isLast = false): Promise<QueryArrayResult<Row>> {
    const statement = await this.#prepare(fragment);
    const answer = this.#client.query<Row>(statement);
    if (isLast) this.#noteLast();
    try {
      return await this.#answerOf(answer);
    } catch (error) {
      if (error instanceof DatabaseError) {
        const [, place] = ofParameter.exec(error.where ?? "") ?? [];
        if (place !== undefined) unreadTexts.set(error, statement.values?.[Number(place) - 1]);
      }
      throw error;
    }
  }

  /** Sends the beginning of the transaction if it has not begun. Names the statement. */
  async #prepare(fragment: Fragment): Promise<QueryArrayConfig> {
    const { text, values } = compile(fragment);
    this.#cork();
    if (this.#beginning !== undefined) {
      this.#begun = this.#send(this.#beginning);
      this.#beginning = undefined;
    }
    if (!this.#isDirect) await this.#answerOf(Promise.resolve());
    const statement = { text, values, rowMode: "array" } as const;
    const known = this.#names.get(text);
    if (known !== undefined) return { ...statement, name: known };
    const isFull = this.#names.size >= PREPARED_LIMIT;
    if (!this.#isDirect || isFull || text.length > LONGEST_PREPARED) return statement;
    const name = String(this.#names.size + 1);
    this.#names.set(text, name);
    return { ...statement, name };
  }

  /** Commits together with the last statement of all changes. */
  #noteLast(): void {
    this.#changesToCome -= 1;
    if (this.#changesToCome === 0 && this.#begun !== undefined) this.#ended = this.#send("commit");
    this.#onLastSent?.();
  }

  #send(words: string): Promise<unknown> {
    const answer = this.#client.query(words);
    answer.catch(() => {});
    return answer;
  }

  /** Sends all statements of this turn of the event loop with one write. */
  #cork(): void {
    if (this.#isCorked) return;
    this.#isCorked = true;
    const { stream } = this.#client.connection;
    stream.cork();
    process.nextTick(() => {
      this.#isCorked = false;
      stream.uncork();
    });
  }

  /** @throws UnknownOutcome if it is unknown whether the transaction is committed */
  async #answerOf<Result>(answer: Promise<Result>): Promise<Result> {
    try {
      const result = await answer;
      await this.#begun;
      this.#isAnswered = true;
      return result;
    } catch (error) {
      throw this.#failureOf(error instanceof DatabaseError ? error : await this.#firstError(error));
    }
  }

  /** A server that refuses to begin may close the connection before the next statement. */
  async #firstError(error: unknown): Promise<unknown> {
    try {
      await this.#begun;
      return error;
    } catch (first) {
      return first;
    }
  }

  #failureOf(error: unknown): Error {
    if (error instanceof DatabaseError) {
      const isOfPlan = !this.#hasFailed && this.#isOfPlan(error);
      this.#hasFailed = true;
      if (!isOfPlan) return error;
      // All connections close, and with them their prepared statements.
      this.#shared.outdatePlans();
      this.#reliesOnKnown = true;
      return new OutdatedTable();
    }
    const isRefused = error instanceof Error && "code" in error && error.code === "EPIPE";
    this.isUntouched = isRefused && !this.#isAnswered;
    const lost = error instanceof RowTooLong ? error : new ConnectionLost(error);
    return this.#ended === undefined || this.isUntouched ? lost : new UnknownOutcome(lost);
  }

  /**
   * True if a table has changed since a statement was prepared, or the prepared statement is gone.
   */
  #isOfPlan({ code, routine, where }: DatabaseError): boolean {
    // With a context, the statement is one of a trigger or function.
    if (!this.#isDirect || where !== undefined) return false;
    return code === "26000" || (code === "0A000" && routine === "RevalidateCachedQuery");
  }
}

/** The process id and secret that a cancel request must present. */
export function keyOf(client: Client): [number, number] | undefined {
  const id = "processID" in client ? client.processID : undefined;
  const secret = "secretKey" in client ? client.secretKey : undefined;
  return typeof id === "number" && typeof secret === "number" ? [id, secret] : undefined;
}

export type PostgresContext = QueryContext<PostgresSession>;

const compiler = new PostgresQueryCompiler();

/** @throws EngineRefusal `query_too_complex` for more values than a statement can carry */
export function compile(fragment: Fragment) {
  const { sql: text, parameters } = compileForServer(compiler, fragment);
  return { text, values: parameters.map(asText) };
}

/** Compiles a fragment without values to text, so that its names are quoted once. */
export function flatten(fragment: Fragment): Fragment {
  const { text, values } = compile(fragment);
  return values.length === 0 ? sql.raw(text) : fragment;
}

/** All values are sent as text. Casts tell the server their types. */
function asText(value: unknown): string | readonly string[] | null {
  switch (typeof value) {
    case "string":
      return value;
    case "number":
    case "bigint":
      return String(value);
    default:
      if (value === null) return null;
      if (Array.isArray(value)) return value.map(String);
      throw new TypeError(`A ${typeof value} cannot be bound to an SQL parameter`);
  }
}
