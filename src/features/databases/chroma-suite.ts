import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { chroma } from "./chroma.ts";
import type { JsonObject } from "./preset.ts";
import {
  answersTo,
  attacksByForm,
  checkAttacks,
  checkRoles,
  checkSame,
  described,
  expectAll,
  get,
  member,
  post,
  put,
  readTable,
  remove,
  SECRET,
  type Send,
  type Suite,
  type SuiteAnswer,
  type SuiteContext,
  type TableRow,
  withCoding,
  withHeaders,
} from "./suite.ts";

const ALPHA = "gatehouse_test_a";
const BRAVO = "gatehouse_test_b";
const CHARLIE = "gatehouse_test_c";
const DELTA = "gatehouse_test_d";
const FRESH = "gatehouse_test_e";
/** Chroma cannot delete a tenant, so this one stays. */
const TENANT = "gatehouse_test_t";

/** Longer than the gateway remembers the name of a collection. */
const FORGOTTEN_MS = 1200;
const RACES = 25;

const tenants = "/api/v2/tenants";
const databases = `${tenants}/default_tenant/databases`;
const at = (database: string, rest = ""): string => `${databases}/${database}${rest}`;
const elsewhere = `${tenants}/${TENANT}/databases/${ALPHA}`;

function record(id: string, document: string): JsonObject {
  return { ids: [id], embeddings: [[1, 2, 3]], documents: [document] };
}

function namesIn({ json }: SuiteAnswer): string {
  if (!Array.isArray(json)) return "no list";
  return json
    .map((one) => String(member(one, "name")))
    .sort()
    .join(" ");
}

async function create(direct: Send, path: string, name: string): Promise<string> {
  const answer = await direct(post(path, { name }));
  if (answer.status !== 200) throw new Error(`${path}: ${described(answer)}`);
  return String(member(answer.json, "id"));
}

/** Fills the server. @returns names with the ids of its collections */
async function fill(direct: Send) {
  await direct(post(tenants, { name: TENANT }));
  await create(direct, `${tenants}/${TENANT}/databases`, ALPHA);
  await create(direct, databases, ALPHA);
  await create(direct, databases, BRAVO);
  const collection = async (base: string, name: string, document: string) => {
    const id = await create(direct, `${base}/collections`, name);
    await direct(post(`${base}/collections/${id}/add`, record("1", document)));
    return id;
  };
  const secret = await collection(at(BRAVO), "secret", SECRET);
  return {
    A: ALPHA,
    B: BRAVO,
    FRESH,
    TENANT,
    T: tenants.slice(1),
    D: databases.slice(1),
    C: at(ALPHA, "/collections").slice(1),
    E: `${elsewhere.slice(1)}/collections`,
    OPEN: await collection(at(ALPHA), "open", "for all"),
    HIDDEN: await collection(at(ALPHA), "hidden", SECRET),
    // In a database of the same name of another tenant.
    FOREIGN: await collection(elsewhere, "foreign", SECRET),
    SECRET: secret,
    UPPER: secret.toUpperCase(),
    PLAIN: secret.replaceAll("-", ""),
  };
}

type FilledNames = Awaited<ReturnType<typeof fill>>;

async function clean(direct: Send): Promise<void> {
  const bases = [ALPHA, BRAVO, CHARLIE, DELTA, FRESH].map((name) => at(name));
  for (const base of [...bases, elsewhere]) {
    // A database that is gone leaves its collections behind.
    const { json } = await direct(get(`${base}/collections`));
    for (const one of Array.isArray(json) ? json : []) {
      await direct(remove(`${base}/collections/${String(member(one, "name"))}`));
    }
    await direct(remove(base));
  }
}

/** Everything that most users may neither read nor change. */
const protectedState = `
  operator GET /$C/by-id/$HIDDEN /$D/$B/collections/by-id/$SECRET /$E/by-id/$FOREIGN
    | /$D/$B/collections /$E
  operator POST /$C/$HIDDEN/get /$D/$B/collections/$SECRET/get /$E/$FOREIGN/get {}
`;

