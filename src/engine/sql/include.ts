import { setImmediate } from "node:timers/promises";
import { deserialize, serialize } from "node:v8";
import { sql } from "kysely";
import { findTaken } from "../../core/query/names.ts";
import { DEFAULT_INCLUDED } from "../../core/query/node.ts";
import type { Include } from "../../core/query/tree.ts";
import { EngineRefusal } from "../refusal.ts";
import { BlockFile, type RowOutput } from "../spool.ts";
import { isAlike, linkMayFail, linkSides, termsAbout, whereSql } from "./conditions.ts";
import { countValues, type Fragment, type ResultRow, tooComplex } from "./fragment.ts";
import {
  asGrouped,
  type Column,
  type ColumnKind,
  type ColumnReference,
  columnAlias,
  columnSql,
  distinctColumns,
  type Encoded,
  resolveColumn,
  selectedColumns,
} from "./scope.ts";
import {
  aliasedSql,
  orderTerms,
  outerSide,
  prefilteredName,
  type SelectedTable,
  type SelectPlan,
  type SelectPlanner,
} from "./select.ts";
import { createRowEncoder, RowWriter, rowKeys } from "./values.ts";

type Columns<Kind extends ColumnKind> = readonly ColumnReference<Column<Kind>>[];

/** Rows of a table for many outer rows, read by their keys. */
export interface Included<Kind extends ColumnKind> {
  readonly name: string;
  readonly isOne: boolean;
  readonly limit: number;
  /** The column of the outer rows, and its place there. */
  readonly key: Column<Kind>;
  readonly keyPlace: number;
  readonly columns: Columns<Kind>;
  /** `columns`, and those that `includes` need. The place of the row's key follows them. */
  readonly selected: Columns<Kind>;
  readonly includes: readonly Included<Kind>[];
  /** Selects rows in the order of the keys, one more for each key than the limit. */
  statement(keys: readonly unknown[]): Fragment;
}

interface OuterSelect<Kind extends ColumnKind>
  extends Pick<Included<Kind>, "columns" | "selected"> {
  readonly tables: readonly SelectedTable<Kind>[];
}

/** True if no included rows depend on a value of the query. */
export function isFixed({ where, compute, include = [] }: Include): boolean {
  return where == null && compute === undefined && include.every(isFixed);
}

export function planIncludes<Kind extends ColumnKind>(
  planner: SelectPlanner<Kind>,
  outer: OuterSelect<Kind>,
  includes: readonly Include[],
): Included<Kind>[] {
  const names = rowKeys(outer.columns);
  return includes.map((include) => {
    const taken = findTaken([include.as, `${include.as}_more`], names);
    if (taken !== undefined) {
      const problem = `The name "${taken}" of an include is taken by a selected column; choose another name`;
      throw new EngineRefusal("duplicate_column", problem);
    }
    try {
      return planInclude(planner, outer, include);
    } catch (error) {
      throw error instanceof EngineRefusal ? error.at(`include "${include.as}"`) : error;
    }
  });
}

/** A power of two, as `valuesSql` makes them. */
const KEYS_PER_STATEMENT = 1024;

const listed = "outer keys";
const rankedName = sql.id("ranked rows");
const keyAlias = ".key";
const numberAlias = sql.id(".n");
const placeAlias = sql.id(".place");

