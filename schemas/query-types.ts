export type Json =
  | string
  | number
  | boolean
  | null
  | readonly Json[]
  | { readonly [name: string]: Json };

/** An array of PostgreSQL, which may have several dimensions. */
export type List<Of> = readonly (Of | List<Of> | null)[];

/** A condition on the columns of a row. */
export type Where<Row> =
  | {
      [Name in keyof Row & string]:
        | { column: Name; cmp: "=" | "!="; value: Row[Name] | null }
        | { column: Name; cmp: ">" | ">=" | "<" | "<="; value: NonNullable<Row[Name]> }
        | { column: Name; cmp: "IN"; value: readonly Row[Name][] }
        | { column: Name; cmp: "NOT IN"; value: readonly NonNullable<Row[Name]>[] }
        | { column: Name; cmp: "BETWEEN"; value: Pair<NonNullable<Row[Name]>> }
        | { column: Name; cmp: "LIKE" | "ILIKE"; value: string; escape?: string; fold?: "unicode" }
        | { column: Name; cmp: "=" | "!=" | ">" | ">=" | "<" | "<="; other: keyof Row & string }
        | { column: Name; cmp: "IN" | "NOT IN"; select: object };
    }[keyof Row & string]
  | { and: readonly Where<Row>[] }
  | { or: readonly Where<Row>[] }
  | { not: Where<Row> }
  | { exists: object };
type Pair<Of> = readonly [Of, Of];

/** The response to a query, whose type must be literal: `const Query`, or `as const`. */
export type Answer<Query> = { status: "success" } & (Query extends { Select: infer Select }
  ? { data: Selected<Select>[] }
  : Query extends { Batch: infer All }
    ? { data: { -readonly [At in keyof All]: Element<All[At]> } }
    : Query extends { Preview: infer Of }
      ? Of extends { Batch: infer All }
        ? { data: { -readonly [At in keyof All]: Previewed<All[At]> } }
        : Previewed<Of>
      : { message: string } & (keyof Query extends Change ? Changed<Query[keyof Query]> : unknown));

/** What a query must also be for its names and values to fit the tables. */
export type Checked<Query> = {
  [Name in keyof Query]: Name extends "Batch"
    ? { [At in keyof Query[Name]]: Checked<Query[Name][At]> }
    : Name extends "Preview"
      ? Checked<Query[Name]>
      : Name extends "Select"
        ? CheckedSelect<Option<Query[Name], "database">, Query[Name]>
        : Name extends Change
          ? CheckedChange<Query[Name]>
          : unknown;
};

type Change = "Insert" | "Update" | "Delete" | "Upsert";
type Get<Of, Name> = Name extends keyof Of ? Of[Name] : never;
type Option<Of, Name> = Name extends keyof Of ? Of[Name] : undefined;
type OrElse<Value, Else> = [Value] extends [never] ? Else : Value;
type NullOf<Value> = null extends Value ? null : never;
type Flat<Row> = { [Name in keyof Row]: Row[Name] };
type AsOf<Named> = Named extends { as: infer As extends string } ? As : never;

// Answers

type Selected<Select> = Read<Databases, Option<Select, "database">, Select>;
type Returned<Fields> = Fields extends {
  database: infer Database;
  table: infer Table extends string;
}
  ? Flat<
      Picked<
        { [Name in Table]: Row<Databases, Database, Table> },
        Fields extends { returning: infer Columns } ? Columns : readonly ["*"]
      >
    >
  : never;
type Changed<Fields> = { affected: number } & (Fields extends { returning: unknown }
  ? { data: Returned<Fields>[] }
  : unknown);
type Element<Query> = Query extends { Select: infer Select }
  ? Selected<Select>[]
  : Query extends Record<string, infer Fields extends { returning: unknown }>
    ? Flat<Changed<Fields>>
    : string;
type Previewed<Query> = {
  affected: number;
  before: Returned<Get<Query, keyof Query & Change>>[];
  after: Returned<Get<Query, keyof Query & Change>>[];
};

/** The row of a Select or of an include. */
type Read<Of, Database, Select> = RowFrom<Of, Database, Select, Tables<Of, Database, Select>>;
type RowFrom<Of, Database, Select, Tables> = Flat<
  Select extends { aggregate: readonly (infer One)[] }
    ? Picked<Tables, Option<Select, "group_by">> & {
        [Each in One as AsOf<Each>]: Aggregated<Tables, Each, Option<Select, "group_by">>;
      }
    : Picked<Tables, Option<Select, "columns">> & Included<Of, Database, Option<Select, "include">>
