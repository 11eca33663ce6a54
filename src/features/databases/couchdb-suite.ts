import { setTimeout as delay } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { couchdb } from "./couchdb.ts";
import {
  answersTo,
  attacksByForm,
  checkAttacks,
  checkRoles,
  checkSame,
  described,
  expectAll,
  fill,
  get,
  member,
  post,
  put,
  readTable,
  remove,
  roles,
  SECRET,
  type Send,
  type Suite,
  type SuiteContext,
  type SuiteRequest,
  type TableRow,
  withCoding,
  withType,
} from "./suite.ts";

const ALPHA = "gatehouse_test_a";
const BRAVO = "gatehouse_test_b";
const NEW = "gatehouse_test_new";
/** A feed without news stays open for longer than this. */
const FEED_MS = 700;

const text = (body: string): Buffer => Buffer.from(body);
const at = (rest: string, database = ALPHA): string => `/${database}/${rest}`;

async function clean(direct: Send): Promise<void> {
  for (const name of [ALPHA, BRAVO, NEW]) await direct(remove(`/${name}`));
}

const names = { A: ALPHA, B: BRAVO, NEW, SECRET, REV: "1-0123456789abcdef0123456789abcdef" };

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

/** PouchDB Server has none of these. */
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

async function checkServer(context: SuiteContext): Promise<void> {
  const { as, held } = context;
  const session = await as("reader")(get("/_session"));
  const name = member(session.json, "userCtx", "name");
  held("_session tells the caller's name", name === "reader", described(session));
  for (const [user, sees] of [
    ["reader", [ALPHA]],
    ["stranger", [BRAVO]],
    ["wide", [ALPHA]],
    ["narrow", []],
    ["guest", []],
    ["admin", [ALPHA, BRAVO]],
  ] as const) {
    const { json, text } = await as(user)(get("/_all_dbs"));
    const seen = Array.isArray(json) ? json : [text];
    const ours = seen.filter((one) => String(one).startsWith("gatehouse_test_")).sort();
    const isRight = ours.join() === sees.join() && !seen.some((one) => String(one).startsWith("_"));
    held(`${user} sees ${sees.join(" and ") || "no database"} in _all_dbs`, isRight, text);
  }
  const first = await as("reader")(get(`/_all_dbs?limit=1&startkey=%22${ALPHA}%22`));
  held("a limit counts only what the caller may read", first.text === `["${ALPHA}"]`, first.text);
  const skipped = await as("reader")(get("/_all_dbs?skip=1"));
  held("skip counts only what the caller may read", skipped.text === "[]", skipped.text);
  const table = `
  stranger GET / /_uuids?count=2 /_session /_all_dbs 200
  reader,writer,builder PUT /$NEW 403
  reader,writer,builder DELETE /$A 403 role_insufficient
  owner PUT /$NEW 201
  owner DELETE /$NEW 200
  operator GET /$A 200
`;
  await expectAll(context, table, names);
}

async function checkCheckpoints(context: SuiteContext): Promise<void> {
  const { as, held, expect } = context;
  const path = at("_local/point");
  await expect("reader", put(path, { _id: "_local/point", seq: 7 }), 201);
  const own = await as("reader")(get(path));
  const isOwn = member(own.json, "seq") === 7 && member(own.json, "_id") === "_local/point";
  held("a reader finds its own checkpoint", isOwn, described(own));
  const encoded = await as("reader")(get(at("_local%2Fpoint")));
  held("an encoded slash means the same checkpoint", encoded.text === own.text, described(encoded));
  // They are stored for each user.
  await expect("operator", get(path), 404);
  const rev = String(member(own.json, "_rev"));
  const table = `
  writer,builder,owner,admin GET /$A/_local/point 404
  reader PUT /$A/_local/point {"_id":"_local/point","_rev":"${rev}","seq":8} 201
  reader PUT /$A/_local/point {"_id":"_local/other","seq":8} 400 bad_request
  reader PUT /$A/_local/big {"text":"$LONG"} 413
  writer PUT /$A/_local/big {"text":"$LONG"} 201
  stranger GET /$A/_local/point 403
  reader GET /$A/_local/point/attached /$A/_local%2Fpoint/attached 404 not_found
`;
  await expectAll(context, table, { ...names, LONG: "x".repeat(70_000) });
}

async function checkReplication(context: SuiteContext): Promise<void> {
  const local = { source: ALPHA, target: NEW, create_target: true };
  const table = `
  ${roles.join()} POST /_replicate ${JSON.stringify(local)} 403
  admin POST /_replicate {"source":"$U","target":"$NEW"} || {"source":"$A","target":"$U"}
    | || {"source":{"url":"$U"},"target":"$NEW"}
    | || {"source":"$A","target":{"url":"$U","headers":{}}}
    | || {"source":"_users","target":"$NEW"} || {"source":"$A","target":"_replicator"}
    | || {"source":"../$B","target":"$NEW"} || {"source":["$B"],"target":"$NEW"}
    | || {"source":"$A"} 404 not_found
  admin POST /_replicate {"source":"$A","target":"$NEW","proxy":"$U"}
    | || {"source":"$A","target":"$NEW","user_ctx":{"name":"root"}}
    | || {"source":"$A","target":"$NEW","source_proxy":"$U"} 400 unknown_member
`;
  await expectAll(context, table, { ...names, U: `http://127.0.0.1:1/${ALPHA}` });
  const answer = await context.as("admin")(post("/_replicate", local));
  const isDone = answer.status === 200;
  context.held("an administrator replicates local databases", isDone, described(answer));
}

