import { createHash } from "node:crypto";
import { sql } from "kysely";
import type {
  CellValue,
  Delete,
  Insert,
  Operation,
  Row,
  RowChangeName,
  Update,
  Upsert,
} from "../../core/query/tree.ts";
import { EngineRefusal } from "../refusal.ts";
import { whereSql } from "./conditions.ts";
import type { Fragment, ResultRow } from "./fragment.ts";
import { type Column, cellIn, requireDistinct, resolveColumn, type Table } from "./scope.ts";
import {
  type Changed,
  type Conflict,
  describeKeys,
  encodeRows,
  isKeyIn,
  namesSql,
  needsPrimaryKey,
  readKeys,
  readPrimaryKey,
  returnedColumns,
  rowDenied,
  type Target,
  type TargetColumn,
  writtenColumns,
} from "./target.ts";
import { comparedValue, numberText, storedValue } from "./values.ts";

function planAssignments(table: Table, { set, add }: Pick<Update, "set" | "add">) {
  const changes = entriesOf(table, set);
  const additions = entriesOf(table, add);
  const both = additions.find(({ column }) => changes.some((change) => change.column === column));
  if (both !== undefined) {
    throw new EngineRefusal(
      "duplicate_column",
      `Column "${both.column.name}" is in both set and add; allowed: one of them`,
    );
  }
  return [
    ...changes.map(({ column, value }) => ({ column, value: storedValue(column, value) })),
    ...additions.map(({ column, value }) => ({ column, value: sumSql(column, value) })),
  ];
}

function entriesOf(
  table: Table,
  cells: Readonly<Record<string, CellValue>> = {},
): { column: Column; value: CellValue }[] {
  const entries = Object.entries(cells).map(([name, value]) => ({
    column: resolveColumn([table], name).column,
    value,
  }));
  requireDistinct(entries.map(({ column }) => column));
  return entries;
}

function sumSql(column: Column, amount: CellValue): Fragment {
  const { name, type, kind } = column;
  const { family, store, amount: take = store } = kind;
  // Such a column stores strings too.
  if (family === "any" && typeof amount === "string") {
    const problem = `Column "${name}" does not accept a string in add; allowed: a number`;
    throw new EngineRefusal("invalid_value", problem);
  }
  const stored = kind.sum && storedValue({ ...column, kind: { family, store: take } }, amount);
  if (kind.sum !== undefined) return kind.sum(sql.id(name), stored);
  throw new EngineRefusal(
    "invalid_value",
    `Column "${name}" (${type}) is not numeric; add requires a numeric column`,
  );
}

type KeyCells = readonly unknown[];

const KEYS_PER_STATEMENT = 200;

/** Reads rows as JSON texts, in key order if there is a key. */
async function readInOrder<Raw>(
  target: Target<Raw>,
  columns: readonly TargetColumn<Raw>[],
  key: readonly TargetColumn<Raw>[],
  condition: Fragment,
  end: Fragment,
): Promise<string[]> {
  const order = key.length === 0 ? sql`` : sql` order by ${namesSql(key)}`;
  const found = await target.session.rows(
    sql`select ${namesSql(columns)} from ${target.name}${condition}${order}${end}`,
  );
  return encodeRows(target, columns, found);
}

/**
 * Updates rows, and reads them again by the keys that they then have, in the order of their keys
 * before.
 */
async function updateByKeys<Raw>(
  target: Target<Raw>,
  columns: readonly TargetColumn<Raw>[],
  key: readonly TargetColumn<Raw>[],
  query: Update,
  limit = sql``,
): Promise<Changed> {
  const { table, name, lock, bind } = target;
  const { set = {}, where } = query;
  const changes = new Map(
    planAssignments(table, query).map(({ column, value }) => [column, value]),
  );
  const isSet = (column: TargetColumn<Raw>) => Object.hasOwn(set, column.name);
  const cells = key.map((column) => {
    const own = sql.id(column.name);
    return isSet(column) ? own : (changes.get(column) ?? own);
  });
  const found = await target.session.rows(
    sql`select ${sql.join(cells)} from ${name}${whereSql([table], where)}
      order by ${namesSql(key)}${limit}${lock}`,
  );
  const keys = found.map((row) =>
    key.map((column, index) => {
      const raw = row[index] ?? null;
      if (isSet(column)) return changes.get(column);
      return raw === null ? null : bind(column, raw);
    }),
  );
  const affected = await target.session.run(updateSql(target, query));
  return { affected, data: await readByKeys(target, columns, key, keys) };
}

