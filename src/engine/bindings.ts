import { runAtOnce } from "../cooperative-scheduling.ts";
import { visitCheckedMembers, writeMembers } from "../json/members.ts";
import type { Insert, Operation, Row, TableOperation } from "../query/operation-types.ts";
import { counted } from "../suggestion.ts";
import { parseCell } from "./parse.ts";
import { EngineRefusal } from "./refusal.ts";
import type { Previewed, RowChangeName } from "./sql/preview.ts";
import type { Changed } from "./sql/target.ts";

type Binding = NonNullable<Insert["bind"]>[string];

export function bindingsOf({ fields }: TableOperation): [column: string, Binding][] {
  return "bind" in fields ? Object.entries(fields.bind ?? {}) : [];
}

/** True if the number of rows decides whether the Batch is kept. */
export function isChecked(operation: TableOperation): boolean {
  const { fields } = operation;
  return ("expect" in fields && fields.expect !== undefined) || bindingsOf(operation).length > 0;
}

function unexpected(element: number, expected: number, affected: number, why: string) {
  const found = `${counted(affected, "row")} ${affected === 1 ? "was" : "were"} affected`;
  return new EngineRefusal(
    "expectation_failed",
    `Batch[${element}]: ${found}, but ${why}; nothing was changed`,
    { members: { element, expected, affected } },
  );
}

/** @throws EngineRefusal `expectation_failed` */
export function requireExpected(
  { fields: { expect } }: Operation<RowChangeName>,
  element: number,
  { affected = 0 }: Pick<Changed, "affected">,
): void {
  if (expect === undefined || expect === affected) return;
  throw unexpected(element, expect, affected, `expect is ${expect}`);
}

/** Values that elements of a Batch take from the rows that earlier elements have affected. */
export class Bindings {
  readonly #operations: readonly TableOperation[];
  /** Columns that later elements read, by element. */
  readonly #wanted = new Map<number, Set<string>>();
  readonly #rows = new Map<number, Row>();

  constructor(operations: readonly TableOperation[]) {
    this.#operations = operations;
    for (const [, { element, column }] of operations.flatMap(bindingsOf)) {
      const columns = this.#wanted.get(element) ?? new Set();
      this.#wanted.set(element, columns.add(column));
    }
  }

  /**
   * The operation with its bound values, which also returns what later elements need. Without
   * `returning`, a Preview shows all columns.
   */
  apply(
    operation: Operation<RowChangeName>,
    element: number,
    isPreview = false,
  ): Operation<RowChangeName> {
    const wanted = this.#wanted.get(element);
    const { returning: own = isPreview ? ["*"] : [] } = operation.fields;
    const returning = wanted === undefined ? {} : { returning: [...own, ...wanted] };
    switch (operation.name) {
      case "Insert": {
        const { values, bind } = operation.fields;
        const bound = this.#valuesOf(bind);
        const rows = values.map((row, index) => joined(row, bound, `values[${index}]`));
        return { name: "Insert", fields: { ...operation.fields, values: rows, ...returning } };
      }
      case "Update": {
        const { set = {}, add = {}, bind } = operation.fields;
        const bound = this.#valuesOf(bind);
        joined(add, bound, "add");
        const fields = { ...operation.fields, set: joined(set, bound, "set"), ...returning };
        return { name: "Update", fields };
      }
      case "Delete":
        return { name: "Delete", fields: { ...operation.fields, ...returning } };
      case "Upsert":
        return { name: "Upsert", fields: { ...operation.fields, ...returning } };
    }
  }

  /**
   * Keeps the columns that later elements need, and removes those that the answer must not have.
   *
   * @throws EngineRefusal `expectation_failed` if no single row has them
   */
  take(
    { fields: { returning, table } }: Operation<RowChangeName>,
    element: number,
    found: Changed,
  ): Changed {
    const wanted = this.#wanted.get(element);
    if (wanted === undefined) return found;
    const { data = [], ...changed } = found;
    this.#keep(element, wanted, data, data.length);
    if (returning === undefined) return changed;
    return { ...changed, data: without(data, wanted, returning, table) };
  }

  /** As `take`. @throws EngineRefusal `expectation_failed` */
  takeFromPreview(
    { fields: { returning, table } }: Operation<RowChangeName>,
    element: number,
    { affected, before, after }: Previewed,
  ): Previewed {
    const wanted = this.#wanted.get(element);
    if (wanted === undefined) return { affected, before, after };
    this.#keep(element, wanted, after.length === 0 ? before : after, affected);
    const shown = (rows: readonly string[]) =>
      returning === undefined ? rows : without(rows, wanted, returning, table);
    return { affected, before: shown(before), after: shown(after) };
  }

  /** Reports a column of `bind` that does not exist where the Batch names it. */
  placed(refusal: EngineRefusal, element: number): EngineRefusal {
    if (refusal.code !== "unknown_column") return refusal.atElement(element);
    const { cause } = refusal;
    const unplaced = cause instanceof EngineRefusal ? cause : refusal;
    const isAbout = (column: string) =>
      unplaced.plain.startsWith(`There is no column "${column}" in`);
    for (const [at, operation] of this.#operations.entries()) {
      for (const [target, source] of bindingsOf(operation)) {
        const isSource = source.element === element && isAbout(source.column);
        if (!isSource && !(at === element && isAbout(target))) continue;
        return unplaced.at(`bind.${target}`).atElement(at);
      }
    }
    return refusal.atElement(element);
  }

  #keep(element: number, wanted: Columns, rows: readonly string[], affected: number): void {
    const [row] = rows;
    if (row === undefined || affected !== 1) {
      throw unexpected(element, 1, affected, "bind in a later element requires exactly one");
    }
    const members = membersOf(row);
    const values = Array.from(wanted, (name) => [name, parseCell(String(members.get(name)))]);
    this.#rows.set(element, Object.fromEntries(values));
  }

  #valuesOf(bindings: Insert["bind"] = {}): Row {
    const values = Object.entries(bindings).map(([name, { element, column }]) => [
      name,
      this.#rows.get(element)?.[column] ?? null,
    ]);
    return Object.fromEntries(values);
  }
}

type Columns = ReadonlySet<string>;

/** The rows without the columns that were read only to bind them. */
function without(
  rows: readonly string[],
  wanted: Columns,
  returning: readonly string[],
  table: string,
): string[] {
  const isReturned = (name: string) =>
    ["*", name, `${table}.${name}`].some((written) => returning.includes(written));
  return rows.map((row) => {
    const members = membersOf(row);
    for (const name of wanted) if (!isReturned(name)) members.delete(name);
    return writeMembers(members).toString();
  });
}

function joined(row: Row, bound: Row, place: string): Row {
  const both = Object.keys(bound).find((name) => Object.hasOwn(row, name));
  if (both === undefined) return { ...row, ...bound };
  const problem = `Column "${both}" is in both bind and ${place}; allowed: one of them`;
  throw new EngineRefusal("duplicate_column", problem);
}

function membersOf(row: string): Map<string, Buffer> {
  const members = new Map<string, Buffer>();
  runAtOnce(visitCheckedMembers(Buffer.from(row), (key, value) => members.set(key, value)));
  return members;
}
