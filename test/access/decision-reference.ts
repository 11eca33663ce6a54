/**
 * The decision once more, from the contract alone: plain lists that are filtered, nothing indexed,
 * and the query's own JSON in the place of the scanner's findings. It says everything that is wrong
 * with each element, in no order.
 */
import type {
  AttributeValue,
  Grant,
  Limits,
  Literal,
  RowCondition,
} from "../../src/access/grant.ts";
import type { Asked, Json, JsonObject, World } from "./decision-cases.ts";
import { now, username } from "./decision-cases.ts";

/** What the contract says of one element: its faults, or else its conditions. */
export interface Opinion {
  readonly faults: ReadonlySet<string>;
  /** The rights whose use needs approval. */
  readonly asks: readonly string[];
  /** Conditions that have to be added, as JSON. */
  readonly additions: readonly string[];
}

const gives: Record<string, readonly string[]> = {
  Owner: [
    "SELECT",
    "INSERT",
    "UPDATE",
    "DELETE",
    "CREATE",
    "DROP",
    "CREATE DATABASE",
    "DROP DATABASE",
  ],
  DbAdmin: ["SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP"],
  ReadWrite: ["SELECT", "INSERT", "UPDATE", "DELETE"],
  ReadOnly: ["SELECT"],
  None: [],
};
const needs: Record<string, readonly string[]> = {
  Select: ["SELECT"],
  Insert: ["INSERT"],
  Update: ["UPDATE"],
  Delete: ["DELETE"],
  Upsert: ["INSERT", "UPDATE"],
  CreateTable: ["CREATE"],
  DropTable: ["DROP"],
  CreateDatabase: ["CREATE DATABASE"],
  DropDatabase: ["DROP DATABASE"],
  Truncate: ["DELETE"],
};

function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
function objectAt(value: JsonObject, key: string): JsonObject {
  const held = value[key];
  return isObject(held) ? held : {};
}
function listAt(value: JsonObject, key: string): readonly Json[] {
  const held = value[key];
  return Array.isArray(held) ? held : held === undefined ? [] : [held];
}
function objectsAt(value: JsonObject, key: string): readonly JsonObject[] {
  return listAt(value, key).filter(isObject);
}
function textAt(value: JsonObject, key: string): string {
  return String(value[key]);
}

const plain = (name: string) => name.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
const differsByForm = (one: string, other: string) => one !== other && plain(one) === plain(other);
const start = (pattern: string) => pattern.slice(0, -1);
const isPattern = (text: string) => text.endsWith("*");

/** Entries of the same place, the first place that is held. */
function place({ grants }: World, database: string, table: string | undefined): readonly Grant[] {
  const isNamed = ({ tables }: Grant) => tables?.some((name) => name === table) === true;
  const isFitted = ({ tables }: Grant) =>
    tables?.some((name) => isPattern(name) && table?.startsWith(start(name))) === true;
  const isWhole = ({ tables }: Grant) => tables === undefined;
  return (
    [database, "*"]
      .flatMap((on) =>
        [isNamed, isFitted, isWhole].map((fits) =>
          grants.filter((grant) => grant.database === on && fits(grant)),
        ),
      )
      .find((found) => found.length > 0) ?? []
  );
}

/** The entry that decides; `lapsed` if what is there is over. */
function decider(
  world: World,
  database: string,
  table: string | undefined,
): Grant | "lapsed" | undefined {
  const found = place(world, database, table);
  if (found.length === 0) return undefined;
  return (
    found.find(({ expires }) => expires !== undefined && expires > now) ??
    found.find(({ expires }) => expires === undefined) ??
    "lapsed"
  );
}

const narrowingKeys = [
  "tables",
  "columns",
  "writableColumns",
  "rowFilter",
  "requireWhere",
  "maxRows",
  "maxChanges",
] as const;

/** Some table or the database itself is decided by an entry that says more than a role. */
function isNarrowed(world: World, boundaries: readonly Limits[], database: string): boolean {
  const written = world.grants.flatMap(({ tables = [] }) => tables);
  const places = [
    undefined,
    ...written.map((name) => (isPattern(name) ? `${start(name)}\u0000` : name)),
  ];
  const deciding = places.map((table) => decider(world, database, table));
  return (
    boundaries.some(
      ({ maxRows, maxChanges }) => maxRows !== undefined || maxChanges !== undefined,
    ) ||
    deciding.some(
      (grant) =>
        grant === "lapsed" ||
        grant?.role === "None" ||
        (grant !== undefined && narrowingKeys.some((key) => grant[key] !== undefined)),
    )
  );
}

