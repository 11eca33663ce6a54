import { PostgresQueryCompiler } from "kysely";
import { type Client, DatabaseError, Query } from "pg";
import { RowTooLong, UnknownOutcome } from "../refusal.ts";
import { ConnectionLost, type Mode, type QueryContext, type Session } from "../remote/dialect.ts";
import { KnownTables, OutdatedTable } from "../remote/known-tables.ts";
import type { RowReader } from "../remote/reading.ts";
import type { RowOutput } from "../spool.ts";
import { compileForServer, type Fragment } from "../sql/fragment.ts";
import { ofParameter } from "./failures.ts";
import type { PostgresTable } from "./kinds.ts";

/** Values in PostgreSQL's text format, in the order of the columns. */
export type TextRow = (string | null)[];

/** OIDs of the columns' types. */
type ResultTypes = readonly { readonly dataTypeID: number }[];

interface Statement {
  readonly text: string;
  readonly values: unknown[];
  /** Of a prepared statement. */
  readonly name?: string;
}

type OnRow = (row: TextRow, types: ResultTypes) => void;

/** The first byte of a row (PostgreSQL, "Message Formats"). */
const DATA_ROW = 0x44;

/** The driver would make several objects of each row, and one of its settings for each query. */
class RowQuery extends Query {
  readonly name: string | undefined;
  /** The number of rows. */
  readonly answer: Promise<number>;
  /** What `onRow` has thrown. The rows that follow are still read, but not passed on. */
  failure: unknown;
  readonly #onDescribed: (query: RowQuery) => void;
  readonly #onRow: OnRow;
  #columns: ResultTypes = [];

  constructor(
    { text, values, name }: Statement,
    onDescribed: (query: RowQuery) => void,
    onRow: OnRow,
  ) {
    const { promise, resolve, reject } = Promise.withResolvers<number>();
    super(text, values, (error, result) => {
      if (error) reject(error);
      else resolve(result.rowCount ?? 0);
    });
    this.name = name;
    this.answer = promise;
    this.#onDescribed = onDescribed;
    this.#onRow = onRow;
  }

  /** Called by the driver, which is not to see the rows that follow. */
  handleRowDescription({ fields }: { readonly fields: ResultTypes }): void {
    this.#columns = fields;
    this.#onDescribed(this);
  }

  readRow(bytes: Buffer, start: number, end: number): void {
    if (this.failure !== undefined) return;
    try {
      this.#onRow(rowIn(bytes, start, end), this.#columns);
    } catch (error) {
      // An error thrown to the stream would close the connection.
      this.failure = error;
    }
  }
}

/** The number of values, then for each its length, or -1 for null, and its text. */
function rowIn(bytes: Buffer, start: number, end: number): TextRow {
  const text = bytes.toString("utf8", start, end);
  // Without longer characters, all values are at the same places in the text.
  const isPlain = text.length === end - start;
  const count = bytes.readUInt16BE(start);
  // A list that grows has room for 17 values.
  const row: TextRow = new Array(count);
  let at = start + 2;
  for (let index = 0; index < count; index += 1) {
    const length = bytes.readInt32BE(at);
    at += 4;
    if (length < 0) row[index] = null;
    else {
      const next = at + length;
      row[index] = isPlain
        ? text.slice(at - start, next - start)
        : bytes.toString("utf8", at, next);
      at = next;
    }
  }
  return row;
}

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
    intervalstyle: "postgres",
    array_nulls: "on",
    standard_conforming_strings: "on",
    quote_all_identifiers: "off",
    xmloption: "content",
  };
  const entries = Object.entries(values);
  return entries.map(([name, value]) => `${words} ${name} = '${value}'`).join("; ");
}

/** The text that the server could not read as a value, by the server's error. */
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
export class PostgresSession implements Session, RowReader {
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
  /** True in a transaction that can change nothing. */
  #onlyReads = false;
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
  /** The query that the server answers, once it has described its rows. */
  #described: RowQuery | undefined;

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
    if (id !== String(cancelKey(this.#client)?.[0])) return;
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
    this.#onlyReads = mode.endsWith("read only");
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

  isRow(bytes: Buffer, header: number): boolean {
    return bytes[header] === DATA_ROW;
  }

  get isReading(): boolean {
    return this.#described !== undefined;
  }

  readRow(bytes: Buffer, start: number, end: number): void {
    this.#described?.readRow(bytes, start, end);
  }

  async rows(fragment: Fragment): Promise<TextRow[]> {
    const rows: TextRow[] = [];
    await this.#ask(fragment, (row) => rows.push(row));
    return rows;
  }

  run(fragment: Fragment, isLast = false): Promise<number> {
    return this.#ask(fragment, () => {}, isLast);
  }

  async end(words: "commit" | "rollback"): Promise<void> {
    this.#beginning = undefined;
    this.#cork();
    const ended = this.#ended ?? (this.#begun && this.#send(words));
    this.#begun = undefined;
    // Its end cannot fail with a live connection, and is sent together with what follows.
    if (this.#onlyReads) return;
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
  async stream(fragment: Fragment, output: RowOutput, write: OnRow): Promise<void> {
    const { stream } = this.#client.connection;
    const resume = () => stream.resume();
    try {
      await this.#ask(fragment, (row, types) => {
        write(row, types);
        if (output.backlog === undefined || stream.isPaused()) return;
        stream.pause();
        // Not in this turn of the event loop, even if the client has caught up already.
        void output.backlog.then(() => setImmediate(resume));
      });
    } finally {
      // The last rows may have come together with the end of the answer.
      resume();
    }
  }

  async #ask(fragment: Fragment, onRow: OnRow, isLast = false): Promise<number> {
    const statement = this.#prepare(fragment);
    if (!this.#isDirect) await this.#answerOf(Promise.resolve());
    const query = new RowQuery(statement, this.#onDescribed, onRow);
    this.#client.query(query);
    if (isLast) this.#noteLast();
    try {
      const count = await this.#answerOf(query.answer);
      if (query.failure !== undefined) throw query.failure;
      return count;
    } catch (error) {
      if (error instanceof DatabaseError) {
        const [, place] = ofParameter.exec(error.where ?? "") ?? [];
        if (place !== undefined) unreadTexts.set(error, statement.values[Number(place) - 1]);
      }
      throw error;
    } finally {
      if (this.#described === query) this.#described = undefined;
    }
  }

  readonly #onDescribed = (query: RowQuery): void => {
    this.#described = query;
  };

  /** Sends the beginning of the transaction if it has not begun. Names the statement. */
  #prepare(fragment: Fragment): Statement {
    const { text, values } = compile(fragment);
    this.#cork();
    if (this.#beginning !== undefined) {
      this.#begun = this.#send(this.#beginning);
      this.#beginning = undefined;
    }
    const statement = { text, values };
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
export function cancelKey(client: Client): [number, number] | undefined {
  const id = "processID" in client ? client.processID : undefined;
  const secret = "secretKey" in client ? client.secretKey : undefined;
  return typeof id === "number" && typeof secret === "number" ? [id, secret] : undefined;
}

export type PostgresContext = QueryContext<PostgresSession>;

export const compiler = new PostgresQueryCompiler();

/** @throws EngineRefusal `query_too_complex` for more values than a statement can carry */
export function compile(fragment: Fragment) {
  const { sql: text, parameters } = compileForServer(compiler, fragment);
  return { text, values: parameters.map(asText) };
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
