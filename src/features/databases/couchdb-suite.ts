import { setTimeout as delay } from "node:timers/promises";
import { couchdb } from "./couchdb.ts";
import { get, put, remove, roles, SECRET, type Suite, type SuiteRun } from "./suite.ts";

const ALPHA = "gatehouse_test_a";
const BRAVO = "gatehouse_test_b";
const NEW = "gatehouse_test_new";
/** A feed without news stays open for longer than this. */
const FEED_MS = 700;

const names = {
  A: ALPHA,
  B: BRAVO,
  NEW,
  SECRET,
  REV: "1-0123456789abcdef0123456789abcdef",
  U: `http://127.0.0.1:1/${ALPHA}`,
  LONG: "x".repeat(70_000),
  // As CouchDB's replicator sends a document with an attachment.
  RELATED: 'multipart/related;boundary="x"',
  JSON: String.raw`--x\r\ncontent-type: application/json\r\n\r\n`,
  FILE: String.raw`\r\n--x\r\ncontent-disposition: attachment; filename="a.txt"\r\n\r\n{"_id":"_design/evil"}\r\n--x--`,
};

const content = `
  operator PUT /$A /$B
  operator PUT /$A/a {"n":1}
  operator PUT /$A/b%2Fc {"n":2}
  operator PUT /$A/_design/app /$B/_design/app
    | {"views":{"all":{"map":"function (doc) { emit(doc._id, null); }"}},
    | "filters":{"all":"function () { return true; }"},"language":"javascript"}
  operator PUT /$B/$SECRET /$B/_local/point {"secret":"$SECRET"}
`;
const protectedState = `
  operator GET /$B/_all_docs?include_docs=true /$B/_security /$B/_local/point /$A/_security
    | /$A/_design/app
`;

const reads = `
  reader GET /$A /$A/ /$A/a /$A/b%2Fc /$A/_design/app /$A/_design%2Fapp /$A/_all_docs /$A/_index
    | /$A/_design/app/_view/all /$A/_design/app/_info /$A/_changes?style=all_docs
    | /$A/_changes?filter=app%2Fall&since=0
  reader POST /$A/_all_docs?include_docs=true /$A/_design/app/_view/all {"keys":["a"]}
  reader POST /$A/_find {"selector":{"n":{"$gt":0}},"limit":5}
  reader POST /$A/_explain {"selector":{"n":1}}
  reader POST /$A/_changes?filter=_doc_ids {"doc_ids":["a"]}
  reader POST /$A/_bulk_get?revs=true {"docs":[{"id":"a"}]}
  reader POST /$A/_revs_diff {"a":["1-abc"]}
  reader POST /$A/_ensure_full_commit {}
  reader PUT /$A/_local/mine {"n":1}
  reader GET /$A/_local%2Fmine
`;

const writes = `
  operator POST /$A/_bulk_docs {"new_edits":false,"docs":[{"_id":"changed-$USER","_rev":"$REV"},
    | {"_id":"attached-$USER","_rev":"$REV"},{"_id":"deleted-$USER","_rev":"$REV"}]}
  writer PUT /$A/changed-$USER?rev=$REV {"by":"$USER"}
  writer PUT /$A/attached-$USER/a/b.txt?rev=$REV content-type:text/plain attached
  writer DELETE /$A/deleted-$USER?rev=$REV
  writer COPY /$A/a destination:copy-$USER
  builder COPY /$A/a destination:_design/copy-$USER
  writer POST /$A {"by":"$USER"}
  writer PUT /$A/new-$USER {"by":"$USER"}
  writer POST /$A/_bulk_docs {"docs":[{"by":"$USER"},{"by":"$USER"}]}
    | || {"new_edits":false,"docs":[{"_id":"r-$USER","_rev":"$REV"}]}
    | || {"docs":[{"_id":"gone","_deleted":true}]}
  builder PUT /$A/_design/of-$USER /$A/_design%2Ftoo-$USER {"views":{}}
  builder POST /$A/_bulk_docs {"docs":[{"_id":"_design/bulk-$USER"}]}
  builder POST /$A {"_id":"_design/post-$USER"}
  builder POST /$A/_index {"index":{"fields":["n"]},"ddoc":"index-n","name":"n"}
  builder GET /$A/_security
  builder POST /$A/_compact {}
  owner PUT /$A/_security {"members":{"names":[],"roles":[]}}
`;

