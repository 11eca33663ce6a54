import type { Place } from "../remote/place.ts";
import type { PostgresSession } from "./session.ts";

/** A schema of PostgreSQL as statements reach it. */
export type PostgresPlace = Place<PostgresSession>;
