import type { DatabaseSync } from "node:sqlite";

/** A database as statements reach it: a connection, and the schema name that it has there. */
export interface DatabaseHandle {
  readonly connection: DatabaseSync;
  readonly schema: string;
  readonly name: string;
}