const optional = `
  reader GET /$A/_design_docs /$A/_revs_limit
  reader POST /$A/_all_docs/queries {"queries":[{"keys":["a"]},{"limit":1}]}
  reader POST /$A/_design/app/_view/all/queries /$A/_design/app/_view/all {"queries":[{"limit":1}]}
  reader POST /$A/_missing_revs {"a":["1-abc"]}
  reader POST /_dbs_info {"keys":["$A"]}
  builder PUT /$A/_revs_limit 1000
  builder POST /$A/_view_cleanup /$A/_compact/app {}
  builder POST /$A/_purge {"gone":["$REV"]}
  builder POST /$A/_index/_bulk_delete {"docids":[]}
  builder DELETE /$A/_index/_design/index-n/json/n
`;

/** The server may have further databases. */
const servers = `
  reader GET /_session 200 +"name":"reader"
  reader,wide GET /_all_dbs 200 +$A -$B -_users
  stranger GET /_all_dbs 200 +$B -$A
  narrow,guest GET /_all_dbs 200 -$A -$B
  admin GET /_all_dbs 200 +$A +$B -_users
  # A page counts only what the caller may read
  reader GET /_all_dbs?limit=1&startkey=%22$A%22 200 +["$A"]
  reader GET /_all_dbs?skip=1 200 +[]
  stranger GET / /_uuids?count=2 /_session /_all_dbs 200
  reader,writer,builder PUT /$NEW 403
  reader,writer,builder DELETE /$A 403 role_insufficient
  owner PUT /$NEW 201
  owner DELETE /$NEW 200
  operator GET /$A 200
`;

/** They are stored for each user. */
const checkpoints = `
  reader PUT /$A/_local/point {"_id":"_local/point","seq":7} 201
  reader GET /$A/_local/point /$A/_local%2Fpoint 200 +"seq":7 +"_id":"_local/point" OWN=_rev
  operator GET /$A/_local/point 404
  writer,builder,owner,admin GET /$A/_local/point 404
  reader PUT /$A/_local/point {"_id":"_local/point","_rev":"$OWN","seq":8} 201
  reader PUT /$A/_local/point {"_id":"_local/other","seq":8} 400 bad_request
  reader PUT /$A/_local/big {"text":"$LONG"} 413
  writer PUT /$A/_local/big {"text":"$LONG"} 201
  stranger GET /$A/_local/point 403
  reader GET /$A/_local/point/attached /$A/_local%2Fpoint/attached 404 not_found
`;

/** The answer to a denied element of a bulk names it, and nothing is written. */
const elements = `
  writer POST /$A/_bulk_docs {"docs":[{"_id":"part-1"},{"_id":"part-2"},{"_id":"_design/part"}]}
    | 403 +"element":2
  operator GET /$A/part-1 404
`;

const replication = `
  ${roles.join()} POST /_replicate {"source":"$A","target":"$NEW","create_target":true} 403
  admin POST /_replicate {"source":"$U","target":"$NEW"} || {"source":"$A","target":"$U"}
    | || {"source":{"url":"$U"},"target":"$NEW"}
    | || {"source":"$A","target":{"url":"$U","headers":{}}}
    | || {"source":"_users","target":"$NEW"} || {"source":"$A","target":"_replicator"}
    | || {"source":"../$B","target":"$NEW"} || {"source":["$B"],"target":"$NEW"}
    | || {"source":"$A"} 404 not_found
  admin POST /_replicate {"source":"$A","target":"$NEW","proxy":"$U"}
    | || {"source":"$A","target":"$NEW","user_ctx":{"name":"root"}}
    | || {"source":"$A","target":"$NEW","source_proxy":"$U"} 400 unknown_member
  admin POST /_replicate {"source":"$A","target":"$NEW","create_target":true} 200
`;

