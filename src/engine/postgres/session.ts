import { sql } from "kysely";
import { type Client, type Connection, DatabaseError, type Submittable } from "pg";
import { serialize } from "pg-protocol";
import { UnknownOutcome } from "../refusal.ts";
import { ConnectionLost, type Pipeline, type Place, type Session } from "../remote/dialect.ts";
import { KnownTables, OutdatedTable } from "../remote/known-tables.ts";
import type { RowOutput } from "../spool.ts";
import type { Fragment } from "../sql/fragment.ts";
import { failures } from "./failures.ts";
import type { ResultColumn, RowBytes } from "./row-bytes.ts";
import { compile, type PostgresTable } from "./tables.ts";

/** A statement as the driver takes it, its values PostgreSQL's text. */
export interface Statement {
  readonly text: string;
  readonly values: (string | null)[];
}

/** A statement that a server process knows by a name. */
interface Prepared {
  readonly text: string;
  readonly name: string;
  /** What carries it out without values, once that was said. */
  bound?: Buffer;
  /** The columns of its rows, once they were told: the server refuses it if they are others by now. */
  columns?: readonly ResultColumn[];
}

/** Statements that one connection has prepared at the most, and the longest of them. */
const PREPARED_LIMIT = 100;
const LONGEST_PREPARED = 4096;

/**
 * Statements that one server process has prepared under names, so that each is parsed and planned once.
 */
class PreparedStatements {
  readonly #known = new Map<string, Prepared>();
  readonly #areOutdated: () => boolean;
  #names = 0;
  /** What is on its way to the server, and what the server is to forget. */
  #coming: Prepared[] = [];
  #unwanted: Prepared[] = [];

  /** `areOutdated` tells whether a table has changed since it was asked last. */
  constructor(areOutdated: () => boolean) {
    this.#areOutdated = areOutdated;
  }

  /** What goes up ahead of everything else: the names that the server is to forget. */
  takeUnwanted(): Buffer[] {
    if (this.#areOutdated()) {
      this.#unwanted.push(...this.#known.values());
      this.#known.clear();
    }
    const closed = this.#unwanted.map(({ name }) => serialize.close({ type: "S", name }));
    this.#unwanted = [];
    return closed;
  }

  find(text: string): Prepared | undefined {
    return this.#known.get(text) ?? this.#coming.find((prepared) => prepared.text === text);
  }

