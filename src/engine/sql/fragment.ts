import type { RawBuilder } from "kysely";

/** A piece of SQL whose names are quoted and whose values are bound by the builder. */
export type Fragment = RawBuilder<unknown>;