const requests = `
  reader GET /$D/$A /$C /$D/$A/collections_count /$C/open /$C/by-id/$OPEN /$C/$OPEN/count /$C/$OPEN/fork_count
    | /$C/$OPEN/indexing_status
  reader POST /$C {"name":"open","get_or_create":true}
  reader POST /$C/$OPEN/get {}
  reader POST /$C/$OPEN/query {"query_embeddings":[[1,2,3]],"n_results":1}
  reader POST /$C/$OPEN/search {"searches":[{"limit":{"limit":1}}]}
  writer POST /$C/$OPEN/add /$C/$OPEN/upsert
    | {"ids":["$USER"],"embeddings":[[1,2,3]],"documents":["written"]}
  writer POST /$C/$OPEN/update {"ids":["$USER"],"documents":["updated"]}
  writer POST /$C/$OPEN/delete {"ids":["$USER"]}
  builder PUT /$C/$OPEN {"new_metadata":{"by":"$USER"}}
  builder POST /$C {"name":"made-by-$USER"}
  operator DELETE /$C/made-by-$USER
  builder POST /$C {"name":"made-by-$USER","get_or_create":true}
  operator DELETE /$C/made-by-$USER
  builder PUT /$C/$OPEN {"new_name":"renamed"}
  operator PUT /$C/$OPEN {"new_name":"open"}
  builder POST /$C/$OPEN/fork {"new_name":"made-by-$USER"}
  operator DELETE /$C/made-by-$USER
  operator POST /$C {"name":"made-by-$USER"}
  builder DELETE /$C/made-by-$USER
  operator DELETE /$C/made-by-$USER
`;

async function checkServer(context: SuiteContext, names: FilledNames): Promise<void> {
  const { as, held } = context;
  for (const [user, own] of [
    ["reader", ALPHA],
    ["stranger", BRAVO],
    ["guest", ""],
  ] as const) {
    const list = await as(user)(get(databases));
    const isOwn = namesIn(list) === own;
    held(`${user} sees only its own databases in the list`, isOwn, described(list));
    const identity = await as(user)(get("/api/v2/auth/identity"));
    const told = member(identity.json, "databases");
    const isRight = JSON.stringify(told) === JSON.stringify(own === "" ? [] : [own]);
    held(`${user} receives its own databases as its identity`, isRight, described(identity));
  }
  const wide = namesIn(await as("wide")(get(databases))).split(" ");
  const isWithout = wide.includes(ALPHA) && !wide.includes(BRAVO);
  held("a list leaves out a database with the role None", isWithout, wide.join(" "));
  const table = `
  stranger GET /api/v2/heartbeat /api/v2/healthcheck /api/v2/version /api/v2/pre-flight-checks 200
  reader GET /$T/default_tenant 200
  guest GET /$T/$TENANT /$T/$TENANT/databases/$A/collections 200
  reader,builder POST /$D {"name":"$FRESH"} 403
  owner POST /$D {"name":"$FRESH"} 200
  reader DELETE /$D/$FRESH 403
  builder DELETE /$D/$A 403 role_insufficient
  owner DELETE /$D/$FRESH 200
  owner POST /$T {"name":"$TENANT_2"} 403
  admin POST /$T {"name":"a.b"} 400 bad_request
  operator GET /$D/$A 200
`;
  await expectAll(context, table, names);
}

/** What users with entries for a few collections see of the others. */
async function checkTables(context: SuiteContext, names: FilledNames): Promise<void> {
  const { as, direct, held } = context;
  const collections = at(ALPHA, "/collections");
  for (const [query, listed] of [
    ["", "open"],
    ["?limit=1", "open"],
    ["?limit=10&offset=1", ""],
  ]) {
    const list = await as("narrow")(get(`${collections}${query}`));
    const title = `narrow lists only its collection (${query || "no page"})`;
    held(title, namesIn(list) === listed, described(list));
  }
  const count = await as("narrow")(get(at(ALPHA, "/collections_count")));
  held("narrow counts only its collection", count.text.trim() === "1", described(count));
  // It may do anything there, but not with collections that begin with hidden.
  const list = await as("partial")(get(collections));
  held("a list leaves out collections with the role None", namesIn(list) === "open", list.text);
  const PART = await create(direct, collections, "part-1");
  const table = `
  narrow GET /$D/$A /$C/open 200
  narrow POST /$C/$OPEN/get {} 200
  partial PUT /$C/$PART {"new_name":"hidden"} || {"new_name":"hidden-2"} 403
  partial POST /$C/$PART/fork {"new_name":"hidden"} || {"new_name":"hidden-2"} 403
  partial POST /$C {"name":"hidden"} || {"name":"hidden","get_or_create":true}
    | || {"name":"hidden-2"} || {"name":"hidden-2","get_or_create":true} 403
  partial POST /$C {"name":"part-3"} 200
  partial PUT /$C/$PART {"new_name":"part-2"} 200
  partial DELETE /$C/part-2 200
`;
  await expectAll(context, table, { ...names, PART });
}

