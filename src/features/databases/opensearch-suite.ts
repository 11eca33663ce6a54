import { gzipSync } from "node:zlib";
import { opensearch } from "./opensearch.ts";
import type { Json } from "./preset.ts";
import {
  type Attack,
  checkAttacks,
  codeOf,
  described,
  get,
  member,
  post,
  put,
  remove,
  type Send,
  type Suite,
  type SuiteAnswer,
  type SuiteContext,
  type SuiteRequest,
  withCoding,
  withHeaders,
} from "./suite.ts";

const A = "gatehouse_test_a";
/** Only `dora`, `olga` and the administrator may read it. */
const B = "gatehouse_test_b";
const LOGS = "gatehouse_test_logs-2026.11.28";
/** Its documents may be queries, which the server follows when it stores them. */
const QUERIES = "gatehouse_test_q";
const NEW = "gatehouse_test_new";
const PUBLIC = "gatehouse_test_public";
const OWN = "gatehouse_test_own";
/** An alias of B that the pattern of `lars` matches. */
const LOGS_ALIAS = "gatehouse_test_logs-alias";
/** Not hidden, so `_all` means it too. */
const DOT = ".gatehouse_test_dot";
const SECRET = "gatehouse-hush";

/** By name: which rights they have on A. */
const readers = ["rita", "olga"];
const writers = ["wanda", "stan"];
const administrators = ["dora", "admin"];
const strangers = ["lars", "nina"];

type Right = "SELECT" | "INSERT" | "UPDATE" | "DELETE" | "CREATE" | "DROP";

function mayOnA(user: string, right: Right): boolean {
  if (administrators.includes(user)) return true;
  if (right === "CREATE" || right === "DROP") return false;
  return writers.includes(user) || (readers.includes(user) && right === "SELECT");
}

const find = (query: Json, index = A): SuiteRequest => post(`/${index}/_search`, { query });
const search = (body: Json, index = A): SuiteRequest => post(`/${index}/_search`, body);

/** Lines of JSON, or of text as it is. */
function lines(path: string, ...items: readonly Json[]): SuiteRequest {
  const text = items.map((one) => `${typeof one === "string" ? one : JSON.stringify(one)}\n`);
  return raw(path, text.join(""), "application/x-ndjson");
}

function raw(path: string, text: string | Buffer, type = "application/json"): SuiteRequest {
  const body = typeof text === "string" ? Buffer.from(text) : text;
  return { method: "POST", path, body, headers: { "content-type": type } };
}

const bulk = (...items: readonly Json[]): SuiteRequest => lines("/_bulk", ...items);
const msearch = (...items: readonly Json[]): SuiteRequest => lines("/_msearch", ...items);
const everything = { match_all: {} };