/** Every name of a column, with where it stands. */
function namedColumns(
  operation: string,
  fields: JsonObject,
): readonly (readonly [string, string])[] {
  const aliases = objectsAt(fields, "aggregate").map((one) => textAt(one, "as"));
  const conditions = (value: Json | undefined): readonly string[] => {
    if (!isObject(value)) return [];
    if ("column" in value) return [textAt(value, "column")];
    return [...listAt(value, "and"), ...listAt(value, "or"), ...listAt(value, "not")].flatMap(
      conditions,
    );
  };
  const noAlias = (name: string) => !aliases.includes(name);
  const at = (position: string, names: readonly Json[]) =>
    names.map((name) => [position, String(name)] as const);
  const keys = (rows: readonly JsonObject[]) => rows.flatMap((row) => Object.keys(row));
  return [
    ...at("columns", operation === "CreateTable" ? [] : listAt(fields, "columns")),
    ...at("where", conditions(fields.where)),
    ...at(
      "on",
      objectsAt(fields, "join").flatMap((join) => textAt(join, "on").split(" = ")),
    ),
    ...at("group_by", listAt(fields, "group_by")),
    ...at(
      "aggregate",
      objectsAt(fields, "aggregate").flatMap((one) => listAt(one, "column")),
    ),
    ...at("having", conditions(fields.having).filter(noAlias)),
    ...at(
      "order_by",
      objectsAt(fields, "order_by")
        .map((one) => textAt(one, "column"))
        .filter(noAlias),
    ),
    ...at("written", keys(objectsAt(fields, "values"))),
    ...at("written", keys(objectsAt(fields, "set"))),
    ...at("written", keys(objectsAt(fields, "add"))),
    ...at("written", listAt(fields, "update")),
    ...at("on_conflict", listAt(fields, "on_conflict")),
    ...at("returning", listAt(fields, "returning")),
  ];
}

const isWhole = (value: unknown) => Number.isSafeInteger(value) || typeof value === "bigint";

/** The filter's conditions with attributes; undefined if one is missing. */
function resolved({ attributes }: World, filter: readonly RowCondition[]) {
  const meaning = (literal: Literal): AttributeValue | undefined => {
    if (typeof literal !== "string" || !literal.startsWith("@")) return literal;
    if (literal.startsWith("@@")) return literal.slice(1);
    return literal === "@username" ? username : attributes[literal.slice(1)];
  };
  const found = filter.map(({ column, cmp, value }) => {
    const meant = Array.isArray(value) ? value.map(meaning) : meaning(value as Literal);
    const isList = Array.isArray(meant);
    if (meant === undefined || isList !== (cmp === "IN")) return undefined;
    if (isList && meant.some((one) => one === undefined || Array.isArray(one))) return undefined;
    if (["<", ">", "<=", ">="].includes(cmp) && !isWhole(meant)) return undefined;
    return { column, cmp, value: meant };
  });
  return found.some((one) => one === undefined)
    ? undefined
    : found.filter((one) => one !== undefined);
}

type Resolved = NonNullable<ReturnType<typeof resolved>>[number];

function holds({ cmp, value }: Resolved, cell: Json | undefined): boolean {
  const isSame = (one: unknown) =>
    typeof one === typeof cell && one === cell && (typeof one !== "number" || isWhole(one));
  if (cell === null || cell === undefined) return false;
  if (cmp === "IN") return Array.isArray(value) && value.some(isSame);
  if (cmp === "=") return isSame(value);
  if (cmp === "!=") {
    return (
      typeof value === typeof cell && (typeof cell !== "number" || isWhole(cell)) && !isSame(value)
    );
  }
  if (typeof cell !== "number" || !isWhole(cell) || typeof value !== "number") return false;
  return { "<": cell < value, ">": cell > value, "<=": cell <= value, ">=": cell >= value }[cmp];
}

function terms(where: Json | undefined): readonly JsonObject[] {
  if (!isObject(where)) return [];
  return ("and" in where ? objectsAt(where, "and") : [where]).filter((term) => "column" in term);
}

/** How many values a `where` pins a column to; 0 values and more, or undefined. */
function pins(
  where: Json | undefined,
  column: string,
  names: readonly string[],
): number | undefined {
  const counts = terms(where)
    .filter((term) => names.some((name) => textAt(term, "column") === name.replace("?", column)))
    .flatMap((term) => {
      if (term.cmp === "=") return [[term.value ?? null]];
      return term.cmp === "IN" ? [listAt(term, "value")] : [];
    })
    .filter((values) => values.every((value) => typeof value === "string" || isWhole(value)))
    .map((values) => values.length);
  return counts.length === 0 ? undefined : Math.min(...counts);
}

/** The rows that an element answers and changes; NaN where only the database can tell. */
interface Amount {
  readonly limiter: Limits;
  readonly rows: number;
  readonly changes: number;
}

