import type { Session } from "./session.ts";

/** A database of queries as statements reach it: the schema of its name, in a session. */
export interface Place<Lent extends Session = Session> {
  readonly session: Lent;
  readonly schema: string;
}