function attacksOn(names: FilledNames): TableRow[] {
  const collections = at(ALPHA, "/collections");
  const creation = Buffer.from('{"name":"evil"}');
  const evil = post(collections, creation);
  const compressed = withCoding(post(collections, gzipSync(creation)), "gzip");
  const signedTwice = withHeaders(get(collections), { authorization: ["Bearer x", "Bearer y"] });
  const typedTwice = withHeaders(evil, { "content-type": ["application/json", "text/plain"] });
  const table = `
  # UUIDs of other databases, tenants and collections
  owner POST /$C/$SECRET/get /$C/$FOREIGN/get /$C/$UPPER/get /$C/$PLAIN/get /$C/%7B$SECRET%7D/get
    | /$C/urn:uuid:$SECRET/get /$C/$OPEN/attached_functions/f/detach {} 404
  owner POST /$C/$SECRET/query /$C/$SECRET/search {"query_embeddings":[[1,2,3]],"searches":[]} 404
  owner POST /$C/$SECRET/add /$C/$SECRET/upsert
    | {"ids":["1"],"embeddings":[[1,2,3]],"documents":["evil"]} 404
  owner POST /$C/$SECRET/update {"ids":["1"],"documents":["evil"]} 404
  owner POST /$C/$SECRET/delete {"ids":["1"]} 404
  owner POST /$C/$SECRET/fork {"new_name":"stolen"} 404
  owner PUT /$C/$SECRET {"new_name":"mine"} 404
  owner DELETE /$C/$SECRET 404
  owner GET /$C/$SECRET /$C/$SECRET/count /$C/by-id/$SECRET 404
  owner POST /$T/$TENANT/databases/$A/collections/$FOREIGN/get
    | /$T/$TENANT/databases/$A/collections/$OPEN/get
    | /$D/gatehouse_test_zz/collections/$SECRET/get {} 403
  narrow POST /$C/$HIDDEN/get /$C/$HIDDEN/query /$C/$HIDDEN/search {"query_embeddings":[[1,2,3]]} 404
  narrow GET /$C/$HIDDEN/count /$C/by-id/$HIDDEN 404
  narrow GET /$C/hidden 403
  narrow GET /$C/Open 403 name_case_mismatch
  partial PUT /$C/$HIDDEN {"new_name":"part-9"} || {} 404
  partial DELETE /$C/hidden /$D/$A 403
  # Paths
  owner GET /$C/ /$D/*/collections /$D/_all/collections /$D/$A,$B/collections
    | /$D/$TENANT.$A/collections /$D/default_tenant.$B/collections
    | /api/v2/collections/default_tenant:$B:secret /$C/default_tenant:$B:secret /API/V2/heartbeat
    | /api/v1/collections /api/v1/collections?tenant=default_tenant&database=$B /openapi.json
    | /docs/ / /$C/$OPEN/functions/f 404
  owner GET /$D/$B/collections/secret /$D/$B/collections /$D/$B/collections_count /$D/$B
    | /$D/gatehouse_test_%62/collections/secret /$D/GATEHOUSE_TEST_B/collections/secret
    | /$D/GATEHOUSE_TEST_A/collections /$T/DEFAULT_TENANT/databases/$B /$T/$TENANT
    | /$T/gatehouse_test_zz 403
  owner GET /$D/$A/../$B/collections/secret /$D/$A/%2e%2e/$B/collections/secret
    | /$D/$A//../$B/collections/secret /$C?limit=1&limit=2 /$C?limit=1&%6cimit=2 /$C?limit=-1 400
  owner GET /$C/..%2f..%2f$B%2fcollections/secret /$D%2f$B/collections/secret
    | /$D/$A/%252e%252e/$B/collections/secret /$D/$A/..%5c$B/collections/secret
    | /$D/$A;x=/../$B/collections/secret /$D/$B%00$A/collections/secret 400,404
  # Bodies
  owner POST /$C ["evil",null] || "evil" || {"name":"../$B"} || {"name":["evil"]} 400
  owner PUT /$C/$OPEN ["evil"] || {"new_name":["evil"]} 400
  owner POST /$C {"name":"evil","database":"$B"} || {"name":"evil","tenant":"$TENANT"}
    | || {"name":"evil","id":"$SECRET"}
    | || {"name":"evil","schema":{"source_attached_function_id":"$SECRET"}} 400 unknown_member
  owner PUT /$C/$OPEN {"name":"evil"} 400 unknown_member
  owner POST /$D {"name":"$FRESH","tenant":"$TENANT"} 400 unknown_member
  owner PUT /$C/open {"new_name":"evil"} 400
  owner POST /$C/$OPEN/fork {} 400
  reader POST /$C {"name":"open","get_or_create":"true"} 400
  admin POST /$T ["evil"] 400
  # Functions of administrators, methods and headers
  admin POST /api/v2/reset {} 404
  owner POST /$C/$OPEN/functions/attach {"name":"f"} 404
  owner HEAD /$D/$B 403
  owner PUT,DELETE /$C 405
  reader POST /$C x-http-method-override:DELETE x-method-override:DELETE {"name":"evil"} 403
  stranger GET /$C x-original-url:/$D/$B/collections x-rewrite-url:/$D/$B/collections 403
`;
  const values = { tenant: "default_tenant", database: ALPHA, name: "open", id: names.OPEN };
  return [
    ...attacksByForm(chroma, "owner", values),
    ...readTable(table, names),
    { title: "a creation in gzip", user: "reader", request: compressed, statuses: [403] },
    { title: "two credentials", user: "owner", request: signedTwice, statuses: [400, 401] },
    { title: "a type twice", user: "owner", request: typedTwice, statuses: [400, 415] },
  ];
}