function planInclude<Kind extends ColumnKind>(
  planner: SelectPlanner<Kind>,
  outer: OuterSelect<Kind>,
  include: Include,
): Included<Kind> {
  const { dialect } = planner;
  const { as: name, on, one: isOne = false, include: includes = [] } = include;
  const limit = isOne ? 1 : (include.limit ?? DEFAULT_INCLUDED);
  const table = planner.tableNamed(include.table);
  const tables = [table];
  const prefilter = planner.prefilter(tables, include);
  const scope = prefilter?.tables ?? tables;
  const resolve = planner.resolveIn(scope, include);
  const columns = selectedColumns<Column<Kind>>(scope, include.columns, resolve);
  const keys = includes.map((one) => resolveColumn<Column<Kind>>(scope, outerSide(one)));
  const selected = distinctColumns([...columns, ...keys]);
  const outerKey = outerSide(include);
  const key = resolveColumn<Column<Kind>>(outer.tables, outerKey);
  const source = outer.tables.find((one) => one.name === key.table.name) ?? table;
  const ends = on.split(" = ");
  const own = resolveColumn(tables, ends.find((end) => end !== outerKey) ?? "");
  const isIndexed = isAlike(own.column, key.column) && table.isIndexed?.(own.column.name) === true;
  const side = linkSides(own.column, key.column);
  const sides = ends.map((end) =>
    end === outerKey
      ? side(key.column, sql.id(listed, keyAlias))
      : side(own.column, columnSql(own)),
  );
  // The first part, without rows, gives the list the type and collation of the outer column.
  const typed = sql`select 0 as ${numberAlias}, ${columnSql(key)} as ${sql.id(keyAlias)}
    from ${planner.sourceSql(source)} where false`;
  const order = planner.orderedSql(orderTerms((one) => asGrouped(resolve(one)), include));
  const n = sql`${sql.id(listed)}.${numberAlias}`;
  const number = prefilter === undefined ? n : sql`${sql.id(prefilteredName)}.${numberAlias}`;
  const wanted = sql`select ${sql.join(selected.map(aliasedSql))}, ${number} as ${numberAlias}`;
  const place = sql`row_number() over (partition by ${number}
    ${order.length === 0 ? sql`` : sql`order by ${sql.join(order)}`})`;
  // SQLite misjudges the length of the list, and would read the whole table.
  const words = isIndexed ? sql`cross join` : sql`join`;
  const terms = linkMayFail([own, key]) ? termsAbout(table, resolve, include.where, tables) : [];
  const joinedTable = planner.castSourceSql(table, terms);
  const joined = sql`${words} ${joinedTable} on ${sql.join(sides, sql` = `)}`;
  const rest = whereSql(scope, prefilter?.where ?? include.where, resolve);
  const names = [...selected.map((_, index) => sql.id(columnAlias(index))), numberAlias];
  if (dialect.valuesPerStatement !== undefined) {
    // One more is the number of keys.
    const room = dialect.valuesPerStatement - KEYS_PER_STATEMENT - 1;
    const from = prefilter?.sourceSql(joined) ?? joined;
    const isFull = countValues(sql`${typed} ${wanted} ${place} ${from} ${rest}`) > room;
    if (isFull) throw tooComplex(`more than ${room} values in an include`);
  }
  const around = (rows: Fragment, bound: Fragment): Fragment => {
    const source = sql`(${typed} union all ${rows}) as ${sql.id(listed)} ${joined}${bound}`;
    const from = prefilter?.sourceSql(source, sql`${n} as ${numberAlias}`) ?? source;
    if (dialect.readsAllIncluded === true) {
      return sql`${wanted} from ${from}${rest} order by ${sql.join([number, ...order])}`;
    }
    const ranked = sql`${wanted}, ${place} as ${placeAlias} from ${from}${rest}`;
    return sql`select ${sql.join(names)} from (${ranked}) as ${rankedName}
      where ${placeAlias} <= ${sql.lit(isOne ? 1 : limit + 1)}
      order by ${numberAlias}, ${placeAlias}`;
  };
  const flat = dialect.flattenAround(around);
  return {
    name,
    isOne,
    limit,
    key: key.column,
    columns,
    selected,
    keyPlace: outer.selected.findIndex(
      ({ table, column }) => table.name === key.table.name && column.name === key.column.name,
    ),
    includes: planIncludes(planner, { tables, columns, selected }, includes),
    statement(values) {
      const keys = dialect.keyRows?.(values, key.column.kind);
      if (keys !== undefined) return flat(keys, sql``);
      return flat(valuesSql(values, dialect.row), sql` and ${n} <= ${values.length}`);
    },
  };
}

function valuesSql(keys: readonly unknown[], row = ""): Fragment {
  // Few lengths make few statements to prepare. The statement ignores what exceeds the keys.
  const length = 2 ** Math.ceil(Math.log2(keys.length));
  const all = Array.from({ length }, (_, index) => keys[index] ?? keys[0]);
  const words = all.map((_, index) => `${index === 0 ? "values " : "), "}${row}(${index + 1}, `);
  const around = [...words, ")"];
  return sql(Object.assign(around, { raw: around }), ...all);
}