/** Reads rows by key as JSON texts, in key order within each batch. */
export async function readByKeys<Raw>(
  target: Target<Raw>,
  columns: readonly TargetColumn<Raw>[],
  key: readonly TargetColumn<Raw>[],
  keys: readonly KeyCells[],
): Promise<string[]> {
  const data: string[] = [];
  for (let start = 0; start < keys.length; start += KEYS_PER_STATEMENT) {
    const some = keys.slice(start, start + KEYS_PER_STATEMENT);
    const conditions = some.map((cells) => keyCondition(key, cells));
    const found = await target.session.rows(
      sql`select ${namesSql(columns)} from ${target.name}
        where ${sql.join(conditions, sql` or `)} order by ${namesSql(key)}`,
    );
    for (const text of encodeRows(target, columns, found)) data.push(text);
  }
  const isChecked = columns.some(({ expression }) => expression !== undefined);
  if (isChecked && data.length !== keys.length) throw rowDenied(target.table);
  return data;
}

type KeyColumn = Pick<Column, "name"> & Partial<Pick<Column, "kind">>;

/** @throws EngineRefusal if rows that were changed cannot be read by their keys */
export function requireFound(
  { name }: Pick<Table, "name">,
  { affected, data }: { readonly affected?: number; readonly data?: readonly unknown[] },
): void {
  if (data?.length === affected) return;
  const problem = `A trigger removes a row of ${name} or changes its primary key, by which this database reads rows for returning`;
  throw new EngineRefusal("not_supported", problem);
}

export function keyCondition(key: readonly KeyColumn[], cells: KeyCells): Fragment {
  const parts = key.map(({ name, kind }, index) => {
    const own = sql.id(name);
    const held = kind?.compared?.(own) ?? own;
    return cells[index] === null ? sql`${held} is null` : sql`${held} = ${cells[index]}`;
  });
  return sql`(${sql.join(parts, sql` and `)})`;
}

export async function insert<Raw>(
  target: Target<Raw>,
  { values, returning }: Insert,
): Promise<Changed> {
  const columns = writtenColumns(target, returning);
  return answerRows(await target.insert(values, { returning: columns }), returning);
}

/** Omits rows that were read only to check the row filter. */
function answerRows({ data, ...changed }: Changed, returning: readonly string[] | undefined) {
  return data === undefined || returning === undefined ? changed : { ...changed, data };
}

export async function update<Raw>(target: Target<Raw>, query: Update): Promise<Changed> {
  const change = updateSql(target, query);
  const { returning } = query;
  const columns = writtenColumns(target, returning);
  if (columns === undefined) return { affected: await target.session.run(change, true) };
  const key = await readPrimaryKey(target);
  if (target.returning !== undefined) {
    const found = await target.returning(change, columns, key);
    return answerRows(readChanged(target, columns, found), returning);
  }
  if (key.length === 0) {
    if (returning !== undefined) throw needsPrimaryKey(target);
    // Without a key, rows cannot be read again. An Update within the filter keeps their number.
    const before = await countWithin(target);
    const affected = await target.session.run(change);
    if ((await countWithin(target)) !== before) throw rowDenied(target.table);
    return { affected };
  }
  const changed = await updateByKeys(target, columns, key, query);
  requireFound(target.table, changed);
  return answerRows(changed, returning);
}

async function countWithin<Raw>(target: Target<Raw>): Promise<string> {
  const { session, name, within = sql`true`, lock } = target;
  const [row] = await session.rows(sql`select count(*) from ${name} where ${within}${lock}`);
  return String(row?.[0]);
}

function updateSql<Raw>(
  { table, name, updateWords = sql`update` }: Target<Raw>,
  query: Update,
): Fragment {
  const condition = whereSql([table], query.where);
  const sets = planAssignments(table, query).map(
    ({ column, value }) => sql`${sql.id(column.name)} = ${value}`,
  );
  return sql`${updateWords} ${name} set ${sql.join(sets)}${condition}`;
}