/** One request for each endpoint on A, and what it needs. They leave A as it was. */
const onA: readonly [Right, SuiteRequest][] = [
  ["SELECT", get(`/${A}/_search?q=t:plain&size=1`)],
  ["SELECT", find(everything)],
  ["SELECT", search({ size: 0, aggs: { all: { terms: { field: "k" } } } })],
  ["SELECT", get(`/${A}/_count`)],
  ["SELECT", post(`/${A}/_count`, { query: everything })],
  ["SELECT", post(`/${A}/_validate/query`, { query: everything })],
  ["SELECT", get(`/${A}/_field_caps?fields=*`)],
  ["SELECT", post(`/${A}/_explain/1`, { query: everything })],
  ["SELECT", msearch({ index: A }, { query: everything })],
  ["SELECT", lines(`/${A}/_msearch`, {}, { query: everything })],
  ["SELECT", post("/_mget", { docs: [{ _index: A, _id: "1" }] })],
  ["SELECT", post(`/${A}/_mget`, { ids: ["1"] })],
  ["SELECT", post("/_mtermvectors", { docs: [{ _index: A, _id: "1" }] })],
  ["SELECT", post(`/${A}/_mtermvectors?ids=1`, { parameters: { fields: ["t"] } })],
  ["SELECT", get(`/${A}/_termvectors/1`)],
  ["SELECT", post(`/${A}/_termvectors`, { doc: { t: "plain" } })],
  ["SELECT", get(`/${A}/_doc/1`)],
  ["SELECT", { method: "HEAD", path: `/${A}/_doc/1` }],
  ["SELECT", get(`/${A}/_source/1`)],
  ["SELECT", get(`/${A}`)],
  ["SELECT", { method: "HEAD", path: `/${A}` }],
  ["SELECT", get(`/${A}/_mapping`)],
  ["SELECT", get(`/${A}/_settings`)],
  ["SELECT", get(`/${A}/_stats`)],
  ["SELECT", get(`/${A}/_alias`)],
  ["SELECT", get(`/_cat/count/${A}`)],
  ["SELECT", get(`/_cat/indices/${A}?format=json`)],
  ["SELECT", get(`/_cluster/health/${A}`)],
  ["SELECT", post(`/${A}/_analyze`, { text: "some text" })],
  ["SELECT", find(everything, OWN)],
  ["INSERT", put(`/${A}/_create/made-1`, { t: "plain" })],
  ["DELETE", remove(`/${A}/_doc/made-1`)],
  ["INSERT", put(`/${A}/_doc/made-2`, { t: "plain" })],
  ["UPDATE", post(`/${A}/_update/made-2`, { doc: { t: "changed" } })],
  ["UPDATE", post(`/${A}/_update/made-2`, { doc: { t: "plain" }, doc_as_upsert: true })],
  ["UPDATE", post(`/${A}/_update_by_query?refresh=true`, { query: { ids: { values: ["1"] } } })],
  ["DELETE", post(`/${A}/_delete_by_query?refresh=true`, { query: { term: { k: "none" } } })],
  ["INSERT", bulk({ index: { _index: A, _id: "made-3" } }, { t: "plain" })],
  ["INSERT", lines(`/${A}/_bulk`, { create: { _id: "made-4" } }, { t: "plain" })],
  ["UPDATE", lines(`/${A}/_bulk`, { update: { _id: "made-4" } }, { doc: { t: "plain" } })],
  ["DELETE", lines(`/${A}/_bulk`, { delete: { _id: "made-4" } })],
  ["INSERT", { method: "POST", path: `/${A}/_refresh` }],
  ["CREATE", put(`/${A}/_mapping`, { properties: { extra: { type: "keyword" } } })],
  ["CREATE", put(`/${A}/_settings`, { index: { refresh_interval: "1s" } })],
  ["CREATE", put(`/${A}/_alias/${OWN}`, {})],
  ["CREATE", post("/_aliases", { actions: [{ add: { index: A, alias: OWN } }] })],
  ["CREATE", find({ script: { script: "true" } })],
  ["CREATE", put("/_scripts/gatehouse_test_s", { script: { lang: "painless", source: "1" } })],
];

/** Requests that every user may make. */
const forEverybody = [
  get("/"),
  { method: "HEAD", path: "/" },
  get("/_cluster/health"),
  get("/_cat/health"),
  get("/_cat/indices?format=json"),
  get("/_alias"),
  get("/_resolve/index/*"),
];

const look = { index: B, id: "1", path: "k" };
const lookup = { terms: { k: look } };
const located = (query: Json): Json => ({
  bool: { filter: [{ constant_score: { filter: query } }] },
});

const sortOfB = { k: { order: "asc", nested: { path: "n", filter: lookup } } };
const likeB = { fields: ["t"], like: [{ _index: B, _id: "1" }], min_term_freq: 1 };
const unlikeB = { fields: ["t"], like: "plain", unlike: { _index: B, _id: "1" } };
const shapeOfB = { index: B, id: "1", path: "g" };
const innerFilters = { filters: { filters: { z: lookup } } };
const background = { field: "k", background_filter: lookup };

/** Names of B in a search of A, in every position that the server knows. */
const searchesOfB: readonly (readonly [string, Json])[] = [
  ["a terms lookup", { query: lookup }],
  ["a terms lookup deep inside", { query: located(lookup) }],
  ["a terms lookup by an alias", { query: { terms: { k: { ...look, index: PUBLIC } } } }],
  ["a terms lookup in post_filter", { post_filter: lookup }],
  ["a terms lookup in a rescore", { rescore: { query: { rescore_query: lookup } } }],
  ["a terms lookup in a filter of aggregations", { aggs: { x: { filter: lookup } } }],
  [
    "a terms lookup in an inner aggregation",
    { aggs: { x: { global: {}, aggs: { y: innerFilters } } } },
  ],
  ["a terms lookup in an unnamed filter", { aggs: { x: { filters: { filters: [lookup] } } } }],
  ["a terms lookup in a background filter", { aggs: { x: { significant_terms: background } } }],
  ["a terms lookup in a highlight", { highlight: { fields: { t: { highlight_query: lookup } } } }],
  ["a terms lookup in a sort", { sort: [sortOfB] }],
  [
    "a terms lookup in a function",
    { query: { function_score: { functions: [{ filter: lookup, weight: 2 }] } } },
  ],
  [
    "a terms lookup in nested inner hits",
    { query: { nested: { path: "n", query: { terms: { "n.k": look } } } } },
  ],
  ["more_like_this", { query: { more_like_this: likeB } }],
  ["more_like_this with unlike", { query: { more_like_this: unlikeB } }],
  ["percolate", { query: { percolate: { field: "query", index: B, id: "1" } } }],
  ["geo_shape", { query: { geo_shape: { g: { indexed_shape: shapeOfB } } } }],
  ["indices_boost as a list", { indices_boost: [{ [B]: 2 }] }],
  ["indices_boost as an object", { indices_boost: { [B]: 2 } }],
];

