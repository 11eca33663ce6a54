import { EngineRefusal } from "../refusal.ts";
import type { Fragment, Notation } from "../sql/fragment.ts";
import type { Statement } from "./exchange.ts";

/** The protocol counts the parameters of a statement with 16 bits. */
const PARAMETER_LIMIT = 65_535;

const notation: Notation = { quote: '"', numbersValues: true };

/** @throws EngineRefusal `query_too_complex` for a fragment with more values than a statement carries */
export function compile(fragment: Fragment): Statement {
  const { text, values } = fragment.compile(notation);
  if (values.length > PARAMETER_LIMIT) {
    throw new EngineRefusal(
      "query_too_complex",
      `The database refuses it: more than ${PARAMETER_LIMIT} values in one statement`,
    );
  }
  return { text, values: values.map(asText) };
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
