import { setTimeout as delay } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { couchdb } from "./couchdb.ts";
import type { Json } from "./preset.ts";
import {
  type Attack,
  checkAttacks,
  checkRoles,
  described,
  get,
  member,
  post,
  put,
  type RoleCase,
  remove,
  roles,
  type Send,
  type Suite,
  type SuiteContext,
  type SuiteRequest,
  withCoding,
  withHeaders,
  withType,
} from "./suite.ts";

const ALPHA = "gatehouse_test_a";
const BRAVO = "gatehouse_test_b";
const NEW = "gatehouse_test_new";
/** In documents, ids and checkpoints of `gatehouse_test_b`. */
const SECRET = "gatehouse-hush";
/** A feed without news stays open for longer than this. */
const FEED_MS = 700;

const copy = (path: string, to: string): SuiteRequest => {
  return { method: "COPY", path, headers: { destination: to } };
};
const text = (body: string): Buffer => Buffer.from(body);
const at = (rest: string, database = ALPHA): string => `/${database}/${rest}`;

const design = {
  language: "javascript",
  views: { all: { map: "function (doc) { emit(doc._id, null); }" } },
  filters: { all: "function () { return true; }" },
};

async function clean(direct: Send): Promise<void> {
  for (const name of [ALPHA, BRAVO, NEW]) await direct(remove(`/${name}`));
}

async function fill(direct: Send): Promise<void> {
  for (const name of [ALPHA, BRAVO]) {
    const { status, text } = await direct({ method: "PUT", path: `/${name}` });
    if (status >= 300) throw new Error(`${name}: ${status} ${text}`);
  }
  await direct(put(at("a"), { n: 1 }));
  await direct(put(at("b%2Fc"), { n: 2 }));
  await direct(put(at("_design/app"), design));
  await direct(put(at(SECRET, BRAVO), { secret: SECRET }));
  await direct(put(at("_design/app", BRAVO), design));
  await direct(put(at("_local/point", BRAVO), { secret: SECRET }));
}

async function stateOf(direct: Send): Promise<string> {
  const answers = await Promise.all([
    direct(get(at("_all_docs?include_docs=true", BRAVO))),
    direct(get(at("_security", BRAVO))),
    direct(get(at("_local/point", BRAVO))),
    direct(get(at("_security"))),
    direct(get(at("_design/app"))),
  ]);
  return answers.map(({ text }) => text).join("\n");
}

const gone = { _id: "gone", _deleted: true };
const revision = "1-0123456789abcdef0123456789abcdef";
const doc = (user: string): string => at(`doc-${user}`);
const bulk = (...docs: readonly Json[]): SuiteRequest => post(at("_bulk_docs"), { docs });

const reads: readonly RoleCase[] = [
  ["see the database", "reader", get(`/${ALPHA}`)],
  ["see the database as PouchDB does", "reader", get(`/${ALPHA}/`)],
  ["read a document", "reader", get(at("a"))],
  ["read a document with a slash", "reader", get(at("b%2Fc"))],
  ["read a design document", "reader", get(at("_design/app"))],
  ["read a design document with an encoded slash", "reader", get(at("_design%2Fapp"))],
  ["list documents", "reader", get(at("_all_docs"))],
  ["list documents by keys", "reader", post(at("_all_docs?include_docs=true"), { keys: ["a"] })],
  ["query a view", "reader", get(at("_design/app/_view/all"))],
  ["query a view by keys", "reader", post(at("_design/app/_view/all"), { keys: ["a"] })],
  ["describe views", "reader", get(at("_design/app/_info"))],
  ["find documents", "reader", post(at("_find"), { selector: { n: { $gt: 0 } }, limit: 5 })],
  ["explain a query", "reader", post(at("_explain"), { selector: { n: 1 } })],
  ["list indexes", "reader", get(at("_index"))],
  ["list changes", "reader", get(at("_changes?style=all_docs"))],
  ["list changes through a filter", "reader", get(at("_changes?filter=app%2Fall&since=0"))],
  ["list changes of documents", "reader", post(at("_changes?filter=_doc_ids"), { doc_ids: ["a"] })],
  ["get several documents", "reader", post(at("_bulk_get?revs=true"), { docs: [{ id: "a" }] })],
  ["compare revisions", "reader", post(at("_revs_diff"), { a: ["1-abc"] })],
  ["confirm a commit", "reader", post(at("_ensure_full_commit"), {})],
  ["keep a checkpoint", "reader", put(at("_local/mine"), { n: 1 })],
  ["read a checkpoint", "reader", get(at("_local%2Fmine"))],
];