/** Names that change while requests are under way. */
async function checkRaces(context: SuiteContext, names: FilledNames): Promise<void> {
  const { as, direct, held, expect } = context;
  const collections = at(ALPHA, "/collections");
  const shared = { name: "fleeting", get_or_create: true };
  let created = 0;
  let refused = 0;
  for (let race = 0; race < RACES; race++) {
    await direct(post(collections, { name: "fleeting" }));
    const asked = as("reader")(post(collections, shared));
    await direct(remove(`${collections}/fleeting`));
    const { status } = await asked;
    if (status === 403 || status === 404) refused++;
    const after = await direct(get(`${collections}/fleeting`));
    if (after.status !== 404) created++;
    await direct(remove(`${collections}/fleeting`));
  }
  const found = `${created} created, ${refused} refused`;
  held("a reader creates nothing by get_or_create in a race with a delete", created === 0, found);
  const open = `${collections}/${names.OPEN}`;
  await expect("narrow", get(`${open}/count`), 200);
  await direct(put(open, { new_name: "closed" }));
  await delay(FORGOTTEN_MS);
  await expect("narrow", get(`${open}/count`), 404);
  await direct(put(open, { new_name: "open" }));
  await delay(FORGOTTEN_MS);
  await expect("narrow", get(`${open}/count`), 200);
  const shown = "operator GET /$C/open";
  const before = await answersTo(direct, shown, names);
  await as("reader")(post(collections, { name: "open", get_or_create: true, metadata: { a: 1 } }));
  const after = await answersTo(direct, shown, names);
  checkSame(context, "get_or_create of a reader changes nothing", before, after);
}