export interface ReadingPlan<Kind extends ColumnKind> extends SelectPlan<Kind> {
  readonly includes: readonly Included<Kind>[];
}

/** How a database is read. `Raw` are its values. */
export interface RowSource<Raw, Kind extends ColumnKind> {
  /** @param onRow returns false to skip the rows that follow */
  each(
    statement: Fragment,
    columns: Columns<Kind>,
    onRow: (row: ResultRow<Raw>) => boolean,
  ): Promise<void>;
  /** Binds a value that was read to compare its column with it. */
  bind(column: Column<Kind>, raw: Raw): unknown;
}

/** Outer rows whose included rows are read together, and the size of their values. */
const ROWS_PER_CHUNK = 1000;
const CHUNK_LENGTH = 4 * 1024 * 1024;

export async function writeRows<Raw, Kind extends Encoded<Raw>>(
  { columns, selected, statements, includes }: ReadingPlan<Kind>,
  source: RowSource<Raw, Kind>,
  output: RowOutput,
): Promise<void> {
  const writer = new RowWriter<Raw>(columns, output);
  if (includes.length === 0) {
    for (const statement of statements(() => writer.count)) {
      await source.each(statement, selected, (row) => {
        writer.write(row);
        return true;
      });
    }
    return writer.end();
  }
  if (output.format === "csv") {
    const problem = "CSV has no place for included rows; accept application/json";
    throw new EngineRefusal("invalid_value", `${problem} or application/x-ndjson`);
  }
  async function write(rows: readonly ResultRow<Raw>[]): Promise<void> {
    const members = await new MemberReader(source, rows.length).read(includes, rows);
    if (members === "too many") {
      const middle = rows.length >> 1;
      await write(rows.slice(0, middle));
      return write(rows.slice(middle));
    }
    let written = 0;
    for (const [index, row] of rows.entries()) {
      const member = members[index] ?? "";
      output.countIncluded?.(member.length);
      writer.write(row, member);
      written += member.length;
      if (output.backlog !== undefined) await output.backlog;
      else if (written > CHUNK_LENGTH) {
        // Writing to a file blocks, so other queries have their turn.
        await setImmediate();
        written = 0;
      }
    }
  }
  // A connection reads one statement at a time, so outer rows are kept: the first and the last ones in
  // memory, those between them in a file.
  const first: ResultRow<Raw>[][] = [];
  const kept = new BlockFile();
  let rows: ResultRow<Raw>[] = [];
  let count = 0;
  let length = 0;
  let keptLength = 0;
  const keep = () => {
    if (keptLength < CHUNK_LENGTH) first.push(rows);
    else kept.write(serialize(rows));
    keptLength += length;
    rows = [];
    length = 0;
  };
  try {
    for (const statement of statements(() => count)) {
      await source.each(statement, selected, (row) => {
        rows.push(row);
        count += 1;
        length += rowLength(row);
        if (rows.length === ROWS_PER_CHUNK || length > CHUNK_LENGTH) keep();
        return true;
      });
    }
    for (const chunk of first) await write(chunk);
    for await (const block of kept.blocks()) await write(deserialize(block));
    await write(rows);
  } finally {
    kept.close();
  }
  writer.end();
}

function rowLength(row: ResultRow<unknown>): number {
  return Object.values(row).reduce<number>((length, value) => {
    const isLong = typeof value === "string" || value instanceof Uint8Array;
    return length + (isLong ? value.length : 1);
  }, 0);
}

/** In characters, for the outer rows of one chunk. A row costs some more than its text. */
const LARGEST_MEMBERS = 64 * 1024 * 1024;
const ROW_LENGTH = 50;

interface Group<Raw> {
  /** Only if they include others. */
  readonly rows: ResultRow<Raw>[];
  texts: string[];
  /** The member of an outer row, once all rows are read. */
  member: string | undefined;
  length: number;
  isCut: boolean;
}