>;
type Included<Of, Database, List> = List extends readonly (infer One)[]
  ? {
      [Each in One as AsOf<Each>]: Each extends { one: true }
        ? Read<Of, Database, Each> | null
        : Read<Of, Database, Each>[];
    } & { [Each in One as Each extends { one: true } ? never : `${AsOf<Each>}_more`]?: true }
  : unknown;
/** Groups have a row at least, so that only nulls leave nothing to aggregate. */
type Aggregated<Tables, One, Groups> = One extends { fn: "count" }
  ? number
  : One extends { fn: infer Fn; column: infer Column }
    ?
        | (Fn extends "min" | "max" ? Cell<Tables, Column> : number)
        | (Groups extends undefined ? null : NullOf<Cell<Tables, Column>>)
    : unknown;

type Picked<Tables, Columns> = Columns extends readonly (infer Name)[]
  ? Cells<Tables, Full<Tables, Name>>
  : unknown;
type Cells<Tables, Names> = { [Name in Names & string as Key<Name, Names>]: Cell<Tables, Name> };
/** Names with their tables. */
type Full<Tables, Name> = Name extends `${string}.${string}`
  ? Name
  : {
      [Table in keyof Tables & string]: Name extends "*"
        ? Table extends ""
          ? never
          : `${Table}.${keyof Tables[Table] & string}`
        : Name extends keyof Tables[Table]
          ? `${Table}.${Name & string}`
          : never;
    }[keyof Tables & string];
type Bare<Name> = Name extends `${string}.${infer Column}` ? Column : never;
/** Two columns of one name keep the names of their tables. */
type Key<Name extends string, All> =
  IsOne<Extract<All, `${string}.${Bare<Name>}`>> extends true ? Bare<Name> : Name;
type IsOne<Some, All = Some> = Some extends unknown ? ([All] extends [Some] ? true : false) : never;

// The rows of a Select's tables, by their names in it. That of computed names is empty.

type Tables<Of, Database, Select> = WithComputed<
  WithJoins<Of, Database, FromTables<Of, Database, Select>, Option<Select, "join">>,
  Option<Select, "compute">
>;
type Row<Of, Database, Table> = OrElse<Get<Get<Of, Database>, Table>, Record<string, unknown>>;
type Nullable<Row> = { [Name in keyof Row]: Row[Name] | null };
type FromTables<Of, Database, Select> = Select extends { from: infer From }
  ? From extends string
    ? { [Name in From]: Row<Of, Database, From> }
    : From extends { table: infer Table; as: infer As extends string }
      ? { [Name in As]: Row<Of, Database, Table> }
      : From extends { select: infer Inner; as: infer As extends string }
        ? { [Name in As]: Read<Of, Database, Inner> }
        : never
  : Select extends { table: infer Table extends string }
    ? { [Name in Table]: Row<Of, Database, Table> }
    : never;
type WithJoins<Of, Database, Tables, Joins> = Joins extends readonly [infer Join, ...infer More]
  ? WithJoins<Of, Database, WithJoins<Of, Database, Tables, Join>, More>
  : Joins extends { table: infer Table extends string; join_type: infer Type }
    ? (Type extends "RIGHT" ? { [Name in keyof Tables]: Nullable<Tables[Name]> } : Tables) & {
        [Name in OrElse<AsOf<Joins>, Table>]: Type extends "LEFT"
          ? Nullable<Row<Of, Database, Table>>
          : Row<Of, Database, Table>;
      }
    : Tables;
type WithComputed<Tables, List, Names = unknown> = List extends readonly [infer One, ...infer More]
  ? WithComputed<
      Tables,
      More,
      Names & { [Name in AsOf<One>]: Computed<Tables & { "": Names }, One> }
    >
  : Tables & { "": Names };

/** The value of `column` or `table.column`. */
type Cell<Tables, Name> = Name extends `${infer Table}.${infer Column}`
  ? OrElse<Get<Get<Tables, Table>, Column>, unknown>
  : OrElse<{ [Table in keyof Tables]: Get<Tables[Table], Name> }[keyof Tables], unknown>;
type Item<Tables, Of> = Of extends string
  ? Cell<Tables, Of>
  : Of extends { value: infer Value }
    ? Widened<Value>
    : unknown;
type Widened<Value> = Value extends string
  ? string
  : Value extends number
    ? number
    : Value extends boolean
      ? boolean
      : null;
