import type { Session } from "./session.ts";

/** A database of queries as statements reach it: a schema, in a session. */
export interface Place<Lent extends Session = Session> {
  readonly session: Lent;
  /** The database by the name that queries have for it. */
  readonly database: string;
  readonly schema: string;
}
