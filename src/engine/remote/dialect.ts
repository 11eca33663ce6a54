import type {
  ChangeName,
  Operation,
  OperationFields,
  RowChangeName,
  Select,
  TableOperation,
} from "../../core/query/tree.ts";
import type { LimitCounter } from "../limits.ts";
import type { EngineRefusal } from "../refusal.ts";
import type { RowOutput } from "../spool.ts";
import type { Previewed, PreviewOptions } from "../sql/changes.ts";
import type { Fragment } from "../sql/fragment.ts";
import type { Column } from "../sql/scope.ts";
import type { Changed, TableDescription } from "../sql/target.ts";

/** A connection leased for one transaction. Methods throw the server's error or `ConnectionLost`. */
export interface Session {
  /** Returns how many rows were changed. `isLast` marks the last statement of a change. */
  run(fragment: Fragment, isLast?: boolean): Promise<number>;
  end(words: "commit" | "rollback"): Promise<void>;
  /** True while none of the transaction's work can have reached the server. */
  readonly isUntouched: boolean;
  /**
   * Resolves once the last statement of the change that starts now has been sent. Absent if a
   * connection takes one statement at a time.
   */
  lastSent?(): Promise<void>;
  /** Clears the cached tables. Returns true if the transaction relied on any. */
  forgetTables?(): boolean;
}

export interface Connection<Leased> {
  readonly session: Leased;
  readonly isUsable: boolean;
  /** Cancels the running statement over another connection. Never rejects. */
  cancel(): Promise<void>;
  cut(): void;
  /** Closes an idle connection. Never rejects. */
  end(): Promise<void>;
}

export interface QueryContext<Leased extends Session = Session> {
  readonly session: Leased;
  /** The name that queries use. */
  readonly database: string;
  readonly schema: string;
  readonly counter?: LimitCounter | undefined;
}

/** The connection broke, or none could be opened. */
export class ConnectionLost extends Error {
  constructor(cause: unknown) {
    super("The connection to the database was lost", { cause });
    this.name = "ConnectionLost";
  }
}

/** The subject of a statement, for errors that do not name it. */
export interface Origin {
  readonly schema: string;
  readonly tables: readonly string[];
  readonly isReading?: boolean;
}

export type Mode = "read only" | "read committed" | "snapshot, read only" | "serializable";

export interface Failures {
  /** Returns undefined for an error that no database has answered. */
  refusalOf(error: unknown, origin?: Origin): EngineRefusal | undefined;
  /** False for an error of the server, the connection or the time limit. */
  concernsStatement(error: unknown): boolean;
  /** True if a retry of the transaction may succeed. */
  isTransient(error: unknown): boolean;
  /** False for an error that may have interrupted an answer. */
  leavesConnectionUsable(error: unknown): boolean;
  /** True if the server is down, starting, or out of connections. */
  isUnavailable(error: unknown): boolean;
}

export interface RemoteColumn extends Column {
  readonly isNullable: boolean;
  readonly isKey: boolean;
  /** True if values that the column takes for equal are different in a unique index. */
  readonly isFolded?: boolean;
}

/** Methods throw `EngineRefusal` and what the session throws. */
export interface Dialect<Leased extends Session> extends Operations<Leased> {
  readonly name: string;
  readonly failures: Failures;

  /**
   * `timeLimit` is in milliseconds per statement, 0 for none. The last statement of so many
   * `changes` may also commit the transaction; 0 leaves that to `end`.
   */
  begin(session: Leased, mode: Mode, timeLimit: number, changes: number): Promise<void>;
  /** Refuses a Batch that cannot be one transaction. */
  requireAtomic?(operations: readonly TableOperation[]): void;

  listDatabases(session: Leased): Promise<string[]>;
  createDatabase(session: Leased, database: string): Promise<void>;
  dropDatabase(session: Leased, database: string): Promise<void>;
  /** Refuses to drop a database that holds more than tables, if a connection reaches only one. */
  requireDroppable?(session: Leased): Promise<void>;
  /** True if changed rows are read by another statement, so that changes must be serializable. */
  readonly readsAfterChange: boolean;
}

export interface Operations<Leased extends Session> {
  readonly failures: Pick<Failures, "refusalOf" | "concernsStatement">;
  visibleSchema(database: string): string;
  listTables(context: QueryContext<Leased>): Promise<string[]>;
  describeTable(context: QueryContext<Leased>, table: string): Promise<TableDescription>;

  select(context: QueryContext<Leased>, query: Select, output: RowOutput): Promise<void>;
  readonly changes: Changes<Leased>;
  preview(
    context: QueryContext<Leased>,
    operation: Operation<RowChangeName>,
    options: PreviewOptions,
  ): Promise<Previewed>;
  digestAffected(
    context: QueryContext<Leased>,
    operation: Operation<RowChangeName>,
  ): Promise<string>;
}

export type Changes<Leased extends Session> = {
  readonly [Name in ChangeName]: (
    context: QueryContext<Leased>,
    fields: OperationFields[Name],
  ) => Promise<Changed>;
};