/** Searches of A that are refused for their members, with any role. */
const unknownSearches: readonly (readonly [string, Json])[] = [
  ["an unknown member", { query: everything, index: B }],
  ["an unknown query type", { query: { wrapper: { query: "eyJtYXRjaF9hbGwiOnt9fQ==" } } }],
  ["an unknown query type inside", { query: located({ unheard_of: {} }) }],
  ["an unknown aggregation", { aggs: { x: { unheard_of: { field: "k" } } } }],
  ["an unknown member of a lookup", { query: { terms: { k: { ...look, query: {} } } } }],
  ["an unknown member of a query", { query: { match: { t: { query: "x", lookup: B } } } }],
  ["extensions of plugins", { query: everything, ext: { rerank: {} } }],
];

const scored = { script_score: { script: "1" } };
const metric = {
  init_script: "state.x = 0",
  map_script: "1",
  combine_script: "1",
  reduce_script: "1",
};
const fewest = { minimum_should_match_script: { source: "1" } };

/** Code and pipelines, which only a DbAdmin may use. */
const codeOnA: readonly (readonly [string, SuiteRequest])[] = [
  ["script_fields", search({ script_fields: { x: { script: "1" } } })],
  ["a sort by a script", search({ sort: { _script: { type: "number", script: "1" } } })],
  ["script_score", find({ script_score: { query: everything, script: { source: "1" } } })],
  ["a script in function_score", find({ function_score: { functions: [scored] } })],
  ["an aggregation by a script", search({ aggs: { x: { sum: { script: "1" } } } })],
  ["a scripted metric", search({ aggs: { x: { scripted_metric: metric } } })],
  ["terms_set by a script", find({ terms_set: { k: { terms: ["a"], ...fewest } } })],
  ["derived fields", search({ derived: { x: { type: "long", script: "emit(1)" } } })],
  ["runtime fields", search({ runtime_mappings: { x: { type: "long", script: "emit(1)" } } })],
  ["an update by a script", post(`/${A}/_update/1`, { script: "ctx.op = 'none'" })],
  [
    "an update by query with a script",
    post(`/${A}/_update_by_query`, { script: "ctx.op = 'noop'" }),
  ],
  ["a search pipeline", post(`/${A}/_search?search_pipeline=_none`, {})],
  ["a pipeline", put(`/${A}/_doc/made-5?pipeline=_none`, {})],
  ["a pipeline of a bulk", lines("/_bulk?pipeline=_none", { delete: { _index: A, _id: "none" } })],
  [
    "a pipeline of an action",
    bulk({ create: { _index: A, _id: "made-6", pipeline: "_none" } }, {}),
  ],
  ["a stored script", get("/_scripts/gatehouse_test_s")],
  ["a template", get("/_index_template/gatehouse_test_t")],
  ["all templates", get("/_index_template")],
];

function denied(user: string, title: string, request: SuiteRequest, code?: string): Attack {
  return [title, user, request, 403, code];
}

function refused(title: string, request: SuiteRequest, code = "bad_request"): Attack {
  return [title, "wanda", request, code.endsWith("not_found") ? 404 : 400, code];
}

/** A request in a form that the gateway does not take. */
function unsupported(title: string, text: string | Buffer, type: string): Attack {
  return [title, "wanda", raw(`/${A}/_search`, text, type), 415, "unsupported_media_type"];
}

const mark = { index: { _index: A, _id: "marked" } };
const doc = { t: "plain" };
const inB = { index: { _index: B } };
const deleteInB = { delete: { _index: B, _id: "1" } };
const compressed = gzipSync(`{"index":{"_index":"${B}"}}\n{"t":"x"}\n`);
/** A document of `QUERIES` that reads B. */
const queryOfB = { query: lookup };
const vectorsOfB = { docs: [{ _index: B, _id: "1" }] };
/** Searches and documents in which the server parses such a document. */
const parsing: readonly SuiteRequest[] = [
  find({ percolate: { field: "query", document: queryOfB } }, QUERIES),
  find({ percolate: { field: "query", documents: [{}, { "x.query": [lookup] }] } }, QUERIES),
  find({ percolate: { field: "query", index: A, id: "1" } }, QUERIES),
  msearch(
    { index: QUERIES },
    { query: { percolate: { field: "query", document: { x: queryOfB } } } },
  ),
  find({ more_like_this: { fields: ["t"], like: [{ _index: QUERIES, doc: queryOfB }] } }),
  post(`/${QUERIES}/_termvectors`, { doc: queryOfB }),
  post("/_mtermvectors", { docs: [{ _index: QUERIES, doc: queryOfB }] }),
];

