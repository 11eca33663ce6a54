import type { ChangeName, Operation, TableOperation } from "../../query/operation-types.ts";
import type { OperationFields, ReadingName } from "../../query/operations.ts";
import type { LimitCounter } from "../limits.ts";
import type { EngineRefusal } from "../refusal.ts";
import type { RowOutput } from "../spool.ts";
import type { Fragment } from "../sql/fragment.ts";
import type { Previewed, RowChangeName } from "../sql/preview.ts";
import type { Column } from "../sql/scope.ts";
import type { Changed, TableDescription } from "../sql/target.ts";

/**
 * A connection that is leased for one transaction. Its methods throw the server's error as the
 * driver gives it, and `ConnectionLost` for whatever else happens on the way there.
 */
export interface Session {
  /**
   * Runs a fragment and returns how many rows it changed. If it is the last of its transaction, that may
   * be committed with it.
   */
  run(fragment: Fragment, isLast?: boolean): Promise<number>;
  /** Ends the transaction; undefined for one that has ended already. */
  end(words: "commit" | "rollback"): Promise<void> | undefined;
  /** True as long as nothing of the transaction's work can have reached the server. */
  readonly isUntouched: boolean;
  /** How statements go up together, where the server takes them so. */
  readonly pipeline?: Pipeline;
  /** Forgets what is known of tables; true if the transaction has relied on any of it. */
  forgetTables?(): boolean;
}

/**
 * What the operations of a Batch end with, gathered to go up together: nothing of an operation comes
 * behind its last statement, so that the next one need not wait for what that is answered.
 */
export interface Pipeline {
  /** Resolves once the last statement of the operation that begins now waits to be sent. */
  queued(): Promise<true>;
  /**
   * Sends what waits, of which the server skips all behind what fails. With `isEnd` nothing comes behind
   * it, so that the transaction may be committed with it. Rejects if that fails, after all was answered.
   */
  send(isEnd: boolean): Promise<void>;
}

/** A connection to a server, on which one transaction after another is run. */
export interface Connection<Leased> {
  readonly session: Leased;
  /** False once the server or the network has ended it. */
  readonly isUsable: boolean;
  /** Asks the server, by another connection, to end what it does for this one. Never rejects. */
  cancel(): Promise<void>;
  /** Breaks off whatever is under way, at once. */
  cut(): void;
  /** Takes leave of the server; nothing is under way. Never rejects. */
  end(): Promise<void>;
}

/** A database of queries as statements reach it: a schema, in a session. */
export interface Place<Leased extends Session = Session> {
  readonly session: Leased;
  /** The database by the name that queries have for it. */
  readonly database: string;
  readonly schema: string;
  /** What the query in hand may do; absent where it has no limits. */
  readonly counter?: LimitCounter | undefined;
}

/** The connection broke, or there is none to be had. */
export class ConnectionLost extends Error {
  constructor(cause: unknown) {
    super("The connection to the database was lost", { cause });
    this.name = "ConnectionLost";
  }
}

/** How a transaction sees the others that run beside it. */
export type Mode = "read only" | "read committed" | "snapshot, read only" | "serializable";

/** What a server's errors mean. */
export interface Failures {
  /** What to tell the client about an error; undefined if it is not the client's. */
  refusalOf(error: unknown): EngineRefusal | undefined;
  /** True for an error of one statement, not of the server, the connection or the time. */
  concernsStatement(error: unknown): boolean;
  /** True for an error that the same transaction may not meet when it is run again. */
  isTransient(error: unknown): boolean;
  /**
   * True for an error that leaves the connection fit for another statement: the server has refused
   * one, or none was under way. Anything else may have come in the middle of an answer.
   */
  isSettled(error: unknown): boolean;
  /** True for an error of a server that is down, about to start, or full of connections. */
  isUnavailable(error: unknown): boolean;
  /** An error that may be logged: what the server says in words stays out of it. */
  withoutWords(error: unknown): unknown;
}

/** A column of an existing table, its type in the server's words. */
export interface RemoteColumn extends Column {
  readonly isNullable: boolean;
  /** True for a part of the primary key. */
  readonly isKey: boolean;
}

/** What one kind of server does in its own way. All methods throw `EngineRefusal` and what the session throws. */
export interface Dialect<Leased extends Session> {
  /** The server's name, for the log and for messages. */
  readonly name: string;
  readonly failures: Failures;

  /**
   * Begins a transaction whose statements take `timeLimit` milliseconds at the most; 0: any time. With
   * `endsWithLast` it may be committed with the statement that is known to be its last one. Undefined where
   * that goes up with the first statement.
   */
  begin(
    session: Leased,
    mode: Mode,
    timeLimit: number,
    endsWithLast: boolean,
  ): Promise<void> | undefined;
  /** Refuses a Batch that cannot be one transaction, before anything of it is done. */
  requireAtomic?(operations: readonly TableOperation[]): void;

  /** The schema of a database's name. @throws EngineRefusal `database_not_found` for one of the server's own */
  visibleSchema(database: string): string;
  /** The databases that a query can name, sorted. */
  listDatabases(session: Leased): Promise<string[]>;
  createDatabase(session: Leased, database: string): Promise<void>;
  dropDatabase(session: Leased, database: string): Promise<void>;
  /**
   * Where a connection leads to one database alone: refuses to drop the one that it leads to, for
   * what is in it.
   */
  requireDroppable?(session: Leased): Promise<void>;

  /** The tables and views that a query can name, sorted. */
  listTables(place: Place<Leased>): Promise<string[]>;
  /** Tells what a table looks like now. @throws EngineRefusal `database_not_found` or `table_not_found` */
  describeTable(place: Place<Leased>, table: string): Promise<TableDescription>;

  /** Each reading operation writes its rows to an output as they come. */
  readonly reads: {
    readonly [Name in ReadingName]: (
      place: Place<Leased>,
      fields: OperationFields[Name],
      output: RowOutput,
    ) => Promise<void>;
  };
  readonly changes: Changes<Leased>;
  /** Carries out a change that is to be taken back, and tells the rows that it touches. */
  preview(
    place: Place<Leased>,
    operation: Operation<RowChangeName>,
    counter: LimitCounter,
  ): Promise<Previewed>;
  /** The digest of all rows that a change would touch, which stay as they are. */
  digestTouched(place: Place<Leased>, operation: Operation<RowChangeName>): Promise<string>;
  /** True if changed rows are read behind the change, between which nothing may happen. */
  readonly readsBehind: boolean;
}

/** What each change does. */
export type Changes<Leased extends Session> = {
  readonly [Name in ChangeName]: (
    place: Place<Leased>,
    fields: OperationFields[Name],
  ) => Promise<Changed>;
};
