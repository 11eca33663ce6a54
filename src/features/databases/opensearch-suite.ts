import { setTimeout as delay } from "node:timers/promises";
import { opensearch } from "./opensearch.ts";
import { remove, SECRET, type Suite, type SuiteRun } from "./suite.ts";

const A = "gatehouse_test_a";
/** Only `builder`, `wide` and the administrator may read it. */
const B = "gatehouse_test_b";
const LOGS = "gatehouse_test_logs-2026.11.28";
/** Its documents may be queries, which the server follows when it stores them. */
const QUERIES = "gatehouse_test_q";
const NEW = "gatehouse_test_new";
const PUBLIC = "gatehouse_test_public";
const OWN = "gatehouse_test_own";
/** An alias of B that the pattern of `narrow` matches. */
const LOGS_ALIAS = "gatehouse_test_logs-alias";
/** Not hidden, so `_all` means it too. */
const DOT = ".gatehouse_test_dot";

/** Further users, each with the role that has the same rights on A. */
const others = { narrow: "stranger", wide: "reader", partial: "writer", admin: "owner" };

const documents = Array.from({ length: 30 }, (_, at) => {
  const id = at + 1;
  return `{"index":{"_id":"${id}"}}\n{"t":"plain text ${id}","k":"k${id % 3}","n":${id}}\n`;
});
const look = { index: B, id: "1", path: "k" };
const lookup = { terms: { k: look } };

const names = {
  A,
  B,
  Q: QUERIES,
  NEW,
  PUBLIC,
  OWN,
  LOGS,
  ALIAS: LOGS_ALIAS,
  DOT,
  SECRET,
  DOCUMENTS: documents.join(""),
  ALL: '{"query":{"match_all":{}}}',
  LOOK: JSON.stringify(look),
  TERMS: JSON.stringify(lookup),
  /** A document of `QUERIES` that reads B. */
  READ: JSON.stringify({ query: lookup }),
  MARK: `{"index":{"_index":"${A}","_id":"marked"}}\n{"t":"plain"}\n`,
};

/** One request for each endpoint on A, and the least role that may send it. */
const onA = String.raw`
  reader GET /$A/_search?q=t:plain&size=1 /$A/_count /$A/_field_caps?fields=* /$A/_doc/1 /$A
    | /$A/_source/1 /$A/_mapping /$A/_settings /$A/_stats /$A/_alias /_cat/count/$A
    | /_cat/indices/$A?format=json /_cluster/health/$A /_cluster/state/metadata/$A
    | /$A/_termvectors/1
  reader POST /$A/_search /$A/_count /$A/_validate/query /$A/_explain/1 /$OWN/_search $ALL
  reader POST /$A/_search {"size":0,"aggs":{"all":{"terms":{"field":"k"}}}}
  reader POST /_msearch {"index":"$A"}\n$ALL\n
  reader POST /$A/_msearch {}\n$ALL\n
  reader POST /_mget /_mtermvectors {"docs":[{"_index":"$A","_id":"1"}]}
  reader POST /$A/_mget {"ids":["1"]}
  reader POST /$A/_mtermvectors?ids=1 {"parameters":{"fields":["t"]}}
  reader POST /$A/_termvectors {"doc":{"t":"plain"}}
  reader POST /$A/_analyze {"text":"some text"}
  writer PUT /$A/_create/made-1-$USER {"t":"plain"}
  writer DELETE /$A/_doc/made-1-$USER
  writer PUT /$A/_doc/made-2-$USER {"t":"plain"}
  writer POST /$A/_update/made-2-$USER {"doc":{"t":"changed"}}
    | || {"doc":{"t":"plain"},"doc_as_upsert":true}
  writer POST /$A/_update_by_query?refresh=true {"query":{"ids":{"values":["1"]}}}
  writer POST /$A/_delete_by_query?refresh=true {"query":{"term":{"k":"none"}}}
  writer POST /_bulk {"index":{"_index":"$A","_id":"made-3-$USER"}}\n{"t":"plain"}\n
  writer POST /$A/_bulk {"create":{"_id":"made-4-$USER"}}\n{"t":"plain"}\n
  writer POST /$A/_bulk {"update":{"_id":"made-4-$USER"}}\n{"doc":{"t":"plain"}}\n
  writer POST /$A/_bulk {"delete":{"_id":"made-4-$USER"}}\n
  writer POST /$A/_refresh
  builder POST /$A/_cache/clear?query=true
  builder PUT /$A/_mapping {"properties":{"extra":{"type":"keyword"}}}
  builder PUT /$A/_settings {"index":{"refresh_interval":"1s"}}
  builder PUT /$A/_alias/$OWN {}
  builder POST /_aliases {"actions":[{"add":{"index":"$A","alias":"$OWN"}}]}
  builder POST /$A/_search {"query":{"script":{"script":"true"}}}
  builder PUT /_scripts/gatehouse_test_s {"script":{"lang":"painless","source":"1"}}
`;

