import t from "tap";
import { runAtOnce, runCooperatively } from "../../src/core/base/cooperative-scheduling.ts";
import { Refusal } from "../../src/core/base/refusal.ts";
import { JsonFault } from "../../src/core/json/fault.ts";
import { Lines } from "../../src/features/databases/body.ts";
import {
  BodyReader,
  type NamedIndex,
  readAlias,
  readAliasActions,
  readBulk,
  readDocuments,
  readNewIndex,
  readSearches,
  readSettings,
  type Uses,
  withoutHidden,
} from "../../src/features/databases/opensearch-bodies.ts";
import type { Json } from "../../src/features/databases/preset.ts";
import { longestStall } from "../kit/stall.ts";

/** `SELECT a`, with `+` for an index that may be made and `@1` for the element. */
function wordsOf({ name, permissions, element, makesIndex, isNew }: NamedIndex): string {
  const mark = `${makesIndex ? "+" : ""}${isNew ? "!" : ""}`;
  return `${permissions.join(",")}${mark} ${name}${element === undefined ? "" : `@${element}`}`;
}

function shown(uses: Uses): string {
  const marks = [uses.scripts ? "scripts" : [], uses.pipelines ? "pipelines" : []].flat();
  if (uses.parsed.size > 0) marks.push(`parsed ${[...uses.parsed].join(" ")}`);
  return [...uses.names.map(wordsOf), ...marks].join("; ");
}

/** The uses of a body, or the code of its refusal. */
function outcome(read: () => Uses): string {
  try {
    return shown(read());
  } catch (error) {
    if (error instanceof Refusal || error instanceof JsonFault) return error.code;
    throw error;
  }
}

function linesOf(...items: readonly Json[]): Lines {
  const lines = items.map((one) => `${typeof one === "string" ? one : JSON.stringify(one)}\n`);
  return new Lines(Buffer.from(lines.join("")));
}

function search(body: Json): Uses {
  const reader = new BodyReader();
  reader.read("search", body);
  return reader.uses;
}

const lookup = { index: "b", id: "1", path: "p" };

