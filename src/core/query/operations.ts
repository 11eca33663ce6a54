import type { Parsed } from "../json/exact.ts";
import { quoteName } from "../json/fault.ts";
import { STRIDE } from "../json/tape.ts";
import {
  at,
  checked,
  extra,
  type Fields,
  type Kind,
  type Level,
  type MakeSchema,
  type ObjectOf,
  ObjectShape,
  object,
  objectSchema,
  ofBatch,
  oneNeeded,
  optional,
  required,
} from "./kind.ts";
import { type Body, OperationNode } from "./node.ts";
import type { PermissionClass } from "./permissions.ts";
import {
  database,
  given,
  requireSelect,
  selectFields,
  selectRules,
  table,
  whereField,
} from "./select.ts";
import type { QueryTape } from "./tape.ts";
import type { OperationName, Preview, PreviewedChange, RowChangeName, Update } from "./tree.ts";
import {
  additions,
  bindings,
  changes,
  columnDefinitions,
  count,
  list,
  ownColumn,
  rows,
  selectedColumn,
} from "./values.ts";

const changedRows = required(
  whereField,
  "Condition for the rows; null, which must be explicit, means every row.",
);
const values = required(rows, "Rows, each an object of values by column.");
const returning = extra(at("returning", list(selectedColumn)), "Columns of these rows to return.");

const expect = ofBatch(
  count,
  "Number of rows that must be affected; otherwise the Batch is undone.",
);
const bind = ofBatch(
  bindings,
  "Values by column, each from the one row that an earlier element of the Batch affects.",
);

const insertFields = { database, table, values, bind, returning, expect };
const updateFields = {
  database,
  table,
  set: optional(changes, "New values by column."),
  add: extra(
    additions,
    "Numbers by column to add to the current values; to decimals also as strings. Null stays null and counts as affected.",
  ),
  bind,
  where: changedRows,
  returning,
  expect,
};
/** The part of `requireChanges` that a schema can express. */
const updateRules = oneNeeded(updateFields, ["set", "add", "bind"]);
const deleteFields = { database, table, where: changedRows, returning, expect };
const upsertFields = {
  database,
  table,
  values,
  on_conflict: required(
    at("on_conflict", list(ownColumn)),
    "Columns whose values together are unique.",
  ),
  update: required(
    at("update", list(ownColumn, { least: 0 })),
    "Columns to set if such a row exists; [] leaves it unchanged.",
  ),
  returning,
  expect,
};

function previewed<Of extends Fields>(name: string, fields: Of, rules: MakeSchema = () => ({})) {
  const { parse, schema } = object(fields);
  return extra<ObjectOf<Of>>({
    parse(tape, token, node) {
      notePreviewed(node, name, token, tape);
      node.range = { start: tape.start(token), end: tape.end(token) };
      const fields = parse(tape, token, node);
      node.fields = fields;
      return fields;
    },
    schema: (reference) => ({ ...schema(reference), ...rules(reference) }),
  });
}

/** @throws QueryRefused `several_operations` for a second one */
function notePreviewed(node: OperationNode, name: string, token: number, tape: QueryTape): void {
  if (node.previewed !== undefined) {
    const problem = `${quoteName(name)} follows ${quoteName(node.previewed)}; only one of them is allowed`;
    throw tape.refusal("several_operations", problem, token);
  }
  node.previewed = name;
}

const previewedChanges = {
  Insert: previewed("Insert", insertFields),
  Update: previewed("Update", updateFields, updateRules),
  Delete: previewed("Delete", deleteFields),
  Upsert: previewed("Upsert", upsertFields),
};
const previewedShape = new ObjectShape(previewedChanges);

const MOST_PREVIEWED = 20;