function writes(direct: Send): readonly RoleCase[] {
  /** The path of the user's document, with its revision. */
  const current = async (user: string, rest = ""): Promise<string> =>
    `${doc(user)}${rest}?rev=${member((await direct(get(doc(user)))).json, "_rev")}`;
  const attached = withType(put("", text("attached")), "text/plain");
  return [
    ["create a document", "writer", (user) => post(`/${ALPHA}`, { by: user })],
    ["create a document with an id", "writer", (user) => put(at(`new-${user}`), { by: user })],
    ["change a document", "writer", async (user) => put(await current(user), { by: user })],
    ["create several documents", "writer", (user) => bulk({ by: user }, { by: user })],
    [
      "write revisions as replication does",
      "writer",
      (user) =>
        post(at("_bulk_docs"), { new_edits: false, docs: [{ _id: `r-${user}`, _rev: revision }] }),
    ],
    ["delete documents in a bulk", "writer", bulk(gone)],
    ["copy a document", "writer", (user) => copy(at("a"), `copy-${user}`)],
    [
      "attach a file",
      "writer",
      async (user) => ({ ...attached, path: await current(user, "/a/b.txt") }),
    ],
    ["delete a document", "writer", async (user) => remove(await current(user))],
    ["create a design document", "builder", (user) => put(at(`_design/of-${user}`), design)],
    [
      "create a design document with an encoded slash",
      "builder",
      (user) => put(at(`_design%2Ftoo-${user}`), design),
    ],
    [
      "create a design document in a bulk",
      "builder",
      (user) => bulk({ _id: `_design/bulk-${user}` }),
    ],
    [
      "create a design document by its _id",
      "builder",
      (user) => post(`/${ALPHA}`, { _id: `_design/post-${user}` }),
    ],
    [
      "copy a document to a design document",
      "builder",
      (user) => copy(at("a"), `_design/copy-${user}`),
    ],
    [
      "create an index",
      "builder",
      post(at("_index"), { index: { fields: ["n"] }, ddoc: "index-n", name: "n" }),
    ],
    ["read _security", "builder", get(at("_security"))],
    ["compact", "builder", post(at("_compact"), {})],
    ["write _security", "owner", put(at("_security"), { members: { names: [], roles: [] } })],
  ];
}

/** PouchDB Server has none of these. */
const optional: readonly RoleCase[] = [
  ["list design documents", "reader", get(at("_design_docs"))],
  [
    "list documents by several queries",
    "reader",
    post(at("_all_docs/queries"), { queries: [{ keys: ["a"] }, { limit: 1 }] }),
  ],
  [
    "query a view by several queries",
    "reader",
    post(at("_design/app/_view/all/queries"), { queries: [{ limit: 1 }] }),
  ],
  [
    "query a view by several queries in the body",
    "reader",
    post(at("_design/app/_view/all"), { queries: [{ limit: 1 }] }),
  ],
  ["see what revisions are missing", "reader", post(at("_missing_revs"), { a: ["1-abc"] })],
  ["see information on databases", "reader", post("/_dbs_info", { keys: [ALPHA] })],
  ["see the limit of revisions", "reader", get(at("_revs_limit"))],
  ["set the limit of revisions", "builder", put(at("_revs_limit"), 900)],
  ["clean up views", "builder", post(at("_view_cleanup"), {})],
  ["compact a view", "builder", post(at("_compact/app"), {})],
  ["purge a document", "builder", post(at("_purge"), { gone: [revision] })],
  ["delete indexes", "builder", post(at("_index/_bulk_delete"), { docids: [] })],
  ["delete an index", "builder", remove(at("_index/_design/index-n/json/n"))],
];