/** Refused whatever the caller may do with `gatehouse_test_a`. */
const attacks = String.raw`
  owner GET /$B /$B/$SECRET /$B/_all_docs?include_docs=true /gatehouse_test%5Fb/_all_docs
    | /GATEHOUSE_TEST_B/_all_docs 403
  owner GET /$A,$B/_all_docs 404
  owner GET /$A%2F..%2F$B/_all_docs /$A/../$B/_all_docs /$A//$B /$A/..%2f..%2f$B
    | /$A/a/..%2f..%2f..%2f$B%2f$SECRET /$A/a/..%5c..%5c$B /$A;$B/_all_docs 400 path_not_canonical
  owner POST /_dbs_info {"keys":["$A","$B"]} 403
  owner POST /_dbs_info {"keys":["_users"]} 404 not_found
  wide GET /$B/_all_docs 403
  wide POST /_dbs_info {"keys":["$B"]} 403
  narrow GET /$A/_all_docs /$A/a 403
  admin GET /_users/_all_docs /_replicator/_all_docs /_users /_node/_local/_config /_config
    | /_active_tasks /_scheduler/jobs /_db_updates /_membership /_utils/ /_stats /_all_dbs/x
    | /$A/_local_docs /$A/_local_docs?include_docs=true /$A/_shards /$A/_design /$A/_local
    | /$A/_design/app/_show/x/a /$A/_design/app/_list/x/all /$A/_design/app/_update/x
    | /$A/_design/app/_rewrite/x 404
  admin GET /$A/_design/app/_rewrite/..%2f..%2f..%2f$B 400
  admin POST /$A/_temp_view {"map":"function () {}"} 404
  admin POST /_session {"name":"admin","password":"x"} 404
  writer PUT /$A/_design/evil /$A/_design%2fevil /$A/%5fdesign/evil /$A/%5Fdesign%2Fevil
    | {"views":{}} 403
  writer PUT /$A/_design/evil/attached.js /$A/_design%2Fevil/attached.js /$A/_security {} 403
  writer DELETE /$A/_design/app?rev=1-0 /$A/_index/_design/app/json/all
    | /$A/_index/_design%2Fapp/json/all 403
  writer POST /$A {"_id":"\u005fdesign/evil"} || {"\u005fid":"_design/evil"} 403
  writer POST /$A/_bulk_docs {"docs":[{"_id":"fine"},{"_id":"_design/evil"}]}
    | || {"new_edits":false,"docs":[{"_id":"_design/evil"}]} 403
  writer PUT /$A/fine {"_id":"_design/evil"} 400 bad_request
  writer PUT /$A/fine {"_id":"fine","_id":"_design/evil"} 400
  writer POST /$A {"_id":["_design/evil"]} || {"_id":"_security"} 400 bad_request
  writer POST /$A/_bulk_docs {"docs":[{"_id":"_local/theirs"}]} ||
    | {"docs":[{"_id":"x","_deleted":"true"}]} || {"docs":[],"new_edits":"false"} ||
    | [{"_id":"_design/evil"}] 400 bad_request
  writer PUT /$A/x?new_edits=0 {} 400 bad_request
  writer POST /$A/_bulk_docs {"docs":[],"optionen":1} 400 unknown_member
  writer POST /$A/_index {"index":{"fields":["n"]}} 403
  builder PUT /$A/_security {} 403
  writer POST /$A/_purge {"a":["1-0"]} 403
  writer PUT /$A/_revs_limit 1 403
  writer COPY /$A/a destination:_design/evil 403
  writer COPY /$A/a destination:_design%2Fevil 403
  writer COPY /$A/a destination:%5Fdesign/evil 400
  writer COPY /$A/a destination:%5fdesign%2fevil 403
  writer COPY /$A/a destination:../$B/x 400 bad_request
  writer COPY /$A/a destination:..%2F$B%2Fx 400 bad_request
  writer COPY /$A/a destination:/$B/x 400 bad_request
  writer COPY /$A/a destination:http://127.0.0.1/$B/x 400 bad_request
  writer COPY /$A/a destination:_local/x 400 bad_request
  writer COPY /$A/a destination:x?rev=1-0&new_edits=false 400 bad_request
  writer COPY /$A/a 400 bad_request
  writer COPY /$A/_local/mine destination:stolen 405
  writer COPY /$A/_local%2Fmine destination:stolen 404 not_found
  reader COPY /$A/a destination:copy 403
  reader PUT /$A/a {"_deleted":true} 403
  reader POST /$A/_bulk_docs {"docs":[{"_id":"gone","_deleted":true}]} 403
  reader POST /$A/_all_docs x-http-method-override:DELETE {} 200
  reader POST /$A x-http-method-override:GET {} 403
  owner MOVE /$A/a 405
  owner POST /$A/a {} 405
  writer GET /$A/_all_docs?keys=%5B%22_local%2Fpoint%22%5D&include_docs=true 400
  writer POST /$A/_all_docs?include_docs=true {"keys":["_local/point"]} 400
  writer POST /$A/_all_docs {"keys":["\u005flocal/point"]} 400
  writer POST /$A/_all_docs/queries /$A/_all_docs {"queries":[{"keys":["_local/point"]}]} 400
  writer POST /$A/_all_docs?key=%22_local%2Fpoint%22 {"queries":[{}]} 400
  reader POST /$A/_all_docs {"queries":[{}],"keys":["a"]} 400 unknown_member
  writer POST /$A/_bulk_get {"docs":[{"id":"_local/point"}]} 400
  reader GET /$A/_all_docs?limit=1&limit=2 /$A/_all_docs?limit=1&l%69mit=2 /$A/_changes?filter=x
    | /$A/_changes?feed=forever 400 bad_request
  reader GET /$A/_changes?FEED=continuous 400 unknown_parameter
  reader GET /$A/_all_docs;limit=1 400 path_not_canonical
  reader POST /$A/_changes {"source":"$B"} 400 unknown_member
  reader POST /$A/_find {"selector":{},"db":"$B"} 400 unknown_member
  writer POST /$A?batch=ok x-couch-full-commit:false {"_id":"_design/evil"} 403
  writer PUT /$A/related content-type:$RELATED $JSON{"_id":"_design/evil"}$FILE
    | || $JSON{"_id":"a","_id":"b"}$FILE 400
  writer PUT /$A/_design/evil /$A/_design%2Fevil content-type:$RELATED
    | $JSON{"_attachments":{}}$FILE 403
  writer PUT /$A/_local%2Frelated content-type:$RELATED $JSON{}$FILE 415
  reader PUT /$A/related content-type:$RELATED $JSON{}$FILE 403
  # A server that reads parts by name would take this for the document
  writer PUT /$A/related content-type:$RELATED
    | $JSON{}\r\n--x\r\ncontent-disposition: attachment; name="doc"\r\n\r\n{}\r\n--x--
    | || $JSON{}\r\n--x\r\ncontent-disposition: attachment; filename="a"\r\ncontent-disposition: x\r\n\r\n{}\r\n--x--
    | 400
  writer PUT /$A/related content-type:multipart/related;boundary="y" $JSON{}$FILE 400
  writer PUT /$A/related content-type:multipart/related;boundary=x;boundary=y $JSON{}$FILE 400
  writer PUT /$A/related content-type:multipart/related;boundary="x $JSON{}$FILE 400
  writer PUT /$A/related content-type:multipart/mixed;boundary=x $JSON{}$FILE 415
  operator GET /$A/_all_docs?startkey=%22_design%2Fe%22&endkey=%22_design%2Ff%22 200 -evil
`;

