import { sql } from "kysely";
import { databaseNotFound } from "../remote/failures.ts";
import type { Fragment } from "../sql/fragment.ts";
import { MAX_NAMES_COMPARED, tableNotFound } from "../sql/scope.ts";
import {
  findKind,
  type PostgresColumn,
  type PostgresTable,
  type TypeDescription,
} from "./kinds.ts";
import type { PostgresContext } from "./session.ts";

/** Most tables are known, and take no promise. */
export function knownTable(
  context: PostgresContext,
  name: string,
): PostgresTable | Promise<PostgresTable> {
  return context.session.knownTable(context.database, name) ?? keepTable(context, name);
}

/** In the order of their names. */
export function knownTables(
  context: PostgresContext,
  names: readonly string[],
): readonly PostgresTable[] | Promise<readonly PostgresTable[]> {
  const tables: PostgresTable[] = [];
  for (const name of names) {
    const known = context.session.knownTable(context.database, name);
    if (known === undefined) return Array.fromAsync(names, (one) => knownTable(context, one));
    tables.push(known);
  }
  return tables;
}

async function keepTable(context: PostgresContext, name: string): Promise<PostgresTable> {
  const table = await readTable(context, name);
  context.session.tables.keep(context.database, name, table);
  return table;
}

const FIRST_OF_EXTENSIONS = sql.lit(16_384);

/**
 * Whether a type has an equality of its own on the search path of the session. `citext` of another
 * schema would be compared as `text`, but sorted as itself. Types of PostGIS have no `<>`.
 */
const hasOperators = sql`(base.oid < ${FIRST_OF_EXTENSIONS} or exists (
  select 1 from pg_catalog.pg_opclass as class
  join pg_catalog.pg_amop as entry on entry.amopfamily = class.opcfamily
    and entry.amoplefttype = base.oid and entry.amoprighttype = base.oid
  join pg_catalog.pg_am as method on method.oid = class.opcmethod
  join pg_catalog.pg_operator as equality on equality.oid = entry.amopopr
  where class.opcintype = base.oid and class.opcdefault and method.amname = 'btree'
    and entry.amopstrategy = 3 and pg_catalog.pg_operator_is_visible(entry.amopopr)
    and equality.oprnegate <> 0))`;

/** Rows of tables that inherit from it are among its own, and its keys know nothing of them. */
const repeatsKeys = sql`(class.relkind = 'r' and exists (
  select 1 from pg_catalog.pg_inherits as heir where heir.inhparent = class.oid))`;

/**
 * Names are compared exactly, so that only one spelling reaches a table.
 *
 * @throws EngineRefusal `database_not_found` or `table_not_found`
 */
export async function readTable(context: PostgresContext, name: string): Promise<PostgresTable> {
  const found = await context.session.rows(sql`
    select class.relkind, attribute.attname,
      pg_catalog.format_type(attribute.atttypid, attribute.atttypmod),
      base.oid, coalesce(element.oid, 0),
      pg_catalog.format_type(base.oid, -1), attribute.attnotnull and not exists (
        select 1 from pg_catalog.pg_constraint as rule where rule.conrelid = class.oid
          and rule.contype = 'n' and not rule.convalidated and attribute.attnum = any (rule.conkey)),
      attribute.attidentity,
      coalesce(element.modifier, base.modifier),
      exists (select 1 from pg_catalog.pg_index as index where index.indrelid = class.oid
        and index.indisprimary and index.indisvalid and attribute.attnum = any (index.indkey)) and not ${repeatsKeys},
      case when 'e' in (base.typtype, element.typtype) then (
        select pg_catalog.string_agg(label.enumlabel, pg_catalog.chr(31) order by label.enumsortorder)
        from pg_catalog.pg_enum as label
        where label.enumtypid = coalesce(element.oid, base.oid)) end,
      case when base.oid <> attribute.atttypid or element.oid <> base.typelem
        then coalesce(pg_catalog.format_type(element.oid, element.modifier) || '[]',
          pg_catalog.format_type(base.oid, base.modifier)) end,
      attribute.attgenerated <> '' or attribute.attidentity = 'a',
      base.typtype = 'c' or (base.typtype = 'b' and element.oid is null and not ${hasOperators}),
      nullif(attribute.attcollation, 0)
    from pg_catalog.pg_namespace as namespace
    left join pg_catalog.pg_class as class on class.relnamespace = namespace.oid
      and class.relname = ${name} and class.relkind in ('r', 'p', 'f', 'v', 'm')
    left join pg_catalog.pg_attribute as attribute on attribute.attrelid = class.oid
      and attribute.attnum > 0 and not attribute.attisdropped
    left join lateral (${baseOf(sql`attribute.atttypid`, sql`attribute.atttypmod`)}) as base on true
    left join lateral (${baseOf(sql`base.typelem`, sql`base.modifier`)}) as element
      on base.typcategory = 'A' and element.typarray = base.oid and element.typdelim = ','
    where namespace.nspname = ${context.schema}
    order by attribute.attnum`);
  const [first] = found;
  if (first === undefined) throw databaseNotFound(context.database);
  const [relationKind] = first;
  if (relationKind == null) throw tableNotFound(name, context.database, await namesIn(context));
  const columns = found.map(readColumn).filter((column) => column.name !== "");
  const isTable = ["r", "p", "f"].includes(relationKind);
  return { name, isTable, columns: new Map(columns.map((column) => [column.name, column])) };
}

