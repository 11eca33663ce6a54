import { sql } from "kysely";
import { isPlainName } from "../../query/names.ts";
import { takeIn } from "../remote/change.ts";
import { describe, type TableDescription } from "../sql/description.ts";
import { readKeys } from "../sql/target.ts";
import type { MysqlPlace, Row } from "./session.ts";
import { keysSql, readTable, requireDatabase } from "./tables.ts";
import { markOf } from "./type-words.ts";

/** The tables and views that a query can name, sorted. @throws EngineRefusal `database_not_found` */
export async function listTables({ session, schema }: MysqlPlace): Promise<string[]> {
  await requireDatabase(session, schema);
  const found = await session.rows(
    sql`select table_name from information_schema.tables where table_schema = ${schema}`,
  );
  return found
    .map(([table]) => String(table))
    .filter(isPlainName)
    .sort();
}

/** A table in MySQL's words. @throws EngineRefusal `database_not_found` or `table_not_found` */
export async function describeTable(place: MysqlPlace, name: string): Promise<TableDescription> {
  const { session, schema } = place;
  const { columns } = await readTable(place, name);
  const keys = await takeIn(session, readKeys(keysSql(schema, name)));
  const found = await session.rows(sql`
    select column_name, column_default, column_comment,
      (select concat(referenced_table_name, '.', referenced_column_name)
        from information_schema.key_column_usage as reference
        where reference.table_schema = described.table_schema
          and reference.table_name = described.table_name
          and reference.column_name = described.column_name
          and reference.referenced_table_schema = described.table_schema limit 1)
    from information_schema.columns as described
    where table_schema = ${schema} and table_name = ${name}`);
  const [[comment, rows] = []] = await session.rows(sql`
    select case when table_type = 'BASE TABLE' then table_comment end, table_rows
    from information_schema.tables where table_schema = ${schema} and table_name = ${name}`);
  const facts = new Map(found.map(([column, ...rest]) => [String(column), rest]));
  return describe(
    Array.from(columns.values(), (column) => {
      const [value, remark, references] = textsOf(facts.get(column.name) ?? []);
      const isMark = markOf(remark ?? "") !== undefined;
      return {
        ...column,
        isSerial: column.isIdentity,
        // MariaDB writes a default that is none as a word.
        default: session.server.isMariaDb && value === "NULL" ? undefined : value,
        references,
        comment: isMark ? undefined : remark,
      };
    }),
    keys,
    { comment: textsOf([comment ?? null])[0], rows: rows == null ? undefined : Number(rows) },
  );
}

function textsOf(row: Row): (string | undefined)[] {
  return row.map((value) => (value === null ? undefined : String(value)));
}
