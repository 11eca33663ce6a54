import type { QueryLimit } from "../core/query/limits.ts";
import type { Query } from "../core/query/query.ts";
import type { Answer, RowStream } from "./spool.ts";

export interface QueryRequest {
  readonly query: Query;
  readonly limits: readonly QueryLimit[];
}

export interface SchemaPath {
  readonly database?: string | undefined;
  /** Only together with a database. */
  readonly table?: string | undefined;
}

/** The interface that a new kind of database implements. */
export interface Store {
  /** True if it runs the bytes of a query, not its tree. */
  readonly readsBytes: boolean;
  /**
   * Runs a query. When it resolves, the changes are durable. When it rejects, none remain. It stops
   * when `query` is aborted, and aborts it after the time limit.
   *
   * @throws EngineRefusal for errors that the client can fix, and after the time limit
   */
  execute(request: QueryRequest, query: AbortController): Promise<Answer>;
  /** Runs a Select and sends rows while others are still being read. Otherwise like `execute`. */
  stream(request: QueryRequest, stream: RowStream, query: AbortController): Promise<void>;
  /** @throws EngineRefusal `database_not_found` or `table_not_found` */
  readSchema(path: SchemaPath, query: AbortController): Promise<Answer>;
  /** True if the database has answered within the last second, or answers within two. */
  isUp(): Promise<boolean>;
  close(): Promise<void>;
}