const forEverybody = String.raw`
  reader,stranger,builder GET / /_cluster/health /_cat/health /_cat/indices?format=json /_alias
    | /_resolve/index/* /_data_stream 200
  reader,stranger,builder HEAD / 200
  reader,wide,writer,partial,builder,owner,admin HEAD /$A/_doc/1 /$A 200
  stranger,narrow HEAD /$A/_doc/1 /$A 403
  # Lists name only what the caller may read
  reader,partial,narrow,stranger GET /_cat/indices?format=json /_cat/indices/gatehouse_test_*
    | /_alias /_alias/gatehouse_test_* /_resolve/index/* /_resolve/index/gatehouse_test_*
    | /_data_stream 200 -$B -$PUBLIC -$ALIAS -$DOT
  reader,partial,narrow,stranger GET /_alias/$PUBLIC 404 -$B
  partial GET /_cat/indices?format=json 200 +$A
  builder GET /_alias/$PUBLIC 200 +$B
  # Indexes of the server itself are not meant
  builder POST /_all/_search {"query":{"match":{"t":"$SECRET"}}} 200 +$B -$DOT
  builder POST /_msearch {}\n{"query":{"match":{"t":"$SECRET"}}}\n 200 +$B -$DOT
  narrow GET /$LOGS/_search 200
  writer POST /$Q/_search
    | {"query":{"percolate":{"field":"query","document":{"k":"k1","x":{"t":"no query"}}}}} 200
  builder PUT /$NEW 200
  partial DELETE /$NEW 403 role_insufficient
  builder DELETE /$NEW 200
`;

/** The gateway seals handles, and only their user can open them. */
const handles = `
  reader POST /$A/_search?scroll=1m&size=10 $ALL 200 SCROLL=_scroll_id
  writer,builder POST /_search/scroll {"scroll_id":"$SCROLL","scroll":"1m"} 404 handle_not_found
  writer DELETE /_search/scroll {"scroll_id":["$SCROLL"]} 404 handle_not_found
  reader POST /_search/scroll {"scroll_id":"$SCROLL","scroll":"1m"} 200 NEXT=_scroll_id
  reader POST /_search {"pit":{"id":"$NEXT"}} 404 handle_not_found
  reader DELETE /_search/scroll {"scroll_id":["$NEXT"]} 200
  reader POST /$B/_search/point_in_time?keep_alive=1m 403
  reader POST /$A/_search/point_in_time?keep_alive=1m 200 PIT=pit_id
  writer POST /_search {"pit":{"id":"$PIT","keep_alive":"1m"}} 404 handle_not_found
  reader POST /$A/_search {"pit":{"id":"$PIT"}} 400
  reader POST /_search {"pit":{"id":"$PIT"},"query":$TERMS} 403 no_grant
  reader POST /_search {"pit":{"id":"$PIT","keep_alive":"1m"},"size":5} 200 LATER=pit_id
  writer DELETE /_search/point_in_time {"pit_id":["$LATER"]} 404 handle_not_found
  reader DELETE /_search/point_in_time {"pit_id":["$LATER"]} 200
`;

