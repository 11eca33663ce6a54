/**
 * The decision once more, from the contract alone: plain lists that are filtered, nothing indexed,
 * and the query's own JSON in the place of the scanner's findings. It says everything that is wrong
 * with each element, in no order.
 */
import type { Grant, Limits } from "../../src/access/grant.ts";
import type { Asked } from "./decision-queries.ts";
import {
  asksOf,
  type Element,
  grantOf,
  rightFaults,
  tableOf,
  takeApart,
} from "./decision-reference-element.ts";
import {
  namedColumns,
  objectAt,
  objectsAt,
  pins,
  terms,
  textAt,
} from "./decision-reference-query.ts";
import {
  differsByForm,
  holds,
  isNarrowed,
  isPattern,
  resolved,
  start,
} from "./decision-reference-rules.ts";
import { now, type World } from "./decision-worlds.ts";

/** What the contract says of one element: its faults, or else its conditions. */
export interface Opinion {
  readonly faults: ReadonlySet<string>;
  /** The rights whose use needs approval. */
  readonly asks: readonly string[];
  /** Conditions that have to be added, as JSON. */
  readonly additions: readonly string[];
}

/** The rows that an element answers and changes, of what one entry or boundary limits. */
interface Amount {
  readonly limiter: Limits;
  readonly rows: number;
  readonly changes: number;
}

function kindFaults(element: Element): string[] {
  const { world, context, operation, isPreview, fields, database, own, references, fitting } =
    element;
  const isForeign =
    operation === "Truncate" || "trace" in fields || (isPreview && !context.isEngine);
  const hasColumns = own.some((table) => grantOf(element, table).columns !== undefined);
  const isShown = !context.isEngine && (isPreview || "aggregate" in fields);
  const isFiltered = (table: string) => grantOf(element, table).rowFilter !== undefined;
  const isBound = (table: string) => grantOf(element, table).requireWhere !== undefined;
  const isUpsert = operation === "Upsert";
  return [
    isForeign && isNarrowed(world, fitting, database),
    operation !== "Truncate" && hasColumns && isShown,
    references.map(tableOf).some(isFiltered),
    isUpsert && own.some((table) => isFiltered(table) || isBound(table)),
  ].flatMap((isWrong) => (isWrong ? ["not_narrowable"] : []));
}

function columnFaults(element: Element): string[] {
  const { world, operation, fields, database, own, references } = element;
  const isPartial = (table: string) => {
    const { columns, writableColumns, rowFilter } = grantOf(element, table);
    return (columns ?? writableColumns ?? rowFilter) !== undefined;
  };
  const isHidden = (table: string) => grantOf(element, table).columns !== undefined;
  const judge = (position: string, table: string, column: string) => {
    const labelOf = ({ database: place, tables }: Grant) =>
      tables === undefined
        ? place
        : tables
            .filter((name) => (isPattern(name) ? table.startsWith(start(name)) : name === table))
            .map((name) => `${place}.${name}`)[0];
    const about = world.grants
      .filter(({ database: place }) => place === database || place === "*")
      .filter((grant) => labelOf(grant) !== undefined);
    const isHeld = (grant: Grant) =>
      about.some((other) => other !== grant && labelOf(other) === labelOf(grant));
    const spelled = about
      .filter((grant) => (grant.expires ?? now + 1) > now || !isHeld(grant))
      .flatMap(({ columns = [], writableColumns = [], requireWhere = [], rowFilter = [] }) => [
        ...[...columns, ...writableColumns, ...requireWhere],
        ...rowFilter.map((condition) => condition.column),
      ]);
    const { columns = [column], writableColumns = [column] } = grantOf(element, table);
    const isWritten = position === "written";
    const isAllowed = columns.includes(column) && (!isWritten || writableColumns.includes(column));
    return [
      ...(spelled.some((name) => differsByForm(name, column)) ? ["name_case_mismatch"] : []),
      ...(isAllowed ? [] : ["column_denied"]),
    ];
  };
  const named = [
    ...namedColumns(operation, fields),
    ...references.map((reference) => ["references", reference] as const),
  ];
  return named.flatMap(([position, name]) => {
    const [table, column = ""] = name.includes(".") ? name.split(".") : [undefined, name];
    if (column === "*") return own.some(isHidden) ? ["columns_required"] : [];
    const isBare = table === undefined && own.length > 1 && own.some(isPartial);
    const about = table === undefined ? own : [table];
    return [
      ...(isBare ? ["column_unqualified"] : []),
      ...about.flatMap((one) => judge(position, one, column)),
    ];
  });
}

/** How a column of a table may be written, with `?` in the place of its name. */
function spellingsOf({ own }: Element, table: string): readonly string[] {
  return own.length > 1 ? [`${table}.?`] : ["?", `${table}.?`];
}