const searches: readonly (readonly [body: Json, expected: string])[] = [
  [{}, ""],
  [{ query: { match_all: {} }, size: 1, sort: ["a", { b: "desc" }], _source: false }, ""],
  [{ query: { match: { index: "b" } } }, ""],
  [{ query: { pinned: { ids: ["1"], organic: { terms: { k: lookup } } } } }, "SELECT b"],
  [{ query: { pinned: { docs: [{ _index: "b", _id: "1" }] } } }, "SELECT b"],
  [{ aggs: { a: { top_metrics: { metrics: { field: "n" }, sort: { d: "desc" } } } } }, ""],
  [{ query: { match: { f: { query: "x", operator: "and" } } } }, ""],
  [{ query: { term: { index: { value: "b" } } } }, ""],
  [{ query: { terms: { f: ["a", "b"], boost: 2 } } }, ""],
  [{ query: { terms: { f: lookup } } }, "SELECT b"],
  [{ query: { terms: { f: [lookup] } } }, "SELECT b"],
  [{ query: { terms: { f: { id: "1", path: "p" } } } }, "bad_request"],
  [{ query: { terms: { f: { ...lookup, index: ["b"] } } } }, "SELECT b"],
  [{ query: { terms: { f: { ...lookup, index: 7 } } } }, "bad_request"],
  [{ query: { terms: { boost: lookup } } }, "bad_request"],
  [{ query: { bool: { must_not: { terms: { f: lookup } }, should: [] } } }, "SELECT b"],
  [{ query: { geo_shape: { f: { indexed_shape: { id: "1" } } } } }, "bad_request"],
  [{ query: { geo_shape: { f: { shape: { type: "point", coordinates: [[1, 2]] } } } } }, ""],
  [{ query: { more_like_this: { like: ["x", { _index: "b", _id: "1" }] } } }, "SELECT b"],
  [{ query: { more_like_this: { like: { doc: { _index: "b" } } } } }, ""],
  [{ query: { percolate: { field: "q", document: { index: "b" } } } }, ""],
  [{ query: { percolate: { field: "q", index: "b", id: "1" } } }, "SELECT b; parsed *"],
  [{ query: { percolate: { documents: [{ a: { "b.c": [{}] } }] } } }, "parsed a c"],
  [{ query: { more_like_this: { like: [{ doc: { a: { b: 1 } } }] } } }, "parsed a"],
  [{ query: { wrapper: { query: "e30=" } } }, "unknown_member"],
  [{ query: { template: {} } }, "unknown_member"],
  [{ query: { match: { f: { query: "x", unheard_of: 1 } } } }, "unknown_member"],
  [{ query: { match: { f: { query: { terms: { f: lookup } } } } } }, "bad_request"],
  [{ query: { script: { script: "1" } } }, "scripts"],
  [{ query: { intervals: { f: { match: { filter: { script: { source: "1" } } } } } } }, "scripts"],
  [{ query: { knn: { v: { vector: [1], k: 2, filter: { terms: { f: lookup } } } } } }, "SELECT b"],
  [{ knn: { field: "v", query_vector: [1], filter: { terms: { f: lookup } } } }, "SELECT b"],
  [{ knn: { field: "v", query_vector_builder: { text_embedding: {} } } }, "unknown_member"],
  [{ aggs: { terms: { terms: { field: "f" } } } }, ""],
  [{ aggs: { a: { filter: { terms: { f: lookup } } } } }, "SELECT b"],
  [{ aggs: { a: { filters: { filters: [{ terms: { f: lookup } }] } } } }, "SELECT b"],
  [{ aggs: { a: { adjacency_matrix: { filters: { x: { terms: { f: lookup } } } } } } }, "SELECT b"],
  [{ aggs: { a: { terms: { field: "f", script: "1" } } } }, "scripts"],
  [{ aggs: { a: { bucket_script: { buckets_path: { x: "y" }, script: "1" } } } }, "scripts"],
  [{ aggs: { a: { composite: { sources: [{ s: { terms: { script: "1" } } }] } } } }, "scripts"],
  [{ aggs: { a: { top_hits: { script_fields: { x: { script: "1" } } } } } }, "scripts"],
  [{ aggs: { a: { unheard_of: {} } } }, "unknown_member"],
  [{ aggs: { a: { meta: { terms: lookup }, max: { field: "f" } } } }, ""],
  [{ aggregations: { a: { global: {}, aggs: { b: { sum: { script: "1" } } } } } }, "scripts"],
  [{ suggest: { text: "x", s: { phrase: { field: "f", collate: { query: {} } } } } }, "scripts"],
  [{ suggest: { s: { text: "x", term: { field: "f" } } } }, ""],
  [{ collapse: { field: "f", inner_hits: { sort: { _script: { script: "1" } } } } }, "scripts"],
  [{ sort: { _geo_distance: { p: { lat: 1, lon: 2 }, order: "asc" } } }, ""],
  [{ sort: { _geo_distance: { nested_filter: { terms: { f: lookup } } } } }, "unknown_member"],
  [{ indices_boost: [{ b: 2 }, { c: 1 }] }, "SELECT b; SELECT c"],
  [{ runtime_mappings: { f: { type: "lookup", target_index: "b" } } }, "pipelines"],
  [{ search_pipeline: { request_processors: [] } }, "pipelines"],
  [{ script_fields: {} }, "scripts"],
  [{ ext: {} }, "unknown_member"],
  [{ index: "b" }, "unknown_member"],
  [{ retriever: { standard: {} } }, "unknown_member"],
  [JSON.parse('{"__proto__":{}}'), "unknown_member"],
];

t.test("a search uses the indexes that it names, scripts and pipelines", async (t) => {
  for (const [body, expected] of searches) {
    t.equal(
      outcome(() => search(body)),
      expected,
      JSON.stringify(body),
    );
  }
});

