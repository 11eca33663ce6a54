/** The operations of the grammar as typed values, for the engine that runs them. */

import type {
  OperationFields,
  OperationName,
  ReadingName,
  TableOperationName,
} from "./operations.ts";

export type { Compute, FunctionName, Item, Unit } from "./compute.ts";
export type { Comparison, Condition, NestedFields } from "./conditions.ts";

export type { Include } from "./operations.ts";
export type { CellValue, ColumnDefinition, Row } from "./values.ts";

export type Select = OperationFields["Select"];
/** A Select within another operation. */
export type InnerSelect = Omit<Select, "database" | "after" | "include">;
type One<Value> = Exclude<Value, undefined | readonly unknown[]>;
export type Join = One<Select["join"]>;
export type Order = One<Select["order_by"]>;
export type Insert = OperationFields["Insert"];
export type Update = OperationFields["Update"];
export type Delete = OperationFields["Delete"];
export type Upsert = OperationFields["Upsert"];
export type CreateTable = OperationFields["CreateTable"];
export type DropTable = OperationFields["DropTable"];

/** An operation with its key, optionally limited to some names. */
export type Operation<Name extends OperationName = OperationName> = {
  [Key in Name]: { readonly name: Key; readonly fields: OperationFields[Key] };
}[Name];

export type TableOperation = Operation<TableOperationName>;

/** Operations in a Batch that change something. */
export type ChangeName = Exclude<TableOperationName, ReadingName>;