/** Requests that are denied: by whom, and with which code if any matters. */
const denials: readonly (readonly [
  user: string,
  title: string,
  request: SuiteRequest,
  code?: string,
])[] = [
  ["rita", "B in the path", find(everything, B), "no_grant"],
  ["rita", "B percent-encoded", get(`/%67atehouse_test_b/_search`), "no_grant"],
  ["rita", "B in a list", find(everything, `${A},${B}`), "no_grant"],
  ["rita", "B in an encoded list", get(`/${A}%2C${B}/_search`), "no_grant"],
  ["rita", "an alias of B", find(everything, PUBLIC), "no_grant"],
  ["rita", "an alias of B in a list", find(everything, `${A},${PUBLIC}`), "no_grant"],
  ["rita", "all indexes", get("/_all/_search"), "name_too_wide"],
  ["rita", "* alone", get("/*/_search"), "name_too_wide"],
  ["rita", "no index", get("/_search"), "name_too_wide"],
  ["rita", "a pattern", get("/gatehouse_test_*/_search"), "name_too_wide"],
  ["rita", "a pattern in the middle", get("/gatehouse*b/_search"), "name_too_wide"],
  ["stan", "all indexes with one that is denied", get("/_all/_search"), "name_too_wide"],
  ["stan", "all mappings", get("/_mapping"), "name_too_wide"],
  ["stan", "a field of all mappings", get("/_mapping/field/k"), "name_too_wide"],
  ["stan", "all counts", get("/_count"), "name_too_wide"],
  ["stan", "a count of all as text", get("/_cat/count"), "name_too_wide"],
  ["stan", "deleting by query in all", post("/_all/_delete_by_query", { query: everything })],
  ["stan", "an alias of a denied index", find(everything, PUBLIC)],
  ["lars", "a pattern with an alias of B", get("/gatehouse_test_logs-*/_search")],
  ["lars", "an alias of B that the pattern matches", find(everything, LOGS_ALIAS)],
  ["lars", "a wider pattern", get("/gatehouse_test_log*/_search"), "name_too_wide"],

  ["rita", "B in _mget", post("/_mget", { docs: [{ _index: B, _id: "1" }] }), "no_grant"],
  [
    "rita",
    "B in _mget of A",
    post(`/${A}/_mget`, { docs: [{ _id: "1" }, { _index: B, _id: "1" }] }),
  ],
  ["rita", "B in _mtermvectors", post("/_mtermvectors", vectorsOfB), "no_grant"],
  ["rita", "B in _mtermvectors of A", post(`/${A}/_mtermvectors`, vectorsOfB), "no_grant"],
  ...parsing.map((request, at): [string, string, SuiteRequest, string] => {
    return ["wanda", `a query in a document that is parsed (${at})`, request, "name_too_wide"];
  }),
  ["rita", "B in the second search", lines(`/${A}/_msearch`, {}, {}, { index: B }, {})],
  ["rita", "B in a list of a header", msearch({ index: [A, B] }, {}), "no_grant"],
  ["rita", "B in a text of a header", msearch({ index: `${A},${B}` }, {})],
  ["rita", "no index in a header", msearch({}, {}), "name_too_wide"],

  ["wanda", "B in a bulk", bulk(mark, doc, inB, doc)],
  ["wanda", "B in a bulk of A", lines(`/${A}/_bulk`, mark, doc, deleteInB)],
  ["wanda", "an alias of B in a bulk", bulk(mark, doc, { index: { _index: PUBLIC } }, doc)],
  ["wanda", "a new index in a bulk", bulk(mark, doc, { create: { _index: NEW } }, doc)],
  ["stan", "a new index", put(`/${NEW}/_doc/1`, doc), "role_insufficient"],
  ["stan", "a new index by an update", post(`/${NEW}/_update/1`, { doc, upsert: doc })],
  ["stan", "a new index by a delete", remove(`/${NEW}/_doc/1?version=1&version_type=external`)],
  [
    "wanda",
    "lines that end with a carriage return",
    raw("/_bulk", `{"index":{"_index":"${B}"}}\r\n{"t":"x"}\r\n`),
  ],
  ["wanda", "B in a compressed bulk", withCoding(raw("/_bulk", compressed), "gzip")],
  ["wanda", "a query as a document", put(`/${QUERIES}/_doc/1`, queryOfB), "name_too_wide"],
  ["wanda", "a query as a document of a bulk", bulk({ index: { _index: QUERIES } }, queryOfB)],
  ["wanda", "a query as an update", post(`/${QUERIES}/_update/1`, { doc: queryOfB })],
  [
    "wanda",
    "an override of the method",
    withHeaders(post(`/${B}/_search`, {}), { "x-http-method-override": "DELETE" }),
  ],
  ["nina", "an alias of an own index", put(`/${A}/_alias/${NEW}`, {})],
  [
    "wanda",
    "an alias that opens B",
    post("/_aliases", { actions: [{ add: { index: B, alias: NEW } }] }),
  ],
  ["rita", "a filter of an alias", put(`/${A}/_alias/${NEW}`, { filter: lookup })],
];