/** Names of B in a search of A, in every position that the server knows. */
const searchesOfB = [
  '{"query":$TERMS}',
  '{"query":{"bool":{"filter":[{"constant_score":{"filter":$TERMS}}]}}}',
  '{"query":{"terms":{"k":{"index":"$PUBLIC","id":"1","path":"k"}}}}',
  '{"post_filter":$TERMS}',
  '{"rescore":{"query":{"rescore_query":$TERMS}}}',
  '{"aggs":{"x":{"filter":$TERMS}}}',
  '{"aggs":{"x":{"global":{},"aggs":{"y":{"filters":{"filters":{"z":$TERMS}}}}}}}',
  '{"aggs":{"x":{"filters":{"filters":[$TERMS]}}}}',
  '{"aggs":{"x":{"significant_terms":{"field":"k","background_filter":$TERMS}}}}',
  '{"highlight":{"fields":{"t":{"highlight_query":$TERMS}}}}',
  '{"sort":[{"k":{"order":"asc","nested":{"path":"n","filter":$TERMS}}}]}',
  '{"query":{"function_score":{"functions":[{"filter":$TERMS,"weight":2}]}}}',
  '{"query":{"nested":{"path":"n","query":{"terms":{"n.k":$LOOK}}}}}',
  '{"query":{"more_like_this":{"fields":["t"],"like":[{"_index":"$B","_id":"1"}]}}}',
  '{"query":{"more_like_this":{"fields":["t"],"like":"x","unlike":{"_index":"$B","_id":"1"}}}}',
  '{"query":{"percolate":{"field":"query","index":"$B","id":"1"}}}',
  '{"query":{"geo_shape":{"g":{"indexed_shape":$LOOK}}}}',
  '{"indices_boost":[{"$B":2}]}',
  '{"indices_boost":{"$B":2}}',
];
const searchLinesOfB = searchesOfB.map((one) => String.raw`{"index":"$A"}\n${one}\n`);

