import {
  type AttributeValue,
  type Boundary,
  type Grant,
  type Limits,
  type Literal,
  readHolder,
} from "../../src/core/access/grant.ts";
import type { DecisionContext } from "../../src/core/access/rights.ts";
import type { RowCondition } from "../../src/core/query/limits.ts";
import type { AskedQuery, Json, JsonObject } from "./decision-queries.ts";
import { now, username, type World } from "./decision-worlds.ts";

/** How the second reading of the contract looks into a query: its JSON, and nothing the parser found. */

/** The fields and lists of a query. Empty if absent. */
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

/** Every name of a column, with where it stands. */
function namedColumns(
  operation: string,
  fields: JsonObject,
): readonly (readonly [string, string])[] {
  const aliases = objectsAt(fields, "aggregate").map((one) => textAt(one, "as"));
  const conditions = (value: Json | undefined): readonly string[] => {
    if (!isObject(value)) return [];
    if ("column" in value)
      return [...listAt(value, "column"), ...listAt(value, "other")].map(String);
    return [...listAt(value, "and"), ...listAt(value, "or"), ...listAt(value, "not")].flatMap(
      conditions,
    );
  };
  const noAlias = (name: string) => !aliases.includes(name);
  const at = (position: string, names: readonly Json[]) =>
    names.map((name) => [position, String(name)] as const);
  const keys = (rows: readonly JsonObject[]) => rows.flatMap((row) => Object.keys(row));
  const computed = objectsAt(fields, "compute");
  const names = computed.map((one) => textAt(one, "as"));
  const noName = ([position, name]: readonly [string, string]) =>
    !["columns", "where", "group_by", "aggregate", "having", "order_by"].includes(position) ||
    !names.includes(name);
  const sources = computed.flatMap((one, index) => {
    const items = [...listAt(one, "of"), ...listAt(one, "then"), ...listAt(one, "else")];
    const used = [...items.filter((item) => typeof item === "string"), ...conditions(one.when)];
    return used.filter((name) => !names.slice(0, index).includes(String(name)));
  });
  return [
    ...at("compute", sources),
    ...at("columns", operation === "CreateTable" ? [] : listAt(fields, "columns")),
    ...at("where", conditions(fields.where)),
    ...at(
      "on",
      objectsAt(fields, "join").flatMap((join) => textAt(join, "on").split(" = ")),
    ),
    ...at("on", "on" in fields ? textAt(fields, "on").split(" = ") : []),
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
    ...at("written", keys(objectsAt(fields, "bind"))),
    ...at("written", listAt(fields, "update")),
    ...at("on_conflict", listAt(fields, "on_conflict")),
    ...at("returning", [...listAt(fields, "returning"), ...listAt(fields, "read")]),
  ].filter(noName);
}

/** A whole number. */
const isWhole = (value: unknown) => Number.isSafeInteger(value) || typeof value === "bigint";

