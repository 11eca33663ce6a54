import type { ChangeName, Operation, TableOperation } from "../../query/operation-types.ts";
import type { OperationFields, ReadingName } from "../../query/operations.ts";
import type { LimitCounter } from "../limits.ts";
import type { EngineRefusal } from "../refusal.ts";
import type { RowOutput } from "../spool.ts";
import type { TableDescription } from "../sql/description.ts";
import type { Previewed, RowChangeName } from "../sql/preview.ts";
import type { Column } from "../sql/scope.ts";
import type { Changed } from "../sql/target.ts";
import type { Place, Session } from "./session.ts";

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