/** Requests that look for B, or for a way around the rules. None may pass. */
const attacks = String.raw`
  reader POST /$A/_search ${searchesOfB.join(" || ")} 403 no_grant
  reader POST /_msearch ${searchLinesOfB.join(" || ")} 403 no_grant
  # Unknown members
  writer POST /$A/_search {"query":{"match_all":{}},"index":"$B"}
    | || {"query":{"wrapper":{"query":"eyJtYXRjaF9hbGwiOnt9fQ=="}}}
    | || {"query":{"bool":{"filter":[{"constant_score":{"filter":{"unheard_of":{}}}}]}}}
    | || {"aggs":{"x":{"unheard_of":{"field":"k"}}}}
    | || {"query":{"terms":{"k":{"index":"$B","id":"1","path":"k","query":{}}}}}
    | || {"query":{"match":{"t":{"query":"x","lookup":"$B"}}}}
    | || {"query":{"match_all":{}},"ext":{"rerank":{}}} 400 unknown_member
  # Code and pipelines, which only a DbAdmin may use
  writer POST /$A/_search {"script_fields":{"x":{"script":"1"}}}
    | || {"sort":{"_script":{"type":"number","script":"1"}}}
    | || {"query":{"script_score":{"query":{"match_all":{}},"script":{"source":"1"}}}}
    | || {"query":{"function_score":{"functions":[{"script_score":{"script":"1"}}]}}}
    | || {"aggs":{"x":{"sum":{"script":"1"}}}}
    | || {"aggs":{"x":{"scripted_metric":{"map_script":"1"}}}}
    | || {"query":{"terms_set":{"k":{"terms":["a"],"minimum_should_match_script":{"source":"1"}}}}}
    | || {"derived":{"x":{"type":"long","script":"emit(1)"}}}
    | || {"runtime_mappings":{"x":{"type":"long","script":"emit(1)"}}} 403
  writer POST /$A/_update/1 /$A/_update_by_query {"script":"ctx.op = 'none'"} 403
  writer POST /$A/_search?search_pipeline=_none {} 403
  writer PUT /$A/_doc/made-5?pipeline=_none {} 403
  writer POST /_bulk?pipeline=_none {"delete":{"_index":"$A","_id":"none"}}\n 403
  writer POST /_bulk {"create":{"_index":"$A","_id":"made-6","pipeline":"_none"}}\n{}\n 403
  writer GET /_scripts/gatehouse_test_s /_index_template/gatehouse_test_t /_index_template 403
  # Closed interfaces
  writer POST /_reindex {"source":{"index":"$B"},"dest":{"index":"$A"}} 404 not_found
  writer POST /_sql /_plugins/_sql /_plugins/_ppl /_query {"query":"select * from $B"} 404 not_found
  writer GET /_tasks /_nodes /_nodes/stats /_cat /_cat/shards /_cat/nodes /_cluster/state
    | /_cluster/settings /_snapshot /_plugins/_security/api/roles /_security/user
    | /$B/_search_shards /_segments /_dangling /_search/point_in_time/_all /_list/indices
    | /_remotestore/metadata/$B /$B/ingestion/_state /views/$B /views/$B/_search 404 not_found
  writer POST /$A/_clone/$NEW /_msearch/template /$A/_rank_eval /views/$B/_search /$A/_scale {}
    | 404 not_found
  writer POST /$A/_search/template /_render/template {"source":"{}"} 404 not_found
  writer POST /_scripts/painless/_execute {"script":"1"} 404 not_found
  # B in the path
  reader POST /$B/_search /$A,$B/_search /$PUBLIC/_search /$A,$PUBLIC/_search $ALL 403 no_grant
  reader GET /%67atehouse_test_b/_search /$A%2C$B/_search 403 no_grant
  reader GET /_all/_search /*/_search /_search /gatehouse_test_*/_search /gatehouse*b/_search
    | 403 name_too_wide
  partial GET /_all/_search /_mapping /_mapping/field/k /_count /_cat/count 403 name_too_wide
  partial POST /_all/_delete_by_query /$PUBLIC/_search $ALL 403
  narrow GET /gatehouse_test_logs-*/_search 403
  narrow POST /$ALIAS/_search $ALL 403
  narrow GET /gatehouse_test_log*/_search 403 name_too_wide
  # B in the body
  reader POST /_mget /_mtermvectors /$A/_mtermvectors {"docs":[{"_index":"$B","_id":"1"}]}
    | 403 no_grant
  reader GET /_cluster/state/metadata/$B 403 no_grant
  reader POST /$A/_mget {"docs":[{"_id":"1"},{"_index":"$B","_id":"1"}]} 403
  reader POST /$A/_msearch {}\n{}\n{"index":"$B"}\n{}\n 403
  reader POST /_msearch {"index":["$A","$B"]}\n{}\n || {"index":"$A,$B"}\n{}\n 403 no_grant
  reader POST /_msearch {}\n{}\n 403 name_too_wide
  writer POST /_bulk $MARK{"index":{"_index":"$B"}}\n{"t":"x"}\n
    | || $MARK{"index":{"_index":"$PUBLIC"}}\n{"t":"x"}\n
    | || $MARK{"create":{"_index":"$NEW"}}\n{"t":"x"}\n
    | || {"index":{"_index":"$B"}}\r\n{"t":"x"}\r\n
    | || {"index":{"_index":"$Q"}}\n$READ\n 403
  writer POST /$A/_bulk $MARK{"delete":{"_index":"$B","_id":"1"}}\n 403
  partial PUT /$NEW/_doc/1 {"t":"plain"} 403 role_insufficient
  partial POST /$NEW/_update/1 {"doc":{"t":"plain"},"upsert":{"t":"plain"}} 403
  partial DELETE /$NEW/_doc/1?version=1&version_type=external 403
  writer PUT /$Q/_doc/1 $READ 403 name_too_wide
  writer POST /$Q/_update/1 {"doc":$READ} 403
  writer POST /$B/_search x-http-method-override:DELETE {} 403
  stranger PUT /$A/_alias/$NEW {} 403
  writer POST /_aliases {"actions":[{"add":{"index":"$B","alias":"$NEW"}}]} 403
  reader PUT /$A/_alias/$NEW {"filter":$TERMS} 403
  narrow POST /$A/_search $ALL 403 no_grant
  # A denial does not tell what an alias means, and names the action
  reader POST /$PUBLIC/_search $ALL 403 no_grant -$B
  writer POST /_bulk {"delete":{"_index":"$B","_id":"1"}}\n 403 no_grant +"element":0
  writer POST /_bulk $MARK{"delete":{"_index":"$B","_id":"1"}}\n 403 no_grant +"element":1
  # Queries in documents that the server parses
  writer POST /$Q/_search {"query":{"percolate":{"field":"query","document":$READ}}}
    | || {"query":{"percolate":{"field":"query","documents":[{},{"x.query":[$TERMS]}]}}}
    | || {"query":{"percolate":{"field":"query","index":"$A","id":"1"}}} 403 name_too_wide
  wide POST /$Q/_search {"query":{"percolate":{"field":"query","document":$READ}}}
    | 403 role_insufficient
  writer POST /_msearch
    | {"index":"$Q"}\n{"query":{"percolate":{"field":"query","document":{"x":$READ}}}}\n
    | 403 name_too_wide
  writer POST /$A/_search
    | {"query":{"more_like_this":{"fields":["t"],"like":[{"_index":"$Q","doc":$READ}]}}}
    | 403 name_too_wide
  writer POST /$Q/_termvectors {"doc":$READ} 403 name_too_wide
  writer POST /_mtermvectors {"docs":[{"_index":"$Q","doc":$READ}]} 403 name_too_wide
  # Forms that no caller may send
  writer GET /%2567atehouse_test_b/_search /GATEHOUSE_TEST_A/_search /gatehouse_test_*,-$A/_search
    | /-$A/_search /%3Cgatehouse_test_logs-%7Bnow%2Fd%7D%3E/_search /other:$A/_search
    | /$DOT/_search /$A,,$B/_search /$A/_search?size=1&size=2 /$A/_search?expand_wildcards=all
    | /$A/_search?expand_wildcards=open,hidden 400 bad_request
  writer GET /_search?index=$B /$A/_search?index=$B /$A/_search?source={}
    | /$A/_search?error_trace=true /_cluster/health?level=indices 400 unknown_parameter
  writer POST /$A/_update_by_query?wait_for_completion=false {} 400 bad_request
  writer POST /_mget {"docs":[{"_id":"1"}]} 400 bad_request
  writer POST /$A/_msearch {"index":[]}\n{}\n || {}\n || {}\n{} || {}\n{"pit":{"id":"x"}}\n
    | 400 bad_request
  writer POST /_msearch {"index":"$A","indices":["$B"]}\n{}\n 400 unknown_member
  writer POST /$A/_msearch \n{}\n 400 invalid_json
  writer POST /_msearch {"index":"$A","expand_wildcards":"all"}\n{}\n 400 bad_request
  writer POST /_bulk {"index":{}}\n{"t":"plain"}\n || {"erase":{"_index":"$A"}}\n
    | || {"delete":{"_index":"$A","_id":"9"},"index":{"_index":"$B"}}\n
    | || {"delete":{"_index":"$A","_id":"9"}} || {"index":{"_index":"$A","_id":"marked"}}\n
    | || ["index"]\n{"t":"plain"}\n 400 bad_request
  writer POST /gatehouse_test_*/_bulk /$A,$B/_bulk $MARK 400 bad_request
  writer POST /_bulk {"index":{"_index":"$A","_index":"$B"}}\n{}\n
    | || {"index":{"_index":"$A","\u005findex":"$B"}}\n{}\n
    | || {"index":{"_index":"$A"},"index":{"_index":"$B"}}\n{}\n 400 duplicate_key
  writer POST /_bulk {"index":{"_index":"$A","_type":"$B"}}\n{"t":"plain"}\n 400 unknown_member
  writer POST /_bulk $MARK\n{"index":{"_index":"$B"}}\n{"t":"plain"}\n 400 invalid_json
  writer POST /_bulk {"delete":{"_index":"$A","_id":"9"}}\r{"delete":{"_index":"$B","_id":"1"}}\n
    | 400 trailing_data
  writer POST /$A/_search content-type:application/yaml query: all 415 unsupported_media_type
  writer POST /$A/_search content-type:application/cbor {} 415 unsupported_media_type
  writer POST /$A/_search [] || {"query":{"script":{"boost":null}}} 400 bad_request
  writer POST /_search/scroll {"scroll_id":"RG5fX"} 404 handle_not_found
  writer DELETE /_search/scroll {"scroll_id":"_all"} 404 handle_not_found
  writer DELETE /_search/scroll/_all /_search/point_in_time/_all 404 not_found
  writer POST /_search {"pit":{"id":"46ToAwMDaWR5"}} 404 handle_not_found
  writer GET /_cluster/state /_cluster/state/metadata /_cluster/state/_all/$A 404 not_found
  writer POST /$A/_termvectors/1 {"_index":"$B"} 400 unknown_member
  writer POST /$A/_termvectors/1 {"filter":1} || {"filter":[{}]} || {"filter":null} 400 bad_request
  writer PUT /$A/_alias/$NEW {"index":"$B"} 400 unknown_member
`;