/** As CouchDB's replicator sends a document with an attachment. */
function related(path: string, document: string, head = 'filename="a.txt"'): SuiteRequest {
  const parts = [
    `--x\r\ncontent-type: application/json\r\n\r\n${document}`,
    `--x\r\ncontent-disposition: attachment; ${head}\r\n\r\n{"_id":"_design/evil"}`,
    "--x--",
  ];
  return withType(put(at(path), text(parts.join("\r\n"))), 'multipart/related; boundary="x"');
}

const parts = related("related", "{}");
const compressedDesign = gzipSync('{"docs":[{"_id":"_design/evil"}]}');

/** Refused whatever the caller may do with `gatehouse_test_a`. */
const attacks: readonly TableRow[] = [
  ...attacksByForm(couchdb, "owner", { database: ALPHA }),
  ...readTable(
    String.raw`
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
`,
    names,
  ),
  ...(
    [
      ["writer", post(at("_find"), Buffer.from('{"selector":{"a":"\xff', "latin1")), 400],
      ["writer", related("related", '{"_id":"_design/evil"}'), 400],
      ["writer", related("_design/evil", '{"_attachments":{}}'), 403],
      ["writer", related("_design%2Fevil", '{"_attachments":{}}'), 403],
      ["writer", related("_local%2Frelated", "{}"), 415],
      ["writer", related("related", "{}", 'name="doc"'), 400],
      ["writer", related("related", "{}", 'filename="a"\r\ncontent-disposition: x'), 400],
      ["writer", related("related", '{"_id":"a","_id":"b"}'), 400],
      ["writer", withType(parts, 'multipart/related; boundary="y"'), 400],
      ["writer", withType(parts, "multipart/related; boundary=x; boundary=y"), 400],
      ["writer", withType(parts, 'multipart/related; boundary="x'), 400],
      ["writer", withType(parts, "multipart/mixed; boundary=x"), 415],
      ["reader", parts, 403],
      ["writer", withType(post(at("related"), {}), "multipart/form-data; boundary=x"), 405],
      ["writer", withCoding(post(at("_bulk_docs"), compressedDesign), "gzip"), 403],
    ] as const
  ).map(([user, request, status], at): TableRow => {
    const title = `${request.method} ${request.path} (${at})`;
    return { title, user, request, statuses: [status] };
  }),
];

async function attack(context: SuiteContext): Promise<void> {
  const { direct, held } = context;
  const before = await answersTo(direct, protectedState, names);
  await checkAttacks(context, attacks);
  const after = await answersTo(direct, protectedState, names);
  checkSame(context, "nothing that is protected was changed", before, after);
  const designs = get(at("_all_docs?startkey=%22_design%2Fe%22&endkey=%22_design%2Ff%22"));
  const listed = await direct(designs);
  held("no writer made a design document", !listed.text.includes("evil"), described(listed));
}

/** The answer to a denied element of a bulk names it, and nothing is written. */
async function checkElements({ as, held, expect }: SuiteContext): Promise<void> {
  const docs = [{ _id: "part-1" }, { _id: "part-2" }, { _id: "_design/part" }];
  const answer = await as("writer")(post(at("_bulk_docs"), { docs }));
  const element = member(answer.json, "element");
  held("a denial names the document of a bulk", element === 2, described(answer));
  await expect("operator", get(at("part-1")), 404);
}

async function checkFeeds({ as, held }: SuiteContext): Promise<void> {
  const grant = `/_gatehouse/api/access/watcher/${ALPHA}`;
  for (const feed of ["continuous", "longpoll", "eventsource"]) {
    await as("admin")(put(grant, { role: "ReadOnly" }));
    const path = at(`_changes?feed=${feed}&since=now&heartbeat=300`);
    let isOpen = true;
    const answer = as("watcher")(get(path)).then((ended) => {
      isOpen = false;
      return ended;
    });
    await delay(FEED_MS);
    const wasOpen = isOpen;
    const started = performance.now();
    await as("admin")(remove(grant));
    const ended = await answer;
    const took = performance.now() - started;
    // PouchDB Server answers `eventsource` at once.
    if (!wasOpen && feed === "eventsource") continue;
    const holds = wasOpen && took < 1500;
    held(`a ${feed} feed ends with its right`, holds, `${Math.round(took)} ms ${described(ended)}`);
  }
}

async function run(context: SuiteContext): Promise<void> {
  await fill(context.direct, content, names);
  await checkServer(context);
  await checkRoles(context, reads + writes, names, false);
  await checkRoles(context, optional, names, true);
  await checkCheckpoints(context);
  await checkElements(context);
  await attack(context);
  await checkFeeds(context);
  await checkReplication(context);
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
  run,
  clean,
};
