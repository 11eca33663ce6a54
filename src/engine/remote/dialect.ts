import type { ChangeName, Operation, TableOperation } from "../../query/operation-types.ts";
import type { OperationFields, ReadingName } from "../../query/operations.ts";
import type { EngineRefusal } from "../refusal.ts";
import type { RowOutput } from "../row-output.ts";
import type { TableDescription } from "../sql/description.ts";
import type { Previewed, RowChangeName } from "../sql/preview.ts";
import type { Column } from "../sql/scope.ts";
import type { Changed } from "../sql/target.ts";
import type { Place } from "./place.ts";
import type { Session } from "./session.ts";

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
export interface Dialect<Lent extends Session> {
  /** The server's name, for the log and for messages. */
  readonly name: string;
  readonly failures: Failures;

  /** Begins a transaction whose statements take `timeLimit` milliseconds at the most; 0: any time. */
  begin(session: Lent, mode: Mode, timeLimit: number): Promise<void>;
  /** Refuses a Batch that cannot be one transaction, before anything of it is done. */
  requireAtomic?(operations: readonly TableOperation[]): void;

  /** The schema of a database's name. Throws `database_not_found` for one of the server's own. */
  visibleSchema(database: string): string;
  /** The databases that a query can name, sorted. */
  listDatabases(session: Lent): Promise<string[]>;
  createDatabase(session: Lent, database: string): Promise<void>;
  dropDatabase(session: Lent, database: string): Promise<void>;
  /**
   * Where a connection leads to one database alone: refuses to drop the one that it leads to, for
   * what is in it.
   */
  requireDroppable?(session: Lent): Promise<void>;

  /** The tables and views that a query can name, sorted. */
  listTables(place: Place<Lent>): Promise<string[]>;
  /** Tells what a table looks like now. Throws `database_not_found` or `table_not_found`. */
  describeTable(place: Place<Lent>, table: string): Promise<TableDescription>;

  /** Each reading operation writes its rows to an output as they come. */
  readonly reads: {
    readonly [Name in ReadingName]: (
      place: Place<Lent>,
      fields: OperationFields[Name],
      output: RowOutput,
    ) => Promise<void>;
  };
  readonly changes: Changes<Lent>;
  /** Carries out a change that is to be taken back, and tells the rows that it touches. */
  preview(place: Place<Lent>, operation: Operation<RowChangeName>): Promise<Previewed>;
  /** True if changed rows are read behind the change, between which nothing may happen. */
  readonly readsBehind: boolean;
}

/** What each change does. */
export type Changes<Lent extends Session> = {
  readonly [Name in ChangeName]: (
    place: Place<Lent>,
    fields: OperationFields[Name],
  ) => Promise<Changed>;
};
