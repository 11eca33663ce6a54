import { sql } from "kysely";
import { boundAgain } from "../remote/change.ts";
import { insertRows } from "../remote/insert.ts";
import { conflictSql } from "../sql/conflict.ts";
import type { Fragment } from "../sql/fragment.ts";
import { rows } from "../sql/steps.ts";
import type { Target } from "../sql/target.ts";
import type { PostgresPlace } from "./place.ts";
import { moveSequence } from "./sequence.ts";
import { readTable } from "./tables.ts";

/** Values in one statement, well below what the protocol allows. */
const valuesPerStatement = 20_000;

/** A table that is changed. Throws `database_not_found` or `table_not_found`. */
export async function targetOf(place: PostgresPlace, name: string): Promise<Target<string>> {
  const { schema } = place;
  const table = await readTable(place, name);
  const destination = { table, name: sql.id(schema, name) };
  return {
    ...destination,
    keys: keysSql(schema, name),
    lock: sql` for update`,
    takesAnyKey: false,
    insert: (values, { conflict, returning }) =>
      insertRows(destination, values, {
        // One statement cannot meet one row twice, and an Upsert may.
        valuesPerStatement: conflict === undefined ? valuesPerStatement : 1,
        tail: conflictSql(conflict),
        returning,
        onNumbers: (identity, numbers) => moveSequence(schema, name, identity.name, numbers),
      }),
    *returning(change, columns, key) {
      const all = [...columns, ...key];
      const names = all.map((_, index) => sql.id(`c${index}`));
      const answered = all.map((column, index) => sql`${sql.id(column.name)} as ${names[index]}`);
      const order = key.length === 0 ? sql`` : sql` order by ${sql.join(names.slice(-key.length))}`;
      return yield* rows<string>(
        sql`with changed as (${change} returning ${sql.join(answered)})
          select ${sql.join(names.slice(0, columns.length))} from changed${order}`,
      );
    },
    bind: boundAgain,
  };
}

/** Asks for the unique keys of a table as `Target` has them. */
export function keysSql(schema: string, name: string): Fragment {
  return sql`select entry.indexrelid, case when entry.indisprimary then 1 else 0 end,
      case when entry.indpred is null and entry.indimmediate and entry.indisvalid
        then attribute.attname end
    from pg_catalog.pg_index as entry
    join pg_catalog.pg_class as class on class.oid = entry.indrelid
    join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
    cross join lateral pg_catalog.generate_series(0, entry.indnkeyatts - 1) as place
    left join pg_catalog.pg_attribute as attribute
      on attribute.attrelid = class.oid and attribute.attnum = entry.indkey[place]
    where namespace.nspname = ${schema} and class.relname = ${name} and entry.indisunique
    order by entry.indisprimary desc, entry.indexrelid, place`;
}
