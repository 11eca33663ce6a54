import { DummyDriver, Kysely, MysqlAdapter, MysqlIntrospector, MysqlQueryCompiler } from "kysely";
import type { ExecuteValues, TypedParameterValue } from "mysql2";
import { EngineRefusal } from "../refusal.ts";
import type { Fragment } from "../sql/fragment.ts";

/** The protocol counts the parameters of a statement with 16 bits. */
const PARAMETER_LIMIT = 65_535;

/** What the statement itself, and the lengths of its values, take of a packet, in bytes. */
const PACKET_MARGIN = 1024 * 1024;

/** A value as it is bound to a statement, its type the one that the server takes it for. */
export type Bound = string | number | Buffer | TypedParameterValue | null;

/** A statement as the driver takes it. */
export interface Statement {
  readonly sql: string;
  readonly values: ExecuteValues[];
}

/** Turns fragments into SQL; it runs nothing, for that is the driver's part. */
const builder = new Kysely<Record<string, never>>({
  dialect: {
    createAdapter: () => new MysqlAdapter(),
    createDriver: () => new DummyDriver(),
    createIntrospector: (database) => new MysqlIntrospector(database),
    createQueryCompiler: () => new MysqlQueryCompiler(),
  },
});

/**
 * `largestPacket` is how many bytes the server takes at a time.
 *
 * @throws EngineRefusal `query_too_complex` for a fragment with more values than a statement carries
 */
export function compile(fragment: Fragment, largestPacket: number): Statement {
  const { sql, parameters } = fragment.compile(builder);
  if (parameters.length > PARAMETER_LIMIT) {
    throw tooComplex(`more than ${PARAMETER_LIMIT} values in one statement`);
  }
  let length = sql.length + PACKET_MARGIN;
  const values = parameters.map((value) => {
    const bound = asBound(value);
    length += lengthOf(bound);
    return bound;
  });
  if (length > largestPacket && length > 2 * PACKET_MARGIN) {
    throw tooComplex(`more than its max_allowed_packet of ${largestPacket} bytes`);
  }
  return { sql, values };
}

function tooComplex(limit: string): EngineRefusal {
  return new EngineRefusal("query_too_complex", `The database refuses it: ${limit}`);
}

/** The builder hands values on as it got them, and only bindable ones are given to it. */
function asBound(value: unknown): Bound {
  if (value === null || Buffer.isBuffer(value)) return value;
  if (typeof value === "string" || typeof value === "number") return value;
  if (isTyped(value)) return value;
  throw new TypeError(`A ${typeof value} cannot be bound to an SQL parameter`);
}

function isTyped(value: unknown): value is TypedParameterValue {
  return typeof value === "object" && value !== null && "unsigned" in value && "type" in value;
}

function lengthOf(value: Bound): number {
  return typeof value === "string" || Buffer.isBuffer(value) ? Buffer.byteLength(value) : 8;
}