const previewedBatch: Kind<PreviewedChange[]> = {
  parse(tape, token, node) {
    notePreviewed(node, "Batch", token, tape);
    tape.expect(token, "an array");
    const wrongSize = `a Batch in a Preview has 1 to ${MOST_PREVIEWED} elements`;
    if (tape.size(token) === 0) throw tape.refusal("batch_size", wrongSize, token);
    const end = tape.next(token);
    const changes = new Map<number, OperationNode>();
    const body: Body = { ...node.body, changes };
    const elements: PreviewedChange[] = [];
    for (let element = token + STRIDE; element < end; element = tape.next(element)) {
      const index = elements.length;
      if (index === MOST_PREVIEWED) {
        throw tape.refusal("batch_size", wrongSize, element, tape.start(token));
      }
      const inner = new OperationNode(body, index);
      const fields = previewedShape.parse(tape, element, inner);
      inner.requireReferences(tape);
      requirePreview(fields, inner, element, tape);
      elements.push(fields);
      changes.set(index, inner);
    }
    node.previewedElements = [...changes.values()];
    return elements;
  },
  schema: (reference) => {
    const refer = (name: string, make: MakeSchema) => reference(name, make);
    const inBatch = Object.assign(refer, { level: reference.level, inBatch: true });
    const rules = { minProperties: 1, maxProperties: 1 };
    return {
      type: "array",
      items: { ...objectSchema(previewedChanges)(inBatch), ...rules },
      minItems: 1,
      maxItems: MOST_PREVIEWED,
    };
  },
};

export const MOST_PREVIEW_ROWS = 100;

const previewLimit: Kind<number> = {
  parse: checked(count, (limit, _node, token, tape) => {
    if (limit <= MOST_PREVIEW_ROWS) return;
    const problem = `the limit is too high; allowed: at most ${MOST_PREVIEW_ROWS}`;
    throw tape.refusal("invalid_value", problem, token);
  }).parse,
  schema: (reference) => ({ ...count.schema(reference), maximum: MOST_PREVIEW_ROWS }),
};

const previewFields = {
  ...previewedChanges,
  Batch: extra(previewedBatch, "Up to 20 of these changes, as in a Batch."),
  limit: extra(previewLimit, "Maximum number of rows before and after a change; 100 if absent."),
};

/** @throws QueryRefused `missing_field` */
function requireChanges(
  { set, add, bind }: Update,
  node: OperationNode,
  token: number,
  tape: QueryTape,
): void {
  if (set !== undefined || add !== undefined || bind !== undefined) return;
  const added = node.element === undefined ? "set or add" : "set, add or bind";
  const either = tape.isFull ? added : "set";
  throw tape.missing("set", `required: database, table, ${either}, where`, token);
}

/** @throws QueryRefused `no_operation`, or the refusal of the operation it contains */
function requirePreview(
  { Update }: Preview,
  node: OperationNode,
  token: number,
  tape: QueryTape,
): void {
  if (node.previewed === undefined) {
    const batch = node.element === undefined ? ", Batch" : "";
    const problem = `one key is needed: Insert, Update, Delete, Upsert${batch}`;
    throw tape.refusal("no_operation", problem, token);
  }
  if (Update !== undefined) requireChanges(Update, node, token, tape);
}

export interface OperationDefinition {
  readonly permissions: readonly PermissionClass[];
  /** `replaces` and `removes` may be repeated, and `previews` keeps nothing. */
  readonly effect: "reads" | "previews" | "adds" | "replaces" | "removes";
  readonly inBatch: boolean;
  readonly title: string;
  readonly description: string;
  readonly fields: Fields;
  /** The lowest level of the grammar that has it. */
  readonly level?: Level;
  /** Checks rules between fields after all are parsed. @throws QueryRefused */
  readonly check?: (fields: Parsed, node: OperationNode, token: number, tape: QueryTape) => void;
  /** The part of `check` that a schema can express. */
  readonly rules?: MakeSchema;
}

export const configuredFields = { database, table };

/**
 * The query grammar. The parser, the engine's types, and the schemas for OpenAPI and MCP tools are
 * derived from this table.
 */