export async function deleteRows<Raw>(
  target: Target<Raw>,
  { where, returning }: Delete,
): Promise<Changed> {
  const { table, name, lock } = target;
  const condition = whereSql([table], where);
  const change = sql`delete from ${name}${condition}`;
  const columns = returning && returnedColumns(target, returning);
  if (columns === undefined) return { affected: await target.session.run(change, true) };
  const key = await readPrimaryKey(target);
  if (target.returning !== undefined) {
    return readChanged(target, columns, await target.returning(change, columns, key, true));
  }
  const data = await readInOrder(target, columns, key, condition, lock);
  return { affected: await target.session.run(change), data };
}

export async function upsert<Raw>(target: Target<Raw>, query: Upsert): Promise<Changed> {
  const conflict = await findConflict(target, query);
  const returning = query.returning && returnedColumns(target, query.returning);
  return await target.insert(query.values, { conflict, returning });
}

async function findConflict<Raw>(
  { session, table, keys: keysSql, ignoresConflictKey }: Target<Raw>,
  { on_conflict, update: updated, values }: Upsert,
): Promise<Conflict> {
  const key = ownColumns(table, on_conflict);
  const update = ownColumns(table, updated);
  const keys = await readKeys(session, keysSql);
  const fitting = keys.filter((known) => isKeyIn(known, on_conflict));
  if (fitting.length === 0) {
    const plain = `on_conflict requires the columns of a primary or unique key of ${table.name}`;
    throw new EngineRefusal("no_unique_key", `${plain}; ${describeKeys(keys)}`, { plain });
  }
  if (ignoresConflictKey && keys.length > 1) {
    const plain = "This database supports Upsert only on tables with a single unique key";
    const problem = `${plain}; ${describeKeys(keys)}`;
    throw new EngineRefusal("not_supported", problem, { plain });
  }
  requireCells(values, [...on_conflict, ...updated]);
  return { key, update, isNullEqual: fitting.some((known) => known.isNullEqual) };
}

function ownColumns(table: Table, names: readonly string[]): Column[] {
  const columns = names.map((name) => resolveColumn([table], name).column);
  requireDistinct(columns);
  return columns;
}

/** Missing values would have to be guessed. */
function requireCells(values: readonly Row[], names: readonly string[]): void {
  for (const [index, row] of values.entries()) {
    const missing = names.find((name) => !Object.hasOwn(row, name));
    if (missing === undefined) continue;
    const problem = `Column "${missing}" is missing; each row needs the columns of on_conflict and update`;
    throw new EngineRefusal("invalid_value", problem).at(`values[${index}]`);
  }
}

function readChanged<Raw>(
  target: Target<Raw>,
  columns: readonly TargetColumn<Raw>[],
  found: readonly ResultRow<Raw>[],
): Changed {
  return { affected: found.length, data: encodeRows(target, columns, found) };
}

export interface Previewed {
  readonly affected: number;
  readonly before: readonly string[];
  readonly after: readonly string[];
}

export interface PreviewOptions {
  /** The columns that the caller may see; all if absent. */
  readonly visible: readonly string[] | undefined;
  /** An approver sees all columns, since the requester chooses `returning`. */
  readonly isForApprover: boolean;
  /** Rows to read before and after the change each. A change may return more. */
  readonly limit: number;
}

/** Runs a change in a transaction that the caller rolls back. */
export async function preview<Raw>(
  target: Target<Raw>,
  operation: Operation<RowChangeName>,
  { visible, isForApprover, limit }: PreviewOptions,
): Promise<Previewed> {
  const wanted = isForApprover ? undefined : operation.fields.returning;
  const columns = returnedColumns(target, wanted ?? ["*"]).filter(
    ({ name }) => visible?.includes(name) ?? true,
  );
  if (columns.length === 0) {
    throw new EngineRefusal("not_supported", "The caller may see none of these columns");
  }
  const returning = columns.map(({ name }) => name);
  switch (operation.name) {
    case "Insert":
      await requireNearNumbers(target, operation.fields.values);
      return previewed([], await insert(target, { ...operation.fields, returning }));
    case "Update":
    case "Delete": {
      const condition = whereSql([target.table], operation.fields.where);
      const end = sql` limit ${sql.lit(limit)}`;
      const key = await readPrimaryKey(target);
      const before = await readInOrder(target, columns, key, condition, end);
      if (operation.name === "Delete") {
        const { returning: _, ...fields } = operation.fields;
        return previewed(before, await deleteRows(target, fields));
      }
      const { fields } = operation;
      if (target.followsUpdates) {
        await requireNearNumbers(target, [fields.set ?? {}, fields.add ?? {}]);
      }
      const change =
        key.length === 0 || target.check !== undefined
          ? update(target, { ...fields, returning })
          : updateByKeys(target, columns, key, fields, end);
      return previewed(before, await change);
    }
    case "Upsert": {
      await requireNearNumbers(target, operation.fields.values);
      const before = await conflicting(target, operation.fields, columns, limit);
      return previewed(before, await upsert(target, { ...operation.fields, returning }));
    }
  }
}