async function checkServer({ as, direct, held, expect }: SuiteContext): Promise<void> {
  for (const path of ["/", "/_uuids?count=2", "/_session", "/_all_dbs"]) {
    await expect("stranger", get(path), 200);
    await expect("", get(path), 401);
  }
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
  for (const user of ["reader", "writer", "builder"]) {
    await expect(user, { method: "PUT", path: `/${NEW}` }, 403);
    await expect(user, remove(`/${ALPHA}`), 403, "role_insufficient");
  }
  await expect("owner", { method: "PUT", path: `/${NEW}` }, 201);
  await expect("owner", remove(`/${NEW}`), 200);
  const kept = await direct(get(`/${ALPHA}`));
  held("a database that was not dropped is still there", kept.status === 200, described(kept));
}

async function checkCheckpoints({ as, direct, held, expect }: SuiteContext): Promise<void> {
  const path = at("_local/point");
  await expect("reader", put(path, { _id: "_local/point", seq: 7 }), 201);
  const own = await as("reader")(get(path));
  const isOwn = member(own.json, "seq") === 7 && member(own.json, "_id") === "_local/point";
  held("a reader finds its own checkpoint", isOwn, described(own));
  const encoded = await as("reader")(get(at("_local%2Fpoint")));
  held("an encoded slash means the same checkpoint", encoded.text === own.text, described(encoded));
  for (const user of ["writer", "builder", "owner", "admin"]) await expect(user, get(path), 404);
  const plain = await direct(get(path));
  held("checkpoints are stored for each user", plain.status === 404, described(plain));
  const rev = String(member(own.json, "_rev"));
  await expect("reader", put(path, { _id: "_local/point", _rev: rev, seq: 8 }), 201);
  await expect("reader", put(path, { _id: "_local/other", seq: 8 }), 400, "bad_request");
  await expect("reader", put(at("_local/big"), { text: "x".repeat(70_000) }), 413);
  await expect("writer", put(at("_local/big"), { text: "x".repeat(70_000) }), 201);
  await expect("stranger", get(path), 403);
  await expect("reader", get(at("_local/point/attached")), 404);
}

