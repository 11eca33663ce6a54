import type { QueryBody } from "../query/shape.ts";
import type { Spool } from "./spool.ts";

/** A database behind the engine: what has to be written to put another one there. */
export interface Store {
  /**
   * Carries out a query and writes the JSON answer to the spool. When it resolves, what was
   * written is durable; when it rejects, nothing of the query stays.
   *
   * Throws `EngineRefusal` for what the client can mend, and gives up once `signal` is aborted.
   */
  execute(query: QueryBody, spool: Spool, signal: AbortSignal): Promise<void>;
  /** An empty spool for one answer, to be disposed of by the caller. */
  createSpool(): Spool;
  /** Waits for the queries that are under way and closes the database. */
  close(): Promise<void>;
}
