/** Entries, attributes and boundaries that break a rule of the access file. */
import { type BrokenFile, broken, record, SECRET } from "./broken-file.ts";
import { grant } from "./kit.ts";

function narrowed(line: string, role = "ReadWrite"): string {
  return `${grant(SECRET, "main", role).trimEnd()}\n${line}\n`;
}

function badKeys(key: string, reason: RegExp, ...values: string[]): BrokenFile[] {
  return values.map((value) =>
    broken(`${key} = ${value}`, narrowed(`${key} = ${value}`), 5, reason),
  );
}

const filter = (condition: string) => `[{ ${condition} }]`;

/** Entries that say more than a role, wrongly. */
export const entries = [
  ...badKeys("tables", /^`tables` must be a list of tables/, "[]", '"a"', "[1]", '["a", "a"]'),
  ...badKeys("tables", /^`tables` must be/, '["*"]', '["a*b"]', '["a.b"]', `["${SECRET}!"]`),
  ...badKeys(
    "columns",
    /^`columns` must be a list/,
    "[]",
    '["*"]',
    '["a.b"]',
    '["a", "a"]',
    "true",
  ),
  ...badKeys("writable_columns", /^`writable_columns` must be a list/, '["*"]', '"a"'),
  ...badKeys("require_where", /^`require_where` must be a list of columns/, "[]", '["a\\u0000"]'),
  ...badKeys(
    "row_filter",
    /^`row_filter` must be a list of \{ column, cmp, value }/,
    ...["[]", "{}", filter(""), filter('column = "a", cmp = "="'), filter('cmp = "=", value = 1')],
    filter('column = "a", cmp = "LIKE", value = "b"'),
    filter('column = "a", cmp = "=", value = 1.5'),
    filter('column = "a", cmp = "=", value = [1]'),
    filter('column = "a", cmp = "=", value = "@"'),
    filter('column = "a", cmp = "=", value = "@a b"'),
    filter('column = "a", cmp = "IN", value = 1'),
    filter('column = "a", cmp = "IN", value = ["@a"]'),
    filter('column = "a", cmp = "<", value = "b"'),
    filter('column = "a", cmp = "=", value = 1, x = 1'),
  ),
  ...badKeys("max_rows", /^`max_rows` must be a whole number from 1$/, "0", "-1", "1.5", '"1"'),
  ...badKeys("max_changes", /^`max_changes` must be a whole number/, "0", "9007199254740993"),
  ...badKeys("require_approval", /^`require_approval` must be a list of SELECT/, "[]", '["GRANT"]'),
  ...badKeys("approvers", /^`approvers` must be a list of usernames$/, "[]", '["a b"]'),
  ...badKeys(
    "expires",
    /^`expires` must be a time with its offset, such as/,
    ...["1", "2026-12-24", "2026-12-24T18:00:00", '"tomorrow"'],
  ),
  broken(
    "tables for an Owner",
    narrowed('tables = ["a"]', "Owner"),
    5,
    /^`tables` goes with the role ReadWrite or ReadOnly or None alone$/,
  ),
  broken(
    "columns for nothing",
    narrowed('columns = ["a"]', "None"),
    5,
    /^`columns` goes with the role/,
  ),
  broken("a limit of a DbAdmin", narrowed("max_rows = 1", "DbAdmin"), 5, /^`max_rows` goes with/),
  broken(
    "a table twice",
    narrowed('tables = ["a", "b"]') + narrowed('tables = ["b"]'),
    6,
    /^this user has an entry for one of these tables already$/,
  ),
  broken(
    "two patterns that fit",
    narrowed('tables = ["ab*"]') + narrowed('tables = ["a*"]'),
    6,
    /^two patterns of this user fit the same tables of this database$/,
  ),
];

const attributesReason = /^`attributes` must be names \(letters/;
const boundary = '[[boundaries]]\nvia = "mcp"\n';
/** Attributes and boundaries. */
export const others = [
  ...["1", "{ username = 'a' }", "{ a = 1.5 }", "{ a = [1, 'b'] }", "{ 'a b' = 1 }"].map((odd) =>
    broken(`attributes ${odd}`, `${record}attributes = ${odd}\n`, 3, attributesReason),
  ),
  broken(
    "attributes of a time",
    `${record}[users.attributes]\na = 1979-05-27\n`,
    3,
    attributesReason,
  ),
  broken(
    "a boundary without via",
    `${record}[[boundaries]]\nrole = "ReadOnly"\n`,
    3,
    /^`via` must be/,
  ),
  broken(
    "another via",
    `${record}[[boundaries]]\nvia = "ftp"\n`,
    4,
    /^`via` must be "mcp" or "query"$/,
  ),
  broken(
    "a boundary of nothing",
    record + boundary,
    3,
    /^nothing is bounded; one of role, max_rows/,
  ),
  ...["60", "0/s", "1/week", "1.5/s"].map((odd) =>
    broken(
      `a rate of ${odd}`,
      `${record}${boundary}rate_limit = "${odd}"\n`,
      5,
      /^`rate_limit` must be/,
    ),
  ),
  broken(
    "a boundary of *",
    `${record}${boundary}database = "*"\n`,
    5,
    /^`database` must be a database$/,
  ),
  broken(
    "a boundary's database in another case",
    `${grant("a", SECRET, "Owner")}${boundary}role = "ReadOnly"\ndatabase = "${SECRET.toUpperCase()}"\n`,
    9,
    /differs from this one only by case$/,
  ),
];
