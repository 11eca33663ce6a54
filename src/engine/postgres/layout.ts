import type { ConnectionPool } from "./pool.ts";

/** Where the tables of some databases are, which one transaction can span. */
export interface Location {
  readonly pool: ConnectionPool;
  /** The schema that a database's tables are in. */
  schemaOf(database: string): string;
}

/** How the databases of queries lie on a PostgreSQL server. Its methods throw what `lend` throws. */
export interface Layout {
  /**
   * Where these databases are, if they are there.
   *
   * Throws `too_many_databases` if no transaction spans them all, or `database_not_found`.
   */
  locate(databases: readonly string[]): Location;
  /** The names of all databases, in no order. */
  list(signal: AbortSignal): Promise<string[]>;
  /** Makes a database. Throws `database_exists` or `invalid_name`. */
  create(database: string, signal: AbortSignal): Promise<void>;
  /** Drops a database with its tables. Throws `database_not_found`. */
  drop(database: string, signal: AbortSignal): Promise<void>;
  /** Closes all connections once none of them is in use. */
  close(): Promise<void>;
}
