/** A query in words, for people who decide on it. Everything is from the client. */

import { counted } from "../../core/base/suggestion.ts";
import { keepSpelling } from "../../core/json/exact.ts";
import { placeName } from "../../core/query/names.ts";
import { visibleJson } from "./preview.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Longer values and lists are cut, with a note. */
const LONGEST_VALUE = 200;
const LONGEST_LIST = 20;
const SHOWN_ROWS = 5;
const SHOWN_OPERATIONS = 50;

function isFields(value: unknown): value is Fields {
  return (
    typeof value === "object" &&
    value !== null &&
    !Array.isArray(value) &&
    // A number with its spelling.
    Object.getPrototypeOf(value) !== null
  );
}

function arrayOf(value: unknown): readonly unknown[] {
  if (value === undefined) return [];
  return Array.isArray(value) ? value : [value];
}

/** A value as JSON, whose quotes tell it from the words around it. */
function valueText(value: unknown): string {
  const text = JSON.stringify(value) ?? "";
  if (text.length <= LONGEST_VALUE) return text;
  return `${text.slice(0, LONGEST_VALUE)}... (cut, ${text.length} characters)`;
}

/** A name that could be mistaken for words is in quotes. */
function nameText(name: unknown): string {
  const isPlain = typeof name === "string" && /^[\w.*-]+$/.test(name);
  return isPlain ? name : valueText(name);
}

function listText(texts: readonly string[], joint = ", ", most = LONGEST_LIST): string {
  const more = texts.length - most;
  const shown = texts.slice(0, most).join(joint);
  return more > 0 ? `${shown} and ${more} more (cut)` : shown;
}

function namesText(names: unknown): string {
  return listText(arrayOf(names).map(nameText));
}

const comparisons: Readonly<Record<string, string>> = {
  "=": "is",
  "!=": "is not",
  IN: "is one of",
  "NOT IN": "is not any of",
  LIKE: "is like",
  ILIKE: "is like, in any case,",
  BETWEEN: "is between",
};

function comparisonText({ column, cmp, value, other, select, ...others }: Fields): string {
  const compared =
    select !== undefined
      ? `the result of (${isFields(select) ? selectText(select) : valueText(select)})`
      : other !== undefined
        ? `the column ${nameText(other)}`
        : Array.isArray(value)
          ? listText(value.map(valueText), cmp === "BETWEEN" ? " and " : ", ")
          : valueText(value);
  return `${nameText(column)} ${comparisons[String(cmp)] ?? cmp} ${compared}${restText(others)}`;
}

function conditionText(condition: unknown, isNested = false): string {
  if (!isFields(condition)) return valueText(condition);
  const { and, or, not, exists, ...others } = condition;
  if (not !== undefined) return `not (${conditionText(not)})`;
  if (isFields(exists)) {
    const { table, on, where, ...rest } = exists;
    const more = where === undefined || where === null ? "" : ` and ${conditionText(where, true)}`;
    return `a row of ${nameText(table)} exists with ${valueText(on)}${more}${restText(rest)}`;
  }
  const terms = Array.isArray(and) ? and : Array.isArray(or) ? or : undefined;
  if (terms === undefined) return comparisonText(others);
  const joint = and === undefined ? " or " : " and ";
  const text = listText(
    terms.map((one) => conditionText(one, true)),
    joint,
  );
  return isNested && terms.length > 1 ? `(${text})` : text;
}

/** Members that have no words of their own. */
function restText(fields: Fields): string {
  return Object.entries(fields)
    .map(([name, value]) => `, ${nameText(name)} ${valueText(value)}`)
    .join("");
}

function rowText(row: unknown): string {
  const cells = isFields(row) ? Object.entries(row) : [];
  return `(${listText(cells.map(([name, value]) => `${nameText(name)} ${valueText(value)}`))})`;
}

function rowsText(rows: unknown): string {
  return listText(arrayOf(rows).map(rowText), ", ", SHOWN_ROWS);
}

function sourceText(source: unknown): string {
  if (!isFields(source)) return nameText(source);
  const { table, as, select } = source;
  const from = isFields(select) ? `(${selectText(select)})` : nameText(table);
  return `${from} as ${nameText(as)}`;
}

function joinText(join: unknown): string {
  if (!isFields(join)) return valueText(join);
  const { table, as, on, join_type, ...others } = join;
  const name = as === undefined ? nameText(table) : sourceText({ table, as });
  return `, joined (${nameText(join_type)}) with ${name} on ${valueText(on)}${restText(others)}`;
}

function selectText(fields: Fields, place?: string): string {
  const { database: _, from, columns, where, join, group_by, having, limit, ...others } = fields;
  const source = place ?? sourceText(from);
  const what = columns === undefined ? "rows" : namesText(columns);
  return [
    `read ${what} of ${source}`,
    ...arrayOf(join).map(joinText),
    where !== undefined && where !== null && ` where ${conditionText(where)}`,
    group_by !== undefined && `, one row for each ${namesText(group_by)}`,
    having !== undefined && having !== null && `, having ${conditionText(having)}`,
    restText(others),
    limit !== undefined && `, at most ${valueText(limit)} rows`,
  ]
    .filter((part) => part !== false)
    .join("");
}

function assignments(values: unknown, verb: string, joint: string): string | undefined {
  if (!isFields(values)) return undefined;
  const texts = Object.entries(values).map(([name, value]) =>
    verb === "add"
      ? `add ${valueText(value)} to ${nameText(name)}`
      : `${nameText(name)}${joint}${valueText(value)}`,
  );
  return verb === "add" ? listText(texts) : `${verb} ${listText(texts)}`;
}