const all: readonly Json[] = [{ index: { _index: "a", _id: "1" } }, {}];
const bulks: readonly (readonly [lines: readonly Json[], expected: string, index?: string])[] = [
  [[], ""],
  [all, "INSERT,UPDATE+ a@0"],
  [['{"index": {"_index": "a", "_id": "1"}}', {}], "INSERT,UPDATE+ a@0"],
  [['{"index":{"_id":"1","_index":"a"}}', {}], "INSERT,UPDATE+ a@0"],
  [['{"index":{"_index":"\\u0061","_id":"1"}}', {}], "INSERT,UPDATE+ a@0"],
  [['{"index":{"_index":"a","_id":"1"}}\r', '{"x":1}\r'], "INSERT,UPDATE+ a@0"],
  [[{ index: { _index: "a" } }, {}], "INSERT+ a@0"],
  [[{ index: { _id: "1" } }, {}], "INSERT,UPDATE+ p@0", "p"],
  [[{ index: {} }, {}], "INSERT+ p@0", "p"],
  [[{ index: {} }, {}], "bad_request"],
  [[{ index: { _index: "a", _id: "1", op_type: "create" } }, {}], "INSERT+ a@0"],
  [[{ create: { _index: "a", _id: "1", op_type: "index" } }, {}], "INSERT+ a@0"],
  [[{ create: { _index: "a", _id: 1 } }, {}], "INSERT+ a@0"],
  [[{ delete: { _index: "a", _id: "1" } }], "DELETE a@0"],
  [[{ delete: { _index: "a", _id: "1", version_type: "external" } }], "DELETE+ a@0"],
  [[{ update: { _index: "a", _id: "1" } }, { doc: {} }], "UPDATE+ a@0"],
  [[{ update: { _index: "a", _id: "1" } }, { upsert: {} }], "INSERT,UPDATE+ a@0"],
  [[{ update: { _index: "a", _id: "1" } }, { doc: {}, _source: "x" }], "UPDATE,SELECT+ a@0"],
  [[{ update: { _index: "a", _id: "1", _source: true } }, { doc: {} }], "UPDATE,SELECT+ a@0"],
  [[{ update: { _index: "a", _id: "1" } }, { doc: {}, doc_as_upsert: true }], "INSERT,UPDATE+ a@0"],
  [[{ update: { _index: "a", _id: "1" } }, { doc: {}, doc_as_upsert: false }], "UPDATE+ a@0"],
  [
    [{ update: { _index: "a", _id: "1" } }, { doc: {}, doc_as_upsert: "true" }],
    "INSERT,UPDATE+ a@0",
  ],
  [[{ update: { _index: "a", _id: "1" } }, { script: "1" }], "UPDATE,DELETE+ a@0; scripts"],
  [
    [{ update: { _index: "a", _id: "1" } }, { script: "1", scripted_upsert: "true" }],
    "INSERT,UPDATE,DELETE+ a@0; scripts",
  ],
  [[{ update: { _index: "a", _id: "1" } }, { index: "b" }], "unknown_member"],
  [[{ index: { _index: "a", pipeline: "p" } }, {}], "INSERT+ a@0; pipelines"],
  [
    [...all, ...all, { delete: { _index: "b", _id: "1" } }, ...all],
    "INSERT,UPDATE+ a@0; DELETE b@2",
  ],
  [
    [...all, { index: { _index: "b", _id: "1" } }, {}, ...all],
    "INSERT,UPDATE+ a@0; INSERT,UPDATE+ b@1",
  ],
  [[...all, ""], "INSERT,UPDATE+ a@0"],
  // An action like the one before it, and not quite like it.
  [[...all, '{"index":{"_index":"a","_id":"2"}}', "[]"], "INSERT,UPDATE+ a@0"],
  [[...all, '{"index":{"_index":"a"}}', {}], "INSERT,UPDATE+ a@0; INSERT+ a@1"],
  [[...all, '{"index":{"_index":"ab","_id":"1"}}', {}], "INSERT,UPDATE+ a@0; INSERT,UPDATE+ ab@1"],
  [[...all, '{"index":{"_index":"a","_id":"2","_index":"b"}}', {}], "duplicate_key"],
  [[...all, '{"index":{"_index":"a","_id":"2"},"index":{}}', {}], "duplicate_key"],
  [[...all, '{"index":{"_index":"a","_id":"2"}}{}', {}], "trailing_data"],
  [[...all, '{"index":{"_index":"a","_id":"2', {}], "invalid_json"],
  [[...all, '{"index":{"_index":"a","_id":""}}', {}], "INSERT,UPDATE+ a@0"],
  [[...all, '{"index":{"_index":"a","_id":"\\u0022"}}', {}], "INSERT,UPDATE+ a@0"],
  [
    [{ index: {} }, {}, { index: {} }, {}, { index: { _index: "q" } }, {}],
    "INSERT+ p@0; INSERT+ q@2",
    "p",
  ],
  [[{ index: { _index: "a" } }, '{"x":', "1}"], "invalid_json"],
  [[{ index: { _index: "a" } }, '{"x":1', "}"], "invalid_json"],
  [[{ index: { _index: "a" } }, "{", '"x":1}'], "invalid_json"],
  [[{ index: { _index: "a" } }, '["x",', '"y"]'], "invalid_json"],
  [[...all, "", ...all], "invalid_json"],
  [["", ...all], "invalid_json"],
  [[{ index: { _index: "a" } }], "bad_request"],
  [[{ index: { _index: "a" } }, ""], "bad_request"],
  [[{ index: { _index: "a" } }, "{"], "invalid_json"],
  [[{ index: { _index: "a" } }, '{"x":1,"x":2}'], "duplicate_key"],
  [[{ index: { _index: "a" } }, '{"x":1}{"x":2}'], "trailing_data"],
  [['{"index":{"_index":"a","_index":"b"}}', {}], "duplicate_key"],
  [['{"index":{"_index":"a"},"index":{}}', {}], "duplicate_key"],
  [['{"index":{"_index":"a"}}{}', {}], "trailing_data"],
  [['{"index":{"_index":"a""_id":"1"}}', {}], "invalid_json"],
  [['{"index":{"_index":"a",}}', {}], "invalid_json"],
  [[{ index: { _index: "a" }, delete: {} }, {}], "bad_request"],
  [[{ erase: { _index: "a" } }], "bad_request"],
  [[{ index: "a" }, {}], "bad_request"],
  [[{ index: { _index: ["a"] } }, {}], "bad_request"],
  [[["index"], {}], "bad_request"],
  [[{ index: { _index: "a", _type: "b" } }, {}], "unknown_member"],
  [[{ index: { _index: "a", index: "b" } }, {}], "unknown_member"],
];

