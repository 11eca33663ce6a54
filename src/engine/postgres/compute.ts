import { sql } from "kysely";
import { arithmeticBy, type ComputeDialect, mostTextBytes } from "../sql/compute.ts";
import type { Fragment } from "../sql/fragment.ts";
import { trimTrailingZeros } from "../sql/values.ts";
import { caseSql, findKind, type PostgresKind } from "./kinds.ts";

function kindNamed(sqlName: string, id: number): PostgresKind {
  return findKind({ id, elementId: 0, sqlName, scale: undefined });
}

const decimal = kindNamed("numeric", 1700);
const types = {
  integer: sql.raw("bigint"),
  decimal: sql.raw("numeric"),
  double: sql.raw("double precision"),
};

/** 24 places, so that rounding to 12 does not round twice. */
const ONE = sql.raw("1.000000000000000000000000");
const DIVISION_PLACES = sql.raw("12");
const LARGEST_INDEX = 2 ** 31 - 1;

/** As a timestamp in UTC; null for `infinity`, which has no parts. */
const finite = (moment: Fragment) =>
  sql`nullif(nullif(cast(${moment} as timestamp with time zone), 'infinity'), '-infinity')`;

const text = (value: Fragment) => sql`(cast(${value} as text) collate "C")`;

/** The OID of the collation `C`. */
const C_COLLATION = "950";

const asJsonb = (value: Fragment) => sql`cast(${value} as jsonb)`;

/** An error, in class 54. The server would evaluate a constant when it plans. */
const textTooLong = sql`pg_catalog.rpad('', cast(pg_catalog.random() as integer) | 1073741824)`;

/** The session's time zone is UTC. */
export const computing: ComputeDialect<PostgresKind> = {
  kinds: {
    integer: kindNamed("bigint", 20),
    decimal: { ...decimal, encode: (raw) => trimTrailingZeros(decimal.encode(raw)) },
    double: kindNamed("double precision", 701),
    text: { ...kindNamed("text", 25), collation: C_COLLATION },
    boolean: kindNamed("boolean", 16),
    // As text, which can be grouped.
    json: {
      ...kindNamed("json", 114),
      isWrittenAs: () => true,
      grouped: undefined,
      compared: asJsonb,
      asFamily: asJsonb,
      operand: (column) => sql`cast(${column} as json)`,
    },
  },
  number: (value, family) => sql`cast(${value} as ${types[family]})`,
  arithmetic: arithmeticBy(
    (left, divisor) => sql`pg_catalog.round(${left} * ${ONE} / ${divisor}, ${DIVISION_PLACES})`,
  ),
  round(value, digits, family) {
    const places = sql.raw(String(digits));
    if (family === "decimal") return sql`pg_catalog.round(${value}, ${places})`;
    // By the shortest digits: a cast of the double itself keeps 15 of them.
    const exact = sql`cast(cast(${value} as text) as numeric)`;
    return sql`cast(pg_catalog.round(${exact}, ${places}) as double precision)`;
  },
  abs: (value) => sql`pg_catalog.abs(${value})`,
  trunc(unit, moment, family) {
    const truncated = sql`pg_catalog.date_trunc(${sql.lit(unit)}, ${moment})`;
    return family === "date" ? sql`cast(${truncated} as date)` : truncated;
  },
  part(unit, moment) {
    const field = sql.raw(unit === "weekday" ? "isodow" : unit);
    return sql`cast(extract(${field} from ${finite(moment)}) as bigint)`;
  },
  microseconds(first, second) {
    const between = sql`${finite(first)} - ${finite(second)}`;
    return sql`cast(extract(epoch from (${between})) * 1000000 as numeric)`;
  },
  letters: (wanted, value) => text(caseSql(value, wanted)),
  trim: (value) => sql`pg_catalog.btrim(${value}, ' ')`,
  length: (value) => sql`cast(pg_catalog.char_length(${value}) as bigint)`,
  text,
  limited: (value, bytes) =>
    sql`case when ${bytes} > ${mostTextBytes} then ${textTooLong} else ${value} end`,
  json(document, path) {
    const at = (steps: typeof path) =>
      steps.reduce<Fragment>((value, step) => {
        if (typeof step === "string") return sql`${value} -> cast(${step} as text)`;
        return sql`${value} -> cast(${Math.min(step, LARGEST_INDEX)} as integer)`;
      }, document);
    const textAt = (steps: typeof path) => sql`cast((${at(steps)}) as text) collate "C"`;
    // To `jsonb`, a text, number or boolean is also the first element of itself.
    const lists = path.flatMap((step, index) => {
      const [own, first] = [path.slice(0, index), path.slice(0, index + 1)].map(textAt);
      return step === 0 ? [sql`${own} is distinct from ${first}`] : [];
    });
    const found = sql`nullif(${textAt(path)}, 'null')`;
    return lists.length === 0
      ? found
      : sql`case when ${sql.join(lists, sql` and `)} then ${found} end`;
  },
};
