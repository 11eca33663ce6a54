/** The query grammar's operations as typed values, for whoever executes them (the engine). */

export type CellValue =
  | null
  | boolean
  | number
  | bigint
  | string
  | CellValue[]
  | { [key: string]: CellValue };

export type Comparison = "=" | "!=" | ">" | "<" | ">=" | "<=" | "LIKE" | "IN" | "BETWEEN";

export type Condition =
  | { column: string; cmp: Comparison; value: CellValue }
  | { and: Condition[] }
  | { or: Condition[] }
  | { not: Condition };

export interface Join {
  table: string;
  /** `table.column = table.column`, both tables of the Select. */
  on: string;
  join_type: "INNER" | "LEFT" | "RIGHT";
}

export interface Select {
  database: string;
  from: string;
  columns: string[];
  where?: Condition | null;
  join?: Join;
  order_by?: { column: string; direction?: "ASC" | "DESC" };
  limit?: number;
  offset?: number;
}

export interface Insert {
  database: string;
  table: string;
  values: Record<string, CellValue>[];
}

export interface Update {
  database: string;
  table: string;
  set: Record<string, CellValue>;
  where: Condition | null;
}

export interface Delete {
  database: string;
  table: string;
  where: Condition | null;
}

export interface ColumnDefinition {
  name: string;
  type: string;
  primary_key?: boolean;
  unique?: boolean;
  /** Nullable unless this says otherwise or the column is the primary key. */
  nullable?: boolean;
}

export interface CreateTable {
  database: string;
  table: string;
  columns: ColumnDefinition[];
}

export interface DropTable {
  database: string;
  table: string;
}

/** One of the operations that a Batch may hold. */
export type TableOperation =
  | { Select: Select }
  | { Insert: Insert }
  | { Update: Update }
  | { Delete: Delete }
  | { CreateTable: CreateTable }
  | { DropTable: DropTable };

export type QueryBody =
  | TableOperation
  | { Batch: TableOperation[] }
  | { CreateDatabase: { database: string } }
  | { DropDatabase: { database: string } };