t.test("a bulk has the rights of its actions, each index once", async (t) => {
  for (const [items, expected, index] of bulks) {
    t.equal(
      outcome(() => runAtOnce(readBulk(linesOf(...items), index, false))),
      expected,
      JSON.stringify(items),
    );
  }
  const update = linesOf({ update: { _index: "a", _id: "1" } }, { doc: {} }, ...all);
  const read = runAtOnce(readBulk(update, undefined, true));
  t.equal(shown(read), "UPDATE,SELECT+ a@0; INSERT,UPDATE+ a@1");
});

const every = ["*", "-.*"];
const heads: readonly (readonly [
  items: readonly Json[],
  expected: string,
  indexes?: readonly string[],
])[] = [
  [[{ index: "a" }, {}], "SELECT a@0"],
  [[{ index: "a,b" }, {}, { index: ["c"] }, {}], "SELECT a@0; SELECT b@0; SELECT c@1"],
  [[{}, {}], "SELECT p@0; SELECT q@0", ["p", "q"]],
  [[{}, {}], "SELECT _all@0"],
  [[{ index: "a" }, { query: { terms: { f: lookup } } }], "SELECT a@0; SELECT b@0"],
  [[{ index: "a" }, { pit: { id: "x" } }], "bad_request"],
  [[{ index: [] }, {}], "bad_request", ["p"]],
  [[{ index: null }, {}], "bad_request", ["p"]],
  [[{ indices: "a" }, {}], "unknown_member", ["p"]],
  [[{ index: "a", expand_wildcards: "open,closed" }, {}], "SELECT a@0"],
  [[{ index: "a", expand_wildcards: ["hidden"] }, {}], "bad_request"],
  [["", {}], "invalid_json", ["p"]],
  [[{ index: "a" }], "bad_request"],
  [[[], {}], "bad_request"],
];

t.test("searches in one request have the indexes of their headers", async (t) => {
  for (const [items, expected, indexes] of heads) {
    const read = () => runAtOnce(readSearches(linesOf(...items), indexes)).uses;
    t.equal(outcome(read), expected, JSON.stringify(items));
  }
  const searches = linesOf({ preference: "x" }, '{"size": 1.50}', { index: "a" }, {});
  const { body } = runAtOnce(readSearches(searches, undefined));
  const head = JSON.stringify({ preference: "x", index: every });
  t.equal(body?.toString(), `${head}\n{"size": 1.50}\n{"index":"a"}\n{}\n`);
  const exact = linesOf('{"preference":9007199254740993,"request_cache":1.50}', {});
  t.match(
    runAtOnce(readSearches(exact, undefined)).body?.toString(),
    '{"preference":9007199254740993,"request_cache":1.50,"index":',
    "a header that is rewritten keeps its digits",
  );
  const many = (count: number) => new Lines(Buffer.from("{}\n".repeat(2 * count)));
  t.equal(runAtOnce(readSearches(many(10_000), ["a"])).uses.elements, 10_000);
  t.equal(
    outcome(() => runAtOnce(readSearches(many(10_001), ["a"])).uses),
    "bad_request",
  );
  const named = linesOf({ index: "a" }, {});
  t.equal(runAtOnce(readSearches(named, undefined)).body, undefined);
});

