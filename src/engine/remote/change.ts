import type { Select } from "../../query/operation-types.ts";
import type { OperationFields } from "../../query/operations.ts";
import { parseCell } from "../parse.ts";
import { tableKeysOf } from "../sql/after.ts";
import { deleteRows, insert, update, upsert } from "../sql/changes.ts";
import type { Fragment } from "../sql/fragment.ts";
import { digestTouched, preview, type RowChangeName } from "../sql/preview.ts";
import type { Column, ColumnKind, Table } from "../sql/scope.ts";
import type { SelectedTable } from "../sql/select.ts";
import type { Reply, Statement, Steps } from "../sql/steps.ts";
import { comparedValue } from "../sql/stored-values.ts";
import { narrowed, readKeys, type Target, type TargetColumn } from "../sql/target.ts";
import type { Changes, Dialect, RemoteColumn } from "./dialect.ts";
import type { Place, Session } from "./session.ts";

/** A session whose rows come as `Raw` values. */
interface Answering<Raw> extends Session {
  rows(fragment: Statement["fragment"]): Promise<readonly (readonly (Raw | null)[])[]>;
}

/**
 * Finds a table that is changed. What it looked like a moment ago will do where nothing is read of it:
 * `isRead` is false.
 */
type TargetOf<Leased extends Session, Raw> = (
  place: Place<Leased>,
  table: string,
  isRead: boolean,
) => Target<Raw> | Promise<Target<Raw>>;

/**
 * The changes of rows, in tables as `targetOf` finds them. They throw `EngineRefusal` for an
 * unknown column and for unfit values.
 */
export function changesOfRows<Leased extends Answering<Raw>, Raw>(
  targetOf: TargetOf<Leased, Raw>,
): Pick<Changes<Leased>, RowChangeName> & Pick<Dialect<Leased>, "preview" | "digestTouched"> {
  function take<Result>(
    place: Place<Leased>,
    { table, returning }: Pick<OperationFields["Insert"], "table" | "returning">,
    stepsOf: (target: Target<Raw>) => Steps<Result, Raw>,
    isRead = returning !== undefined,
  ): Promise<Result> {
    const found = targetOf(place, table, isRead);
    const bytewise = place.counter?.bytewiseIn(place.database, table);
    const takeOn = (target: Target<Raw>) =>
      takeIn(place.session, stepsOf(narrowed(target, bytewise)));
    return found instanceof Promise ? found.then(takeOn) : takeOn(found);
  }
  return {
    Insert: (place, fields) => take(place, fields, (target) => insert(target, fields)),
    Update: (place, fields) => take(place, fields, (target) => update(target, fields)),
    Delete: (place, fields) => take(place, fields, (target) => deleteRows(target, fields)),
    Upsert: (place, fields) => take(place, fields, (target) => upsert(target, fields), true),
    preview: (place, operation, counter) =>
      take(place, operation.fields, (target) => preview(target, operation, counter), true),
    digestTouched: (place, operation) =>
      take(place, operation.fields, (target) => digestTouched(target, operation), true),
  };
}

/** Takes steps in a session. @throws what they throw, and what the session throws */
export async function takeIn<Result, Raw>(
  session: Answering<Raw>,
  steps: Steps<Result, Raw>,
): Promise<Result> {
  let step = steps.next();
  while (step.done !== true) {
    const { fragment, wants, isLast } = step.value;
    let reply: Reply<Raw>;
    try {
      if (wants === "rows") reply = { rows: await session.rows(fragment), count: 0 };
      else reply = { rows: [], count: await session.run(fragment, isLast) };
    } catch (error) {
      step = steps.throw(error);
      continue;
    }
    step = steps.next(reply);
  }
  return step.value;
}

/** A value that was read, as its column compares with it. */
export function boundAgain<Raw>(column: TargetColumn<Raw>, raw: Raw): unknown {
  return comparedValue(column, parseCell(column.kind.encode(raw)));
}

/**
 * A table that is read, for a page with what tells its rows apart. `keys` asks for its unique keys, which
 * it does not take to know where the order holds the primary key.
 */
export async function withKeys<Raw, Kind extends ColumnKind>(
  session: Answering<Raw>,
  table: Table<RemoteColumn & Column<Kind>>,
  { after, order_by = [] }: Select,
  keys: Fragment,
): Promise<SelectedTable<Kind>> {
  if (after === undefined) return table;
  const { name } = table;
  const columns = [...table.columns.values()];
  const { primary } = tableKeysOf(columns, []);
  const ordered = new Set([order_by].flat().map(({ column }) => column));
  const isOrdered = (column: string) => ordered.has(column) || ordered.has(`${name}.${column}`);
  const isTold = primary.length > 0 && primary.every(isOrdered);
  const unique = isTold ? [] : await takeIn(session, readKeys(keys));
  return { ...table, keys: tableKeysOf(columns, unique) };
}