/** Requests in a form that no caller may send. Without a code, they are bad requests. */
const refusals: readonly (readonly [title: string, request: SuiteRequest, code?: string])[] = [
  ["B percent-encoded twice", get(`/%2567atehouse_test_b/_search`)],
  ["an index in upper case", get(`/${A.toUpperCase()}/_search`)],
  ["an exclusion", get(`/gatehouse_test_*,-${A}/_search`)],
  ["an exclusion alone", get(`/-${A}/_search`)],
  ["date math", get("/%3Cgatehouse_test_logs-%7Bnow%2Fd%7D%3E/_search")],
  ["another cluster", get(`/other:${A}/_search`)],
  ["an index of the server's own", get(`/${DOT}/_search`)],
  ["an empty name in a list", get(`/${A},,${B}/_search`)],
  ["an index in the query string", get(`/_search?index=${B}`), "unknown_parameter"],
  ["an index in the query string of A", get(`/${A}/_search?index=${B}`), "unknown_parameter"],
  ["a body in the query string", get(`/${A}/_search?source={}`), "unknown_parameter"],
  ["a doubled parameter", get(`/${A}/_search?size=1&size=2`)],
  ["an unlisted parameter", get(`/${A}/_search?error_trace=true`), "unknown_parameter"],
  ["hidden indexes", get(`/${A}/_search?expand_wildcards=all`)],
  ["hidden indexes in a list", get(`/${A}/_search?expand_wildcards=open,hidden`)],
  ["health of all indexes", get("/_cluster/health?level=indices"), "unknown_parameter"],
  ["a task", post(`/${A}/_update_by_query?wait_for_completion=false`, {})],
  ["_mget of no index", post("/_mget", { docs: [{ _id: "1" }] })],
  ["an empty list in a header", lines(`/${A}/_msearch`, { index: [] }, {})],
  ["two spellings of index", msearch({ index: A, indices: [B] }, {}), "unknown_member"],
  ["an empty header", lines(`/${A}/_msearch`, "", {}), "invalid_json"],
  ["a search without a body", lines(`/${A}/_msearch`, {})],
  ["_msearch without the last newline", raw(`/${A}/_msearch`, `{}\n{}`, "application/x-ndjson")],
  ["hidden indexes in a header", msearch({ index: A, expand_wildcards: "all" }, {})],
  ["a point in time in _msearch", lines(`/${A}/_msearch`, {}, { pit: { id: "x" } })],
  ["a bulk of no index", bulk({ index: {} }, doc)],
  ["a bulk of a pattern", lines("/gatehouse_test_*/_bulk", mark, doc)],
  ["a bulk of two indexes", lines(`/${A},${B}/_bulk`, mark, doc)],
  ["two actions in a line", bulk({ delete: { _index: A, _id: "9" }, index: { _index: B } })],
  ["an unknown action", bulk({ erase: { _index: A } })],
  [
    "an index given twice",
    bulk(`{"index":{"_index":"${A}","_index":"${B}"}}`, doc),
    "duplicate_key",
  ],
  [
    "an index given twice with an escape",
    bulk(`{"index":{"_index":"${A}","\\u005findex":"${B}"}}`, doc),
    "duplicate_key",
  ],
  [
    "an action given twice",
    bulk(`{"index":{"_index":"${A}"},"index":{"_index":"${B}"}}`, doc),
    "duplicate_key",
  ],
  [
    "an unknown member of an action",
    bulk({ index: { _index: A, _type: B } }, doc),
    "unknown_member",
  ],
  ["an empty line in a bulk", bulk(mark, doc, "", inB, doc), "invalid_json"],
  ["a bulk without the last newline", raw("/_bulk", `{"delete":{"_index":"${A}","_id":"9"}}`)],
  ["a bulk without a document", bulk(mark)],
  [
    "a carriage return between actions",
    raw(
      "/_bulk",
      `{"delete":{"_index":"${A}","_id":"9"}}\r{"delete":{"_index":"${B}","_id":"1"}}\n`,
    ),
    "trailing_data",
  ],
  ["an array as an action", bulk(`["index"]`, doc)],
  ["a body that is said to be compressed", withCoding(raw(`/${A}/_search`, "{}"), "gzip")],

  ["a search given twice", raw(`/${A}/_search`, `{"size":1,"size":2}`), "duplicate_key"],
  ["something after the body", raw(`/${A}/_search`, `{}{"query":{}}`), "trailing_data"],
  ["a comment in the body", raw(`/${A}/_search`, `{/**/}`), "invalid_json"],
  ["a body that is no object", raw(`/${A}/_search`, `[]`)],
  ["a body without an end", raw(`/${A}/_search`, `{"query":`), "invalid_json"],
  ["a body where none belongs", { ...raw(`/${A}/_doc/1`, "{}"), method: "GET" }],

  [
    "a scroll that is not sealed",
    post("/_search/scroll", { scroll_id: "RG5fX" }),
    "handle_not_found",
  ],
  ["all scrolls", remove("/_search/scroll", { scroll_id: "_all" }), "handle_not_found"],
  ["all scrolls by path", remove("/_search/scroll/_all"), "not_found"],
  ["all points in time", remove("/_search/point_in_time/_all"), "not_found"],
  ["a list of points in time", get("/_search/point_in_time/_all"), "not_found"],
  [
    "a point in time that is not sealed",
    post("/_search", { pit: { id: "46ToAwMDaWR5" } }),
    "handle_not_found",
  ],
  ["B in the body of _termvectors", post(`/${A}/_termvectors/1`, { _index: B }), "unknown_member"],
  ["an index in the body of an alias", put(`/${A}/_alias/${NEW}`, { index: B }), "unknown_member"],
];

