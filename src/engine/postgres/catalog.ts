import { sql } from "kysely";
import { isPlainName } from "../../query/names.ts";
import { takeIn } from "../remote/change.ts";
import { databaseNotFound } from "../remote/failures.ts";
import { describe, type TableDescription } from "../sql/description.ts";
import { readKeys } from "../sql/target.ts";
import type { PostgresPlace } from "./session.ts";
import { keysSql, readTable } from "./tables.ts";

/** The tables and views that a query can name, sorted. @throws EngineRefusal `database_not_found` */
export async function listTables({ session, database, schema }: PostgresPlace): Promise<string[]> {
  const found = await session.rows(sql`
    select class.relname from pg_catalog.pg_namespace as namespace
    left join pg_catalog.pg_class as class on class.relnamespace = namespace.oid
      and class.relkind in ('r', 'p', 'f', 'v', 'm')
    where namespace.nspname = ${schema}`);
  if (found.length === 0) throw databaseNotFound(database);
  return found
    .map(([table]) => table ?? "")
    .filter(isPlainName)
    .sort();
}

/** A table in PostgreSQL's words. @throws EngineRefusal `database_not_found` or `table_not_found` */
export async function describeTable(place: PostgresPlace, name: string): Promise<TableDescription> {
  const { session, schema } = place;
  const { columns } = await readTable(place, name);
  const keys = await takeIn(session, readKeys(keysSql(schema, name)));
  const found = await session.rows(sql`
    select attribute.attname,
      case when attribute.attgenerated = '' then pg_catalog.pg_get_expr(value.adbin, value.adrelid) end,
      (select other.relname || '.' || target.attname
        from pg_catalog.pg_constraint as reference
        cross join lateral pg_catalog.generate_subscripts(reference.conkey, 1) as place
        join pg_catalog.pg_class as other on other.oid = reference.confrelid
          and other.relnamespace = class.relnamespace
        join pg_catalog.pg_attribute as target on target.attrelid = other.oid
          and target.attnum = reference.confkey[place]
        where reference.conrelid = class.oid and reference.contype = 'f'
          and reference.conkey[place] = attribute.attnum
        order by reference.oid limit 1),
      pg_catalog.col_description(class.oid, attribute.attnum),
      pg_catalog.obj_description(class.oid, 'pg_class'),
      case when pg_catalog.pg_stat_get_live_tuples(class.oid) > 0
          then pg_catalog.pg_stat_get_live_tuples(class.oid)
        when class.reltuples >= 0 then class.reltuples end
    from pg_catalog.pg_class as class
    join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
    join pg_catalog.pg_attribute as attribute on attribute.attrelid = class.oid
      and attribute.attnum > 0 and not attribute.attisdropped
    left join pg_catalog.pg_attrdef as value on value.adrelid = class.oid
      and value.adnum = attribute.attnum
    where namespace.nspname = ${schema} and class.relname = ${name}`);
  const facts = new Map(found.map(([column, ...rest]) => [column, rest]));
  const [[, , , , comment, rows] = []] = found;
  return describe(
    Array.from(columns.values(), (column) => {
      const [value, references, remark] = facts.get(column.name) ?? [];
      const isSerial = column.isIdentity;
      return { ...column, isSerial, default: value, references, comment: remark };
    }),
    keys,
    { comment, rows: rows == null ? undefined : Math.round(Number(rows)) },
  );
}
