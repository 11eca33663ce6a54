import { suggestion } from "../base/suggestion.ts";

/** For each word of the grammar, words of other languages that mean it. */
type Synonyms = Readonly<Record<string, readonly string[]>>;

const operations: Synonyms = {
  Select: ["find", "get", "query", "read", "fetch"],
  Insert: ["create", "add", "put"],
  Update: ["modify", "patch"],
  Delete: ["remove"],
  Upsert: ["merge", "replace", "insert_or_update"],
  Batch: ["transaction", "begin", "multi"],
  "Select with aggregate": ["count", "sum", "aggregate"],
};

const comparisons: Synonyms = {
  "=": ["==", "===", "EQ", "IS"],
  "!=": ["<>", "!==", "≠", "NE", "NEQ", "IS NOT"],
  ">": ["GT"],
  "<": ["LT"],
  ">=": ["=>", "≥", "GTE", "GE"],
  "<=": ["=<", "≤", "LTE", "LE"],
  "NOT IN": ["NOTIN", "NIN"],
  LIKE: ["GLOB", "MATCH"],
  "= with the value null": ["IS NULL", "NULL", "ISNULL"],
  "!= with the value null": ["IS NOT NULL", "NOT NULL", "NOTNULL"],
  "LIKE under not": ["NOT LIKE"],
  "ILIKE under not": ["NOT ILIKE"],
  "BETWEEN under not": ["NOT BETWEEN"],
  "LIKE with % in the value": ["CONTAINS", "STARTS WITH", "STARTSWITH", "ENDS WITH", "ENDSWITH"],
};

const fields: Synonyms = {
  cmp: ["op", "operator", "comparison", "comparator"],
  from: ["table", "collection"],
  table: ["from", "into", "collection"],
  database: ["db"],
  where: ["filter", "condition", "conditions"],
  order_by: ["order", "sort", "sort_by"],
  direction: ["dir", "order", "sort"],
  group_by: ["group"],
  offset: ["skip"],
  limit: ["top", "take", "first", "size"],
  after: ["cursor"],
  columns: ["select", "fields"],
  distinct: ["unique"],
  values: ["rows", "data", "records"],
  set: ["values", "data", "changes"],
  update: ["set"],
  add: ["inc", "increment"],
  on_conflict: ["conflict", "key", "keys"],
  returning: ["return"],
  column: ["field", "col", "name"],
  name: ["column"],
  or: ["any"],
  and: ["all"],
  fn: ["func", "function"],
  as: ["alias", "name"],
  join_type: ["type", "kind"],
  type: ["data_type"],
  primary_key: ["primary", "pk"],
  nullable: ["null", "not_null", "required"],
  references: ["foreign_key"],
};

const words: Synonyms = {
  avg: ["average", "mean"],
  sum: ["total"],
  min: ["minimum", "least"],
  max: ["maximum", "greatest"],
  'count with "distinct": true': ["count_distinct"],
  LEFT: ["left_outer"],
  RIGHT: ["right_outer"],
  ASC: ["ascending"],
  DESC: ["descending"],
};

/** Lower case, with one `_` for white space and hyphens. */
function fold(text: string): string {
  return text
    .slice(0, 64)
    .trim()
    .toLowerCase()
    .replace(/[\s_-]+/g, "_");
}

/** The word of `allowed` that matches in another case or as a synonym. */
function meant(synonyms: Synonyms, found: string, allowed: readonly string[]): string | undefined {
  const folded = fold(found);
  const same = allowed.find((name) => fold(name) === folded);
  if (same !== undefined) return same;
  return Object.entries(synonyms).find(
    ([word, others]) =>
      allowed.includes(word.replace(/ (?:with|under) .*/, "")) &&
      others.some((other) => fold(other) === folded),
  )?.[0];
}

/** A short operator that is spelled similarly may mean the opposite, so it is not suggested. */
export function meantComparison(found: string, allowed: readonly string[]): string | undefined {
  const same = meant(comparisons, found, allowed);
  return same ?? suggestion(found, /^(?!n)[a-z]{4,64}$/i.test(found) ? allowed : []);
}

function meantAmong(synonyms: Synonyms) {
  return (found: string, allowed: readonly string[]): string | undefined =>
    meant(synonyms, found, allowed) ?? suggestion(found, allowed);
}

export const meantField = meantAmong(fields);
export const meantOperation = meantAmong(operations);
export const meantWord = meantAmong(words);