async function checkFeeds(run: SuiteRun): Promise<void> {
  const grant = `/_gatehouse/api/access/watcher/${ALPHA}`;
  for (const feed of ["continuous", "longpoll", "eventsource"]) {
    await run.as("admin")(put(grant, { role: "ReadOnly" }));
    const path = `/${ALPHA}/_changes?feed=${feed}&since=now&heartbeat=300`;
    let isOpen = true;
    const watcher = run.as("watcher");
    const answer = watcher(get(path)).then((ended) => {
      isOpen = false;
      return ended;
    });
    await delay(FEED_MS);
    const wasOpen = isOpen;
    const started = performance.now();
    await run.as("admin")(remove(grant));
    const ended = await answer;
    const took = performance.now() - started;
    // PouchDB Server answers `eventsource` at once.
    if (!wasOpen && feed === "eventsource") continue;
    const holds = wasOpen && took < 1500;
    run.held(`a ${feed} feed ends with its right`, holds, `${Math.round(took)} ms ${ended.text}`);
  }
}

export const couchdbSuite: Suite = {
  preset: couchdb,
  grants: [
    { user: "stranger", database: BRAVO, role: "Owner" },
    { user: "reader", database: ALPHA, role: "ReadOnly" },
    { user: "writer", database: ALPHA, role: "ReadWrite" },
    { user: "builder", database: ALPHA, role: "DbAdmin" },
    { user: "owner", database: ALPHA, role: "Owner" },
    { user: "owner", database: NEW, role: "Owner" },
    { user: "narrow", database: ALPHA, role: "ReadOnly", tables: ["a"] },
    { user: "wide", database: "*", role: "Owner" },
    { user: "wide", database: BRAVO, role: "None" },
    { user: "guest", database: "gatehouse_test_none", role: "ReadOnly" },
    { user: "watcher", database: ALPHA, role: "ReadOnly" },
  ],
  names,
  async run(run) {
    await run.fill(content);
    await run.checkTable(servers);
    await run.checkRoles(reads + writes, false);
    // PouchDB Server has none of these.
    await run.checkRoles(optional, true);
    await run.checkTable(checkpoints + elements);
    await run.checkUnchanged("operator", protectedState, async () => {
      await run.checkForms(couchdb, "owner", { database: ALPHA });
      await run.checkTable(attacks);
    });
    await checkFeeds(run);
    await run.checkTable(replication);
  },
  async clean(direct) {
    for (const name of [ALPHA, BRAVO, NEW]) await direct(remove(`/${name}`));
  },
};