/** The faults and the conditions that row filters bring. */
function rowOpinion(element: Element): { faults: string[]; additions: string[] } {
  const { world, operation, fields, own, joins } = element;
  const faults: string[] = [];
  const additions: string[] = [];
  const joinType = (at: number) => joins[at - 1]?.join_type;
  for (const [index, table] of own.entries()) {
    const { rowFilter } = grantOf(element, table);
    const isFilterable = ["Select", "Insert", "Update", "Delete"].includes(operation);
    if (rowFilter === undefined || !isFilterable) continue;
    const isBefore = own.some((_, at) => at > index && joinType(at) === "RIGHT");
    if (joinType(index) === "LEFT" || isBefore) faults.push("join_denied");
    const conditions = resolved(world, rowFilter);
    if (conditions === undefined) faults.push("attribute_missing");
    const rows = operation === "Insert" ? objectsAt(fields, "values") : [];
    const set = objectAt(fields, "set");
    for (const condition of conditions ?? []) {
      const { column, cmp, value } = condition;
      const isKept =
        rows.every((row) => holds(condition, row[column])) &&
        !(column in objectAt(fields, "add")) &&
        (!(column in set) || holds(condition, set[column]));
      if (!isKept) faults.push("row_denied");
      const spellings = spellingsOf(element, table).map((one) => one.replace("?", column));
      const isThere = terms(fields.where).some(
        (term) =>
          spellings.includes(textAt(term, "column")) &&
          term.cmp === cmp &&
          JSON.stringify(term.value) === JSON.stringify(value),
      );
      if (isThere || operation === "Insert") continue;
      const name = own.length > 1 ? `${table}.${column}` : column;
      additions.push(JSON.stringify({ column: name, cmp, value }));
    }
  }
  return { faults, additions };
}

/** The rows that `require_where` leaves an element. */
function pinnedRows(element: Element): number {
  const { fields, own } = element;
  const [table = ""] = own;
  const { requireWhere } = grantOf(element, table);
  if (requireWhere === undefined) return Number.POSITIVE_INFINITY;
  return requireWhere
    .map((column) => pins(fields.where, column, spellingsOf(element, table)))
    .reduce<number>((rows, values) => rows * (values ?? Number.POSITIVE_INFINITY), 1);
}

/** The faults of numbers that an element has by itself, and what it adds to those of a Batch. */
function numberOpinion(element: Element): { faults: string[]; amounts: Amount[] } {
  const { operation, isPreview, fields, own, fitting, context } = element;
  const values = objectsAt(fields, "values").length;
  const isCounted = operation === "Update" || operation === "Delete";
  const isUncounted = isCounted && !context.isEngine;
  const isSelect = operation === "Select";
  const isAggregate = "aggregate" in fields && !("group_by" in fields);
  const answers = isPreview || "returning" in fields;
  const pinned = pinnedRows(element);
  const requireWhere = own.some((table) => grantOf(element, table).requireWhere !== undefined);
  const faults =
    isCounted && requireWhere && pinned === Number.POSITIVE_INFINITY ? ["where_required"] : [];
  const amounts: Amount[] = [];
  for (const limiter of new Set<Limits>([
    ...own.map((table) => grantOf(element, table)),
    ...fitting,
  ])) {
    const { maxRows, maxChanges } = limiter;
    const isBlind = isUncounted && answers && pinned === Number.POSITIVE_INFINITY;
    if (isSelect && maxRows !== undefined && !isAggregate && !("limit" in fields))
      faults.push("limit_required");
    if (isUncounted && maxChanges !== undefined && pinned > maxChanges)
      faults.push("where_required");
    if (isBlind && maxRows !== undefined) faults.push("not_narrowable");
    const limit = Number(fields.limit ?? (isAggregate ? 1 : 0));
    const selected = isAggregate ? Math.min(1, limit) : limit;
    const changes = isCounted ? (context.isEngine ? 0 : pinned) : values;
    const rows = answers && !context.isEngine ? changes : 0;
    amounts.push({ limiter, ...(isSelect ? { rows: selected, changes: 0 } : { rows, changes }) });
  }
  return { faults, amounts };
}

function judgeElement(element: Element) {
  const asks = asksOf(element);
  const barred = rightFaults(element);
  // What is not given at all is not looked at any further.
  if (barred.length > 0) return { faults: barred, asks, additions: [], amounts: [] };
  const kind = kindFaults(element);
  if (element.operation === "Truncate" || element.own.length === 0) {
    return { faults: kind, asks, additions: [], amounts: [] };
  }
  const rows = rowOpinion(element);
  const numbers = numberOpinion(element);
  const faults = [...kind, ...columnFaults(element), ...rows.faults, ...numbers.faults];
  return { faults, asks, additions: rows.additions, amounts: numbers.amounts };
}

/** What the contract says of each element. */
export function opinionsOn(world: World, asked: Asked): readonly Opinion[] {
  const { body } = asked;
  const elements = "Batch" in body ? objectsAt(body, "Batch") : [body];
  const judged = elements.map((element) => judgeElement(takeApart(world, element, asked)));
  return judged.map(({ faults, additions, asks }, at) => {
    const sofar = judged.slice(0, at + 1).flatMap(({ amounts }) => amounts);
    const sums = (judged[at]?.amounts ?? []).flatMap(({ limiter }) => {
      const of = sofar.filter((amount) => amount.limiter === limiter);
      const rows = of.reduce((sum, amount) => sum + amount.rows, 0);
      const changes = of.reduce((sum, amount) => sum + amount.changes, 0);
      return [
        ...(limiter.maxRows !== undefined && rows > limiter.maxRows ? ["limit_too_high"] : []),
        ...(limiter.maxChanges !== undefined && changes > limiter.maxChanges
          ? ["too_many_changes"]
          : []),
      ];
    });
    return { faults: new Set([...faults, ...sums]), asks, additions };
  });
}