type Computed<Tables, One> = One extends { fn: "concat" }
  ? string
  : One extends { fn: "json" }
    ? Json
    : One extends { then: infer Then; else: infer Else }
      ? Item<Tables, Then> | Item<Tables, Else>
      : One extends { fn: infer Fn; of: infer Of extends readonly unknown[] }
        ? Called<Fn, Item<Tables, Of[number]>, Item<Tables, Of[0]>, HaveNull<Tables, Of>[number]>
        : unknown;
type HaveNull<Tables, Of extends readonly unknown[]> = {
  [At in keyof Of]: null extends Item<Tables, Of[At]> ? true : false;
};
type Called<Fn, Value, First, HaveNull> = Fn extends "coalesce"
  ? Exclude<Value, null> | (false extends HaveNull ? never : null)
  : Fn extends "nullif"
    ? First | null
    : Fn extends "lower" | "upper" | "trim"
      ? string | NullOf<Value>
      : Fn extends "trunc"
        ? string | null
        : Fn extends "div" | "part" | "diff"
          ? number | null
          : number | NullOf<Value>;

// Checks

/** The rows of tables with all values that conditions take. */
type Compared = {
  [Database in keyof Databases]: {
    [Table in keyof Databases[Database]]: {
      [Name in keyof Databases[Database][Table]]:
        | Databases[Database][Table][Name]
        | Exclude<Get<Get<Get<Inserts, Database>, Table>, Name>, undefined>;
    };
  };
};
/** Each column by its name, and by its name with the table. */
type Columns<Tables> = {
  [Name in Full<Tables, "*"> | Full<Tables, keyof Get<Tables, "">> as Name extends `.${string}`
    ? Bare<Name>
    : Name | Bare<Name>]: Cell<Tables, Name>;
};
/** Without other members, which a literal type would allow. */
type Exact<Of, Given> = Of & { [Name in Exclude<keyof Given, keyof Of>]: never };
type OneOrMore<Of> = Of | readonly Of[];
type Aliases<List> = List extends readonly (infer One)[] ? AsOf<One> : never;

type CheckedSelect<Database, Select> = Exact<
  CheckedFields<Database, Select> & {
    database: keyof Databases;
    from: Option<Select, "from"> extends string ? keyof Get<Databases, Database> : object;
    join?: OneOrMore<Join<Database>>;
    group_by?: readonly (keyof Columns<Tables<Compared, Database, Select>>)[];
    aggregate?: object;
    having?: object;
    distinct?: boolean;
    after?: object;
    offset?: number;
  },
  Select
>;
type CheckedFields<Database, Select> = CheckedColumns<
  Columns<Tables<Compared, Database, Select>>,
  Aliases<Option<Select, "aggregate">>
> & { include?: CheckedIncludes<Database, Option<Select, "include">> };
type CheckedColumns<Columns, Aliases> = {
  columns?: readonly (keyof Columns | "*")[];
  compute?: object;
  where?: Where<Columns> | null;
  order_by?: OneOrMore<{ column: keyof Columns | Aliases; direction?: "ASC" | "DESC" }>;
  limit?: number;
};
type Join<Database> = {
  table: keyof Get<Databases, Database>;
  as?: string;
  on: string;
  join_type: "INNER" | "LEFT" | "RIGHT";
};
type CheckedIncludes<Database, List> = {
  [At in keyof List]: Exact<
    CheckedFields<Database, List[At]> & {
      as: string;
      table: keyof Get<Databases, Database>;
      on: string;
      one?: boolean;
    },
    List[At]
  >;
};

type CheckedChange<Fields> = Fields extends { database: infer Database; table: infer Table }
  ? Exact<
      ChangedRows<Get<Get<Inserts, Database>, Table>, Fields> & {
        database: keyof Databases;
        table: keyof Get<Databases, Database>;
        where?: Where<Get<Get<Compared, Database>, Table>> | null;
        returning?: readonly (keyof Get<Get<Databases, Database>, Table> | "*")[];
      },
      Fields
    >
  : unknown;
type ChangedRows<Row, Fields> = {
  values?: ExactRows<Omit<Row, keyof Option<Fields, "bind">>, Option<Fields, "values">>;
  set?: Exact<Partial<Row>, Option<Fields, "set">>;
  add?: { [Name in keyof Option<Fields, "add">]: Added<Get<Row, Name>> };
  bind?: object;
  on_conflict?: readonly (keyof Row)[];
  update?: readonly (keyof Row)[];
  expect?: number;
};
type ExactRows<Row, List> = { [At in keyof List]: Exact<Row, List[At]> };
type Added<Value> = number extends Value ? Exclude<Value, null | undefined> : never;

/** The rows that Insert and Upsert take. Update takes some of their columns. */
export interface Inserts {}

/** The rows of each table, by database and table. */
export interface Databases {}
