/** How the second reading of the contract looks into a query: its JSON, and nothing the scanner found. */
import type { Json, JsonObject } from "./decision-queries.ts";

/** The fields and lists of a query; nothing where there is none. */
function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
export function objectAt(value: JsonObject, key: string): JsonObject {
  const held = value[key];
  return isObject(held) ? held : {};
}
export function listAt(value: JsonObject, key: string): readonly Json[] {
  const held = value[key];
  return Array.isArray(held) ? held : held === undefined ? [] : [held];
}
export function objectsAt(value: JsonObject, key: string): readonly JsonObject[] {
  return listAt(value, key).filter(isObject);
}
export function textAt(value: JsonObject, key: string): string {
  return String(value[key]);
}

/** Every name of a column, with where it stands. */
export function namedColumns(
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

/** A whole number. */
export const isWhole = (value: unknown) => Number.isSafeInteger(value) || typeof value === "bigint";

export function terms(where: Json | undefined): readonly JsonObject[] {
  if (!isObject(where)) return [];
  return ("and" in where ? objectsAt(where, "and") : [where]).filter((term) => "column" in term);
}

/** How many values a `where` pins a column to; 0 values and more, or undefined. */
export function pins(
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