class MemberReader<Raw, Kind extends Encoded<Raw>> {
  readonly #source: RowSource<Raw, Kind>;
  readonly #outerRows: number;
  #length = 0;

  constructor(source: RowSource<Raw, Kind>, outerRows: number) {
    this.#source = source;
    this.#outerRows = outerRows;
  }

  /**
   * The text that each row gets, unless fewer outer rows must be read together.
   *
   * @throws EngineRefusal `query_too_complex`
   */
  async read(
    includes: readonly Included<Kind>[],
    rows: readonly ResultRow<Raw>[],
  ): Promise<string[] | "too many"> {
    const members = rows.map(() => "");
    for (const include of includes) {
      const keys = rows.map((row) => row[include.keyPlace] ?? null);
      const found = new Map<Raw | null, string>();
      const distinct = [...new Set(keys)].filter((key) => key !== null);
      for (let at = 0; at < distinct.length; at += KEYS_PER_STATEMENT) {
        const some = distinct.slice(at, at + KEYS_PER_STATEMENT);
        const texts = await this.#readMembers(include, some);
        if (texts === "too many") return texts;
        for (const [index, key] of some.entries()) found.set(key, texts[index] ?? "");
      }
      const none = memberText(include, [], false);
      for (const [index, key] of keys.entries()) members[index] += found.get(key) ?? none;
    }
    return members;
  }

  async #readMembers(
    include: Included<Kind>,
    keys: readonly Raw[],
  ): Promise<string[] | "too many"> {
    const { key, columns, selected, includes, limit } = include;
    const encode = createRowEncoder<Raw>(columns);
    const groups = keys.map(
      (): Group<Raw> => ({ rows: [], texts: [], member: undefined, length: 0, isCut: false }),
    );
    let last: Group<Raw> | undefined;
    /** Many short strings that are kept would cost more to collect than to join. */
    const join = (group: Group<Raw>) => {
      group.member = memberText(include, group.texts, group.isCut);
      group.texts = [];
    };
    const bound = keys.map((raw) => this.#source.bind(key, raw));
    await this.#source.each(include.statement(bound), selected, (row) => {
      const group = groups[Number(row[selected.length]) - 1];
      if (group === undefined) return true;
      // The rows of one key follow each other, and are read to their end.
      if (this.#length > LARGEST_MEMBERS && group.length === 0) return false;
      if (group !== last && last !== undefined && includes.length === 0) join(last);
      last = group;
      if (group.texts.length === limit) {
        group.isCut = true;
        return true;
      }
      const text = encode(row);
      this.#add(group, text.length + ROW_LENGTH);
      group.texts.push(text);
      if (includes.length > 0) group.rows.push(row);
      return true;
    });
    if (this.#length > LARGEST_MEMBERS) return "too many";
    if (includes.length > 0) {
      const members = await this.read(
        includes,
        groups.flatMap(({ rows }) => rows),
      );
      if (members === "too many") return members;
      let at = 0;
      for (const { texts } of groups) {
        for (const [index, text] of texts.entries()) {
          texts[index] = `${text.slice(0, -1)}${members[at] ?? ""}}`;
          at += 1;
        }
      }
    }
    return groups.map(({ texts, member, isCut }) => member ?? memberText(include, texts, isCut));
  }

  #add(group: Group<Raw>, length: number): void {
    group.length += length;
    this.#length += length;
    const ofOneRow = this.#outerRows === 1 ? this.#length : group.length;
    if (ofOneRow <= LARGEST_MEMBERS) return;
    const problem = `The rows included in one row exceed ${LARGEST_MEMBERS >> 20} MiB`;
    throw new EngineRefusal("query_too_complex", `${problem}; lower limit or select fewer columns`);
  }
}

function memberText(
  { name, isOne }: Pick<Included<ColumnKind>, "name" | "isOne">,
  texts: readonly string[],
  isCut: boolean,
): string {
  const key = JSON.stringify(name);
  if (isOne) return `,${key}:${texts[0] ?? "null"}`;
  const more = isCut ? `,${JSON.stringify(`${name}_more`)}:true` : "";
  return `,${key}:[${texts.join(",")}]${more}`;
}
