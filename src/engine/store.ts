import type { Readable } from "node:stream";
import type { Query } from "../query/query.ts";
import type { QueryLimit } from "./limits.ts";
import type { RowCounts, RowStream } from "./spool.ts";

/** A query as it came: its bytes, and what the grammar found in them. */
export interface QueryRequest {
  readonly body: Buffer;
  readonly query: Query;
  /** What it may do at the most. */
  readonly limits: readonly QueryLimit[];
}

/** What the schema is asked about: everything, a database, or one of its tables. */
export interface SchemaPlace {
  readonly database?: string | undefined;
  /** Only beside a database. */
  readonly table?: string | undefined;
}

/** A JSON answer that is whole before its first byte is sent. */
export interface Answer {
  readonly byteLength: number;
  readonly counts?: RowCounts;
  /** The answer: its bytes, or a stream of them that is taken once. */
  read(): Buffer | Readable;
  /** Gives an unread answer's file back; must be called at the end, whatever happened. */
  dispose(): void;
}

/** A database behind the engine: what has to be written to put another one there. */
export interface Store {
  /**
   * Carries out a query. When it resolves, what was written is durable; when it rejects, nothing
   * of the query stays. It gives up once `query` is aborted, and aborts it itself after its time.
   *
   * @throws EngineRefusal for what the client can mend and for a query that takes too long
   */
  execute(request: QueryRequest, query: AbortController): Promise<Answer>;
  /**
   * Carries out a Select, whose rows go out while others are still to come. It gives up as `execute` does.
   * @throws as `execute` does; whether a row has gone out before, `stream` knows
   */
  stream(request: QueryRequest, stream: RowStream, query: AbortController): Promise<void>;
  /** Lists databases, tables or columns. @throws EngineRefusal `database_not_found` or `table_not_found` */
  readSchema(place: SchemaPlace, query: AbortController): Promise<Answer>;
  /** Resolves if the database answers. @throws EngineRefusal `database_unavailable` */
  check(): Promise<void>;
  /** Waits for the queries that are under way and closes the database. */
  close(): Promise<void>;
}