  /** A name for a statement that goes up; undefined for one that is not worth it. */
  add(text: string): Prepared | undefined {
    if (text.length > LONGEST_PREPARED) return undefined;
    this.#names += 1;
    const prepared = { text, name: String(this.#names) };
    this.#coming.push(prepared);
    return prepared;
  }

  /** Tells whether what went up last was carried out: else nobody knows how far it came. */
  settle(isDone: boolean): void {
    if (this.#coming.length === 0) return;
    if (isDone) for (const prepared of this.#coming) this.#known.set(prepared.text, prepared);
    else this.#unwanted.push(...this.#coming);
    this.#coming = [];
    for (const [text, prepared] of this.#known) {
      if (this.#known.size <= PREPARED_LIMIT) break;
      this.#known.delete(text);
      this.#unwanted.push(prepared);
    }
  }
}

const askForTypes = serialize.describe({ type: "P" });
const execution = serialize.execute();
const sync = serialize.sync();

/** Statements that go up together, of which the server skips those behind one that fails. */
interface Asked {
  /** What begins the transaction. */
  readonly opening: readonly string[];
  readonly statements: readonly Statement[];
  /** Ends the transaction: the end of the exchange does where none was begun. */
  readonly closing?: "commit" | "sync" | undefined;
  /** Where statements are prepared, and how. */
  readonly prepared?: PreparedStatements | undefined;
}

/**
 * Statements with what opens and ends their transaction, sent at once. The server skips what stands behind
 * a statement that fails, and ends the transaction with them where none was begun (PostgreSQL, "Extended
 * Query").
 */
class Exchange implements Submittable {
  /** Resolves at the end. Rejects with the server's error, or that of the connection. */
  readonly done: Promise<void>;
  readonly #asked: Asked;
  readonly #ending = Promise.withResolvers<void>();
  /** How many statements the server has carried out. */
  #done = 0;
  /** True once it was written to the connection. */
  isSent = false;
  /** How many rows each of the statements has changed that were carried out. */
  readonly counts: number[] = [];
  #described: Prepared | undefined;

  constructor(asked: Asked) {
    this.#asked = asked;
    this.done = this.#ending.promise;
  }

  /** True while what the server answers is about the statements. */
  protected get isReached(): boolean {
    return this.#done >= this.#asked.opening.length && !this.isCarriedOut;
  }

  /** True once the server has carried out the statements, so that a commit behind them may be done too. */
  get isCarriedOut(): boolean {
    return this.counts.length === this.#asked.statements.length;
  }

  /** True if it ends the transaction. */
  get isClosing(): boolean {
    return this.#asked.closing !== undefined;
  }

  /** Called by the driver when it is their turn, as are those below. */
  submit({ stream }: Connection): void {
    const { opening, statements, closing, prepared } = this.#asked;
    const messages = prepared?.takeUnwanted() ?? [];
    for (const text of opening) this.#put(messages, { text, values: [] });
    for (const statement of statements) this.#put(messages, statement, this.wantsTypes);
    if (closing === "commit") this.#put(messages, { text: closing, values: [] });
    messages.push(sync);
    this.isSent = true;
    stream.write(Buffer.concat(messages));
  }

  /** True if the columns of the rows are to be told. */
  protected get wantsTypes(): boolean {
    return false;
  }

  /** The columns of the rows, told before the first of them. */
  protected takeTypes(_columns: readonly ResultColumn[]): void {}

  #put(messages: Buffer[], { text, values }: Statement, wantsTypes = false): void {
    const { prepared } = this.#asked;
    const known = prepared?.find(text);
    const named = known ?? prepared?.add(text);
    if (known === undefined) messages.push(serialize.parse({ text, name: named?.name ?? "" }));
    if (named !== undefined && values.length === 0 && !wantsTypes) {
      named.bound ??= Buffer.concat([serialize.bind({ statement: named.name }), execution]);
      messages.push(named.bound);
      return;
    }
    messages.push(serialize.bind({ statement: named?.name ?? "", values }));
    if (wantsTypes && named?.columns !== undefined) this.takeTypes(named.columns);
    else if (wantsTypes) {
      this.#described = named;
      messages.push(askForTypes);
    }
    messages.push(execution);
  }

  handleRowDescription({ fields }: { readonly fields: readonly ResultColumn[] }): void {
    if (!this.isReached) return;
    if (this.#described !== undefined) this.#described.columns = fields;
    this.takeTypes(fields);
  }

  handleCommandComplete({ text }: { readonly text: string }): void {
    if (this.isReached) this.counts.push(Number(/\d+$/.exec(text)?.[0] ?? 0));
    this.#done += 1;
  }

  handleEmptyQuery(): void {}

  handleReadyForQuery(): void {
    this.#ending.resolve();
  }

  handleError(error: unknown): void {
    this.#ending.reject(error);
  }
}

/** A row, its values PostgreSQL's text, in the order of the columns. */
export type Row = readonly (string | null)[];

/** An exchange whose rows are taken as text. */
class TextExchange extends Exchange {
  readonly rows: Row[] = [];

  handleDataRow({ fields }: { readonly fields: Row }): void {
    if (this.isReached) this.rows.push(fields);
  }
}

/** A statement that has not gone up yet, and who waits for how many rows it changes. */
interface Queued {
  readonly statement: Statement;
  readonly answer: PromiseWithResolvers<number>;
}

/** How statements go up together. */
type SendAll = (
  statements: readonly Statement[],
  isEnd: boolean,
) => { readonly exchange: Exchange; readonly done: Promise<void> };

/** The last statements of several operations, which go up in one write. */
class PostgresPipeline implements Pipeline {
  readonly #sendAll: SendAll;
  #queue: Queued[] = [];
  #onQueued: (() => void) | undefined;

  constructor(sendAll: SendAll) {
    this.#sendAll = sendAll;
  }

  /** True where the last statement of an operation is to wait for those of others. */
  get isOpen(): boolean {
    return this.#onQueued !== undefined;
  }

  get isEmpty(): boolean {
    return this.#queue.length === 0;
  }

  /** Drops what has not gone up. */
  close(): void {
    this.#queue = [];
    this.#onQueued = undefined;
  }

  queued(): Promise<true> {
    const { promise, resolve } = Promise.withResolvers<true>();
    this.#onQueued = () => resolve(true);
    return promise;
  }

  /** Resolves to how many rows the statement has changed, once it was sent. */
  add(statement: Statement): Promise<number> {
    const answer = Promise.withResolvers<number>();
    this.#queue.push({ statement, answer });
    this.#onQueued?.();
    return answer.promise;
  }

  async send(isEnd: boolean): Promise<void> {
    if (this.isEmpty) return;
    const queue = this.#queue;
    this.#queue = [];
    const { exchange, done } = this.#sendAll(
      queue.map(({ statement }) => statement),
      isEnd,
    );
    try {
      await done;
    } catch (error) {
      // The server has skipped those behind the one that failed.
      const failed = queue.slice(exchange.counts.length);
      if (failed.length === 0) throw error;
      for (const { answer } of failed) answer.reject(error);
    } finally {
      for (const [index, count] of exchange.counts.entries()) queue[index]?.answer.resolve(count);
    }
  }
}

/** The first byte of a row, and the bytes before what a message says (PostgreSQL, "Message Formats"). */
const DATA_ROW = 0x44;
const HEAD_LENGTH = 5;

/** Bytes of rows that are handed over together, and how long they wait for others, in milliseconds. */
const PIECE_LENGTH = 64 * 1024;
const GATHERING_TIME = 5;

/** What comes on a connection, before the driver reads it. */
class ConnectionTap {
  readonly #stream: Connection["stream"];
  readonly #listener: CallableFunction;
  /** Who reads in the place of the driver. */
  #reader: ((chunk: Buffer) => void) | undefined;

  constructor({ stream }: Pick<Connection, "stream">) {
    const [listener] = stream.listeners("data");
    if (listener === undefined) throw new Error("The driver does not listen");
    this.#stream = stream;
    this.#listener = listener;
    stream.removeAllListeners("data");
    stream.on("data", (chunk: Buffer) => {
      if (this.#reader === undefined) this.feed(chunk);
      else this.#reader(chunk);
    });
  }

  /** Has the driver read something. */
  feed(bytes: Buffer): void {
    Reflect.apply(this.#listener, this.#stream, [bytes]);
  }

  /** Whose turn it is to read; undefined: the driver's. */
  giveTo(reader: ((chunk: Buffer) => void) | undefined): void {
    this.#reader = reader;
  }

  /** Leaves what comes with the server for so long. */
  pauseUntil(end: Promise<void>): void {
    this.#stream.pause();
    void end.then(() => this.#stream.resume());
  }
}

/**
 * A statement whose rows go past the driver, from the bytes of the connection to the output: the
 * driver would make a string of each value. All else that comes is left to it. The connection is not
 * read while the output has a backlog, so that the server waits.
 */
class RowMessages extends Exchange {
  /** Why a row could not be written, if so; those behind it were dropped. */
  failure: unknown;
  readonly #rows: RowBytes;
  readonly #output: RowOutput;
  readonly #tap: ConnectionTap;
  #isOver = false;
  #soon: NodeJS.Timeout | undefined;
  /** What has come of a message that is not complete, and how long it is to be. */
  #parts: Buffer[] = [];
  #length = 0;
  #needed = 0;

  constructor(tap: ConnectionTap, asked: Asked, rows: RowBytes, output: RowOutput) {
    super(asked);
    this.#tap = tap;
    this.#rows = rows;
    this.#output = output;
  }

  override submit(connection: Connection): void {
    this.#tap.giveTo(this.#onData);
    super.submit(connection);
  }

  protected override get wantsTypes(): boolean {
    return true;
  }

  protected override takeTypes(columns: readonly ResultColumn[]): void {
    this.#attempt(() => this.#rows.requireTypes(columns));
  }

  override handleReadyForQuery(): void {
    this.#leave();
    super.handleReadyForQuery();
  }

  override handleError(error: unknown): void {
    this.#leave();
    super.handleError(error);
  }

  readonly #onData = (chunk: Buffer): void => {
    this.#parts.push(chunk);
    this.#length += chunk.length;
    if (this.#length < this.#needed) return;
    const bytes = this.#parts.length === 1 ? chunk : Buffer.concat(this.#parts, this.#length);
    const rest = bytes.subarray(this.#read(bytes));
    if (this.#isOver) {
      if (rest.length > 0) this.#tap.feed(rest);
      return;
    }
    this.#parts = rest.length === 0 ? [] : [rest];
    this.#length = rest.length;
    this.#needed = rest.length < HEAD_LENGTH ? HEAD_LENGTH : 1 + rest.readUInt32BE(1);
    // Over a Unix socket rows come in pieces of 8 KiB, each of which would cost a write.
    if (this.#rows.length >= PIECE_LENGTH) this.#flush();
    else this.#soon ??= setTimeout(this.#flush, GATHERING_TIME);
  };

  readonly #flush = (): void => {
    clearTimeout(this.#soon);
    this.#soon = undefined;
    this.#attempt(() => this.#rows.flush());
    const { backlog } = this.#output;
    if (backlog !== undefined) this.#tap.pauseUntil(backlog);
  };

  /** Reads whole messages, as long as they are this statement's. Returns where the rest begins. */
  #read(bytes: Buffer): number {
    let at = 0;
    while (!this.#isOver && at + HEAD_LENGTH <= bytes.length) {
      const end = at + 1 + bytes.readUInt32BE(at + 1);
      if (end > bytes.length) break;
      if (bytes[at] === DATA_ROW) {
        const start = at + HEAD_LENGTH;
        if (this.isReached) this.#attempt(() => this.#rows.write(bytes, start, end));
      } else this.#tap.feed(bytes.subarray(at, end));
      at = end;
    }
    return at;
  }

  /** Whatever is thrown to the connection would end the process. */
  #attempt(work: () => void): void {
    if (this.failure !== undefined) return;
    try {
      work();
    } catch (error) {
      this.failure = error;
    }
  }

  /** Gives the connection back to the driver. */
  #leave(): void {
    this.#isOver = true;
    clearTimeout(this.#soon);
    this.#tap.giveTo(undefined);
  }
}

/** How a transaction begins. */
export interface Beginning {
  /** Absent if each statement is one by itself. */
  readonly words?: string;
  /** True if a statement that is its only one may be one by itself, where such read what is committed. */
  readonly mayBeImplicit?: boolean;
  /** Said in each transaction. */
  readonly settings: string;
}

/** Its methods throw PostgreSQL's `DatabaseError`, or `ConnectionLost`. */
export class PostgresSession implements Session {
  /** What is known of tables: once the transaction has defined one, that is its own. */
  tables: KnownTables<PostgresTable>;
  readonly #shared: KnownTables<PostgresTable>;
  readonly pipeline = new PostgresPipeline((statements, isEnd) => {
    const exchange = new TextExchange(this.#asked(statements, isEnd));
    return { exchange, done: this.#carryOut(exchange) };
  });
  readonly #client: Client;
  #tap: ConnectionTap | undefined;
  #prepared: PreparedStatements | undefined;
  /** What goes up with the next statement. */
  #beginning: Beginning | undefined;
  #isInTransaction = false;
  #endsWithLast = false;
  #isUntouched = true;
  #reliesOnKnown = false;
  /** True if a statement outside of a transaction is known to be one that reads what is committed. */
  #isReadCommitted = false;

  constructor(client: Client, tables: KnownTables<PostgresTable>) {
    this.#client = client;
    this.tables = tables;
    this.#shared = tables;
  }

  /** Has the session prepare what it says again and again, if one server process stays behind it. */
  async prepareIfDirect(): Promise<void> {
    const [[id, isolation] = []] = await this.rows(
      sql`select pg_catalog.pg_backend_pid(),
        pg_catalog.current_setting('default_transaction_isolation', true)`,
    );
    // A pooler tells the client a number of its own.
    const told = "processID" in this.#client ? this.#client.processID : undefined;
    if (id !== String(told)) return;
    this.#prepared = new PreparedStatements(this.tables.watchPlans());
    this.#isReadCommitted = isolation === "read committed";
  }

  get isUntouched(): boolean {
    return this.#isUntouched;
  }

  /**
   * Has a transaction begin with its first statement, in the same write, and end with that which is known
   * to be its last one, if it may.
   */
  begin(beginning: Beginning, endsWithLast: boolean): void {
    this.#beginning = beginning;
    this.#isInTransaction = false;
    this.#endsWithLast = endsWithLast;
    this.#isUntouched = true;
    this.tables = this.#shared;
    this.#reliesOnKnown = false;
    this.pipeline.close();
  }

  /** What a table looked like a moment ago, if that is known. */
  knownTable(database: string, name: string): PostgresTable | undefined {
    const known = this.tables.find(database, name);
    if (known !== undefined) this.#reliesOnKnown = true;
    return known;
  }

  forgetTables(): boolean {
    if (this.#reliesOnKnown) this.#shared.forget();
    return this.#reliesOnKnown;
  }

  /** Runs a fragment and returns all of its rows. */
  async rows(fragment: Fragment): Promise<Row[]> {
    return (await this.#ask(fragment)).rows;
  }

  async run(fragment: Fragment, isLast = false): Promise<number> {
    if (isLast && this.pipeline.isOpen) return this.pipeline.add(compile(fragment));
    return (await this.#ask(fragment, isLast)).counts[0] ?? 0;
  }

  end(words: "commit" | "rollback"): Promise<void> | undefined {
    this.#beginning = undefined;
    if (this.#isInTransaction) return this.#endWith(words);
    this.#forgetIfOwn();
    return undefined;
  }

  async #endWith(words: "commit" | "rollback"): Promise<void> {
    this.#isInTransaction = false;
    await this.#carryOut(new Exchange(this.#asked([{ text: words, values: [] }])));
    this.#forgetIfOwn();
  }

  /** Forgets what is known of tables if the transaction has defined one. */
  #forgetIfOwn(): void {
    if (this.tables !== this.#shared) this.#shared.forget();
  }

  /** Runs a definition: what is known of tables is outdated once it is committed. */
  async define(fragment: Fragment): Promise<void> {
    this.tables = new KnownTables();
    await this.run(fragment);
  }

  /** Ends the transaction and runs a definition that PostgreSQL takes outside of one alone. @throws UnknownOutcome too */
  async defineAlone(fragment: Fragment): Promise<void> {
    await this.end("commit");
    this.#shared.forget();
    try {
      await this.run(fragment);
    } catch (error) {
      throw error instanceof ConnectionLost ? new UnknownOutcome(error) : error;
    }
  }

  /** Writes a fragment's rows to an output as they come; the server waits while it has a backlog. */
  async stream(fragment: Fragment, rows: RowBytes, output: RowOutput): Promise<void> {
    this.#tap ??= new ConnectionTap(this.#client.connection);
    if (!this.pipeline.isEmpty) await this.pipeline.send(false);
    const asked = this.#asked([compile(fragment)]);
    const messages = new RowMessages(this.#tap, asked, rows, output);
    await this.#carryOut(messages);
    if (messages.failure !== undefined) throw messages.failure;
  }

  /** A transaction is opened once, and what is none each time. */
  #asked(statements: readonly Statement[], isLast = false): Asked {
    const { words, settings, mayBeImplicit = false } = this.#beginning ?? {};
    const isEnding = isLast && this.#endsWithLast;
    const isImplicit = isEnding && mayBeImplicit && this.#isReadCommitted;
    if (words !== undefined) {
      this.#beginning = undefined;
      this.#isInTransaction = !isImplicit;
    }
    const begin = isImplicit ? undefined : words;
    const opening = [begin, settings].filter((text) => text !== undefined);
    const isClosing = isEnding && (isImplicit || this.#isInTransaction);
    const closing = isClosing ? (isImplicit ? "sync" : "commit") : undefined;
    return { opening, statements, closing, prepared: this.#prepared };
  }

  async #ask(fragment: Fragment, isLast = false): Promise<TextExchange> {
    if (!this.pipeline.isEmpty) await this.pipeline.send(false);
    const exchange = new TextExchange(this.#asked([compile(fragment)], isLast));
    await this.#carryOut(exchange);
    return exchange;
  }

  /** @throws UnknownOutcome too, where nobody can say whether the transaction is committed */
  async #carryOut(exchange: Exchange): Promise<void> {
    const wasUntouched = this.#isUntouched;
    this.#isUntouched = false;
    try {
      await this.#client.query(exchange).done;
    } catch (error) {
      this.#prepared?.settle(false);
      throw this.#outcomeOf(exchange, this.#failureOf(exchange, error, wasUntouched));
    }
    this.#prepared?.settle(true);
    if (exchange.isClosing) this.#isInTransaction = false;
  }

  /** What an error of the driver means. */
  #failureOf(exchange: Exchange, error: unknown, wasUntouched: boolean): Error {
    if (error instanceof DatabaseError) return this.#isOfPlan(error) ? this.#outdate() : error;
    const isRefused = error instanceof Error && "code" in error && error.code === "EPIPE";
    this.#isUntouched = wasUntouched && (isRefused || !exchange.isSent);
    return new ConnectionLost(error);
  }

  /** What a failure means for the transaction, if the exchange was to end it. */
  #outcomeOf(exchange: Exchange, failure: Error): Error {
    if (!exchange.isClosing) return failure;
    if (!(failure instanceof ConnectionLost) && !exchange.isCarriedOut) return failure;
    // The server has refused the commit itself, and so ended the transaction.
    this.#isInTransaction = false;
    const isRefused = failures.concernsStatement(failure) || failures.isTransient(failure);
    return isRefused || this.#isUntouched ? failure : new UnknownOutcome(failure);
  }

  /** True where a table has changed since a statement was prepared, or that is not there any more. */
  #isOfPlan({ code, routine }: DatabaseError): boolean {
    if (this.#prepared === undefined) return false;
    return code === "26000" || (code === "0A000" && routine === "RevalidateCachedQuery");
  }

  /** Has no connection rely on what it has prepared. */
  #outdate(): OutdatedTable {
    this.#shared.outdatePlans();
    this.#reliesOnKnown = true;
    return new OutdatedTable();
  }
}

/** A schema of PostgreSQL as statements reach it. */
export type PostgresPlace = Place<PostgresSession>;