t.test("indexes that begin with a dot are left out where all are meant", async (t) => {
  t.strictSame(withoutHidden(["_all"]), every);
  t.strictSame(withoutHidden(["a", "*b"]), ["a", "*b", "-.*"]);
  t.equal(withoutHidden(["a", "b*"]), undefined);
});

const others: readonly (readonly [title: string, read: () => Uses, expected: string])[] = [
  [
    "documents",
    () => readDocuments({ docs: [{ _index: "a", _id: "1" }] }, undefined),
    "SELECT a@0",
  ],
  ["documents of the path", () => readDocuments({ docs: [{ _id: "1" }] }, "p"), "SELECT p@0"],
  ["ids", () => readDocuments({ ids: ["1"] }, "p"), "SELECT p"],
  ["ids of no index", () => readDocuments({ ids: ["1"] }, undefined), "bad_request"],
  [
    "vectors",
    () => readDocuments({ docs: [{ _index: "a", doc: { x: { y: {} } } }] }, "p", "vectors_read"),
    "SELECT a@0; parsed x y",
  ],
  [
    "parameters of vectors",
    () => readDocuments({ ids: ["1"], parameters: { _index: "b" } }, "p", "vectors_read"),
    "unknown_member",
  ],
  ["no documents", () => readDocuments({ docs: [] }, undefined), "bad_request"],
  ["an unknown list", () => readDocuments({ documents: [] }, "p"), "unknown_member"],
  ["an alias", () => readAlias(undefined, "x"), "CREATE! x"],
  ["a filter", () => readAlias({ filter: { terms: { f: lookup } } }, "x"), "CREATE! x; SELECT b"],
  ["an alias that names an index", () => readAlias({ index: "b" }, "x"), "unknown_member"],
  [
    "alias actions",
    () =>
      readAliasActions({
        actions: [{ add: { indices: ["a", "b"], alias: "x" } }, { remove_index: { index: "c" } }],
      }),
    "CREATE a@0; CREATE b@0; CREATE! x@0; DROP c@1",
  ],
  [
    "alias actions on a pattern",
    () => readAliasActions({ actions: [{ add: { index: "a*", alias: "x" } }] }),
    "CREATE a*@0; CREATE! x@0",
  ],
  ...["*", "_all", "*a", ["a", "*"]].flatMap((index) =>
    [{ add: { index, alias: "x" } }, { remove_index: { index } }].map(
      (action) =>
        [
          `an action on indexes of the server: ${JSON.stringify(action)}`,
          () => readAliasActions({ actions: [action] }),
          "bad_request",
        ] as const,
    ),
  ),
  [
    "two spellings",
    () => readAliasActions({ actions: [{ add: { index: "a", indices: "b", alias: "x" } }] }),
    "bad_request",
  ],
  [
    "a new index",
    () => readNewIndex({ settings: { number_of_shards: 1 }, aliases: { x: {} } }),
    "CREATE! x",
  ],
  [
    "a new index with a pipeline",
    () => readNewIndex({ settings: { "index.default_pipeline": "p" } }),
    "pipelines",
  ],
  ["an unknown member of an index", () => readNewIndex({ warmers: {} }), "unknown_member"],
  ["settings", () => readSettings({ index: { refresh_interval: "1s" } }), ""],
  [
    "settings of a pipeline",
    () => readSettings({ index: { search: { default_pipeline: "p" } } }),
    "pipelines",
  ],
];

t.test("other bodies have their names", async (t) => {
  for (const [title, read, expected] of others) t.equal(outcome(read), expected, title);
});

t.test("a bulk of 10 MB stops other work for less than 100 ms at a time", async (t) => {
  const lines = Array.from({ length: 150_000 }, (_, at) =>
    at % 2 === 0
      ? `{"index":{"_index":"a${at % 6}","_id":"${at}"}}\n`
      : `{"x":"${"y".repeat(90)}"}\n`,
  );
  const bytes = Buffer.from(lines.join(""));
  t.ok(bytes.length > 9e6);
  let longestMs = Number.POSITIVE_INFINITY;
  for (let tries = 0; longestMs >= 100 && tries < 10; tries++) {
    const stall = await longestStall(async () => {
      const uses = await runCooperatively(readBulk(new Lines(bytes), undefined, false));
      t.equal(uses.names.length, 3);
    });
    longestMs = Math.min(longestMs, stall);
  }
  t.ok(longestMs < 100, `${longestMs.toFixed(0)} ms`);
});