function judgeElement(world: World, element: JsonObject, { context }: Asked) {
  const { boundaries, grants } = world;
  const [key = ""] = Object.keys(element);
  const isPreview = key === "Preview";
  const held = objectAt(element, key);
  const [operation = ""] = isPreview ? Object.keys(held) : [key];
  const fields = isPreview ? objectAt(held, operation) : held;
  const database = textAt(fields, "database");
  const faults: string[] = [];
  const additions: string[] = [];
  const amounts: Amount[] = [];
  const files = new Set(
    [...grants, ...boundaries].map((rule) => rule.database ?? "*").filter((name) => name !== "*"),
  );
  if ([...files].some((name) => differsByForm(name, database))) {
    return { faults: ["database_case_mismatch"], additions, amounts, asks: [] };
  }
  const fitting = boundaries.filter(
    ({ via, client, username: user, database: on }) =>
      via === context.via &&
      (client ?? context.client) === context.client &&
      (user ?? username) === username &&
      (on ?? database) === database,
  );
  const joins = objectsAt(fields, "join");
  const own = [
    ...listAt(fields, "from"),
    ...listAt(fields, "table"),
    ...joins.map((join) => join.table ?? ""),
  ].map(String);
  const wanted = isPreview ? [...(needs[operation] ?? []), "SELECT"] : (needs[operation] ?? []);
  const references =
    operation === "CreateTable"
      ? objectsAt(fields, "columns")
          .flatMap((one) => listAt(one, "references"))
          .map(String)
      : [];
  const referenced = references.map((reference) => reference.split(".")[0] ?? "");
  const rights: [string | undefined, readonly string[]][] = [
    ...(own.length === 0 ? [undefined] : own).map(
      (table): [string | undefined, readonly string[]] => [table, wanted],
    ),
    ...referenced.map((table): [string, readonly string[]] => [table, ["SELECT"]]),
  ];
  const deciders = new Map<string | undefined, Grant>();
  const asks: string[] = [];
  for (const [table, permissions] of rights) {
    const written = grants
      .filter((grant) => grant.database === database || grant.database === "*")
      .flatMap(({ tables = [] }) => tables);
    const isOther = (name: string) =>
      table !== undefined &&
      (isPattern(name)
        ? plain(table).startsWith(plain(start(name))) && !table.startsWith(start(name))
        : differsByForm(name, table));
    if (written.some(isOther)) faults.push("name_case_mismatch");
    const grant = decider(world, database, table);
    if (grant === undefined) faults.push("no_grant");
    else if (grant === "lapsed") faults.push("grant_expired");
    else {
      deciders.set(table, grant);
      const roles = [
        grant.role,
        ...fitting.flatMap(({ role }) => (role === undefined ? [] : [role])),
      ];
      if (permissions.some((one) => roles.some((role) => !gives[role]?.includes(one))))
        faults.push("role_insufficient");
      asks.push(
        ...permissions.filter((one) =>
          [grant, ...fitting].some((rule) => rule.requireApproval?.some((asked) => asked === one)),
        ),
      );
    }
  }
  // What is not given at all is not looked at any further.
  if (faults.length > 0) return { faults, additions, amounts, asks };
  const grantOf = (table: string | undefined) =>
    deciders.get(table) ?? { username, database, role: "None" as const };
  const isForeign =
    operation === "Truncate" || "trace" in fields || (isPreview && !context.isEngine);
  if (isForeign && isNarrowed(world, fitting, database)) faults.push("not_narrowable");
  if (operation === "Truncate" || own.length === 0) return { faults, additions, amounts, asks };
  const ownGrants = own.map(grantOf);
  const hasColumns = ownGrants.some(({ columns }) => columns !== undefined);
  if (hasColumns && isPreview) faults.push("not_narrowable");
  if (hasColumns && !context.isEngine && "aggregate" in fields) faults.push("not_narrowable");
  if (referenced.some((table) => grantOf(table).rowFilter !== undefined))
    faults.push("not_narrowable");

  // Columns.
  const isPartial = ({ columns, writableColumns, rowFilter }: Grant) =>
    (columns ?? writableColumns ?? rowFilter) !== undefined;
  const names = [
    ...namedColumns(operation, fields),
    ...references.map((name) => ["references", name] as const),
  ];
  for (const [position, name] of names) {
    const [table, column = ""] = name.includes(".") ? name.split(".") : [undefined, name];
    if (column === "*") {
      if (hasColumns && position !== "aggregate") faults.push("columns_required");
      continue;
    }
    if (table === undefined && own.length > 1 && ownGrants.some(isPartial))
      faults.push("column_unqualified");
    for (const on of table === undefined ? own : [table]) {
      const about = grants.filter(
        ({ database: place, tables }) =>
          (place === database || place === "*") &&
          (tables === undefined ||
            tables.some((text) => (isPattern(text) ? on.startsWith(start(text)) : text === on))),
      );
      const spelled = about.flatMap(
        ({ columns = [], writableColumns = [], requireWhere = [], rowFilter = [] }) => [
          ...columns,
          ...writableColumns,
          ...requireWhere,
          ...rowFilter.map((condition) => condition.column),
        ],
      );
      if (spelled.some((one) => differsByForm(one, column))) faults.push("name_case_mismatch");
      const { columns = [column], writableColumns = [column] } = grantOf(on);
      const isAllowed =
        columns.includes(column) && (position !== "written" || writableColumns.includes(column));
      if (!isAllowed) faults.push("column_denied");
    }
  }

  // Rows.
  const before: string[] = [];
  for (const [index, table] of own.entries()) {
    const { rowFilter, requireWhere } = grantOf(table);
    const isJoin = own.length > 1;
    const spellings = isJoin ? [`${table}.?`] : ["?", `${table}.?`];
    if (operation === "Upsert" && (rowFilter ?? requireWhere) !== undefined)
      faults.push("not_narrowable");
    if (operation === "Update" || operation === "Delete") {
      const isFree = requireWhere?.some(
        (column) => pins(fields.where, column, spellings) === undefined,
      );
      if (isFree === true) faults.push("where_required");
    }
    const joinType = (at: number) => joins[at - 1]?.join_type;
    const isOptional =
      joinType(index) === "LEFT" || own.some((_, at) => at > index && joinType(at) === "RIGHT");
    if (rowFilter === undefined || !["Select", "Insert", "Update", "Delete"].includes(operation))
      continue;
    if (isOptional) faults.push("join_denied");
    const conditions = resolved(world, rowFilter);
    if (conditions === undefined) {
      faults.push("attribute_missing");
      continue;
    }
    const rows = operation === "Insert" ? objectsAt(fields, "values") : [];
    const set = objectAt(fields, "set");
    for (const condition of conditions) {
      const { column } = condition;
      if (rows.some((row) => !holds(condition, row[column]))) faults.push("row_denied");
      if (column in objectAt(fields, "add")) faults.push("row_denied");
      if (column in set && !holds(condition, set[column])) faults.push("row_denied");
      if (operation === "Insert") continue;
      const isThere = terms(fields.where).some(
        (term) =>
          spellings.some((spelling) => spelling.replace("?", column) === term.column) &&
          term.cmp === condition.cmp &&
          JSON.stringify(term.value) === JSON.stringify(condition.value),
      );
      const name = isJoin ? `${table}.${column}` : column;
      if (!isThere)
        additions.push(
          JSON.stringify({ column: name, cmp: condition.cmp, value: condition.value }),
        );
    }
    before.push(table);
  }

  // Numbers.
  const values = objectsAt(fields, "values").length;
  const isCounted = operation === "Update" || operation === "Delete";
  const [grant = grantOf(undefined)] = ownGrants;
  const pinned = (grant.requireWhere ?? []).reduce(
    (product, column) =>
      product * (pins(fields.where, column, ["?", `${own[0]}.?`]) ?? Number.POSITIVE_INFINITY),
    grant.requireWhere === undefined ? Number.POSITIVE_INFINITY : 1,
  );
  const isAggregate = "aggregate" in fields && !("group_by" in fields);
  const answersChanged = isPreview || "returning" in fields;
  for (const limiter of new Set<Limits>([...ownGrants, ...fitting])) {
    const { maxRows, maxChanges } = limiter;
    if (operation === "Select" && maxRows !== undefined && !isAggregate && !("limit" in fields))
      faults.push("limit_required");
    const isUncounted = isCounted && !context.isEngine;
    if (isUncounted && maxChanges !== undefined && pinned > maxChanges)
      faults.push("where_required");
    if (
      isUncounted &&
      maxRows !== undefined &&
      answersChanged &&
      pinned === Number.POSITIVE_INFINITY
    )
      faults.push("not_narrowable");
    const limit = Number(fields.limit ?? (isAggregate ? 1 : 0));
    const changes = isCounted ? (context.isEngine ? 0 : pinned) : values;
    amounts.push({
      limiter,
      rows:
        operation === "Select"
          ? isAggregate
            ? Math.min(1, limit)
            : limit
          : answersChanged && !context.isEngine
            ? changes
            : 0,
      changes: operation === "Select" ? 0 : changes,
    });
  }
  return { faults, additions, amounts, asks };
}

/** What the contract says of each element. */
export function opinionsOn(world: World, asked: Asked): readonly Opinion[] {
  const { body } = asked;
  const elements = "Batch" in body ? objectsAt(body, "Batch") : [body];
  const judged = elements.map((element) => judgeElement(world, element, asked));
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