/** Requests that look for B, or for a way around the rules. None may pass. */
const attacks: readonly Attack[] = [
  ...searchesOfB.map(([title, body]) => denied("rita", `B in ${title}`, search(body), "no_grant")),
  ...searchesOfB.map(([title, body]) =>
    denied("rita", `B in ${title} of _msearch`, msearch({ index: A }, body), "no_grant"),
  ),
  ...unknownSearches.map(([title, body]) => refused(title, search(body), "unknown_member")),
  ...codeOnA.map(([title, request]) => denied("wanda", title, request)),
  unsupported("YAML", `query: {match_all: {}}`, "application/yaml"),
  unsupported("CBOR", Buffer.from("a0", "hex"), "application/cbor"),
  ...[
    post("/_reindex", { source: { index: B }, dest: { index: A } }),
    post("/_sql", { query: `select * from ${B}` }),
    post("/_plugins/_sql", { query: `select * from ${B}` }),
    post("/_plugins/_ppl", { query: `source=${B}` }),
    post("/_query", { query: `from ${B}` }),
    get("/_tasks"),
    get("/_nodes"),
    get("/_nodes/stats"),
    get("/_cat"),
    get("/_cat/shards"),
    get("/_cat/nodes"),
    get("/_cluster/state"),
    get("/_cluster/settings"),
    get("/_snapshot"),
    get("/_plugins/_security/api/roles"),
    get("/_security/user"),
    get(`/${B}/_search_shards`),
    post(`/${A}/_clone/${NEW}`, {}),
    post(`/${A}/_search/template`, { source: "{}" }),
    post("/_render/template", { source: "{}" }),
    post("/_msearch/template", {}),
    post(`/${A}/_rank_eval`, {}),
    post("/_scripts/painless/_execute", { script: "1" }),
    get(`/_segments`),
    get("/_dangling"),
  ].map((request) => refused(`${request.method} ${request.path}`, request, "not_found")),
  ...denials.map(([user, title, request, code]) => denied(user, title, request, code)),
  ...refusals.map(([title, request, code]) => refused(title, request, code)),
];

/** The answer without what differs between two answers to the same request. */
function stable({ status, text }: SuiteAnswer): string {
  return `${status} ${text.replace(/"(?:took|request_id)":(?:"[^"]*"|\d+)/g, "")}`;
}

function text(json: Json | undefined, name: string): string {
  return String(member(json, name) ?? "");
}

async function prepare(direct: Send): Promise<void> {
  const must = async (request: SuiteRequest) => {
    const answer = await direct(request);
    if (answer.status < 300) return;
    throw new Error(`${request.method} ${request.path}: ${described(answer)}`);
  };
  const settings = { number_of_shards: 1, number_of_replicas: 0 };
  const properties = { k: { type: "keyword" }, t: { type: "text" }, g: { type: "geo_shape" } };
  const mappings = { properties };
  await must(put(`/${A}`, { settings, mappings, aliases: { [OWN]: {} } }));
  await must(put(`/${B}`, { settings, mappings, aliases: { [PUBLIC]: {}, [LOGS_ALIAS]: {} } }));
  await must(put(`/${LOGS}`, { settings, mappings }));
  await must(put(`/${DOT}`, { settings, mappings }));
  const stored = { properties: { query: { type: "percolator" }, k: { type: "keyword" } } };
  await must(put(`/${QUERIES}`, { settings, mappings: stored }));
  for (let id = 1; id <= 30; id++) {
    await must(put(`/${A}/_doc/${id}`, { t: `plain text ${id}`, k: `k${id % 3}`, n: id }));
  }
  const hush = { t: `secret ${SECRET}`, k: SECRET, g: { type: "point", coordinates: [1, 2] } };
  await must(put(`/${B}/_doc/1`, hush));
  await must(put(`/${LOGS}/_doc/1`, { t: "a line of the log", k: "k1" }));
  await must(put(`/${DOT}/_doc/1`, { t: SECRET }));
  await must({ method: "POST", path: `/${A},${B},${LOGS},${DOT}/_refresh` });
}