const MOST_SKIPPED_NUMBERS = 1_000_000;

/** A server generates numbers after the largest one that was written, even if it was rolled back. */
async function requireNearNumbers<Raw>(
  { session, table, name }: Target<Raw>,
  rows: readonly Row[],
): Promise<void> {
  const identity = [...table.columns.values()].find(({ isIdentity }) => isIdentity);
  if (identity === undefined) return;
  const isFar = (largest: number) =>
    rows.some((row) => {
      const cell = cellIn(row, identity.name) ?? 0;
      return Number(numberText(cell) ?? cell) > largest + MOST_SKIPPED_NUMBERS;
    });
  if (!isFar(0)) return;
  const [row] = await session.rows(sql`select max(${sql.id(identity.name)}) from ${name}`);
  if (!isFar(Number(row?.[0] ?? 0))) return;
  const problem = `Column "${identity.name}": a Preview may skip at most ${MOST_SKIPPED_NUMBERS} numbers, which the database then never generates`;
  throw new EngineRefusal("not_supported", problem);
}

function previewed(before: readonly string[], { affected = 0, data = [] }: Changed): Previewed {
  return { affected, before, after: data };
}

/** The existing rows that an Upsert changes, each once, in the order of the values. */
async function conflicting<Raw>(
  target: Target<Raw>,
  query: Upsert,
  columns: readonly TargetColumn<Raw>[],
  most: number,
): Promise<string[]> {
  const { key, update: changed, isNullEqual } = await findConflict(target, query);
  // Rows are identified by all of their columns.
  const all = [...target.table.columns.values()];
  const found = new Map<string, string>();
  if (changed.length === 0) return [];
  for (const value of query.values) {
    if (found.size === most) break;
    const given = key.map(({ name }) => cellIn(value, name) ?? null);
    if (given.includes(null) && isNullEqual !== true) continue;
    const cells = key.map((column, at) => {
      const cell = given[at] ?? null;
      return cell === null ? null : comparedValue(column, cell);
    });
    const condition = sql` where ${keyCondition(key, cells)}`;
    const [row] = await readInOrder(target, all, [], condition, sql``);
    if (row === undefined || found.has(row)) continue;
    const [text = row] =
      columns.length === all.length
        ? [row]
        : await readInOrder(target, columns, [], condition, sql``);
    found.set(row, text);
  }
  return [...found.values()];
}

/** Each takes 32 bytes of memory plus its text. */
const MAX_DIGEST_ROWS = 100_000;

function sha256(text: string | Buffer): Buffer {
  return createHash("sha256").update(text).digest();
}

/**
 * SHA-256 in hexadecimal over the existing rows that a change affects, in any order, with all
 * columns. Locks the rows of an Update or Delete.
 */
export async function digestAffected<Raw>(
  target: Target<Raw>,
  operation: Operation<RowChangeName>,
): Promise<string> {
  const columns = [...target.table.columns.values()];
  const most = MAX_DIGEST_ROWS + 1;
  let touched: readonly string[] = [];
  if (operation.name === "Upsert") {
    touched = await conflicting(target, operation.fields, columns, most);
  } else if (operation.name !== "Insert") {
    const condition = whereSql([target.table], operation.fields.where);
    const end = sql` limit ${sql.lit(most)}${target.lock}`;
    touched = await readInOrder(target, columns, [], condition, end);
  }
  if (touched.length > MAX_DIGEST_ROWS) {
    const problem = `More than ${MAX_DIGEST_ROWS} rows are affected, too many to compare`;
    throw new EngineRefusal("too_many_rows", `${problem}; nothing was changed`);
  }
  const digests = touched.map(sha256).sort(Buffer.compare);
  return sha256(Buffer.concat(digests)).toString("hex");
}

export function requireSameRows(found: string, expected: string): void {
  if (found === expected) return;
  const problem = "The affected rows have changed since the approval";
  throw new EngineRefusal(
    "approval_stale",
    `${problem}; nothing was changed. Request approval again`,
  );
}
