import type { Session } from "./session.ts";

/** A database as statements reach it: a session, and the schema that its tables are in. */
export interface Place {
  readonly session: Session;
  readonly schema: string;
  readonly name: string;
}
