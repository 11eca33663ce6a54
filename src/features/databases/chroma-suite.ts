import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { chroma } from "./chroma.ts";
import { isObject, type Json, type JsonObject } from "./preset.ts";
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
  type Send,
  type Suite,
  type SuiteAnswer,
  type SuiteContext,
  type SuiteRequest,
  withCoding,
  withHeaders,
  withType,
} from "./suite.ts";

const ALPHA = "gatehouse_test_a";
const BRAVO = "gatehouse_test_b";
const CHARLIE = "gatehouse_test_c";
const DELTA = "gatehouse_test_d";
const FRESH = "gatehouse_test_e";
/** Chroma cannot delete a tenant, so this one stays. */
const TENANT = "gatehouse_test_t";
/** In documents, ids and metadata that most users may not see. */
const SECRET = "gatehouse-hush";

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

/** Chroma writes the members of some objects in any order. */
function sorted(value: Json): Json {
  if (Array.isArray(value)) return value.map(sorted);
  if (!isObject(value)) return value;
  const members = Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1));
  return Object.fromEntries(members.map(([name, one]) => [name, sorted(one)]));
}

/** The answer as a text that equals that of an equal answer. */
function canonical({ status, text, json }: SuiteAnswer): string {
  return `${status} ${json === undefined ? text : JSON.stringify(sorted(json))}`;
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

interface Ids {
  readonly open: string;
  readonly hidden: string;
  /** In another database. */
  readonly secret: string;
  /** In a database of the same name of another tenant. */
  readonly foreign: string;
}

async function fill(direct: Send): Promise<Ids> {
  await direct(post(tenants, { name: TENANT }));
  await create(direct, `${tenants}/${TENANT}/databases`, ALPHA);
  await create(direct, databases, ALPHA);
  await create(direct, databases, BRAVO);
  const collection = async (base: string, name: string, document: string) => {
    const id = await create(direct, `${base}/collections`, name);
    await direct(post(`${base}/collections/${id}/add`, record("1", document)));
    return id;
  };
  return {
    open: await collection(at(ALPHA), "open", "for all"),
    hidden: await collection(at(ALPHA), "hidden", SECRET),
    secret: await collection(at(BRAVO), "secret", SECRET),
    foreign: await collection(elsewhere, "foreign", SECRET),
  };
}

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
async function stateOf(direct: Send, ids: Ids): Promise<string> {
  const answers: string[] = [];
  for (const [base, id] of [
    [at(ALPHA), ids.hidden],
    [at(BRAVO), ids.secret],
    [elsewhere, ids.foreign],
  ]) {
    answers.push(canonical(await direct(get(`${base}/collections/by-id/${id}`))));
    answers.push(canonical(await direct(post(`${base}/collections/${id}/get`, {}))));
  }
  for (const base of [at(BRAVO), elsewhere]) {
    answers.push(namesIn(await direct(get(`${base}/collections`))));
  }
  return answers.join("\n");
}

function roleCases(direct: Send, ids: Ids): readonly RoleCase[] {
  const collections = at(ALPHA, "/collections");
  const open = `${collections}/${ids.open}`;
  const vector = { query_embeddings: [[1, 2, 3]], n_results: 1 };
  const made = (user: string) => `made-by-${user}`;
  const drop = (user: string) => remove(`${collections}/${made(user)}`);
  const shared = { name: "open", get_or_create: true };
  const searches = { searches: [{ limit: { limit: 1 } }] };
  const dropMade = async (user: string) => {
    await direct(post(collections, { name: made(user) }));
    return drop(user);
  };
  return [
    ["see the database", "reader", get(at(ALPHA))],
    ["list collections", "reader", get(collections)],
    ["count collections", "reader", get(at(ALPHA, "/collections_count"))],
    ["get a collection", "reader", get(`${collections}/open`)],
    ["get a collection by its UUID", "reader", get(`${collections}/by-id/${ids.open}`)],
    ["get_or_create a collection that exists", "reader", post(collections, shared)],
    ["get records", "reader", post(`${open}/get`, {})],
    ["query by a vector", "reader", post(`${open}/query`, vector)],
    ["search", "reader", post(`${open}/search`, searches)],
    ["count records", "reader", get(`${open}/count`)],
    ["count forks", "reader", get(`${open}/fork_count`)],
    ["ask for the state of the index", "reader", get(`${open}/indexing_status`)],
    ["add records", "writer", (user) => post(`${open}/add`, record(user, "added"))],
    ["upsert records", "writer", (user) => post(`${open}/upsert`, record(user, "upserted"))],
    [
      "update records",
      "writer",
      (user) => post(`${open}/update`, { ids: [user], documents: ["updated"] }),
    ],
    ["delete records", "writer", (user) => post(`${open}/delete`, { ids: [user] })],
    ["create a collection", "builder", (user) => post(collections, { name: made(user) }), drop],
    [
      "get_or_create a collection that does not exist",
      "builder",
      (user) => post(collections, { name: made(user), get_or_create: true }),
      drop,
    ],
    [
      "change the metadata of a collection",
      "builder",
      (user) => put(open, { new_metadata: { by: user } }),
    ],
    [
      "rename a collection",
      "builder",
      put(open, { new_name: "renamed" }),
      () => put(open, { new_name: "open" }),
    ],
    [
      "fork a collection",
      "builder",
      (user) => post(`${open}/fork`, { new_name: made(user) }),
      drop,
    ],
    ["delete a collection", "builder", dropMade, drop],
  ];
}

async function checkServer(context: SuiteContext): Promise<void> {
  const { as, direct, held, expect } = context;
  for (const name of ["heartbeat", "healthcheck", "version", "pre-flight-checks"]) {
    await expect("stranger", get(`/api/v2/${name}`), 200);
    await expect("", get(`/api/v2/${name}`), 401);
  }
  await expect("reader", get(`${tenants}/default_tenant`), 200);
  await expect("guest", get(`${tenants}/${TENANT}`), 200);
  await expect("guest", get(`${elsewhere}/collections`), 200);
  for (const [user, names] of [
    ["reader", ALPHA],
    ["stranger", BRAVO],
    ["guest", ""],
  ] as const) {
    const list = await as(user)(get(databases));
    const isOwn = namesIn(list) === names;
    held(`${user} sees only its own databases in the list`, isOwn, described(list));
    const identity = await as(user)(get("/api/v2/auth/identity"));
    const told = member(identity.json, "databases");
    const isRight = JSON.stringify(told) === JSON.stringify(names === "" ? [] : [names]);
    held(`${user} receives its own databases as its identity`, isRight, described(identity));
  }
  const wide = namesIn(await as("wide")(get(databases))).split(" ");
  const isWithout = wide.includes(ALPHA) && !wide.includes(BRAVO);
  held("a list leaves out a database with the role None", isWithout, wide.join(" "));
  for (const user of ["reader", "builder"]) {
    await expect(user, post(databases, { name: FRESH }), 403);
  }
  await expect("owner", post(databases, { name: FRESH }), 200);
  await expect("reader", remove(at(FRESH)), 403);
  await expect("builder", remove(at(ALPHA)), 403, "role_insufficient");
  await expect("owner", remove(at(FRESH)), 200);
  await expect("owner", post(tenants, { name: `${TENANT}_2` }), 403);
  await expect("admin", post(tenants, { name: "a.b" }), 400, "bad_request");
  const remained = await direct(get(at(ALPHA)));
  held("a database that was not dropped is still there", remained.status === 200, remained.text);
}

/** What users with entries for a few collections see of the others. */
async function checkTables({ as, direct, held, expect }: SuiteContext, ids: Ids): Promise<void> {
  const collections = at(ALPHA, "/collections");
  for (const [query, names] of [
    ["", "open"],
    ["?limit=1", "open"],
    ["?limit=10&offset=1", ""],
  ]) {
    const list = await as("narrow")(get(`${collections}${query}`));
    const title = `narrow lists only its collection (${query || "no page"})`;
    held(title, namesIn(list) === names, described(list));
  }
  const count = await as("narrow")(get(at(ALPHA, "/collections_count")));
  held("narrow counts only its collection", count.text.trim() === "1", described(count));
  await expect("narrow", get(at(ALPHA)), 200);
  await expect("narrow", get(`${collections}/open`), 200);
  await expect("narrow", get(`${collections}/hidden`), 403);
  await expect("narrow", post(`${collections}/${ids.open}/get`, {}), 200);
  for (const action of ["get", "query", "search"]) {
    const body = { query_embeddings: [[1, 2, 3]] };
    await expect("narrow", post(`${collections}/${ids.hidden}/${action}`, body), 404);
  }
  await expect("narrow", get(`${collections}/${ids.hidden}/count`), 404);
  await expect("narrow", get(`${collections}/by-id/${ids.hidden}`), 404);
  await expect("narrow", get(`${collections}/Open`), 403, "name_case_mismatch");
  // It may do anything there, but not with collections that begin with hidden.
  const list = await as("partial")(get(collections));
  held("a list leaves out collections with the role None", namesIn(list) === "open", list.text);
  const part = `${collections}/${await create(direct, collections, "part-1")}`;
  for (const name of ["hidden", "hidden-2"]) {
    await expect("partial", put(part, { new_name: name }), 403);
    await expect("partial", post(`${part}/fork`, { new_name: name }), 403);
    await expect("partial", post(collections, { name }), 403);
    await expect("partial", post(collections, { name, get_or_create: true }), 403);
  }
  await expect("partial", put(`${collections}/${ids.hidden}`, { new_name: "part-9" }), 404);
  await expect("partial", put(`${collections}/${ids.hidden}`, {}), 404);
  await expect("partial", remove(`${collections}/hidden`), 403);
  await expect("partial", remove(at(ALPHA)), 403);
  await expect("partial", post(collections, { name: "part-3" }), 200);
  await expect("partial", put(part, { new_name: "part-2" }), 200);
  await expect("partial", remove(`${collections}/part-2`), 200);
}

function attacksWithIds(ids: Ids): Attack[] {
  const inOwn = (id: string, rest = "") => at(ALPHA, `/collections/${id}${rest}`);
  const inOther = (id: string) => `${elsewhere}/collections/${id}/get`;
  const vectors = { query_embeddings: [[1, 2, 3]], searches: [] };
  const bodies: readonly (readonly [string, Json])[] = [
    ["get", {}],
    ["query", vectors],
    ["search", vectors],
    ["add", record("evil", "evil")],
    ["update", { ids: ["1"], documents: ["evil"] }],
    ["upsert", record("1", "evil")],
    ["delete", { ids: ["1"] }],
    ["fork", { new_name: "stolen" }],
  ];
  const spellings: readonly (readonly [string, string])[] = [
    ["in upper case", ids.secret.toUpperCase()],
    ["without hyphens", ids.secret.replaceAll("-", "")],
    ["in braces", `%7B${ids.secret}%7D`],
    ["as a URN", `urn:uuid:${ids.secret}`],
  ];
  const unknown = at("gatehouse_test_zz", `/collections/${ids.secret}/get`);
  const renamed = put(inOwn(ids.secret), { new_name: "mine" });
  const missing: readonly (readonly [string, SuiteRequest])[] = [
    ...bodies.map(([action, body]) => {
      const request = post(inOwn(ids.secret, `/${action}`), body);
      return [`${action} by the UUID of another database`, request] as const;
    }),
    ["rename by the UUID of another database", renamed],
    ["delete a collection by a UUID", remove(inOwn(ids.secret))],
    ["get a collection by a UUID as its name", get(inOwn(ids.secret))],
    ["count by the UUID of another database", get(inOwn(ids.secret, "/count"))],
    ["look up the UUID of another database", get(inOwn(`by-id/${ids.secret}`))],
    ["get by the UUID of another tenant", post(inOwn(ids.foreign, "/get"), {})],
    ...spellings.map(([how, id]) => [`write a UUID ${how}`, post(inOwn(id, "/get"), {})] as const),
  ];
  const denied: readonly (readonly [string, SuiteRequest])[] = [
    ["get in another tenant's database of the same name", post(inOther(ids.foreign), {})],
    ["use another tenant's path for one's own collection", post(inOther(ids.open), {})],
    ["use an unknown database's path", post(unknown, {})],
  ];
  return [
    ...missing.map(([title, request]): Attack => [title, "owner", request, 404]),
    ...denied.map(([title, request]): Attack => [title, "owner", request, 403]),
  ];
}

function attacksOnPaths(): Attack[] {
  const secret = "collections/secret";
  const crn = `/collections/default_tenant:${BRAVO}:secret`;
  const paths: readonly (readonly [string, string, ...number[]])[] = [
    ["name another database", at(BRAVO, `/${secret}`), 403],
    ["list another database", at(BRAVO, "/collections"), 403],
    ["count another database", at(BRAVO, "/collections_count"), 403],
    ["see another database", at(BRAVO), 403],
    ["encode a letter of another database", at("gatehouse_test_%62", `/${secret}`), 403],
    ["write a database in upper case", at(BRAVO.toUpperCase(), `/${secret}`), 403],
    ["write one's own database in upper case", at(ALPHA.toUpperCase(), "/collections"), 403],
    ["step up with ..", at(ALPHA, `/../${BRAVO}/${secret}`), 400],
    ["step up with %2e%2e", at(ALPHA, `/%2e%2e/${BRAVO}/${secret}`), 400],
    ["step up with ..%2f", at(ALPHA, `/collections/..%2f..%2f${BRAVO}%2f${secret}`), 400, 404],
    ["encode a slash", `${databases}%2f${BRAVO}/${secret}`, 400, 404],
    ["encode twice", at(ALPHA, `/%252e%252e/${BRAVO}/${secret}`), 400, 404],
    ["double a slash", at(ALPHA, `//../${BRAVO}/${secret}`), 400],
    ["write a backslash", at(ALPHA, `/..%5c${BRAVO}/${secret}`), 400, 404],
    ["cut with a semicolon", at(`${ALPHA};x=/../${BRAVO}`, `/${secret}`), 400, 404],
    ["cut with a zero byte", at(`${BRAVO}%00${ALPHA}`, `/${secret}`), 400, 404],
    ["end with a slash", at(ALPHA, "/collections/"), 404],
    ["name every database", at("*", "/collections"), 404],
    ["name _all", at("_all", "/collections"), 404],
    ["name two databases", at(`${ALPHA},${BRAVO}`, "/collections"), 404],
    ["write tenant and database as one", at(`${TENANT}.${ALPHA}`, "/collections"), 404],
    ["write the default tenant out", at(`default_tenant.${BRAVO}`, "/collections"), 404],
    ["write the tenant in upper case", `${tenants}/DEFAULT_TENANT/databases/${BRAVO}`, 403],
    ["see another tenant", `${tenants}/${TENANT}`, 403],
    ["see an unknown tenant", `${tenants}/gatehouse_test_zz`, 403],
    ["name a collection by crn", `/api/v2${crn}`, 404],
    ["name a collection by crn below one's own database", at(ALPHA, crn), 404],
    ["write the path in upper case", "/API/V2/heartbeat", 404],
    ["use API v1", "/api/v1/collections", 404],
    [
      "use API v1 with a tenant",
      `/api/v1/collections?tenant=default_tenant&database=${BRAVO}`,
      404,
    ],
    ["read the OpenAPI document", "/openapi.json", 404],
    ["read the documentation", "/docs/", 404],
    ["read the root", "/", 404],
  ];
  return paths.map(([title, path, ...statuses]): Attack => [title, "owner", get(path), statuses]);
}

function attacksByOwner(ids: Ids): Attack[] {
  const collections = at(ALPHA, "/collections");
  const open = `${collections}/${ids.open}`;
  const parameter = "unknown_parameter";
  const unknown = "unknown_member";
  const raw = (text: string) => post(collections, Buffer.from(text));
  const create = (body: Json) => post(collections, body);
  const name = '{"name":"evil"}';
  const schema = { defaults: {}, keys: {}, source_attached_function_id: ids.secret };
  const refused: readonly (readonly [title: string, request: SuiteRequest, code?: string])[] = [
    ["add a database", get(`${collections}?database=${BRAVO}`), parameter],
    ["add a tenant", get(`${collections}?tenant=${TENANT}`), parameter],
    ["send a parameter twice", get(`${collections}?limit=1&limit=2`)],
    ["encode one of two parameters", get(`${collections}?limit=1&%6cimit=2`)],
    ["send a limit that is no number", get(`${collections}?limit=-1`)],
    ["add a parameter to get", post(`${open}/get?collection=x`, {}), parameter],
    ["send a body with a GET", { ...get(`${collections}/open`), body: { database: BRAVO } }],
    ["send an array for a creation", create(["evil", null])],
    ["send an array for a rename", put(open, ["evil"])],
    ["send text for a creation", create("evil")],
    ["name a database", create({ name: "evil", database: BRAVO }), unknown],
    ["name a tenant", create({ name: "evil", tenant: TENANT }), unknown],
    ["name an id", create({ name: "evil", id: ids.secret }), unknown],
    ["add a member to a rename", put(open, { name: "evil" }), unknown],
    ["add a member to a database", post(databases, { name: FRESH, tenant: TENANT }), unknown],
    ["name an attached function in the schema", create({ name: "evil", schema }), unknown],
    ["give a member twice", raw('{"name":"evil","name":"open"}')],
    ["escape a member that is given twice", raw('{"name":"evil","n\\u0061me":"x1"}')],
    ["send a second value", raw(`${name}${name}`)],
    ["begin with a byte order mark", raw(`\ufeff${name}`)],
    ["nest deeply", raw(`{"metadata":${"[".repeat(99)}${"]".repeat(99)}}`)],
    ["send no JSON", raw("name=evil")],
    ["send broken gzip", withCoding(raw(name), "gzip")],
    ["send a name with a slash", create({ name: `../${BRAVO}` })],
    ["send a list of names", create({ name: ["evil"] })],
    ["rename to a list", put(open, { new_name: ["evil"] })],
    ["rename by the name", put(`${collections}/open`, { new_name: "evil" })],
    ["fork without a name", post(`${open}/fork`, {})],
  ];
  return refused.map(([title, request, code]) => [title, "owner", request, 400, code]);
}

function otherAttacks(ids: Ids): Attack[] {
  const collections = at(ALPHA, "/collections");
  const open = `${collections}/${ids.open}`;
  const method = (name: string, path: string): SuiteRequest => ({ method: name, path });
  const evil = post(collections, { name: "evil" });
  const shared = post(`${collections}?get_or_create=true`, { name: "open" });
  const sharedAsText = post(collections, { name: "open", get_or_create: "true" });
  const bytes = post(collections, Buffer.from('{"name":"evil"}'));
  const compressed = withCoding(post(collections, gzipSync('{"name":"evil"}')), "gzip");
  const override = { "x-http-method-override": "DELETE", "x-method-override": "DELETE" };
  const rewrite = {
    "x-original-url": at(BRAVO, "/collections"),
    "x-rewrite-url": at(BRAVO, "/collections"),
  };
  const twoCredentials = { authorization: ["Bearer x", "Bearer y"] };
  const twoTypes = { "content-type": ["application/json", "text/plain"] };
  return [
    ["send get_or_create as a parameter", "reader", shared, 400, "unknown_parameter"],
    ["send an array for a tenant", "admin", post(tenants, ["evil"]), 400],
    ["send text", "owner", withType(bytes, "text/plain"), 415],
    ["send UTF-16", "owner", withType(bytes, "application/json; charset=utf-16"), 415],
    ["send an unknown coding", "owner", withCoding(bytes, "br"), 415],
    ["hide a creation in gzip", "reader", compressed, 403],
    ["send get_or_create as text", "reader", sharedAsText, 400],
    ["reset the server", "admin", post("/api/v2/reset", {}), 404],
    ["attach a function", "owner", post(`${open}/functions/attach`, { name: "f" }), 404],
    ["see an attached function", "owner", get(`${open}/functions/f`), 404],
    ["detach a function", "owner", post(`${open}/attached_functions/f/detach`, {}), 404],
    ["ask for the head of another database", "owner", method("HEAD", at(BRAVO)), 403],
    ["change a tenant", "admin", method("PATCH", `${tenants}/${TENANT}`), 405],
    ["put a list", "owner", method("PUT", collections), 405],
    ["delete a list", "owner", method("DELETE", collections), 405],
    ["override the method", "reader", withHeaders(evil, override), 403],
    ["override the path", "stranger", withHeaders(get(collections), rewrite), 403],
    ["send two credentials", "owner", withHeaders(get(collections), twoCredentials), [400, 401]],
    ["send a type twice", "owner", withHeaders(evil, twoTypes), [400, 415]],
    ["send no credential", "", get(collections), 401],
  ];
}

function attacksOn(ids: Ids): Attack[] {
  return [
    ...attacksWithIds(ids),
    ...attacksOnPaths(),
    ...attacksByOwner(ids),
    ...otherAttacks(ids),
  ];
}

/** Names that change while requests are under way. */
async function checkRaces({ as, direct, held, expect }: SuiteContext, ids: Ids): Promise<void> {
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
  const open = `${collections}/${ids.open}`;
  await expect("narrow", get(`${open}/count`), 200);
  await direct(put(open, { new_name: "closed" }));
  await delay(FORGOTTEN_MS);
  await expect("narrow", get(`${open}/count`), 404);
  await direct(put(open, { new_name: "open" }));
  await delay(FORGOTTEN_MS);
  await expect("narrow", get(`${open}/count`), 200);
  const before = await direct(get(`${collections}/open`));
  await as("reader")(post(collections, { name: "open", get_or_create: true, metadata: { a: 1 } }));
  const after = await direct(get(`${collections}/open`));
  const isSame = canonical(before) === canonical(after);
  held("get_or_create of a reader changes nothing", isSame, after.text);
}

/** Requests of users who may use `gatehouse_test_c`, and one collection of it. */
function observations(other: string, hidden: string): SuiteRequest[] {
  const own = at(CHARLIE, "/collections");
  return [
    get("/api/v2/auth/identity"),
    get(databases),
    get(`${databases}?limit=2`),
    get(own),
    get(`${own}?limit=1&offset=1`),
    get(at(CHARLIE, "/collections_count")),
    get(`${own}/mine`),
    get(at(DELTA)),
    get(at(DELTA, "/collections")),
    get(at(DELTA, "/collections/mine")),
    post(at(DELTA, "/collections"), { name: "mine", get_or_create: true }),
    post(at(DELTA, `/collections/${other}/get`), {}),
    post(`${own}/${other}/get`, {}),
    post(`${own}/${other}/query`, { query_embeddings: [[1, 2, 3]] }),
    get(`${own}/by-id/${other}`),
    get(`${own}/theirs`),
    post(own, { name: "theirs", get_or_create: true }),
    remove(`${own}/theirs`),
    remove(at(DELTA)),
    get(`${own}/by-id/${hidden}`),
    post(`${own}/${hidden}/add`, record("2", "added")),
  ];
}

/** Answers without what differs between any two requests. */
async function observe(send: Send, other: string, hidden: string): Promise<string[]> {
  const answers: string[] = [];
  for (const request of observations(other, hidden)) {
    const text = canonical(await send(request))
      .replace(/"request_id":"[^"]*"/, "")
      .replaceAll(other, "<other>")
      .replaceAll(hidden, "<hidden>");
    answers.push(text);
  }
  return answers;
}

/** Nothing tells a caller whether there is anything besides what it may use. */
async function checkDifference({ as, direct, held }: SuiteContext): Promise<void> {
  await create(direct, databases, CHARLIE);
  const id = await create(direct, at(CHARLIE, "/collections"), "mine");
  await direct(post(at(CHARLIE, `/collections/${id}/add`), record("1", "own")));
  const observed = (user: string) => observe(as(user), randomUUID(), randomUUID());
  const alone = { solo: await observed("solo"), "solo-narrow": await observed("solo-narrow") };
  const compare = async (user: keyof typeof alone, other: string, hidden: string) => {
    for (const [index, answer] of (await observe(as(user), other, hidden)).entries()) {
      const before = alone[user][index];
      const { method, path } = observations("<other>", "<hidden>")[index] ?? get("");
      const found = `${before} became ${answer}`;
      held(`${user} gets the same beside other data: ${method} ${path}`, answer === before, found);
    }
  };
  await create(direct, databases, DELTA);
  const other = await create(direct, at(DELTA, "/collections"), "mine");
  await direct(post(at(DELTA, `/collections/${other}/add`), record("1", SECRET)));
  await compare("solo", other, randomUUID());
  const hidden = await create(direct, at(CHARLIE, "/collections"), "theirs");
  await compare("solo-narrow", other, hidden);
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
    const ids = await fill(context.direct);
    const before = await stateOf(context.direct, ids);
    // Chroma does not implement all of them on a single node, and answers with its own errors.
    await checkRoles(context, roleCases(context.direct, ids), true);
    // The collection was renamed for a moment.
    await delay(FORGOTTEN_MS);
    await checkServer(context);
    await checkTables(context, ids);
    await checkAttacks(context, attacksOn(ids), SECRET);
    await checkRaces(context, ids);
    const after = await stateOf(context.direct, ids);
    context.held("nothing that was refused changed anything", after === before, after);
    await checkDifference(context);
  },
  clean,
};