async function checkReplication({ as, held, expect }: SuiteContext): Promise<void> {
  const path = "/_replicate";
  const local = { source: ALPHA, target: NEW, create_target: true };
  for (const user of roles) await expect(user, post(path, local), 403);
  const answer = await as("admin")(post(path, local));
  held("an administrator replicates local databases", answer.status === 200, described(answer));
  const url = `http://127.0.0.1:1/${ALPHA}`;
  for (const body of [
    { source: url, target: NEW },
    { source: ALPHA, target: url },
    { source: { url }, target: NEW },
    { source: ALPHA, target: { url, headers: {} } },
    { source: "_users", target: NEW },
    { source: ALPHA, target: "_replicator" },
    { source: `../${BRAVO}`, target: NEW },
    { source: [BRAVO], target: NEW },
    { source: ALPHA },
  ]) {
    await expect("admin", post(path, body), 404, "not_found");
  }
  for (const more of [{ proxy: url }, { user_ctx: { name: "root" } }, { source_proxy: url }]) {
    await expect("admin", post(path, { ...local, ...more }), 400, "unknown_member");
  }
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
const evil = { _id: "_design/evil" };
const compressedDesign = gzipSync('{"docs":[{"_id":"_design/evil"}]}');

type Refused = readonly [user: string, request: SuiteRequest, status: number, code?: string];

/** Refused whatever the caller may do with `gatehouse_test_a`. */
const attacks: readonly Refused[] = [
  // Names of databases, in each position and spelling.
  ["owner", get(`/${BRAVO}`), 403],
  ["owner", get(at(SECRET, BRAVO)), 403],
  ["owner", get(at("_all_docs?include_docs=true", BRAVO)), 403],
  ["owner", get(`/${BRAVO.replace("_b", "%5Fb")}/_all_docs`), 403],
  ["owner", get(`/${BRAVO.toUpperCase()}/_all_docs`), 403],
  ["owner", get(`/${ALPHA},${BRAVO}/_all_docs`), 404],
  ["owner", get(`/${ALPHA}%2F..%2F${BRAVO}/_all_docs`), 400, "path_not_canonical"],
  ["owner", get(`/${ALPHA}/../${BRAVO}/_all_docs`), 400, "path_not_canonical"],
  ["owner", get(`/${ALPHA}//${BRAVO}`), 400, "path_not_canonical"],
  ["owner", get(at("..%2f..%2fgatehouse_test_b")), 400, "path_not_canonical"],
  ["owner", get(at(`a/..%2f..%2f..%2f${BRAVO}%2f${SECRET}`)), 400, "path_not_canonical"],
  ["owner", get(at(`a/..%5c..%5c${BRAVO}`)), 400, "path_not_canonical"],
  ["owner", get(`/${ALPHA};${BRAVO}/_all_docs`), 400, "path_not_canonical"],
  ["owner", post("/_dbs_info", { keys: [ALPHA, BRAVO] }), 403],
  ["owner", post("/_dbs_info", { keys: ["_users"] }), 404, "not_found"],
  ["wide", get(at("_all_docs", BRAVO)), 403],
  ["wide", post("/_dbs_info", { keys: [BRAVO] }), 403],
  ["narrow", get(at("_all_docs")), 403],
  ["narrow", get(at("a")), 403],
  // Interfaces that are closed, also to administrators.
  ...[
    "/_users/_all_docs",
    "/_replicator/_all_docs",
    "/_users",
    "/_node/_local/_config",
    "/_config",
    "/_active_tasks",
    "/_scheduler/jobs",
    "/_db_updates",
    "/_membership",
    "/_utils/",
    "/_stats",
    "/_all_dbs/x",
    at("_local_docs"),
    at("_local_docs?include_docs=true"),
    at("_shards"),
    at("_design"),
    at("_local"),
    at("_design/app/_show/x/a"),
    at("_design/app/_list/x/all"),
    at("_design/app/_update/x"),
    at("_design/app/_rewrite/x"),
    at("_design/app/_rewrite/..%2f..%2f..%2fgatehouse_test_b"),
  ].map((path): Refused => ["admin", get(path), path.includes("..") ? 400 : 404]),
  ["admin", post(at("_temp_view"), { map: "function () {}" }), 404],
  ["admin", post("/_session", { name: "admin", password: "x" }), 404],
  // Design documents by a writer.
  ["writer", put(at("_design/evil"), design), 403],
  ["writer", put(at("_design%2fevil"), design), 403],
  ["writer", put(at("%5fdesign/evil"), design), 403],
  ["writer", put(at("%5Fdesign%2Fevil"), design), 403],
  ["writer", put(at("_design/evil/attached.js"), text("{}")), 403],
  ["writer", put(at("_design%2Fevil/attached.js"), text("{}")), 403],
  ["writer", remove(at("_design/app?rev=1-0")), 403],
  ["writer", post(`/${ALPHA}`, text('{"_id":"\\u005fdesign/evil"}')), 403],
  ["writer", post(`/${ALPHA}`, text('{"\\u005fid":"_design/evil"}')), 403],
  ["writer", bulk({ _id: "fine" }, { ...evil, ...design }), 403],
  ["writer", post(at("_bulk_docs"), { new_edits: false, docs: [evil] }), 403],
  ["writer", put(at("fine"), { ...evil, ...design }), 400, "bad_request"],
  ["writer", put(at("fine"), text('{"_id":"fine","_id":"_design/evil"}')), 400],
  ["writer", put(at("fine?id=_design/evil"), {}), 400, "unknown_parameter"],
  ["writer", post(`/${ALPHA}`, { _id: ["_design/evil"] }), 400, "bad_request"],
  ["writer", post(`/${ALPHA}`, { _id: "_security" }), 400, "bad_request"],
  ["writer", bulk({ _id: "_local/theirs" }), 400, "bad_request"],
  ["writer", bulk({ _id: "x", _deleted: "true" }), 400, "bad_request"],
  ["writer", post(at("_bulk_docs"), { docs: [], new_edits: "false" }), 400, "bad_request"],
  ["writer", put(at("x?new_edits=0"), {}), 400, "bad_request"],
  ["writer", post(at("_bulk_docs"), [evil]), 400, "bad_request"],
  ["writer", post(at("_bulk_docs"), { docs: [], optionen: 1 }), 400, "unknown_member"],
  ["writer", post(at("_bulk_docs?new_edits=false"), { docs: [] }), 400, "unknown_parameter"],
  ["writer", post(at("_index"), { index: { fields: ["n"] } }), 403],
  ["writer", remove(at("_index/_design/app/json/all")), 403],
  ["writer", remove(at("_index/_design%2Fapp/json/all")), 403],
  ["writer", put(at("_security"), {}), 403],
  ["builder", put(at("_security"), {}), 403],
  ["writer", post(at("_purge"), { a: ["1-0"] }), 403],
  ["writer", put(at("_revs_limit"), 1), 403],
  // Copies.
  ["writer", copy(at("a"), "_design/evil"), 403],
  ["writer", copy(at("a"), "_design%2Fevil"), 403],
  ["writer", copy(at("a"), "%5Fdesign/evil"), 400],
  ["writer", copy(at("a"), "%5fdesign%2fevil"), 403],
  ["writer", copy(at("a"), `../${BRAVO}/x`), 400, "bad_request"],
  ["writer", copy(at("a"), `..%2F${BRAVO}%2Fx`), 400, "bad_request"],
  ["writer", copy(at("a"), `/${BRAVO}/x`), 400, "bad_request"],
  ["writer", copy(at("a"), `http://127.0.0.1/${BRAVO}/x`), 400, "bad_request"],
  ["writer", copy(at("a"), "_local/x"), 400, "bad_request"],
  ["writer", copy(at("a"), "x?rev=1-0&new_edits=false"), 400, "bad_request"],
  ["writer", { method: "COPY", path: at("a") }, 400, "bad_request"],
  ["writer", copy(at("_local/mine"), "stolen"), 405],
  ["writer", copy(at("_local%2Fmine"), "stolen"), 404, "not_found"],
  ["reader", copy(at("a"), "copy"), 403],
  // Deletions and methods.
  ["reader", put(at("a"), { _deleted: true }), 403],
  ["reader", bulk(gone), 403],
  ["reader", withHeaders(post(at("_all_docs"), {}), { "x-http-method-override": "DELETE" }), 200],
  ["reader", withHeaders(post(`/${ALPHA}`, {}), { "x-http-method-override": "GET" }), 403],
  ["owner", { method: "MOVE", path: at("a") }, 405],
  ["owner", { method: "PATCH", path: at("a") }, 405],
  ["owner", post(at("a"), {}), 405],
  // Checkpoints of others.
  ["writer", get(at("_all_docs?keys=%5B%22_local%2Fpoint%22%5D&include_docs=true")), 400],
  ["writer", post(at("_all_docs?include_docs=true"), { keys: ["_local/point"] }), 400],
  ["writer", post(at("_all_docs"), text('{"keys":["\\u005flocal/point"]}')), 400],
  ["writer", post(at("_all_docs/queries"), { queries: [{ keys: ["_local/point"] }] }), 400],
  ["writer", post(at("_all_docs"), { queries: [{ keys: ["_local/point"] }] }), 400],
  ["writer", post(at("_all_docs?key=%22_local%2Fpoint%22"), { queries: [{}] }), 400],
  ["reader", post(at("_all_docs"), { queries: [{}], keys: ["a"] }), 400, "unknown_member"],
  ["writer", post(at("_bulk_get"), { docs: [{ id: "_local/point" }] }), 400],
  // Parameters, members, encodings.
  ["reader", get(at("_all_docs?limit=1&limit=2")), 400, "bad_request"],
  ["reader", get(at("_all_docs?limit=1&l%69mit=2")), 400, "bad_request"],
  ["reader", get(at("_all_docs?callback=x")), 400, "unknown_parameter"],
  ["reader", get(at("_all_docs;limit=1")), 400, "path_not_canonical"],
  ["reader", get(at("_changes?filter=x")), 400, "bad_request"],
  ["reader", get(at("_changes?FEED=continuous")), 400, "unknown_parameter"],
  ["reader", get(at("_changes?feed=forever")), 400, "bad_request"],
  ["reader", post(at("_changes"), { source: BRAVO }), 400, "unknown_member"],
  ["reader", post(at("_find"), { selector: {}, db: BRAVO }), 400, "unknown_member"],
  ["reader", post(at("_find"), text('{"selector":{},"selector":{}}')), 400],
  ["reader", post(at("_find"), text('{"selector":{}} {}')), 400],
  ["reader", post(at("_find"), text('{"selector":{"a":"\xff"}}'.slice(0, 19))), 400],
  ["reader", { ...get(at("_all_docs")), body: { keys: [] } }, 400, "bad_request"],
  ["writer", related("related", '{"_id":"_design/evil"}'), 400, "bad_request"],
  ["writer", related("_design/evil", '{"_attachments":{}}'), 403],
  ["writer", related("_design%2Fevil", '{"_attachments":{}}'), 403],
  ["writer", related("_local%2Frelated", "{}"), 415],
  ["writer", related("related", "{}", 'name="doc"'), 400, "bad_request"],
  [
    "writer",
    related("related", "{}", 'filename="a"\r\ncontent-disposition: x'),
    400,
    "bad_request",
  ],
  ["writer", related("related", '{"_id":"a","_id":"b"}'), 400],
  ["writer", withType(parts, 'multipart/related; boundary="y"'), 400, "bad_request"],
  ["writer", withType(parts, "multipart/related; boundary=x; boundary=y"), 400, "bad_request"],
  ["writer", withType(parts, "multipart/mixed; boundary=x"), 415],
  ["reader", parts, 403],
  ["writer", withType(post(at("related"), {}), "multipart/form-data; boundary=x"), 405],
  ["writer", withType(post(`/${ALPHA}`, {}), "text/plain"), 415],
  ["writer", withType(post(`/${ALPHA}`, {}), "application/json; charset=utf-16"), 415],
  ["writer", withCoding(bulk(), "br"), 415],
  ["writer", withCoding(post(at("_bulk_docs"), compressedDesign), "gzip"), 403],
  ["writer", withCoding(post(at("_bulk_docs"), text("no gzip")), "gzip"), 400],
  [
    "writer",
    withHeaders(post(`/${ALPHA}?batch=ok`, evil), { "x-couch-full-commit": "false" }),
    403,
  ],
];

async function attack(context: SuiteContext): Promise<void> {
  const { direct, held } = context;
  const before = await stateOf(direct);
  const titled = attacks.map(([user, request, ...expected]): Attack => {
    return [`${user}: ${request.method} ${request.path}`, user, request, ...expected];
  });
  await checkAttacks(context, titled, SECRET);
  const after = await stateOf(direct);
  held("nothing that is protected was changed", after === before, after);
  const designs = get(at("_all_docs?startkey=%22_design%2Fe%22&endkey=%22_design%2Ff%22"));
  const listed = await direct(designs);
  held("no writer made a design document", !listed.text.includes("evil"), described(listed));
}

/** The answer to a denied element of a bulk names it, and nothing is written. */
async function checkElements({ as, direct, held }: SuiteContext): Promise<void> {
  const docs = [{ _id: "part-1" }, { _id: "part-2" }, { _id: "_design/part" }];
  const answer = await as("writer")(post(at("_bulk_docs"), { docs }));
  const element = member(answer.json, "element");
  held("a denial names the document of a bulk", element === 2, described(answer));
  const { status } = await direct(get(at("part-1")));
  held("nothing of a bulk is written if one document is denied", status === 404, String(status));
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
  await fill(context.direct);
  await checkServer(context);
  for (const user of roles) await context.direct(put(doc(user), { by: "the operator" }));
  await checkRoles(context, [...reads, ...writes(context.direct)], false);
  await checkRoles(context, optional, true);
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
