import { type RawBuilder, sql } from "kysely";
import type { Unit } from "../../core/query/tree.ts";
import { arithmeticBy, type ComputeDialect, jsonPath, mostTextBytes } from "../sql/compute.ts";
import type { Fragment } from "../sql/fragment.ts";
import { cellText } from "../sql/values.ts";
import { caseSql, collated, compactSql, kindOfNew, type MysqlKind } from "./kinds.ts";

const boolean = kindOfNew({ name: "boolean" });

const truncations: Partial<Record<Unit, (moment: Fragment) => Fragment>> = {
  year: (moment) => sql`date_format(${moment}, '%Y-01-01')`,
  quarter: (moment) =>
    sql`cast(date_format(${moment}, '%Y-01-01') as date) + interval (quarter(${moment}) - 1) * 3 month`,
  month: (moment) => sql`date_format(${moment}, '%Y-%m-01')`,
  week: (moment) => sql`date(${moment}) - interval weekday(${moment}) day`,
  day: (moment) => sql`date(${moment})`,
  hour: (moment) => sql`date_format(${moment}, '%Y-%m-%d %H:00:00')`,
  minute: (moment) => sql`date_format(${moment}, '%Y-%m-%d %H:%i:00')`,
};

/** Where a part is not named as its unit. */
const partFunctions: Partial<Record<Unit, string>> = { week: "weekofyear", day: "dayofmonth" };

/** From here on, doubles are whole numbers. */
const WHOLE_DOUBLES = sql.raw("9007199254740992");

/** 24 places, so that a quotient has more than the 12 it is rounded to. */
const ONE = sql.raw("1.000000000000000000000000");

/** The largest decimals have 65 digits, and quotients 12 of them after the point. */
const LARGEST_QUOTIENT = sql.raw(`1${"0".repeat(53)}`);
const LARGEST_INTEGER = sql.raw("9223372036854775807");

/** The server would silently cut what exceeds a decimal, so the sum of integers fails before. */
function quotient(dividend: Fragment, divisor: Fragment): Fragment {
  const rounded = sql`round(${dividend} * ${ONE} / ${divisor}, 12)`;
  return sql`case when ${LARGEST_INTEGER} + (abs(${rounded}) >= ${LARGEST_QUOTIENT})
    then cast(${rounded} as decimal(65, 12)) end`;
}

const calculate = arithmeticBy(quotient);

const longest = (value: Fragment) => sql`cast(${value} as decimal(65, 30))`;

export function computingIn(collation: string, double: MysqlKind): ComputeDialect<MysqlKind> {
  const bytewise: RawBuilder<unknown> = sql.raw(collation);
  const text = (value: Fragment) => sql`(convert(${value} using utf8mb4) collate ${bytewise})`;
  return {
    kinds: {
      integer: kindOfNew({ name: "bigint" }),
      decimal: kindOfNew({ name: "decimal(65,30)", mark: "numeric" }),
      double,
      text: { ...kindOfNew({ name: "longtext" }), ...collated(collation) },
      boolean: { ...boolean, encode: (raw) => boolean.encode(Number(raw)) },
      json: {
        ...kindOfNew({ name: "longtext", mark: "json" }),
        // MySQL writes the JSON that it reads with spaces and in an order of its own.
        compare: (value) =>
          sql`/*!80017 convert(cast( */${cellText(value)}/*!80017  as json) using utf8mb4) */`,
        compared: (value) => value,
        grouped: undefined,
      },
    },
    number(value, family) {
      if (family === "decimal") return value;
      return family === "integer" ? sql`cast(${value} as signed)` : sql`(0e0 + ${value})`;
    },
    arithmetic(fn, left, right, family) {
      const result = calculate(fn, left, right, family);
      // MariaDB subtracts the smallest integer from 0 without an error.
      return fn === "sub" && family === "integer"
        ? sql`case when ${left} = 0 then -${right} else ${result} end`
        : result;
    },
    round(value, digits, family) {
      const places = sql.raw(String(digits));
      if (family === "decimal") return sql`round(${value}, ${places})`;
      const exact = longest(sql`cast(${value} as char)`);
      return sql`case when abs(${value}) < ${WHOLE_DOUBLES}
        then 0e0 + round(${exact}, ${places}) else ${value} end`;
    },
    abs: (value) => sql`abs(${value})`,
    trunc(unit, moment, family) {
      const truncated = truncations[unit]?.(moment) ?? moment;
      const type = sql.raw(family === "date" ? "date" : "datetime(6)");
      return sql`cast(${truncated} as ${type})`;
    },
    part(unit, moment) {
      const time = sql`cast(${moment} as datetime(6))`;
      if (unit === "weekday") return sql`cast(weekday(${time}) + 1 as signed)`;
      return sql`cast(${sql.raw(partFunctions[unit] ?? unit)}(${time}) as signed)`;
    },
    microseconds: (first, second) => sql`timestampdiff(microsecond, ${second}, ${first})`,
    letters: (wanted, value) => text(caseSql(value, wanted)),
    trim: (value) => sql`trim(${value})`,
    length: (value) => sql`char_length(${value})`,
    text,
    // `failures.ts` knows the error by these words.
    limited: (value, bytes) =>
      sql`case when exp(709 + (${bytes} > ${mostTextBytes})) then ${value} end`,
    json(document, path) {
      const at = (steps: typeof path) => sql`json_extract(${document}, ${jsonPath(steps)})`;
      // To the server, a value is also the first element of itself.
      const lists = path.flatMap((step, index) =>
        typeof step === "number"
          ? [sql`${text(sql`json_type(${at(path.slice(0, index))})`)} = 'ARRAY'`]
          : [],
      );
      const found = sql`nullif(${text(compactSql(at(path)))}, 'null')`;
      return lists.length === 0
        ? found
        : sql`case when ${sql.join(lists, sql` and `)} then ${found} end`;
    },
  };
}