export const operations = {
  Select: {
    permissions: ["SELECT"],
    effect: "reads",
    inBatch: true,
    title: "Read rows",
    description:
      "Reads rows of tables, or aggregates over groups of rows. Not supported: SQL text, UNION, WITH, window functions, FULL and CROSS joins, regular expressions, and functions other than those listed here.",
    fields: selectFields,
    check: requireSelect,
    rules: selectRules,
  },
  Insert: {
    permissions: ["INSERT"],
    effect: "adds",
    inBatch: true,
    title: "Add rows",
    description: "Adds rows to a table. Not supported: adding the rows of a Select.",
    fields: insertFields,
  },
  Update: {
    permissions: ["UPDATE"],
    effect: "replaces",
    inBatch: true,
    title: "Change rows",
    description:
      "Changes the rows of a table that meet a condition. Not supported: values computed from other columns.",
    fields: updateFields,
    check: requireChanges,
    rules: updateRules,
  },
  Delete: {
    permissions: ["DELETE"],
    effect: "removes",
    inBatch: true,
    title: "Delete rows",
    description: "Deletes the rows of a table that meet a condition. They cannot be recovered.",
    fields: deleteFields,
  },
  Upsert: {
    permissions: ["INSERT", "UPDATE"],
    effect: "replaces",
    inBatch: true,
    level: "full",
    title: "Add or change rows",
    description: "Adds rows to a table, and updates those that exist already.",
    fields: upsertFields,
  },
  Preview: {
    // Plus the right of the operation it contains.
    permissions: ["SELECT"],
    effect: "previews",
    inBatch: false,
    level: "full",
    title: "Preview a change",
    description:
      "Shows the rows that a change would affect, before and after, without changing them.",
    fields: previewFields,
    check: requirePreview,
    rules: () => ({
      not: {
        not: {
          oneOf: [...Object.keys(previewedChanges), "Batch"].map(given),
        },
      },
    }),
  },
  CreateTable: {
    permissions: ["CREATE"],
    effect: "adds",
    inBatch: true,
    title: "Create a table",
    description:
      "Creates an empty table. Not supported: indexes, views, CHECK, and changing a table later.",
    fields: { database, table, columns: required(columnDefinitions) },
  },
  DropTable: {
    permissions: ["DROP"],
    effect: "removes",
    inBatch: true,
    title: "Drop a table",
    description: "Drops a table with all its rows. They cannot be recovered.",
    fields: { database, table },
  },
  CreateDatabase: {
    permissions: ["CREATE DATABASE"],
    effect: "adds",
    inBatch: false,
    title: "Create a database",
    description: "Creates an empty database.",
    fields: { database },
  },
  DropDatabase: {
    permissions: ["DROP DATABASE"],
    effect: "removes",
    inBatch: false,
    title: "Drop a database",
    description: "Drops a database with all its tables. They cannot be recovered.",
    fields: { database },
  },
} as const satisfies Record<OperationName, OperationDefinition>;

/**
 * The rights to use an operation with any contents. Roles give the rights to change rows together.
 */
export function permissionsOfAll({
  permissions,
  effect,
}: OperationDefinition): readonly PermissionClass[] {
  return effect === "previews" ? [...permissions, "INSERT", "UPDATE", "DELETE"] : permissions;
}

/**
 * The rights that an operation needs: its own, those of the change under a Preview, and SELECT for
 * tables that a new one refers to and those within conditions.
 */
export function neededPermissions(
  own: readonly PermissionClass[],
  { previewed: change, referenced, nested }: OperationNode,
): readonly PermissionClass[] {
  if (change !== undefined && isOperationName(change)) {
    return [...definitions[change].permissions, ...own];
  }
  const reads = referenced.length + nested.length > 0 && !own.includes("SELECT");
  return reads ? [...own, "SELECT"] : own;
}

export function isRowChangeName(name: string): name is RowChangeName {
  return Object.hasOwn(previewedChanges, name);
}

export const operationNames: readonly OperationName[] =
  Object.keys(operations).filter(isOperationName);

export function isOperationName(text: string): text is OperationName {
  return Object.hasOwn(operations, text);
}

export const definitions: Readonly<Record<OperationName, OperationDefinition>> = operations;
