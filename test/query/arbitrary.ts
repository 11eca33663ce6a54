/** Arbitrary valid queries, and arbitrary ways to write them as JSON text. */

import fc from "fast-check";

const name = fc.stringMatching(/^[A-Za-z0-9_-]{1,12}$/);
const bareColumn = fc.oneof(
  fc.stringMatching(/^[a-z_]{1,8}$/),
  fc.constantFrom("größe", "first name", "漢字", "😀", "__proto__", "constructor", "a:b,c"),
);
const cell = fc.jsonValue({ maxDepth: 3 });

function columnOf(...tables: string[]) {
  return fc.oneof(
    bareColumn,
    fc.tuple(fc.constantFrom(...tables), bareColumn).map((parts) => parts.join(".")),
  );
}

function comparisonOf(...tables: string[]) {
  const column = columnOf(...tables);
  return fc.oneof(
    fc.record({ column, cmp: fc.constantFrom("=", "!=", ">", "<", ">=", "<="), value: cell }),
    fc.record({ column, cmp: fc.constant("LIKE"), value: fc.string() }),
    fc.record({ column, cmp: fc.constant("IN"), value: fc.array(cell, { maxLength: 3 }) }),
    fc.record({ column, cmp: fc.constant("BETWEEN"), value: fc.tuple(cell, cell) }),
  );
}

function whereOf(...tables: string[]) {
  const { condition } = fc.letrec<{ condition: object }>((tie) => ({
    condition: fc.oneof(
      { maxDepth: 4 },
      comparisonOf(...tables),
      fc.record({ and: fc.array(tie("condition"), { minLength: 1, maxLength: 3 }) }),
      fc.record({ or: fc.array(tie("condition"), { minLength: 1, maxLength: 3 }) }),
      fc.record({ not: tie("condition") }),
    ),
  }));
  return fc.oneof(fc.constant(null), condition);
}

const row = fc.dictionary(bareColumn, cell, { maxKeys: 5 });
const target = fc.record({ database: name, table: name });

function joinOf(from: string, joined: string) {
  const column = fc.constantFrom("id", "größe", "a-b");
  const tables = fc.constantFrom([from, joined], [joined, from]);
  return fc.record({
    table: fc.constant(joined),
    on: fc.tuple(tables, column, column).map(([[one, other], left, right]) => {
      return `${one}.${left} = ${other}.${right}`;
    }),
    join_type: fc.constantFrom("INNER", "LEFT", "RIGHT"),
  });
}

function selectOf(database: string, from: string, joined: string | undefined) {
  const tables = joined === undefined ? [from] : [from, joined];
  const column = columnOf(...tables);
  const columns = fc.array(fc.oneof(fc.constant("*"), column), { minLength: 1, maxLength: 4 });
  const order = fc.record(
    { column, direction: fc.constantFrom("ASC", "DESC") },
    { requiredKeys: ["column"] },
  );
  const needed = fc.record({ database: fc.constant(database), from: fc.constant(from), columns });
  const wanted = fc.record(
    { where: whereOf(...tables), order_by: order, limit: fc.maxSafeNat(), offset: fc.maxSafeNat() },
    { requiredKeys: [] },
  );
  const join = joined === undefined ? fc.constant({}) : fc.record({ join: joinOf(from, joined) });
  return fc
    .tuple(needed, wanted, join)
    .map(([must, may, joining]) => ({ ...must, ...may, ...joining }));
}

const select = fc
  .tuple(name, name, fc.option(name, { nil: undefined }))
  .chain(([database, from, joined]) => selectOf(database, from, joined))
  .map((fields) => ({ Select: fields }));

const insert = fc
  .tuple(target, fc.array(row, { minLength: 1, maxLength: 5 }))
  .map(([fields, values]) => ({ Insert: { ...fields, values } }));

const update = target
  .chain((fields) =>
    fc.record({
      database: fc.constant(fields.database),
      table: fc.constant(fields.table),
      set: fc.dictionary(bareColumn, cell, { minKeys: 1, maxKeys: 4 }),
      where: whereOf(fields.table),
    }),
  )
  .map((fields) => ({ Update: fields }));

const remove = target
  .chain((fields) => whereOf(fields.table).map((where) => ({ ...fields, where })))
  .map((fields) => ({ Delete: fields }));

const definition = fc.record(
  {
    name: bareColumn,
    type: fc.constantFrom("int", "varchar(255)", "numeric(10,2)"),
    primary_key: fc.boolean(),
    unique: fc.boolean(),
    nullable: fc.boolean(),
  },
  { requiredKeys: ["name", "type"] },
);
const definitions = fc.uniqueArray(definition, {
  minLength: 1,
  maxLength: 4,
  selector: (column) => column.name,
});
const createTable = fc
  .tuple(target, definitions)
  .map(([fields, columns]) => ({ CreateTable: { ...fields, columns } }));

const dropTable = target.map((fields) => ({ DropTable: fields }));

const tableOperation = fc.oneof(select, insert, update, remove, createTable, dropTable);

export const query: fc.Arbitrary<object> = fc.oneof(
  { weight: 6, arbitrary: tableOperation },
  {
    weight: 2,
    arbitrary: fc
      .array(tableOperation, { minLength: 1, maxLength: 5 })
      .map((elements) => ({ Batch: elements })),
  },
  { weight: 1, arbitrary: name.map((database) => ({ CreateDatabase: { database } })) },
  { weight: 1, arbitrary: name.map((database) => ({ DropDatabase: { database } })) },
);

/** Choices without end, each a number from 0 to below `bound`. */
export type Choose = (bound: number) => number;

/** The seed of choices. Not the choices themselves, since a shrinking run must choose alike again. */
export const seeds: fc.Arbitrary<number> = fc.integer();

/** Choices that follow from a seed. */
export function choicesOf(seed: number): Choose {
  let state = seed >>> 0;
  return (bound) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * bound);
  };
}

/** Writes a value as JSON with white space, order of keys and escapes as they are chosen. */
export function write(value: unknown, choose: Choose): string {
  const space = () => ["", "", "", " ", "\n", "\t\r "][choose(6)] ?? "";
  const wrapped = (text: string) => space() + text + space();
  if (typeof value === "string") return wrapped(writeString(value, choose));
  if (Array.isArray(value)) {
    return wrapped(`[${value.map((element) => write(element, choose)).join(",") || space()}]`);
  }
  if (typeof value === "object" && value !== null) {
    const members = Object.entries(value).map(
      ([key, member]) => `${wrapped(writeString(key, choose))}:${write(member, choose)}`,
    );
    return wrapped(`{${shuffled(members, choose).join(",") || space()}}`);
  }
  return wrapped(JSON.stringify(value));
}

function writeString(text: string, choose: Choose): string {
  const often = choose(4) === 0;
  const units = [...text].map((character) => {
    if (!often || choose(3) > 0) return JSON.stringify(character).slice(1, -1);
    return character
      .split("")
      .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`)
      .join("");
  });
  return `"${units.join("")}"`;
}

function shuffled<Item>(items: readonly Item[], choose: Choose): Item[] {
  return items
    .map((item) => ({ item, place: choose(2 ** 20) }))
    .sort((left, right) => left.place - right.place)
    .map(({ item }) => item);
}