const settings = '"settings":{"number_of_shards":1,"number_of_replicas":0}';
const fields = '"k":{"type":"keyword"},"t":{"type":"text"},"g":{"type":"geo_shape"}';
const index = `${settings},"mappings":{"properties":{${fields}}}`;

const content = `
  operator PUT /$A {${index},"aliases":{"$OWN":{}}}
  operator PUT /$B {${index},"aliases":{"$PUBLIC":{},"$ALIAS":{}}}
  operator PUT /$LOGS /$DOT {${index}}
  operator PUT /$Q {${settings},"mappings":{"properties":{"query":{"type":"percolator"},${fields}}}}
  operator POST /$A/_bulk $DOCUMENTS
  operator PUT /$B/_doc/1
    | {"t":"secret $SECRET","k":"$SECRET","g":{"type":"point","coordinates":[1,2]}}
  operator PUT /$LOGS/_doc/1 {"t":"a line of the log","k":"k1"}
  operator PUT /$DOT/_doc/1 {"t":"$SECRET"}
  operator POST /$A,$B,$LOGS,$DOT/_refresh
`;

const protectedState = `
  operator GET /$A/_doc/marked /$B/_doc/1
  operator HEAD /$NEW
`;

const samples = String.raw`
  reader GET /$A/_search?q=plain&sort=n /$A/_doc/3 /$A/_field_caps?fields=* /$A/_mapping /_alias
    | /_cat/indices?h=index /_resolve/index/* /$B/_search /$PUBLIC/_doc/1
  reader POST /$A/_search {"query":{"match_all":{}},"sort":["n"],"size":3}
    | || {"query":{"match":{"t":"plain"}},"size":2} || {"query":$TERMS}
    | || {"query":{"terms":{"k":{"index":"$A","id":"1","path":"k"}}},"sort":["n"]}
    | || {"size":0,"aggs":{"all":{"terms":{"field":"k"}}}}
  reader POST /$A/_count {"query":{"term":{"k":"k1"}}}
  reader POST /_msearch {"index":"$A"}\n{"size":1}\n{"index":"$OWN"}\n{"size":1}\n
  reader POST /_mget {"docs":[{"_index":"$A","_id":"1"},{"_index":"$OWN","_id":"2"}]}
`;