async function checkRights({ as, held }: SuiteContext): Promise<void> {
  for (const [right, request] of onA) {
    for (const user of [...readers, ...strangers, ...writers, ...administrators]) {
      const answer = await as(user)(request);
      const may = mayOnA(user, right);
      // A 404 or 409 is the server's: others have used the document before.
      const passed = answer.status !== 403 && codeOf(answer) === undefined;
      const holds = may
        ? passed && ![400, 401, 405, 500].includes(answer.status)
        : answer.status === 403;
      const what = `${user} ${may ? "may" : "may not"}: ${request.method} ${request.path}`;
      held(what, holds, described(answer));
    }
  }
  for (const request of forEverybody) {
    for (const user of ["rita", "nina", "dora"]) {
      const answer = await as(user)(request);
      const what = `${user} may: ${request.method} ${request.path}`;
      held(what, answer.status === 200, described(answer));
    }
    const { status } = await as("")(request);
    held(`a credential is required: ${request.method} ${request.path}`, status === 401, status);
  }
}

/** Lists name only what the caller may read. */
async function checkLists({ as, held }: SuiteContext): Promise<void> {
  const lists = [
    get("/_cat/indices?format=json"),
    get("/_cat/indices/gatehouse_test_*"),
    get("/_alias"),
    get(`/_alias/${PUBLIC}`),
    get("/_alias/gatehouse_test_*"),
    get("/_resolve/index/*"),
    get("/_resolve/index/gatehouse_test_*"),
  ];
  const hidden = new RegExp(`"?${B}\\b|${PUBLIC}|${LOGS_ALIAS}|\\${DOT}`);
  for (const user of ["rita", "stan", "lars", "nina"]) {
    for (const request of lists) {
      const answer = await as(user)(request);
      const isSilent = !hidden.test(answer.text.replaceAll(`[${PUBLIC}] missing`, ""));
      held(`${request.path} does not show ${user} the index B`, isSilent, described(answer));
    }
  }
  const shown = await as("stan")(get("/_cat/indices?format=json"));
  held("_cat/indices shows what stan may read", shown.text.includes(A), described(shown));
  const alias = await as("dora")(get(`/_alias/${PUBLIC}`));
  held("the alias is shown to whom may read its index", alias.text.includes(B), described(alias));
}

async function attack(context: SuiteContext): Promise<void> {
  const { as, held, direct } = context;
  await checkAttacks(context, attacks, SECRET);
  const hush = { query: { match: { t: SECRET } } };
  for (const request of [search(hush, "_all"), msearch({}, hush)]) {
    const answer = await as("dora")(request);
    const isOpen = answer.text.includes(B) && !answer.text.includes(DOT);
    held(`${request.path} does not mean the server's own indexes`, isOpen, described(answer));
  }
  const marked = await direct(get(`/${A}/_doc/marked`));
  held("nothing of a refused bulk has been written", marked.status === 404, described(marked));
  const kept = await direct(get(`/${B}/_doc/1`));
  held("B is as it was", kept.status === 200 && kept.text.includes(SECRET), described(kept));
  const made = await direct({ method: "HEAD", path: `/${NEW}` });
  held("no index has been made", made.status === 404, made.status);
  const named = await as("rita")(find(everything, PUBLIC));
  held("a denial does not tell what an alias means", !named.text.includes(B), described(named));
  for (const element of [0, 1]) {
    const actions = [mark, doc, deleteInB].slice(element === 0 ? 2 : 0);
    const answer = await as("wanda")(bulk(...actions));
    const isNamed = member(answer.json, "element") === element;
    held(`a denied action is named: ${element}`, isNamed, described(answer));
  }
}

