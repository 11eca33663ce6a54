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

/** A statement for the driver, with values in PostgreSQL's text format. */
export interface Statement {
  readonly text: string;
  readonly values: (string | null)[];
}

interface Prepared {
  readonly text: string;
  readonly name: string;
  bound?: Buffer;
  /** Cached once described. The server refuses the statement if its columns have changed. */
  columns?: readonly ResultColumn[];
}

/** Maximum number of prepared statements per connection, and of characters in one. */
const PREPARED_LIMIT = 100;
const LONGEST_PREPARED = 4096;

/** Statements prepared by name on one server process, so that each is parsed and planned once. */
class PreparedStatements {
  readonly #known = new Map<string, Prepared>();
  readonly #areOutdated: () => boolean;
  #names = 0;
  /** Statements that are sent but not confirmed, and those that the server should forget. */
  #coming: Prepared[] = [];
  #unwanted: Prepared[] = [];

  /** @param areOutdated whether a table has changed since the previous call */
  constructor(areOutdated: () => boolean) {
    this.#areOutdated = areOutdated;
  }

  /**
   * Returns messages that make the server forget statements. They are sent before everything else.
   */
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

  /** Names a statement that is about to be sent. Returns undefined for one too long to prepare. */
  add(text: string): Prepared | undefined {
    if (text.length > LONGEST_PREPARED) return undefined;
    this.#names += 1;
    const prepared = { text, name: String(this.#names) };
    this.#coming.push(prepared);
    return prepared;
  }

  /**
   * Records whether the last exchange succeeded. If it failed, it is unknown which statements were
   * prepared.
   */
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

interface Asked {
  readonly opening: readonly string[];
  readonly statements: readonly Statement[];
  /** `sync`: the end of the exchange ends the transaction, because none was begun. */
  readonly closing?: "commit" | "sync" | undefined;
  readonly prepared?: PreparedStatements | undefined;
}

/**
 * Statements sent at once with what opens and ends their transaction. The server skips what follows
 * a failed statement. If no transaction was begun, the exchange is one (PostgreSQL, "Extended
 * Query").
 */
class Exchange implements Submittable {
  readonly done: Promise<void>;
  readonly #asked: Asked;
  readonly #ending = Promise.withResolvers<void>();
  /** Completed statements, including the opening. */
  #done = 0;
  isSent = false;
  /** Changed rows of each completed statement. */
  readonly counts: number[] = [];
  #described: Prepared | undefined;

  constructor(asked: Asked) {
    this.#asked = asked;
    this.done = this.#ending.promise;
  }

  /** True while the server's messages concern `statements`, not the opening or closing. */
  protected get isReached(): boolean {
    return this.#done >= this.#asked.opening.length && !this.isCarriedOut;
  }

  /** True once all statements have run, so that a commit that follows them may have run too. */
  get isCarriedOut(): boolean {
    return this.counts.length === this.#asked.statements.length;
  }

  get isClosing(): boolean {
    return this.#asked.closing !== undefined;
  }

  /** Called by the driver when it is this exchange's turn, as are the handlers below. */
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

  protected get wantsTypes(): boolean {
    return false;
  }

  /** Called before the first row. */
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

/** Values in PostgreSQL's text format, in the order of the columns. */
export type Row = readonly (string | null)[];

class TextExchange extends Exchange {
  readonly rows: Row[] = [];

  handleDataRow({ fields }: { readonly fields: Row }): void {
    if (this.isReached) this.rows.push(fields);
  }
}

interface Queued {
  readonly statement: Statement;
  readonly answer: PromiseWithResolvers<number>;
}

type SendAll = (
  statements: readonly Statement[],
  isEnd: boolean,
) => { readonly exchange: Exchange; readonly done: Promise<void> };

/** Collects the last statements of several operations and sends them in one write. */
class PostgresPipeline implements Pipeline {
  readonly #sendAll: SendAll;
  #queue: Queued[] = [];
  #onQueued: (() => void) | undefined;

  constructor(sendAll: SendAll) {
    this.#sendAll = sendAll;
  }

  /** True if the last statement of an operation waits for those of others. */
  get isOpen(): boolean {
    return this.#onQueued !== undefined;
  }

  get isEmpty(): boolean {
    return this.#queue.length === 0;
  }

  close(): void {
    this.#queue = [];
    this.#onQueued = undefined;
  }

  queued(): Promise<true> {
    const { promise, resolve } = Promise.withResolvers<true>();
    this.#onQueued = () => resolve(true);
    return promise;
  }

  /** Resolves to the number of changed rows once the statement has been sent and answered. */
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
      // The server has skipped the statements that follow the failed one.
      const failed = queue.slice(exchange.counts.length);
      if (failed.length === 0) throw error;
      for (const { answer } of failed) answer.reject(error);
    } finally {
      for (const [index, count] of exchange.counts.entries()) queue[index]?.answer.resolve(count);
    }
  }
}

/** Type of a row message, and length of a message's header (PostgreSQL, "Message Formats"). */
const DATA_ROW = 0x44;
const HEAD_LENGTH = 5;

/** Rows are handed over after this many bytes or this many milliseconds. */
const PIECE_LENGTH = 64 * 1024;
const GATHERING_TIME = 5;

/** Intercepts what arrives on a connection before the driver reads it. */
class ConnectionTap {
  readonly #stream: Connection["stream"];
  readonly #listener: CallableFunction;
  /** Reads in place of the driver. */
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

  feed(bytes: Buffer): void {
    Reflect.apply(this.#listener, this.#stream, [bytes]);
  }

  /** Undefined gives the connection back to the driver. */
  giveTo(reader: ((chunk: Buffer) => void) | undefined): void {
    this.#reader = reader;
  }

  /** Leaves incoming data with the server until `end`. */
  pauseUntil(end: Promise<void>): void {
    this.#stream.pause();
    void end.then(() => this.#stream.resume());
  }
}

/**
 * A statement whose rows bypass the driver, which would make a string of each value. Rows go from
 * the bytes of the connection to the output, and all other messages to the driver. The connection
 * is not read while the output has a backlog, so that the server waits.
 */
class RowMessages extends Exchange {
  /** Why a row could not be written. The rows after it are dropped. */
  failure: unknown;
  readonly #rows: RowBytes;
  readonly #output: RowOutput;
  readonly #tap: ConnectionTap;
  #isOver = false;
  #soon: NodeJS.Timeout | undefined;
  /** Chunks of an incomplete message, their length, and the length needed to go on. */
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
    // A Unix socket delivers rows in pieces of 8 KiB, each of which would cost a write.
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

  /** Reads complete messages while they belong to this statement. Returns where the rest begins. */
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

  /** An error thrown to the connection would end the process. */
  #attempt(work: () => void): void {
    if (this.failure !== undefined) return;
    try {
      work();
    } catch (error) {
      this.failure = error;
    }
  }

  #leave(): void {
    this.#isOver = true;
    clearTimeout(this.#soon);
    this.#tap.giveTo(undefined);
  }
}

export interface Beginning {
  /** Absent if each statement is a transaction by itself. */
  readonly words?: string;
  /**
   * True if a transaction of one statement may omit `begin` where the default is read committed.
   */
  readonly mayBeImplicit?: boolean;
  readonly settings: string;
}

/** Methods throw PostgreSQL's `DatabaseError` or `ConnectionLost`. */
export class PostgresSession implements Session {
  /** Shared with other sessions until the transaction defines a table. */
  tables: KnownTables<PostgresTable>;
  readonly #shared: KnownTables<PostgresTable>;
  readonly pipeline = new PostgresPipeline((statements, isEnd) => {
    const exchange = new TextExchange(this.#asked(statements, isEnd));
    return { exchange, done: this.#carryOut(exchange) };
  });
  readonly #client: Client;
  #tap: ConnectionTap | undefined;
  #prepared: PreparedStatements | undefined;
  #beginning: Beginning | undefined;
  #isInTransaction = false;
  #endsWithLast = false;
  #isUntouched = true;
  #reliesOnKnown = false;
  /** True if statements outside a transaction are known to be read committed. */
  #isReadCommitted = false;

  constructor(client: Client, tables: KnownTables<PostgresTable>) {
    this.#client = client;
    this.tables = tables;
    this.#shared = tables;
  }

  /** Prepares repeated statements, if the connection keeps to one server process. */
  async prepareIfDirect(): Promise<void> {
    const [[id, isolation] = []] = await this.rows(
      sql`select pg_catalog.pg_backend_pid(),
        pg_catalog.current_setting('default_transaction_isolation', true)`,
    );
    // A pooler gives the client a process id of its own.
    const told = "processID" in this.#client ? this.#client.processID : undefined;
    if (id !== String(told)) return;
    this.#prepared = new PreparedStatements(this.tables.watchPlans());
    this.#isReadCommitted = isolation === "read committed";
  }

  get isUntouched(): boolean {
    return this.#isUntouched;
  }

  /**
   * Lets a transaction begin in the same write as its first statement and, with `endsWithLast`, end
   * with the statement known to be its last.
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

  knownTable(database: string, name: string): PostgresTable | undefined {
    const known = this.tables.find(database, name);
    if (known !== undefined) this.#reliesOnKnown = true;
    return known;
  }

  forgetTables(): boolean {
    if (this.#reliesOnKnown) this.#shared.forget();
    return this.#reliesOnKnown;
  }

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

  #forgetIfOwn(): void {
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
    try {
      await this.run(fragment);
    } catch (error) {
      throw error instanceof ConnectionLost ? new UnknownOutcome(error) : error;
    }
  }

  /** Streams rows to an output. The server waits while the output has a backlog. */
  async stream(fragment: Fragment, rows: RowBytes, output: RowOutput): Promise<void> {
    this.#tap ??= new ConnectionTap(this.#client.connection);
    if (!this.pipeline.isEmpty) await this.pipeline.send(false);
    const asked = this.#asked([compile(fragment)]);
    const messages = new RowMessages(this.#tap, asked, rows, output);
    await this.#carryOut(messages);
    if (messages.failure !== undefined) throw messages.failure;
  }

  /** Sends the beginning once per transaction, or with every statement that is its own. */
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

  /** @throws UnknownOutcome if it is unknown whether the transaction is committed */
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

  #failureOf(exchange: Exchange, error: unknown, wasUntouched: boolean): Error {
    if (error instanceof DatabaseError) return this.#isOfPlan(error) ? this.#outdate() : error;
    const isRefused = error instanceof Error && "code" in error && error.code === "EPIPE";
    this.#isUntouched = wasUntouched && (isRefused || !exchange.isSent);
    return new ConnectionLost(error);
  }

  /** Returns `UnknownOutcome` if the exchange may have committed the transaction. */
  #outcomeOf(exchange: Exchange, failure: Error): Error {
    if (!exchange.isClosing) return failure;
    if (!(failure instanceof ConnectionLost) && !exchange.isCarriedOut) return failure;
    // Without an answer or with a refused commit, the transaction has ended.
    this.#isInTransaction = false;
    const isRefused = failures.concernsStatement(failure) || failures.isTransient(failure);
    return isRefused || this.#isUntouched ? failure : new UnknownOutcome(failure);
  }

  /**
   * True if a table has changed since a statement was prepared, or the prepared statement is gone.
   */
  #isOfPlan({ code, routine }: DatabaseError): boolean {
    if (this.#prepared === undefined) return false;
    return code === "26000" || (code === "0A000" && routine === "RevalidateCachedQuery");
  }

  /** Makes all connections prepare their statements again. */
  #outdate(): OutdatedTable {
    this.#shared.outdatePlans();
    this.#reliesOnKnown = true;
    return new OutdatedTable();
  }
}

export type PostgresPlace = Place<PostgresSession>;
