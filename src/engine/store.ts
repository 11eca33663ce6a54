import type { QueryBody } from "../query/shape.ts";
import type { Spool } from "./spool.ts";
import { openSqliteStore } from "./sqlite/store.ts";

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

/**
 * Opens the database that a URL names: `sqlite:DIRECTORY`.
 *
 * Throws an `Error` whose message says what is wrong with the URL or the directory.
 */
export function openStore(url: string): Store {
  const scheme = url.slice(0, url.indexOf(":") + 1);
  if (scheme === "sqlite:") return openSqliteStore(sqliteDirectory(url));
  throw new Error(
    `The engine cannot open a database of the kind "${scheme || url}": this version speaks sqlite only (sqlite:DIRECTORY).`,
  );
}

function sqliteDirectory(url: string): string {
  const directory = url.replace(/^sqlite:(\/\/(?=\/))?/, "");
  if (directory === "") throw new Error("The engine's URL names no directory: sqlite:DIRECTORY.");
  return directory;
}