async function checkHandles({ as, held, expect }: SuiteContext): Promise<void> {
  const opened = await as("rita")(post(`/${A}/_search?scroll=1m&size=10`, { query: everything }));
  const scroll_id = text(opened.json, "_scroll_id");
  const scroll = post("/_search/scroll", { scroll_id, scroll: "1m" });
  await expect("wanda", scroll, 404, "handle_not_found");
  await expect("dora", scroll, 404, "handle_not_found");
  const end = remove("/_search/scroll", { scroll_id: [scroll_id] });
  await expect("wanda", end, 404, "handle_not_found");
  const next = await expect("rita", scroll, 200);
  const again = text(next.json, "_scroll_id");
  held("the next page is a handle too", again.length > 100, described(next));
  await expect("rita", post("/_search", { pit: { id: again } }), 404, "handle_not_found");
  await expect("rita", remove("/_search/scroll", { scroll_id: [again] }), 200);
  await expect("rita", { method: "POST", path: `/${B}/_search/point_in_time?keep_alive=1m` }, 403);

  const point = { method: "POST", path: `/${A}/_search/point_in_time?keep_alive=1m` };
  const made = await as("rita")(point);
  const id = text(made.json, "pit_id");
  const read = post("/_search", { pit: { id, keep_alive: "1m" }, size: 5 });
  await expect("wanda", read, 404, "handle_not_found");
  await expect("rita", post(`/${A}/_search`, { pit: { id } }), 400);
  const found = await expect("rita", read, 200);
  const isHandle = text(found.json, "pit_id").length > 100;
  held("a search returns the point in time as a handle", isHandle, described(found));
  await expect("rita", post("/_search", { query: lookup, pit: { id } }), 403, "no_grant");
  const endPoint = remove("/_search/point_in_time", { pit_id: [id] });
  await expect("wanda", endPoint, 404, "handle_not_found");
  await expect("rita", endPoint, 200);
}

const samples = [
  get(`/${A}/_search?q=plain&sort=n`),
  search({ query: everything, sort: ["n"], size: 3 }),
  search({ query: { match: { t: "plain" } }, size: 2 }),
  search({ query: { terms: { k: { index: A, id: "1", path: "k" } } }, sort: ["n"] }),
  search({ size: 0, aggs: { all: { terms: { field: "k" } } } }),
  post(`/${A}/_count`, { query: { term: { k: "k1" } } }),
  msearch({ index: A }, { size: 1 }, { index: OWN }, { size: 1 }),
  post("/_mget", {
    docs: [
      { _index: A, _id: "1" },
      { _index: OWN, _id: "2" },
    ],
  }),
  get(`/${A}/_doc/3`),
  get(`/${A}/_field_caps?fields=*`),
  get(`/${A}/_mapping`),
  get("/_alias"),
  get("/_cat/indices?h=index"),
  get("/_resolve/index/*"),
  get(`/${B}/_search`),
  get(`/${PUBLIC}/_doc/1`),
  search(queryOfB),
];

/** What `rita` sees is the same, whether B exists or not. */
async function checkIndifference({ as, direct, held }: SuiteContext): Promise<void> {
  const ask = async () => {
    const answers: string[] = [];
    for (const request of samples) {
      answers.push(stable(await as("rita")(request)));
    }
    return answers;
  };
  const before = await ask();
  await direct(remove(`/${B}`));
  // Longer than the gateway remembers what an alias means.
  await new Promise((resolve) => setTimeout(resolve, 1200));
  const after = await ask();
  for (const [at, request] of samples.entries()) {
    const same = before[at] === after[at];
    held(`B changes nothing: ${request.method} ${request.path} (${at})`, same, after[at]);
  }
}

export const opensearchSuite: Suite = {
  preset: opensearch,
  grants: [
    { user: "rita", database: "main", role: "ReadOnly", tables: [A] },
    { user: "wanda", database: "main", role: "ReadWrite", tables: [A, QUERIES] },
    { user: "lars", database: "main", role: "ReadOnly", tables: ["gatehouse_test_logs-*"] },
    { user: "olga", database: "main", role: "ReadOnly" },
    { user: "stan", database: "main", role: "ReadWrite" },
    { user: "stan", database: "main", role: "None", tables: [B] },
    { user: "dora", database: "main", role: "DbAdmin" },
    { user: "nina", database: "elsewhere", role: "Owner" },
  ],
  run: async (context) => {
    await prepare(context.direct);
    await checkRights(context);
    await checkLists(context);
    await attack(context);
    await checkHandles(context);
    await context.expect("lars", get(`/${LOGS}/_search`), 200);
    await context.expect("lars", find(everything), 403, "no_grant");
    const document = { k: "k1", x: { t: "no query" } };
    const percolation = find({ percolate: { field: "query", document } }, QUERIES);
    await context.expect("wanda", percolation, 200);
    await context.expect("dora", { method: "PUT", path: `/${NEW}` }, 200);
    await context.expect("stan", remove(`/${NEW}`), 403, "role_insufficient");
    await context.expect("dora", remove(`/${NEW}`), 200);
    await checkIndifference(context);
  },
  clean: async (direct) => {
    for (const index of [A, B, LOGS, QUERIES, NEW, DOT]) await direct(remove(`/${index}`));
    await direct(remove("/_scripts/gatehouse_test_s"));
  },
};
