/** A query in words, for people who decide on it. Everything is from the client. */

import { runAtOnce } from "../../core/base/cooperative-scheduling.ts";
import { counted } from "../../core/base/suggestion.ts";
import { ExactNumber, isObject, keptSource, parseExactInSteps } from "../../core/json/exact.ts";
import { placeName } from "../../core/query/names.ts";
import { isRowChangeName } from "../../core/query/operations.ts";
import { visibleJson } from "./preview.ts";

type Fields = Readonly<Record<string, unknown>>;

/** In characters. A longer query has no words and no lines: they would take long, and be too many to read. */
const LONGEST_QUERY = 64 * 1024;
/** Longer values and lists are cut, with a note. */
const LONGEST_VALUE = 200;
const LONGEST_LIST = 20;
const SHOWN_ROWS = 5;
const SHOWN_OPERATIONS = 50;

function isFields(value: unknown): value is Fields {
  return isObject(value) && !(value instanceof ExactNumber);
}

function arrayOf(value: unknown): readonly unknown[] {
  if (value === undefined) return [];
  return Array.isArray(value) ? value : [value];
}

/** Parses JSON so that `jsonText` can write every number and every equal key as the client did. */
function parse(json: string): unknown {
  const readNumber = (source: string) =>
    String(Number(source)) === source ? Number(source) : new ExactNumber(source);
  return runAtOnce(parseExactInSteps(json, readNumber));
}

function jsonText(value: unknown): string {
  if (value instanceof ExactNumber) return value.source;
  if (Array.isArray(value)) return `[${value.map(jsonText).join(",")}]`;
  if (!isFields(value)) return JSON.stringify(value) ?? "";
  const members = Object.entries(value).map(
    ([name, member]) => `${JSON.stringify(name)}:${jsonText(member)}`,
  );
  // With equal keys, what counts depends on the database.
  return keptSource(value)?.replace(/("(?:[^"\\]|\\.)*")|\s+/g, "$1") ?? `{${members.join(",")}}`;
}

/** A value as JSON, whose quotes tell it from the words around it. */
function valueText(value: unknown): string {
  const text = jsonText(value);
  if (text.length <= LONGEST_VALUE) return text;
  return `${text.slice(0, LONGEST_VALUE)}... (cut, ${text.length} characters)`;
}

/** Words of the sentences. A column with such a name is in quotes. */
const ownWords = new Set(
  "add affects an and any as at between by case cut each every exists false having in into is joined like most not null of on one or read returning row rows run set the those to true where with".split(
    " ",
  ),
);

/** A name that could be mistaken for words or numbers is in quotes. */
function nameText(name: unknown): string {
  const isPlain =
    typeof name === "string" &&
    /^(?:[A-Za-z_][\w.-]*(?:\.\*)?|\*)$/.test(name) &&
    !ownWords.has(name.toLowerCase());
  return isPlain ? name : valueText(name);
}

function listText<Item>(
  items: readonly Item[],
  write: (item: Item) => string,
  joint = ", ",
  most = LONGEST_LIST,
): string {
  const more = items.length - most;
  const shown = items.slice(0, most).map(write).join(joint);
  if (more <= 0) return shown;
  return `${shown}${joint === ", " ? " and " : joint}${more} more (cut)`;
}

function namesText(names: unknown): string {
  return listText(arrayOf(names), nameText);
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
        : valuesText(cmp, value);
  const more = Object.keys(others).length > 0 ? ` (${restText(others).slice(2)})` : "";
  return `${nameText(column)} ${comparisons[String(cmp)] ?? cmp} ${compared}${more}`;
}

/** The elements of a list, which only some operators take; for the others, an array is one value. */
function valuesText(cmp: unknown, value: unknown): string {
  if (!Array.isArray(value)) return valueText(value);
  if (cmp === "BETWEEN") return listText(value, valueText, " and ");
  if (cmp !== "IN" && cmp !== "NOT IN") return valueText(value);
  if (value.length > 0) return listText(value, valueText);
  return `an empty list (which is true for ${cmp === "IN" ? "no row" : "every row"})`;
}

function conditionText(condition: unknown, isNested = false): string {
  if (!isFields(condition)) return valueText(condition);
  const { and, or, not, exists, ...others } = condition;
  if (not !== undefined) return `not (${conditionText(not)})`;
  if (isFields(exists)) {
    const { table, on, where, ...rest } = exists;
    const more = where === undefined || where === null ? "" : ` where ${conditionText(where)}`;
    return `a row of ${nameText(table)} exists (with ${valueText(on)}${more}${restText(rest)})`;
  }
  const terms = Array.isArray(and) ? and : Array.isArray(or) ? or : undefined;
  if (terms === undefined) return comparisonText(others);
  const joint = and === undefined ? " or " : " and ";
  const text = listText(terms, (one) => conditionText(one, true), joint);
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
  return `(${listText(cells, ([name, value]) => `${nameText(name)} ${valueText(value)}`)})`;
}

function rowsText(rows: unknown): string {
  return listText(arrayOf(rows), rowText, ", ", SHOWN_ROWS);
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
  const text = listText(Object.entries(values), ([name, value]) =>
    verb === "add"
      ? `add ${valueText(value)} to ${nameText(name)}`
      : `${nameText(name)}${joint}${valueText(value)}`,
  );
  return verb === "add" ? text : `${verb} ${text}`;
}

function bindingText(bind: unknown): string | undefined {
  if (!isFields(bind)) return undefined;
  const text = listText(Object.entries(bind), ([name, from]) => {
    const { element, column } = isFields(from) ? from : {};
    return `${nameText(name)} to ${nameText(column)} of operation ${Number(element) + 1}`;
  });
  return `set ${text}`;
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
      const { limit, ...others } = fields;
      const changes = Object.entries(others);
      const isChange = ([one]: [string, unknown]) => one === "Batch" || isRowChangeName(one);
      const change = describeQuery(Object.fromEntries(changes.filter(isChange))).join("; ");
      const rest = restText(Object.fromEntries(changes.filter((one) => !isChange(one))));
      const end = limit === undefined ? "" : `, at most ${valueText(limit)} rows`;
      return `see, without changing anything, the effect of this: ${change}${rest}${end}`;
    }
    case "CreateTable": {
      const { columns, ...others } = given;
      const all = arrayOf(columns);
      return `create the table ${place} with ${counted(all.length, "column")}: ${listText(all, columnText, ", ", 100)}${restText(others)}`;
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
 * out, and long queries, values and lists are marked with `(cut`.
 *
 * @param body a query that the gateway has parsed
 */
export function queryInWords(body: string): string[] {
  if (body.length > LONGEST_QUERY) {
    const size = Buffer.byteLength(body);
    return [`run a query of ${size} bytes, which is too long to tell in words (cut)`];
  }
  const query = parse(body);
  return (isFields(query) ? describeQuery(query) : []).map(visibleJson);
}

/** @param json a condition of the grammar */
export function conditionInWords(json: string): string {
  return visibleJson(conditionText(parse(json)));
}

/** Breaks JSON text into lines, unless it is long. Every token is as the client wrote it. */
export function prettyJson(text: string): string {
  if (text.length > LONGEST_QUERY) return text;
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