function bindingText(bind: unknown): string | undefined {
  if (!isFields(bind)) return undefined;
  const texts = Object.entries(bind).map(([name, from]) => {
    const { element, column } = isFields(from) ? from : {};
    return `${nameText(name)} to ${nameText(column)} of operation ${Number(element) + 1}`;
  });
  return `set ${listText(texts)}`;
}

function columnText(definition: unknown): string {
  if (!isFields(definition)) return valueText(definition);
  const { name, type, ...others } = definition;
  return `${nameText(name)} (${nameText(type)}${restText(others)})`;
}

function changeEnd({ returning, expect, ...others }: Fields): string {
  const returned = returning === undefined ? "" : `, returning ${namesText(returning)}`;
  const expected =
    expect === undefined ? "" : `, all undone unless this affects ${valueText(expect)} rows`;
  return restText(others) + returned + expected;
}

function rowsWhere(where: unknown, place: string): string {
  return where === null
    ? `every row of ${place}`
    : `the rows of ${place} where ${conditionText(where)}`;
}

/** To follow `will`. */
function operationText(name: string, fields: Fields): string {
  const { database, table, ...given } = fields;
  const written = placeName(String(database), table === undefined ? undefined : String(table));
  const place = /^[\w.'-]+$/.test(written) ? written : valueText(written);
  switch (name) {
    case "Select":
      return isFields(given.from)
        ? `${selectText(given)} in the database ${place}`
        : selectText(given, placeName(String(database), String(given.from)));
    case "Insert": {
      const { values, bind, ...others } = given;
      const binding = bindingText(bind);
      return `add ${counted(arrayOf(values).length, "row")} to ${place}: ${rowsText(values)}${binding ? `, ${binding}` : ""}${changeEnd(others)}`;
    }
    case "Update": {
      const { set, add, bind, where, ...others } = given;
      const changes = [
        assignments(set, "set", " to "),
        assignments(add, "add", ""),
        bindingText(bind),
      ];
      const change = changes.filter((one) => one !== undefined).join(", ");
      return `${change} in ${rowsWhere(where, place)}${changeEnd(others)}`;
    }
    case "Delete": {
      const { where, ...others } = given;
      return `delete ${rowsWhere(where, place)}${changeEnd(others)}`;
    }
    case "Upsert": {
      const { values, on_conflict, update, ...others } = given;
      const known = arrayOf(update).length === 0 ? "leave" : `update ${namesText(update)} of`;
      return `add ${counted(arrayOf(values).length, "row")} to ${place}, or ${known} those with the same ${namesText(on_conflict)}: ${rowsText(values)}${changeEnd(others)}`;
    }
    case "Preview": {
      const { limit, ...change } = fields;
      const end = limit === undefined ? "" : `, at most ${valueText(limit)} rows`;
      return `see, without changing anything, the effect of this: ${describeQuery(change).join("; ")}${end}`;
    }
    case "CreateTable": {
      const { columns, ...others } = given;
      const all = arrayOf(columns);
      return `create the table ${place} with ${counted(all.length, "column")}: ${listText(all.map(columnText), ", ", 100)}${restText(others)}`;
    }
    case "DropTable":
      return `drop the table ${place} with all its rows${restText(given)}`;
    case "CreateDatabase":
      return `create the database ${place}${restText(given)}`;
    case "DropDatabase":
      return `drop the database ${place} with all its tables and rows${restText(given)}`;
    default:
      return `run ${nameText(name)}${restText(fields)}`;
  }
}

/** One text for each operation, to follow `will`. A Batch has several. */
function describeQuery(query: Fields): string[] {
  const texts: string[] = [];
  const others: Fields[] = [];
  for (const [name, given] of Object.entries(query)) {
    for (const fields of arrayOf(given)) {
      if (!isFields(fields)) texts.push(`run ${nameText(name)} ${valueText(fields)}`);
      else if (name !== "Batch") texts.push(operationText(name, fields));
      else if (texts.length >= SHOWN_OPERATIONS) others.push(fields);
      else for (const text of describeQuery(fields)) texts.push(text);
    }
  }
  const kinds = Object.groupBy(others.flatMap((one) => Object.entries(one)).map(kindText), String);
  return [
    ...texts,
    ...Object.entries(kinds).map(([kind, some = []]) => `run ${some.length} more: ${kind} (cut)`),
  ];
}

function kindText([name, fields]: [string, unknown]): string {
  const { database, table } = isFields(fields) ? fields : {};
  return [name, database, table]
    .filter((part) => part !== undefined)
    .map(nameText)
    .join(" ");
}

/**
 * The operations of a query in words, each to follow `<user> will`. Invisible characters are spelled
 * out, and long values and lists are marked with `(cut`.
 *
 * @param body a query that the gateway has parsed
 */
export function queryInWords(body: string): string[] {
  const query: unknown = JSON.parse(body, keepSpelling);
  return (isFields(query) ? describeQuery(query) : []).map(visibleJson);
}

/** @param json a condition of the grammar */
export function conditionInWords(json: string): string {
  return visibleJson(conditionText(JSON.parse(json, keepSpelling)));
}

/** Breaks JSON text into lines. Every token is as the client wrote it. */
export function prettyJson(text: string): string {
  let depth = 0;
  let lines = "";
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/gs) ?? [];
  for (const [at, token] of tokens.entries()) {
    const before = tokens[at - 1] ?? "";
    const isEnd = token === "}" || token === "]";
    if (isEnd) depth -= 1;
    const isOpen = before === "{" || before === "[";
    if ((isOpen && !isEnd) || before === "," || (isEnd && !isOpen))
      lines += `\n${"  ".repeat(depth)}`;
    else if (before === ":") lines += " ";
    lines += token;
    if (token === "{" || token === "[") depth += 1;
  }
  return lines;
}