/** Requests of users who may use `gatehouse_test_c`, and one collection of it. */
const observations = `
  solo GET /api/v2/auth/identity /$D /$D?limit=2 /$D/$C/collections /$D/$C/collections_count
    | /$D/$C/collections?limit=1&offset=1 /$D/$C/collections/mine /$D/$C/collections/theirs
    | /$D/$C/collections/by-id/$OTHER /$D/$C/collections/by-id/$HIDDEN
    | /$D/$N /$D/$N/collections /$D/$N/collections/mine
  solo POST /$D/$N/collections {"name":"mine","get_or_create":true}
  solo POST /$D/$N/collections/$OTHER/get /$D/$C/collections/$OTHER/get {}
  solo POST /$D/$C/collections/$OTHER/query {"query_embeddings":[[1,2,3]]}
  solo POST /$D/$C/collections {"name":"theirs","get_or_create":true}
  solo POST /$D/$C/collections/$HIDDEN/add {"ids":["2"],"embeddings":[[1,2,3]]}
  solo DELETE /$D/$C/collections/theirs /$D/$N
`;

/** Nothing tells a caller whether there is anything besides what it may use. */
async function checkDifference(context: SuiteContext): Promise<void> {
  const { as, direct } = context;
  await create(direct, databases, CHARLIE);
  const id = await create(direct, at(CHARLIE, "/collections"), "mine");
  await direct(post(at(CHARLIE, `/collections/${id}/add`), record("1", "own")));
  const observe = (user: string, OTHER: string = randomUUID(), HIDDEN: string = randomUUID()) => {
    const names = { D: databases.slice(1), C: CHARLIE, N: DELTA, OTHER, HIDDEN };
    return answersTo(as(user), observations, names);
  };
  const soloBefore = await observe("solo");
  const narrowBefore = await observe("solo-narrow");
  await create(direct, databases, DELTA);
  const other = await create(direct, at(DELTA, "/collections"), "mine");
  await direct(post(at(DELTA, `/collections/${other}/add`), record("1", SECRET)));
  const solo = await observe("solo", other);
  checkSame(context, "solo gets the same beside other data", soloBefore, solo);
  const hidden = await create(direct, at(CHARLIE, "/collections"), "theirs");
  const narrow = await observe("solo-narrow", other, hidden);
  checkSame(context, "solo-narrow gets the same beside other data", narrowBefore, narrow);
}

export const chromaSuite: Suite = {
  preset: chroma,
  grants: [
    { user: "reader", database: ALPHA, role: "ReadOnly" },
    { user: "writer", database: ALPHA, role: "ReadWrite" },
    { user: "builder", database: ALPHA, role: "DbAdmin" },
    { user: "owner", database: ALPHA, role: "Owner" },
    { user: "owner", database: FRESH, role: "Owner" },
    { user: "stranger", database: BRAVO, role: "DbAdmin" },
    { user: "guest", database: `${TENANT}.${ALPHA}`, role: "ReadOnly" },
    { user: "wide", database: "*", role: "ReadWrite" },
    { user: "wide", database: BRAVO, role: "None" },
    { user: "narrow", database: ALPHA, role: "ReadOnly", tables: ["open"] },
    { user: "partial", database: ALPHA, role: "Owner" },
    { user: "partial", database: ALPHA, role: "None", tables: ["hidden*"] },
    { user: "solo", database: CHARLIE, role: "ReadWrite" },
    { user: "solo-narrow", database: CHARLIE, role: "ReadWrite", tables: ["mine"] },
  ],
  async run(context) {
    const names = await fill(context.direct);
    const before = await answersTo(context.direct, protectedState, names);
    // Chroma does not implement all of them on a single node, and answers with its own errors.
    await checkRoles(context, requests, names, true);
    // The collection was renamed for a moment.
    await delay(FORGOTTEN_MS);
    await checkServer(context, names);
    await checkTables(context, names);
    await checkAttacks(context, attacksOn(names));
    await checkRaces(context, names);
    const after = await answersTo(context.direct, protectedState, names);
    checkSame(context, "nothing that was refused changed anything", before, after);
    await checkDifference(context);
  },
  clean,
};
