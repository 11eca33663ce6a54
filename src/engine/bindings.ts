import { runAtOnce } from "../core/base/cooperative-scheduling.ts";
import { counted } from "../core/base/suggestion.ts";
import { parseExact } from "../core/json/exact.ts";
import { visitCheckedMembers, writeMembers } from "../core/json/members.ts";
import type { Insert, Operation, Row, RowChangeName, TableOperation } from "../core/query/tree.ts";
import { EngineRefusal } from "./refusal.ts";

/** The `bind` of an operation, by the column that gets the value. */
export function findBindings({ fields }: TableOperation) {
  return "bind" in fields ? Object.entries(fields.bind ?? {}) : [];
}

/** True if the number of rows decides whether the Batch is kept. */
export function isChecked(operation: TableOperation): boolean {
  const { fields } = operation;
  return ("expect" in fields && fields.expect !== undefined) || findBindings(operation).length > 0;
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
  affected: number,
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
    for (const [, { element, column }] of operations.flatMap(findBindings)) {
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
    if (wanted === undefined && findBindings(operation).length === 0) return operation;
    const { returning: own = isPreview ? ["*"] : [] } = operation.fields;
    const returning = wanted && { returning: [...own, ...wanted] };
    switch (operation.name) {
      case "Insert": {
        const { values, bind } = operation.fields;
        const bound = this.#valuesOf(bind);
        const rows = bind ? values.map((row, at) => merged(row, bound, `values[${at}]`)) : values;
        return { name: "Insert", fields: { ...operation.fields, values: rows, ...returning } };
      }
      case "Update": {
        const { set = {}, add = {}, bind } = operation.fields;
        const bound = this.#valuesOf(bind);
        merged(add, bound, "add");
        const fields = { ...operation.fields, set: merged(set, bound, "set"), ...returning };
        return { name: "Update", fields };
      }
      case "Delete":
        return { name: "Delete", fields: { ...operation.fields, ...returning } };
      case "Upsert":
        return { name: "Upsert", fields: { ...operation.fields, ...returning } };
    }
  }

  /**
   * Keeps what later elements need of the rows that an element has affected.
   *
   * @throws EngineRefusal `expectation_failed` if no single row has it
   */
  keep(element: number, rows: readonly string[], affected: number): void {
    const wanted = this.#wanted.get(element);
    if (wanted === undefined) return;
    const [row] = rows;
    if (row === undefined || affected !== 1) {
      throw unexpected(element, 1, affected, "bind in a later element requires exactly one");
    }
    const members = rowMembers(row);
    const values = Array.from(wanted, (name) => [name, parseExact(String(members.get(name)))]);
    this.#rows.set(element, Object.fromEntries(values));
  }

  /** The rows without the columns that were read only for later elements. */
  withoutKept(
    { fields: { returning = ["*"], table } }: Operation<RowChangeName>,
    element: number,
    rows: readonly string[],
  ): readonly string[] {
    const isReturned = (name: string) =>
      ["*", name, `${table}.${name}`].some((written) => returning.includes(written));
    const wanted = [...(this.#wanted.get(element) ?? [])];
    const hidden = wanted.filter((name) => !isReturned(name));
    if (hidden.length === 0) return rows;
    return rows.map((row) => {
      const members = rowMembers(row);
      for (const name of hidden) members.delete(name);
      return writeMembers(members).toString();
    });
  }

  /** Reports a column of `bind` that does not exist where the Batch names it. */
  placed(refusal: EngineRefusal, element: number): EngineRefusal {
    const { cause } = refusal;
    const unplaced = cause instanceof EngineRefusal ? cause : refusal;
    for (const [at, operation] of this.#operations.entries()) {
      for (const [target, source] of findBindings(operation)) {
        const isSource = source.element === element && source.column === unplaced.column;
        const isTarget = at === element && target === unplaced.column;
        if (isSource || isTarget) return unplaced.at(`bind.${target}`).atElement(at);
      }
    }
    return refusal.atElement(element);
  }

  #valuesOf(bindings: Insert["bind"] = {}): Row {
    const values = Object.entries(bindings).map(([name, { element, column }]) => [
      name,
      this.#rows.get(element)?.[column] ?? null,
    ]);
    return Object.fromEntries(values);
  }
}

function merged(row: Row, bound: Row, place: string): Row {
  const both = Object.keys(bound).find((name) => Object.hasOwn(row, name));
  if (both === undefined) return { ...row, ...bound };
  const problem = `Column "${both}" is in both bind and ${place}; allowed: one of them`;
  throw new EngineRefusal("duplicate_column", problem);
}

function rowMembers(row: string): Map<string, Buffer> {
  const members = new Map<string, Buffer>();
  runAtOnce(visitCheckedMembers(Buffer.from(row), (key, value) => members.set(key, value)));
  return members;
}