/** What `reader` sees is the same, whether B exists or not. */
async function checkIndifference(run: SuiteRun): Promise<void> {
  await run.checkUnchanged("reader", samples, async () => {
    await run.direct(remove(`/${B}`));
    // Longer than the gateway remembers what an alias means.
    await delay(1200);
  });
}

export const opensearchSuite: Suite = {
  preset: opensearch,
  grants: [
    { user: "reader", database: "main", role: "ReadOnly", tables: [A] },
    { user: "writer", database: "main", role: "ReadWrite", tables: [A, QUERIES] },
    { user: "narrow", database: "main", role: "ReadOnly", tables: ["gatehouse_test_logs-*"] },
    { user: "wide", database: "main", role: "ReadOnly" },
    { user: "partial", database: "main", role: "ReadWrite" },
    { user: "partial", database: "main", role: "None", tables: [B] },
    { user: "builder", database: "main", role: "DbAdmin" },
    { user: "owner", database: "main", role: "Owner" },
    { user: "stranger", database: "elsewhere", role: "Owner" },
  ],
  names,
  async run(run) {
    await run.fill(content);
    await run.checkRoles(onA, false, others);
    await run.checkTable(forEverybody);
    await run.checkUnchanged("operator", protectedState, async () => {
      await run.checkForms(opensearch, "builder", { index: A });
      await run.checkTable(attacks);
    });
    await run.checkTable(handles);
    await checkIndifference(run);
  },
  clean: async (direct) => {
    for (const index of [A, B, LOGS, QUERIES, NEW, DOT]) await direct(remove(`/${index}`));
    await direct(remove("/_scripts/gatehouse_test_s"));
  },
};