function terms(where: Json | undefined): readonly JsonObject[] {
  if (!isObject(where)) return [];
  return ("and" in where ? objectsAt(where, "and") : [where]).filter((term) => "value" in term);
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

/** How the second reading of the contract looks into entries: lists that are filtered. */

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

const plain = (name: string) => name.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
const differsByForm = (one: string, other: string) => one !== other && plain(one) === plain(other);
const start = (pattern: string) => pattern.slice(0, -1);
const isPattern = (text: string) => text.endsWith("*");

function groupsOf({ local = [], ofToken = [] }: World): readonly string[] {
  return [...local, ...ofToken].map((name) => `group:${name}`).sort();
}

/** The entries of the caller and of the caller's groups. */
function ownGrants(world: World): readonly Grant[] {
  const holders = [username, ...groupsOf(world)];
  return world.grants.filter((grant) => holders.includes(String(grant.holder)));
}

/** Entries by place, the deciding place first. */
function places(
  world: World,
  database: string,
  table: string | undefined,
): readonly (readonly Grant[])[] {
  const grants = ownGrants(world);
  const isNamed = ({ tables }: Grant) => tables?.some((name) => name === table) === true;
  const isFitted = ({ tables }: Grant) =>
    tables?.some((name) => isPattern(name) && table?.startsWith(start(name))) === true;
  const isWhole = ({ tables }: Grant) => tables === undefined;
  return [database, "*"].flatMap((on) =>
    [isNamed, isFitted, isWhole].map((fits) =>
      grants.filter((grant) => grant.database === on && fits(grant)),
    ),
  );
}

type Decider = Grant | "lapsed" | "conflict" | undefined;

const isGrant = (decider: Decider): decider is Grant => typeof decider === "object";

/** An entry but for its holder, its tables and its time. */
function saying({ holder: _, tables: __, expires: ___, ...rest }: Grant): string {
  return JSON.stringify(Object.entries(rest).sort());
}

function amongGroups(grants: readonly Grant[]): Decider {
  if (grants.length === 0) return "lapsed";
  const none = grants.find(({ role }) => role === "None");
  if (none !== undefined) return none;
  const bare = grants.filter(
    (grant) => saying(grant) === saying({ ...nobody, database: grant.database, role: grant.role }),
  );
  if (bare.length === grants.length) {
    return ["Owner", "DbAdmin", "ReadWrite", "ReadOnly"]
      .flatMap((role) => grants.find((grant) => grant.role === role) ?? [])
      .at(0);
  }
  return new Set(grants.map(saying)).size === 1 ? grants[0] : "conflict";
}

/** The entry that decides; `lapsed` if it has expired, `conflict` if groups differ. */
function decider(world: World, database: string, table: string | undefined): Decider {
  const found = places(world, database, table).find((some) => some.length > 0);
  if (found === undefined) return undefined;
  const inForce = (holder: string) => {
    const held = found.filter((grant) => String(grant.holder) === holder);
    return (
      held.find(({ expires }) => expires !== undefined && expires > now) ??
      held.find(({ expires }) => expires === undefined)
    );
  };
  return inForce(username) ?? amongGroups(groupsOf(world).flatMap((group) => inForce(group) ?? []));
}

/** The entries of a place that are there: not those that have given way to others. */
function present(found: readonly Grant[]): readonly Grant[] {
  const own = found.filter((grant) => String(grant.holder) === username);
  const groups = found.filter((grant) => String(grant.holder) !== username);
  const isLive = ({ expires = now + 1 }: Grant) => expires > now;
  return (
    [own.filter(isLive), groups.filter(isLive), own, groups].find(({ length }) => length > 0) ?? []
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
  const written = ownGrants(world).flatMap(({ tables = [] }) => tables);
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
        (grant !== undefined && !isGrant(grant)) ||
        grant?.role === "None" ||
        (grant !== undefined && narrowingKeys.some((key) => grant[key] !== undefined)),
    )
  );
}

