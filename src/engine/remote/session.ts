import type { LimitCounter } from "../limits.ts";
import type { Fragment } from "../sql/fragment.ts";

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