/** A type, or the one that a domain and domains under it are made of, with its modifier. */
function baseOf(type: Fragment, modifier: Fragment): Fragment {
  return sql`
    with recursive chain as (
      select one.oid, one.typtype, one.typbasetype, one.typtypmod, one.typcategory, one.typelem,
        one.typarray, one.typdelim, ${modifier} as modifier
      from pg_catalog.pg_type as one where one.oid = ${type}
      union all
      select one.oid, one.typtype, one.typbasetype, one.typtypmod, one.typcategory, one.typelem,
        chain.typarray, chain.typdelim, greatest(chain.modifier, chain.typtypmod)
      from chain join pg_catalog.pg_type as one on one.oid = chain.typbasetype)
    select * from chain where typtype <> 'd'`;
}

async function namesIn({ session, schema }: PostgresContext): Promise<string[]> {
  const found = await session.rows(sql`
    select class.relname from pg_catalog.pg_class as class
    join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
    where namespace.nspname = ${schema} and class.relkind in ('r', 'p', 'f', 'v', 'm')
      and pg_catalog.has_table_privilege(class.oid, 'select')
    limit ${sql.lit(MAX_NAMES_COMPARED)}`);
  return found.map(([name]) => name ?? "");
}

function readColumn(row: readonly (string | null)[]): PostgresColumn {
  const [, name, declared, id, elementId, sqlName, isRequired, ...more] = row;
  const [identity, modifier, isKey, labels, valueType, isComputed, isUnordered, collation] = more;
  const type = {
    id: Number(id),
    elementId: Number(elementId),
    sqlName: sqlName ?? "text",
    ...numericSize(Number(modifier), Number(elementId) || Number(id)),
    isUnordered: isTrue(isUnordered),
    collation: collation ?? undefined,
    labels: labels == null ? undefined : labels.split("\u001f"),
  };
  return {
    name: name ?? "",
    type: declared ?? "",
    valueType: valueType ?? undefined,
    kind: findKind(type),
    isNullable: !isTrue(isRequired),
    isIdentity: identity === "d",
    isComputed: isTrue(isComputed),
    isKey: isTrue(isKey),
  };
}

function isTrue(text: string | null | undefined): boolean {
  return text === "t" || text === "true";
}

const NUMERIC = 1700;

/** Types whose modifier is the number of digits after the second. */
const moments = new Set([1083, 1114, 1184, 1266]);

/** The modifier of a `numeric` holds its precision, and in its lowest 11 bits the signed scale. */
function numericSize(modifier: number, type: number): Pick<TypeDescription, "length" | "scale"> {
  if (moments.has(type) && modifier >= 0) return { length: modifier, scale: undefined };
  const headerLength = 4;
  if (modifier < headerLength) return { scale: undefined };
  const size = modifier - headerLength;
  return type === NUMERIC
    ? { length: size >> 16, scale: ((size & 0x7ff) ^ 0x400) - 0x400 }
    : { length: size, scale: undefined };
}

/** An index may tell equal values apart. Servers before PostgreSQL 15 have no `indnullsnotdistinct`. */
export function keysSql(schema: string, name: string): Fragment {
  return sql`select entry.indexrelid, case when entry.indisprimary then 1 else 0 end,
      case when entry.indpred is null and entry.indimmediate and entry.indisvalid
        and not entry.indisexclusion and (entry.indcollation[place] = attribute.attcollation or (
          select collisdeterministic from pg_catalog.pg_collation where oid = attribute.attcollation
        )) then attribute.attname end,
      pg_catalog.to_jsonb(entry) ->> 'indnullsnotdistinct'
    from pg_catalog.pg_index as entry
    join pg_catalog.pg_class as class on class.oid = entry.indrelid
    join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
    cross join lateral pg_catalog.generate_series(0, entry.indnkeyatts - 1) as place
    left join pg_catalog.pg_attribute as attribute
      on attribute.attrelid = class.oid and attribute.attnum = entry.indkey[place]
    where namespace.nspname = ${schema} and class.relname = ${name} and entry.indisunique
      and not ${repeatsKeys}
    order by entry.indisprimary desc, entry.indexrelid, place`;
}
