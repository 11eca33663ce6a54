import { sql } from "kysely";
import { type Client, DatabaseError } from "pg";
import { UnknownOutcome } from "../refusal.ts";
import { KnownTables, OutdatedTable } from "../remote/known-tables.ts";
import { ConnectionLost, type Place, type Session } from "../remote/session.ts";
import type { RowOutput } from "../spool.ts";
import type { Fragment } from "../sql/fragment.ts";
import { compile } from "./compile.ts";
import {
  type Asked,
  Exchange,
  PreparedStatements,
  type Row,
  type Statement,
  TextExchange,
} from "./exchange.ts";
import { failures } from "./failures.ts";
import { PostgresPipeline } from "./pipeline.ts";
import type { RowBytes } from "./row-bytes.ts";
import { ConnectionTap, RowMessages } from "./row-messages.ts";
import type { PostgresTable } from "./tables.ts";

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
