import {
  DummyDriver,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  sql,
} from "kysely";
import { EngineRefusal } from "../refusal.ts";
import type { Fragment } from "../sql/fragment.ts";
import type { Statement } from "./exchange.ts";

/** The protocol counts the parameters of a statement with 16 bits. */
const PARAMETER_LIMIT = 65_535;

/** Turns fragments into SQL; it runs nothing, for that is the driver's part. */
const builder = new Kysely<Record<string, never>>({
  dialect: {
    createAdapter: () => new PostgresAdapter(),
    createDriver: () => new DummyDriver(),
    createIntrospector: (database) => new PostgresIntrospector(database),
    createQueryCompiler: () => new PostgresQueryCompiler(),
  },
});

/** @throws EngineRefusal `query_too_complex` for a fragment with more values than a statement carries */
export function compile(fragment: Fragment): Statement {
  const { sql: text, parameters } = fragment.compile(builder);
  if (parameters.length > PARAMETER_LIMIT) {
    throw new EngineRefusal(
      "query_too_complex",
      `The database refuses it: more than ${PARAMETER_LIMIT} values in one statement`,
    );
  }
  return { text, values: parameters.map(asText) };
}

/** A fragment as its text, so that its names are quoted once; one that has values stays as it is. */
export function flatten(fragment: Fragment): Fragment {
  const { text, values } = compile(fragment);
  return values.length === 0 ? sql.raw(text) : fragment;
}

/** The server is told the type of each value by a cast, so that all of them travel as text. */
function asText(value: unknown): string | null {
  switch (typeof value) {
    case "string":
      return value;
    case "number":
    case "bigint":
      return String(value);
    default:
      if (value === null) return null;
      throw new TypeError(`A ${typeof value} cannot be bound to an SQL parameter`);
  }
}