/** The filter's conditions with attributes; undefined if one is missing. */
function resolved({ attributes, tokenAttributes = {} }: World, filter: readonly RowCondition[]) {
  const meaning = (literal: Literal): AttributeValue | undefined => {
    if (typeof literal !== "string" || !literal.startsWith("@")) return literal;
    if (literal.startsWith("@@")) return literal.slice(1);
    return literal === "@username"
      ? username
      : { ...tokenAttributes, ...attributes }[literal.slice(1)];
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

/** One element of a query as the second reading of the contract takes it apart, and its rights. */

/** One element of a query, taken apart. */
interface Element {
  readonly world: World;
  readonly context: DecisionContext;
  readonly operation: string;
  readonly isPreview: boolean;
  readonly fields: JsonObject;
  /** The object in the query that has its `where`. */
  readonly place: JsonObject;
  readonly database: string;
  readonly joins: readonly JsonObject[];
  readonly own: readonly string[];
  /** The tables that its columns may name, `own` first, and their names in the query. */
  readonly named: readonly string[];
  readonly names: readonly string[];
  /** The names of Selects as `from`, whose columns are of no table. */
  readonly derived: readonly string[];
  /** Of an included table: its rows for each row of the whole Select. */
  readonly rowsPerRow?: number;
  readonly references: readonly string[];
  readonly fitting: readonly Boundary[];
}

const nobody: Grant = { holder: readHolder(username), database: "", role: "None" };

function tableIn(source: Json): string {
  return isObject(source) ? textAt(source, "table") : String(source);
}

function isDerived(source: Json): boolean {
  return isObject(source) && "select" in source;
}

/** The tables that an element, Select or included table reads itself, and their names. */
function tablesIn(fields: JsonObject) {
  const from = [...listAt(fields, "from"), ...listAt(fields, "table")];
  const sources = [...from, ...listAt(fields, "join")].filter((one) => !isDerived(one));
  return {
    own: sources.map(tableIn),
    names: sources.map((one) => (isObject(one) && "as" in one ? textAt(one, "as") : tableIn(one))),
    derived: from.filter(isDerived).map((one) => textAt(Object(one), "as")),
  };
}

/** Takes an element apart. */
function takeApart(world: World, element: JsonObject, { context }: AskedQuery): Element {
  const [key = ""] = Object.keys(element);
  const isPreview = key === "Preview";
  const held = objectAt(element, key);
  const [operation = ""] = isPreview ? Object.keys(held) : [key];
  const fields = isPreview ? objectAt(held, operation) : held;
  const database = textAt(fields, "database");
  const joins = objectsAt(fields, "join");
  const defined = operation === "CreateTable" ? objectsAt(fields, "columns") : [];
  const fitting = world.boundaries.filter(
    ({ via, client, holder, database: on }) =>
      via === context.via &&
      (client ?? context.client) === context.client &&
      [username, ...groupsOf(world)].includes(String(holder ?? username)) &&
      (on ?? database) === database,
  );
  const read = tablesIn(fields);
  return {
    world,
    context,
    operation,
    isPreview,
    fields,
    database,
    joins,
    fitting,
    ...read,
    place: fields,
    named: read.own,
    references: defined.flatMap((column) => listAt(column, "references")).map(String),
  };
}

/** The Selects, `exists` and included tables within an element, each as a Select of its own. */
function nestedIn(element: Element): Element[] {
  const found = (value: Json | undefined): JsonObject[] => {
    if (!isObject(value)) return [];
    return [
      ...objectsAt(value, "exists"),
      ...objectsAt(value, "select"),
      ...["and", "or", "not"].flatMap((key) => listAt(value, key).flatMap(found)),
    ];
  };
  const { where, having } = element.fields;
  const whens = objectsAt(element.fields, "compute").map((one) => one.when);
  const sources = objectsAt(element.fields, "from").flatMap((one) => objectsAt(one, "select"));
  const includes = objectsAt(element.fields, "include");
  // Not what is around the element itself.
  const linkable = tablesIn(withoutMember(element.place));
  const inside = [...sources, ...[where, having, ...whens].flatMap(found), ...includes];
  return inside.flatMap((place) => {
    const fields = withoutMember(place);
    const { own, names, derived } = tablesIn(fields);
    const isLinked = "on" in place;
    const { rowsPerRow = 1, ...around } = element;
    const inner: Element = {
      ...around,
      fields,
      place,
      own,
      operation: "Select",
      isPreview: false,
      references: [],
      ...(includes.includes(place) ? { rowsPerRow: rowsPerRow * includedRows(place) } : {}),
      joins: objectsAt(fields, "join"),
      names: [...names, ...(isLinked ? linkable.names : [])],
      named: [...own, ...(isLinked ? linkable.own : [])],
      derived: [...derived, ...(isLinked ? linkable.derived : [])],
    };
    return [inner, ...nestedIn(inner)];
  });
}

/** An include without `as`, which is no name of its table. */
function withoutMember({ as: _, ...fields }: JsonObject): JsonObject {
  return fields;
}

function includedRows({ one, limit = 100 }: JsonObject): number {
  return one === true ? 1 : Number(limit);
}

/** The table of `table.column`. */
function tableOf(reference: string): string {
  return reference.split(".")[0] ?? "";
}

/** Tables with the rights that are needed there; the database itself without a table. */
function rightsOf({ operation, isPreview, own, derived, references }: Element) {
  const wanted = [...(needs[operation] ?? []), ...(isPreview ? ["SELECT"] : [])];
  const isWhole = own.length === 0 && derived.length === 0;
  return [
    ...(isWhole ? [undefined] : own).map((table) => ({ table, wanted })),
    ...references.map((reference) => ({ table: tableOf(reference), wanted: ["SELECT"] })),
  ];
}

/** The entry that decides on a table, if any. */
function grantOf({ world, database }: Element, table: string): Grant {
  const grant = decider(world, database, table);
  return isGrant(grant) ? grant : nobody;
}

/** The faults in the rights of an element. */
function rightFaults(element: Element): string[] {
  const { world, database, fitting } = element;
  const files = [...world.grants, ...world.boundaries].map((rule) => rule.database ?? "*");
  if (files.some((name) => differsByForm(name, database))) return ["database_case_mismatch"];
  const written = ownGrants(world)
    .filter((grant) => grant.database === database || grant.database === "*")
    .flatMap(({ tables = [] }) => tables);
  return rightsOf(element).flatMap(({ table, wanted }) => {
    const isOther = (name: string) =>
      table !== undefined &&
      (isPattern(name)
        ? plain(table).startsWith(plain(start(name))) && !table.startsWith(start(name))
        : differsByForm(name, table));
    const faults = written.some(isOther) ? ["name_case_mismatch"] : [];
    const grant = decider(world, database, table);
    if (grant === undefined) return [...faults, "no_grant"];
    if (grant === "lapsed") return [...faults, "grant_expired"];
    if (grant === "conflict") return [...faults, "group_conflict"];
    const roles = [grant, ...fitting].map(({ role = "Owner" }) => gives[role] ?? []);
    const isGiven = wanted.every((right) => roles.every((role) => role.includes(right)));
    return isGiven ? faults : [...faults, "role_insufficient"];
  });
}

/** The rights of an element whose use needs approval. A Preview only shows rows. */
function asksOf(element: Element): string[] {
  const { world, database, fitting } = element;
  return rightsOf(element).flatMap(({ table, wanted }) => {
    const grant = decider(world, database, table);
    const rules = isGrant(grant) ? [grant, ...fitting] : fitting;
    const asked = rules.flatMap(({ requireApproval = [] }): readonly string[] => requireApproval);
    return wanted.filter(
      (right) => asked.includes(right) && (!element.isPreview || right === "SELECT"),
    );
  });
}

/**
 * The decision once more, from the contract alone: plain lists that are filtered, nothing indexed,
 * and the query's own JSON in the place of the parser's findings. It says everything that is wrong
 * with each element, in no order.
 */

/** The faults of one element by the contract, or else its conditions. */
interface Opinion {
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

function isHiding({ columns, rowFilter }: Grant): boolean {
  return (columns ?? rowFilter) !== undefined;
}

function kindFaults(element: Element): string[] {
  const { world, context, operation, isPreview, fields, database, own, references, fitting } =
    element;
  const isForeign =
    operation === "Truncate" ||
    "trace" in fields ||
    (!context.isEngine && (isPreview || nestedIn(element).length > 0));
  const hasColumns = own.some((table) => grantOf(element, table).columns !== undefined);
  const isShown = !context.isEngine && (isPreview || "aggregate" in fields);
  const isShadowed = !context.isEngine && "compute" in fields;
  const isFiltered = (table: string) => grantOf(element, table).rowFilter !== undefined;
  const isBound = (table: string) => grantOf(element, table).requireWhere !== undefined;
  const isUpsert = operation === "Upsert";
  return [
    isForeign && isNarrowed(world, fitting, database),
    operation !== "Truncate" && hasColumns && isShown,
    isShadowed && own.some((table) => isHiding(grantOf(element, table))),
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
    const spelled = places(world, database, table)
      .flatMap(present)
      .flatMap(({ columns = [], writableColumns = [], requireWhere = [], rowFilter = [] }) => [
        ...columns,
        ...writableColumns,
        ...requireWhere,
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
  const realOf = (name: string) => element.named[element.names.indexOf(name)] ?? name;
  const named = [
    ...namedColumns(operation, fields),
    ...references.map((reference) => ["references", reference] as const),
  ];
  return named.flatMap(([position, name]) => {
    const [table, column = ""] = name.includes(".") ? name.split(".") : [undefined, name];
    if (table !== undefined && element.derived.includes(table)) return [];
    if (column === "*") return own.some(isHidden) ? ["columns_required"] : [];
    const isBare = table === undefined && !isSole(element) && own.some(isPartial);
    const about = table === undefined ? own : [realOf(table)];
    return [
      ...(isBare ? ["column_unqualified"] : []),
      ...about.flatMap((one) => judge(position, one, column)),
    ];
  });
}

/** True if columns may be written without a table. */
function isSole({ own, fields }: Element): boolean {
  return own.length === 1 && !objectsAt(fields, "from").some(isDerived);
}

/** How a column of a table may be written, with `?` in the place of its name. */
function spellingsOf(element: Element, at: number): readonly string[] {
  const name = `${element.names[at]}.?`;
  return isSole(element) ? ["?", name] : [name];
}

/** The faults and the conditions that row filters bring. */
function rowOpinion(element: Element): { faults: string[]; additions: string[] } {
  const { world, operation, fields, own, joins } = element;
  const faults: string[] = [];
  const additions: string[] = [];
  const joinType = (at: number) => joins[at + joins.length - own.length]?.join_type;
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
    const computed = objectsAt(fields, "compute").map((one) => textAt(one, "as"));
    const isShadowed = rowFilter.some(({ column }) => computed.includes(column));
    for (const condition of conditions ?? []) {
      const { column, cmp, value } = condition;
      const isKept =
        rows.every((row) => holds(condition, row[column])) &&
        !(column in objectAt(fields, "bind")) &&
        !(column in objectAt(fields, "add")) &&
        (!(column in set) || holds(condition, set[column]));
      if (!isKept) faults.push("row_denied");
      const full = `${element.names[index]}.${column}`;
      const spellings = isShadowed
        ? [full]
        : spellingsOf(element, index).map((one) => one.replace("?", column));
      const isThere = terms(fields.where).some(
        (term) =>
          spellings.includes(textAt(term, "column")) &&
          term.cmp === cmp &&
          JSON.stringify(term.value) === JSON.stringify(value),
      );
      if (isThere || operation === "Insert") continue;
      const name = isSole(element) && !isShadowed ? column : full;
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
    .map((column) => pins(fields.where, column, spellingsOf(element, 0)))
    .reduce<number>((rows, values) => rows * (values ?? Number.POSITIVE_INFINITY), 1);
}

/** The faults of numbers that an element has by itself, and what it adds to those of a Batch. */
function numberOpinion(
  element: Element,
  nested: readonly Element[],
): { faults: string[]; amounts: Amount[] } {
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
    ...[element, ...nested].flatMap((one) => one.own.map((table) => grantOf(one, table))),
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
    const isOfBoundary = fitting.some((boundary) => boundary === limiter);
    const limited = nested.filter(
      (one) => isOfBoundary || one.own.some((table) => grantOf(one, table) === limiter),
    );
    const byTable = Object.groupBy(limited, ({ own: [table = ""] }) => table);
    const times = Object.values(byTable).map((all = []) =>
      all.reduce((sum, { rowsPerRow = 0 }) => sum + rowsPerRow, 0),
    );
    const selected = isAggregate ? Math.min(1, limit) : limit * Math.max(1, ...times);
    const changes = isCounted ? (context.isEngine ? 0 : pinned) : values;
    const rows = answers && !context.isEngine ? changes : 0;
    amounts.push({ limiter, ...(isSelect ? { rows: selected, changes: 0 } : { rows, changes }) });
  }
  return { faults, amounts };
}

function judgeElement(element: Element) {
  const nested = nestedIn(element);
  const asks = [element, ...nested].flatMap(asksOf);
  const barred = [element, ...nested].flatMap(rightFaults);
  // Nothing else is checked without the right.
  if (barred.length > 0) return { faults: barred, asks, additions: [], amounts: [] };
  const kind = kindFaults(element);
  const isRead = element.own.length > 0 || element.derived.length > 0;
  if (element.operation === "Truncate" || !isRead) {
    return { faults: kind, asks, additions: [], amounts: [] };
  }
  const rows = [element, ...nested].map(rowOpinion);
  const numbers = numberOpinion(element, nested);
  const faults = [
    ...kind,
    ...[element, ...nested].flatMap(columnFaults),
    ...rows.flatMap((one) => one.faults),
    ...numbers.faults,
  ];
  const additions = rows.flatMap((one) => one.additions);
  return { faults, asks, additions, amounts: numbers.amounts };
}

/** The elements, each with `read`, the columns that the `bind` of others reads but no answer has. */
function readByOthers(elements: readonly JsonObject[]): readonly JsonObject[] {
  const fieldsOf = (element: JsonObject) => objectAt(element, Object.keys(element)[0] ?? "");
  const sources = elements
    .map((element) => objectAt(fieldsOf(element), "bind"))
    .flatMap((bind) => Object.keys(bind).map((name) => objectAt(bind, name)));
  return elements.map((element, at) => {
    const read = sources.filter((source) => source.element === at);
    if (read.length === 0) return element;
    const [key = ""] = Object.keys(element);
    const columns = read.map((source) => textAt(source, "column"));
    return { [key]: { ...fieldsOf(element), read: columns } };
  });
}

function elementsOf(world: World, asked: AskedQuery): readonly Element[] {
  const { body } = asked;
  const previewed = objectsAt(objectAt(body, "Preview"), "Batch");
  const elements = "Batch" in body ? objectsAt(body, "Batch") : [body];
  const all =
    previewed.length > 0
      ? readByOthers(previewed).map((element) => ({ Preview: element }))
      : readByOthers(elements);
  return all.map((element) => takeApart(world, element, asked));
}

/** A query without `bind` as it is to be forwarded, with the conditions of row filters. */
export function filteredBody(world: World, asked: AskedQuery): Json {
  const additions = new Map(
    elementsOf(world, asked)
      .flatMap((element) => [element, ...nestedIn(element)])
      .map((element) => [element.place, rowOpinion(element).additions]),
  );
  const filtered = (value: Json): Json => {
    if (Array.isArray(value)) return value.map(filtered);
    if (!isObject(value)) return value;
    const copy = Object.fromEntries(
      Object.entries(value).map(([key, member]) => [key, filtered(member)]),
    );
    const added = (additions.get(value) ?? []).map((text): Json => JSON.parse(text));
    if (added.length === 0) return copy;
    const terms = [...added, ...listAt(copy, "where").filter((one) => one !== null)];
    const [first = null] = terms;
    return { ...copy, where: terms.length === 1 ? first : { and: terms } };
  };
  return filtered(asked.body);
}

/** The judgment of each element by the contract. */
export function opinionsOn(world: World, asked: AskedQuery): readonly Opinion[] {
  const judged = elementsOf(world, asked).map(judgeElement);
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
