/** The typed tree of a query: what the parser makes, the decision judges and the engine runs. */

export type CellValue =
  | null
  | boolean
  | number
  | bigint
  | string
  | CellValue[]
  | { [key: string]: CellValue };

export type Row = Record<string, CellValue>;

export type Literal = null | boolean | number | bigint | string;

type Ordering = "=" | "!=" | ">" | "<" | ">=" | "<=";
export type ComparisonWord = Ordering | "LIKE" | "ILIKE" | "IN" | "NOT IN" | "BETWEEN";

export interface Term {
  column: string;
  cmp: ComparisonWord;
  value: CellValue;
  /** For `LIKE` and `ILIKE`: the character that makes the next one literal. */
  escape?: string;
  fold?: "unicode";
}

export type Comparison =
  | Term
  | { column: string; cmp: ComparisonWord; other: string }
  | { column: string; cmp: "IN" | "NOT IN"; select: InnerSelect };

export type Condition =
  | Comparison
  | { and: Condition[] }
  | { or: Condition[] }
  | { not: Condition }
  | { exists: Exists };

export interface Exists {
  table: string;
  /** `table.column = table.column`, one of them around it. */
  on: string;
  where?: Condition | null;
}

export type Unit =
  | "year"
  | "quarter"
  | "month"
  | "week"
  | "day"
  | "hour"
  | "minute"
  | "second"
  | "weekday";

export type FunctionName =
  | "add"
  | "mul"
  | "concat"
  | "coalesce"
  | "sub"
  | "div"
  | "nullif"
  | "abs"
  | "lower"
  | "upper"
  | "trim"
  | "length"
  | "round"
  | "trunc"
  | "part"
  | "diff"
  | "json"
  | "if";

/** A column or an earlier name, or a literal. */
export type Item = string | { value: Literal };

/** A name for a value that is computed of columns. */
export interface Compute {
  as: string;
  fn: FunctionName;
  of?: Item[];
  unit?: Unit;
  digits?: number;
  path?: (string | number)[];
  when?: Condition;
  then?: Item;
  else?: Item;
}

export type Source = string | { table: string; as: string } | { select: InnerSelect; as: string };

export interface Join {
  table: string;
  as?: string;
  /** `table.column = table.column`. */
  on: string;
  join_type: "INNER" | "LEFT" | "RIGHT";
}

export interface Order {
  column: string;
  direction?: "ASC" | "DESC";
}

export interface Aggregate {
  fn: "count" | "sum" | "min" | "max" | "avg";
  column?: string;
  distinct?: boolean;
  as: string;
}

/** A Select within another operation. */
export interface InnerSelect {
  from: Source;
  columns?: string[];
  compute?: Compute[];
  where?: Condition | null;
  join?: Join | Join[];
  group_by?: string[];
  aggregate?: Aggregate[];
  having?: Condition | null;
  distinct?: boolean;
  order_by?: Order | Order[];
  limit?: number;
  offset?: number;
}

export interface Select extends InnerSelect {
  database: string;
  after?: Literal[];
  include?: Include[];
}

/** A table whose rows are a member of each row of a Select. */
export interface Include {
  as: string;
  table: string;
  /** `table.column = table.column`, one of them of the included table. */
  on: string;
  columns: string[];
  where?: Condition | null;
  compute?: Compute[];
  order_by?: Order | Order[];
  limit?: number;
  one?: boolean;
  include?: Include[];
}

interface Target {
  database: string;
  table: string;
}

/** What changes of rows return and, in a Batch, expect. */
interface RowChange extends Target {
  returning?: string[];
  expect?: number;
}

/** A column of the one row that an earlier element of the Batch affects. */
export interface Binding {
  element: number;
  column: string;
}

export interface Insert extends RowChange {
  values: Row[];
  bind?: Record<string, Binding>;
}

/** A string is a decimal, which keeps its digits. */
export type Addend = number | bigint | string;

export interface Update extends RowChange {
  set?: Row;
  /** Numbers by column to add. */
  add?: Record<string, Addend>;
  bind?: Record<string, Binding>;
  where: Condition | null;
}

export interface Delete extends RowChange {
  where: Condition | null;
}

export interface Upsert extends RowChange {
  values: Row[];
  on_conflict: string[];
  update: string[];
}

export interface PreviewedChange {
  Insert?: Insert;
  Update?: Update;
  Delete?: Delete;
  Upsert?: Upsert;
}

/** Operations that change the rows of a table. */
export type RowChangeName = keyof PreviewedChange;

export interface Preview extends PreviewedChange {
  Batch?: PreviewedChange[];
  limit?: number;
}

export interface ColumnDefinition {
  name: string;
  type: string;
  primary_key?: boolean;
  unique?: boolean;
  nullable?: boolean;
  default?: Literal;
  /** `table.column`. */
  references?: string;
}

export interface CreateTable extends Target {
  columns: ColumnDefinition[];
}

export type DropTable = Target;

export interface OperationFields {
  Select: Select;
  Insert: Insert;
  Update: Update;
  Delete: Delete;
  Upsert: Upsert;
  Preview: Preview;
  CreateTable: CreateTable;
  DropTable: DropTable;
  CreateDatabase: { database: string };
  DropDatabase: { database: string };
}

export type OperationName = keyof OperationFields;

/** Operations that may be in a Batch. */
type TableOperationName = Exclude<OperationName, "Preview" | "CreateDatabase" | "DropDatabase">;

/** Operations in a Batch that change something. */
export type ChangeName = Exclude<TableOperationName, "Select">;

/** An operation with its key, optionally limited to some names. */
export type Operation<Name extends OperationName = OperationName> = {
  [Key in Name]: { readonly name: Key; readonly fields: OperationFields[Key] };
}[Name];

export type TableOperation = Operation<TableOperationName>;
