import { runCooperatively } from "../../core/base/cooperative-scheduling.ts";
import { memoizeByObject } from "../../core/base/memoize.ts";
import type { Refusal } from "../../core/base/refusal.ts";
import { parseUnrounded } from "../../core/json/exact.ts";
import { quoteName } from "../../core/json/fault.ts";
import { isPermissionClass, type PermissionClass } from "../../core/query/permissions.ts";
import { badRequest, brokenAnswer, Lines, requireObject } from "./body.ts";
import {
  BodyReader,
  EVERY,
  makesIndexByDelete,
  type NamedIndex,
  namesIn,
  percolatorsIn,
  readAlias,
  readAliasActions,
  readBulk,
  readDocuments,
  readSearches,
  readUpdate,
  requireOpenWildcards,
  Uses,
  withoutHidden,
} from "./opensearch-bodies.ts";
import { writePath } from "./path.ts";
import {
  type Access,
  type EndpointOptions,
  endpointsAt,
  forEveryUser,
  isObject,
  type Json,
  type JsonObject,
  type LookupAnswer,
  type Plan,
  type Preset,
  type PresetEndpoint,
  type PresetRequest,
  replyWith,
  words,
} from "./preset.ts";

const indexName = /^[a-z0-9][a-z0-9._-]{0,254}$/;
/** Each `*` means any text. */
const pattern = /^(?:[a-z0-9][a-z0-9._-]{0,253})?\*[a-z0-9._*-]{0,254}$/;
const MOST_NAMES = 256;
/** Lookups of one request that run at one time. */
const LOOKUPS_AT_ONCE = 8;
const REMEMBERED_MS = 1000;

/** @throws Refusal `bad_request` */
function requireName(name: string): void {
  if (name === EVERY || indexName.test(name) || pattern.test(name)) return;
  throw badRequest(
    `${quoteName(name)} is not an index: 1 to 255 of a-z, 0-9, ".", "_" and "-", beginning with a letter or digit, or such a name with *; exclusions and date math are not allowed`,
  );
}

/** @throws Refusal `bad_request` for a pattern or a list, where only one index makes sense */
function requireOne(name: string): string {
  requireName(name);
  if (indexName.test(name)) return name;
  throw badRequest(`${quoteName(name)} must be one index here`);
}

interface Meaning {
  /** The names of indexes and data streams. */
  readonly indexes: ReadonlySet<Json | undefined>;
  /** The indexes behind an alias, or behind all aliases that a pattern matches. */
  readonly aliased: readonly string[];
}

/** @throws Refusal `upstream_broken` for an answer that cannot be understood */
const readMeaning = memoizeByObject((answer: LookupAnswer): Meaning => {
  if (answer.status === 404) return { indexes: new Set(), aliased: [] };
  const { indices, aliases, data_streams: streams } = objectIn(answer);
  return {
    indexes: new Set([...objectsIn(indices), ...objectsIn(streams)].map(({ name }) => name)),
    aliased: objectsIn(aliases).flatMap((alias) => stringsIn(alias.indices)),
  };
});

function brokenLookup(): Refusal {
  return brokenAnswer("the answer to a lookup has another form");
}

/** @throws Refusal `upstream_broken` unless the answer has status 200 and an object */
function objectIn({ status, body }: LookupAnswer): JsonObject {
  if (status !== 200 || !isObject(body)) throw brokenLookup();
  return body;
}

function objectsIn(value: Json | undefined): readonly JsonObject[] {
  if (!Array.isArray(value)) throw brokenLookup();
  return value.filter((one) => isObject(one));
}

function stringsIn(value: Json | undefined): readonly string[] {
  return [value ?? []].flat().filter((one) => typeof one === "string");
}

/**
 * True if one of the objects in documents may be a query, which the server follows when it parses
 * the document.
 */
async function hasQueries(
  request: PresetRequest,
  name: string,
  objects: ReadonlySet<string>,
): Promise<boolean> {
  const path = `/${name}/_mapping?filter_path=**.type`;
  const fields = readPercolators(await request.lookup(path, REMEMBERED_MS));
  return fields.some((field) => field === "mapping" || objects.has("*") || objects.has(field));
}

const readPercolators = memoizeByObject(({ status, body = null }: LookupAnswer): string[] => {
  if (status !== 200 && status !== 404) throw brokenLookup();
  return percolatorsIn(body);
});

/** Of a document that is stored, which is not read. */
const anyObject: ReadonlySet<string> = new Set(["*"]);

/** How all names begin that a pattern means. Undefined for one name. */
function everyTableOf(name: string): string | undefined {
  if (name === EVERY) return "";
  const star = name.indexOf("*");
  return star === -1 ? undefined : name.slice(0, star);
}

async function accessesOfName(
  request: PresetRequest,
  { name, permissions, element, makesIndex, isNew }: NamedIndex,
  parsed: ReadonlySet<string>,
): Promise<Access[]> {
  const { defaultDatabase: database } = request;
  requireName(name);
  const everyTable = everyTableOf(name);
  const table = everyTable === undefined ? name : undefined;
  const own: Access = { permissions, database, table, everyTable, element };
  if (isNew || everyTable === "") return [own];
  const path = `/_resolve/index/${name}?expand_wildcards=all`;
  const { indexes, aliased } = readMeaning(await request.lookup(path, REMEMBERED_MS));
  const accesses: Access[] = [];
  if (everyTable !== undefined || indexes.has(name)) accesses.push(own);
  else if (aliased.length === 0) {
    accesses.push(makesIndex ? { ...own, permissions: [...permissions, "CREATE"] } : own);
  }
  for (const index of aliased) {
    if (everyTable !== undefined && index.startsWith(everyTable)) continue;
    // One that begins with a dot may hold the documents of any data stream.
    const behind = index.startsWith(".") ? { everyTable: "" } : { table: index };
    accesses.push({ permissions, database, ...behind, element, alias: name });
  }
  const objects = makesIndex ? anyObject : parsed;
  if (objects.size > 0 && (await hasQueries(request, name, objects))) {
    // The query is not read here, and may name any index or have a script.
    accesses.push({ permissions: ["SELECT", "CREATE"], database, everyTable: "", element });
  }
  return accesses;
}

/**
 * The accesses of a request, in the order of its names. Scripts and pipelines need what only a
 * DbAdmin has.
 *
 * @throws Refusal
 */
async function accessesOf(request: PresetRequest, ...uses: readonly Uses[]): Promise<Access[]> {
  const names = uses.flatMap((one) => one.names);
  if (names.length > MOST_NAMES) {
    throw badRequest(
      `the request names ${names.length} indexes; at most ${MOST_NAMES} are allowed`,
    );
  }
  const parsed = new Set(uses.flatMap((one) => [...one.parsed]));
  const accesses: Access[] = [];
  for (let at = 0; at < names.length; at += LOOKUPS_AT_ONCE) {
    const some = names.slice(at, at + LOOKUPS_AT_ONCE);
    const found = await Promise.all(some.map((one) => accessesOfName(request, one, parsed)));
    for (const own of found) for (const access of own) accesses.push(access);
  }
  const { defaultDatabase: database, query } = request;
  const permissions: readonly PermissionClass[] = ["CREATE"];
  if (uses.some(({ scripts }) => scripts)) accesses.push({ permissions, database });
  const isPiped = query.has("pipeline") || query.has("search_pipeline");
  if (isPiped || uses.some(({ pipelines }) => pipelines)) {
    accesses.push({ permissions, database, everyTable: "" });
  }
  return accesses;
}

/** The names of the path, or all if it has none. */
function pathNames({ path: { index } }: PresetRequest): string[] {
  return index === undefined ? [EVERY] : index.split(",");
}

function usesOf(
  names: readonly string[],
  permissions: readonly PermissionClass[],
  more: Pick<NamedIndex, "makesIndex" | "isNew"> = {},
): Uses {
  const uses = new Uses();
  for (const name of names) uses.add({ name, permissions, ...more });
  return uses;
}

/** True for a name of several indexes. */
function isWide(name: string): boolean {
  return name === EVERY || name.includes("*");
}

function usesOfBody(kind: string, body: Json | undefined): Uses {
  const reader = new BodyReader();
  reader.read(kind, body === undefined ? null : requireObject(body));
  return reader.uses;
}

// Lists of query parameters.
const common = "pretty human filter_path";
const wildcards = "ignore_unavailable allow_no_indices expand_wildcards";
const waits = "timeout master_timeout cluster_manager_timeout";
const lucene = "q df analyzer analyze_wildcard default_operator lenient";
const returned = "_source _source_includes _source_excludes";
const searching = `from size sort stored_fields docvalue_fields track_total_hits track_scores timeout
  terminate_after scroll search_type preference routing explain version seq_no_primary_term
  request_cache stats batched_reduce_size typed_keys rest_total_hits_as_int ignore_throttled
  search_pipeline phase_took max_concurrent_shard_requests pre_filter_shard_size
  allow_partial_search_results ccs_minimize_roundtrips cancel_after_time_interval
  include_named_queries_score suggest_field suggest_mode suggest_size suggest_text
  ${lucene} ${returned} ${wildcards}`;
const searchingSeveral = `max_concurrent_searches max_concurrent_shard_requests
  pre_filter_shard_size rest_total_hits_as_int search_type typed_keys ccs_minimize_roundtrips`;
const reading = `preference realtime refresh routing stored_fields version version_type ${returned}`;
const vectors = `fields offsets payloads positions term_statistics field_statistics preference
  realtime routing version version_type`;
const writing = `refresh routing timeout version version_type if_seq_no if_primary_term
  require_alias wait_for_active_shards`;
const byQuery = `conflicts max_docs refresh requests_per_second scroll scroll_size search_timeout
  search_type size slices sort stats terminate_after timeout version wait_for_active_shards
  preference routing request_cache from wait_for_completion ${lucene} ${returned} ${wildcards}`;
const scrolling = "scroll rest_total_hits_as_int";
const opening = `keep_alive preference routing allow_partial_pit_creation ${wildcards}`;
const cat = "format h help s v bytes time health pri ts";
const health = `local wait_for_active_shards wait_for_events wait_for_no_initializing_shards
  wait_for_no_relocating_shards wait_for_nodes wait_for_status ${waits}`;
const statistics = `completion_fields fielddata_fields fields groups level
  include_segment_file_sizes include_unloaded_segments forbid_closed_indices`;

const listing = `${cat} ${wildcards} ${waits} include_unloaded_segments local`;
const aliases = `${wildcards} local`;
const inserting = "INSERT; CREATE for a new index";

const jsonTypes = ["application/json", "application/vnd.elasticsearch+json"];
const lineTypes = [
  "application/x-ndjson",
  "application/json",
  "application/vnd.elasticsearch+x-ndjson",
  "application/vnd.elasticsearch+json",
];

const json: EndpointOptions = { body: "json" };
const optionalJson: EndpointOptions = { body: "optional json" };
const lined: EndpointOptions = { body: "ndjson", types: lineTypes };
const stream: EndpointOptions = { body: "stream" };
const filtered: EndpointOptions = { names: "lists only what the caller may read" };
const searchBody: EndpointOptions = {
  body: "optional json",
  names:
    "terms lookup, more_like_this, percolate, indexed_shape, indices_boost; scripts and pipelines: CREATE",
};

/** Parameters that take a few values only. @throws Refusal `bad_request` */
function requireParameters(query: ReadonlyMap<string, string>): void {
  const expanded = query.get("expand_wildcards");
  if (expanded !== undefined) requireOpenWildcards(expanded);
  // Otherwise the answer is the name of a task, which no caller may read.
  if ((query.get("wait_for_completion") ?? "true") !== "true") {
    throw badRequest("wait_for_completion must be true");
  }
}

type Planner = PresetEndpoint["plan"];

function at(
  text: string,
  right: string,
  plan: Planner,
  options: EndpointOptions = {},
): PresetEndpoint[] {
  const checked: Planner = (request) => {
    requireParameters(request.query);
    return plan(request);
  };
  return endpointsAt(`${text} ${common}`, right, checked, { types: jsonTypes, ...options });
}

/** The path that goes upstream so that no index of the server's own is meant. */
function openPath(request: PresetRequest): { path: string } | undefined {
  const { pattern, path } = request;
  // At `/views`, OpenSearch 3 lists its views, whether an index has this name or not.
  if (pattern === "/:index" && path.index === "views") return { path: "/views,views" };
  const shown = withoutHidden(pathNames(request));
  if (shown === undefined) return undefined;
  let full = pattern;
  if (!pattern.includes(":index")) {
    full = pattern.startsWith("/_cat/") ? `${pattern}/:index` : `/:index${pattern}`;
  }
  const values: Readonly<Record<string, string>> = { ...path, index: shown.join(",") };
  const written = (one: string) => (one.startsWith(":") ? (values[one.slice(1)] ?? "") : one);
  return { path: writePath(full.slice(1).split("/").map(written)) };
}

/** Asks for one right on the indexes of the path, or on all, and for what else a request uses. */
async function planPath(
  request: PresetRequest,
  right: PermissionClass,
  ...uses: readonly Uses[]
): Promise<Plan> {
  const inPath = usesOf(pathNames(request), [right]);
  return { ...openPath(request), accesses: await accessesOf(request, inPath, ...uses) };
}

type ReadUses = (request: PresetRequest) => Uses;

/**
 * Endpoints on a list of indexes, and on all if the path may do without one.
 *
 * @param table with a row for each: the right, methods, paths and parameters
 */
function onIndexes(
  table: string,
  readUses: ReadUses = () => new Uses(),
  options: EndpointOptions = {},
): PresetEndpoint[] {
  return table
    .trim()
    .split(/\n\s*(?=[A-Z])/)
    .flatMap((row) => {
      const [right = "", ...rest] = words(row);
      if (!isPermissionClass(right)) throw new Error(`no right: ${row}`);
      const plan: Planner = (request) => planPath(request, right, readUses(request));
      return at(`${rest.join(" ")} ${wildcards}`, right, plan, options);
    });
}

/** How an endpoint uses the index of its path, and which others its body names. */
interface IndexUse extends Pick<NamedIndex, "permissions" | "makesIndex"> {
  readonly uses?: Uses;
}

function onIndex(
  text: string,
  right: string,
  useOf: IndexUse | ((request: PresetRequest) => IndexUse),
  options: EndpointOptions = {},
): PresetEndpoint[] {
  const plan: Planner = async (request) => {
    const use = typeof useOf === "function" ? useOf(request) : useOf;
    const { uses = new Uses(), permissions, makesIndex = false } = use;
    const own = usesOf([requireOne(request.path.index ?? "")], permissions, { makesIndex });
    return { accesses: await accessesOf(request, own, uses) };
  };
  return at(text, right, plan, options);
}

function bodyOf(kind: string): ReadUses {
  return ({ json }) => usesOfBody(kind, json);
}

const search = bodyOf("search");

/** Replaces the text of a handle at a member of an answer. */
function sealing(
  request: PresetRequest,
  kind: string,
  member: string,
  accesses: readonly Access[],
): NonNullable<Plan["answer"]> {
  return async (body) => {
    if (!isObject(body)) return body;
    const value = body[member];
    if (typeof value !== "string") return body;
    return { ...body, [member]: await request.seal(kind, { value, accesses }) };
  };
}

/** A search at a point in time: the indexes are those of the point. */
async function planPointInTime(request: PresetRequest, pit: Json): Promise<Plan> {
  if (!isObject(pit) || typeof pit.id !== "string") throw badRequest("pit must have an id");
  if (request.path.index !== undefined) throw badRequest("a point in time has its own indexes");
  const { value, accesses } = await request.open("pit", pit.id);
  const sent = parseUnrounded(request.bytes.toString());
  return {
    accesses: [...accesses, ...(await accessesOf(request, search(request)))],
    path: "/_search",
    body: Buffer.from(JSON.stringify({ ...sent, pit: { ...sent.pit, id: value } })),
    answer: sealing(request, "pit", "pit_id", accesses),
  };
}

async function planSearch(request: PresetRequest): Promise<Plan> {
  const { json, query } = request;
  if (isObject(json) && json.pit !== undefined) return planPointInTime(request, json.pit);
  const plan = await planPath(request, "SELECT", search(request));
  if (!query.has("scroll")) return plan;
  return { ...plan, answer: sealing(request, "scroll", "_scroll_id", plan.accesses) };
}

/** Some clients write the scroll into the path, whose length servers limit. A body has no limit. */
function scrollPath({ pattern }: PresetRequest): string {
  return pattern.replace("/:scroll", "");
}

async function planScroll(request: PresetRequest): Promise<Plan> {
  const sent = { scroll_id: request.path.scroll, ...request.members };
  if (typeof sent.scroll_id !== "string") throw badRequest("scroll_id must be a string");
  const { value, accesses } = await request.open("scroll", sent.scroll_id);
  return {
    accesses,
    isOnce: true,
    path: scrollPath(request),
    body: Buffer.from(JSON.stringify({ ...sent, scroll_id: value })),
    answer: sealing(request, "scroll", "_scroll_id", accesses),
  };
}

/** Ends handles, for which no right is needed any more. */
function planEnd(kind: string, member: string, isList = true): Planner {
  return async (request) => {
    const sealed = namesIn(request.path.scroll ?? request.members[member]);
    const values = await Promise.all(
      sealed.map(async (id) => (await request.open(kind, id)).value),
    );
    const sent = isList ? values : (values[0] ?? "");
    // OpenSearch repeats the points in time that it has ended.
    const nameAgain = (one: Json): Json =>
      isObject(one) && typeof one.pit_id === "string"
        ? { ...one, pit_id: sealed[values.indexOf(one.pit_id)] ?? "" }
        : one;
    return {
      accesses: [],
      path: scrollPath(request),
      body: Buffer.from(JSON.stringify({ [member]: sent })),
      answer: (ended) =>
        isObject(ended) && Array.isArray(ended.pits)
          ? { ...ended, pits: ended.pits.map(nameAgain) }
          : ended,
    };
  };
}

function openPointInTime(member: string): Planner {
  return async (request) => {
    const plan = await planPath(request, "SELECT");
    return { ...plan, answer: sealing(request, "pit", member, plan.accesses) };
  };
}

function mayRead({ may, defaultDatabase }: PresetRequest, name: Json | undefined): boolean {
  return typeof name === "string" && indexName.test(name) && may("SELECT", defaultDatabase, name);
}

/** The objects in a list of an answer whose name is that of an index that the caller may read. */
function readableIn(request: PresetRequest, list: Json | undefined): readonly JsonObject[] {
  return objectsIn(list).filter(({ name }) => mayRead(request, name));
}

/** The aliases of indexes that the caller may read, as the server would list them. */
async function planAliases(request: PresetRequest): Promise<Plan> {
  const { name } = request.path;
  const path = name === undefined ? "/_alias" : `/_alias/${encodeURIComponent(name)}`;
  const { status, body } = await request.lookup(path);
  if ((status !== 200 && status !== 404) || !isObject(body)) throw brokenLookup();
  const found = Object.entries(body).filter(
    ([index, one]) => isObject(one) && mayRead(request, index),
  );
  if (name === undefined || found.length > 0 || name.includes("*")) {
    return replyWith(200, Object.fromEntries(found));
  }
  return replyWith(404, { error: `alias [${name}] missing`, status: 404 });
}

/** The data streams that the caller may read. */
async function planDataStreams(request: PresetRequest): Promise<Plan> {
  const { data_streams: streams } = objectIn(await request.lookup("/_data_stream"));
  return replyWith(200, { data_streams: readableIn(request, streams) });
}

async function planResolve(request: PresetRequest): Promise<Plan> {
  const names = pathNames(request);
  for (const name of names) requireName(name);
  const answer = await request.lookup(`/_resolve/index/${encodeURIComponent(names.join(","))}`);
  const missing = replyWith(404, { error: "no such index", status: 404 });
  if (answer.status === 404) return missing;
  const body = objectIn(answer);
  const aliases = objectsIn(body.aliases).map((alias) => {
    const readable = stringsIn(alias.indices).filter((index) => mayRead(request, index));
    return { ...alias, indices: readable };
  });
  const found = {
    indices: readableIn(request, body.indices),
    aliases: aliases.filter(({ indices }) => indices.length > 0),
    data_streams: readableIn(request, body.data_streams),
  };
  const shown = Object.values(found).flatMap((some: readonly JsonObject[]) =>
    some.map(({ name }) => name),
  );
  if (names.every((name) => isWide(name) || shown.includes(name))) return replyWith(200, found);
  // Whatever the server does with a missing name is done with one that the caller may not read.
  const absent = await request.lookup("/_resolve/index/gatehouse-absent", REMEMBERED_MS);
  return absent.status === 404 ? missing : replyWith(200, found);
}

/** Servers take at most 4,096 bytes of request line by default. */
const LONGEST_PATH = 3000;

/** Names the indexes that the caller may read, in place of wide names. */
async function planCatIndices(request: PresetRequest): Promise<Plan> {
  const names = pathNames(request);
  const wide = names.filter(isWide);
  const named = names.filter((name) => !isWide(name));
  const accesses = await accessesOf(request, usesOf(named, ["SELECT"]));
  if (wide.length === 0) return { accesses };
  for (const name of wide) requireName(name);
  const asked = encodeURIComponent(wide.map((name) => (name === EVERY ? "*" : name)).join(","));
  const answer = await request.lookup(`/_resolve/index/${asked}?expand_wildcards=open,closed`);
  const readable = readableIn(request, objectIn(answer).indices);
  const shown = [...named, ...readable.map(({ name }) => name)];
  if (shown.length === 0) return replyWith(200, []);
  const path = `/_cat/indices/${encodeURIComponent(shown.join(","))}`;
  if (path.length <= LONGEST_PATH) return { accesses, path };
  return planPath(request, "SELECT");
}

/** The metadata of indexes, by which clients ask whether one is closed, without the server's own. */
async function planState(request: PresetRequest): Promise<Plan> {
  const query = new Map([...request.query, ["filter_path", "metadata.indices"]]);
  return { ...(await planPath(request, "SELECT")), query };
}

/** For objects of the whole server, such as stored scripts. */
function planCluster({ defaultDatabase: database }: PresetRequest): Plan {
  return { accesses: [{ permissions: ["CREATE"], database, everyTable: "" }] };
}

async function planSearches(request: PresetRequest): Promise<Plan> {
  const indexes = request.path.index === undefined ? undefined : pathNames(request);
  const { uses, body } = await runCooperatively(readSearches(new Lines(request.bytes), indexes));
  const open = indexes === undefined ? undefined : openPath(request);
  return { ...open, ...(await planElements(request, uses)), ...(body && { body }) };
}

/** The one index of the path, if it has any. */
function indexOfPath({ path: { index } }: PresetRequest): string | undefined {
  return index === undefined ? undefined : requireOne(index);
}

async function planElements(request: PresetRequest, uses: Uses): Promise<Plan> {
  return { accesses: await accessesOf(request, uses), elements: uses.elements };
}

function planDocuments(kind: string): Planner {
  return (request) =>
    planElements(request, readDocuments(request.json ?? {}, indexOfPath(request), kind));
}

async function planBulk(request: PresetRequest): Promise<Plan> {
  const index = indexOfPath(request);
  const steps = readBulk(new Lines(request.bytes), index, returnsDocuments(request));
  return planElements(request, await runCooperatively(steps));
}

function planAliasActions(request: PresetRequest): Promise<Plan> {
  return planElements(request, readAliasActions(request.members));
}

function planAnalysis({ json }: PresetRequest): Plan {
  usesOfBody("analysis", json);
  return forEveryUser();
}

function stored(...permissions: readonly PermissionClass[]): IndexUse {
  return { permissions, makesIndex: true };
}

/** True if the answer to an update has the document. */
function returnsDocuments({ query }: PresetRequest): boolean {
  return words(returned).some((name) => query.has(name));
}

function useOfUpdate(request: PresetRequest): IndexUse {
  const reader = new BodyReader();
  const rights = readUpdate(reader, requireObject(request.json), returnsDocuments(request));
  return { ...stored(...rights), uses: reader.uses };
}

/** A script may also delete the documents. */
const usesOfUpdates: ReadUses = (request) => {
  const uses = usesOfBody("by_query", request.json);
  if (!uses.scripts) return uses;
  for (const name of pathNames(request)) uses.add({ name, permissions: ["DELETE"] });
  return uses;
};

function useOfDelete({ query }: PresetRequest): IndexUse {
  return { permissions: ["DELETE"], makesIndex: makesIndexByDelete(query.get("version_type")) };
}

const select: IndexUse = { permissions: ["SELECT"] };
const create: IndexUse = { permissions: ["CREATE"] };

const clusterPaths = words(
  "/_ingest/pipeline /_search/pipeline /_index_template /_component_template /_template /_scripts",
);

const endpoints: PresetEndpoint[] = [
  at("GET /", "any user", forEveryUser),
  // `level` would list all indexes.
  at(`GET /_cluster/health ${health}`, "any user", forEveryUser),
  at(`GET /_cat/health ${cat}`, "any user", forEveryUser),
  at(`GET /_cat/indices ${listing}`, "any user", planCatIndices, filtered),
  at(`GET /_cat/indices/:index ${listing}`, "SELECT; any user for *", planCatIndices, filtered),
  at("GET /_resolve/index/:index", "any user", planResolve, filtered),
  at(`GET /_alias /_aliases /_alias/:name ${aliases}`, "any user", planAliases, filtered),
  at("GET /_data_stream", "any user", planDataStreams, filtered),
  at(`GET /_cluster/state/metadata/:index ${wildcards} local ${waits}`, "SELECT", planState, {
    names: "only metadata.indices of the answer",
  }),
  at("GET POST /_analyze", "any user", planAnalysis, json),
  onIndexes(`
    SELECT GET /_cluster/health/:index ${health} level
    SELECT GET /_cat/count /_cat/count/:index ${cat}
    SELECT GET /:index flat_settings include_defaults local ${waits}
    SELECT GET /_mapping /_mapping/field/:field /:index/_mapping /:index/_mapping/field/:field
      local include_defaults ${waits}
    SELECT GET /_settings /:index/_settings /:index/_settings/:setting
      flat_settings include_defaults local ${waits}
    SELECT GET /_stats /:index/_stats /:index/_stats/:metric ${statistics}
    SELECT GET /:index/_alias /:index/_alias/:name local
    SELECT GET /_data_stream/:index
    INSERT POST GET /_refresh /:index/_refresh
    CREATE POST /_flush /:index/_flush force wait_if_ongoing
    CREATE POST /_cache/clear /:index/_cache/clear fielddata fields file query request
    CREATE POST /_forcemerge /:index/_forcemerge
      flush max_num_segments only_expunge_deletes wait_for_completion
    CREATE POST /:index/_open /:index/_close
      wait_for_active_shards wait_for_completion ${waits}
    DROP DELETE /:index ${waits}
    DROP DELETE /_data_stream/:index
  `),

  at(`GET POST /_search /:index/_search ${searching}`, "SELECT", planSearch, searchBody),
  onIndexes(
    `
    SELECT GET POST /_count /:index/_count
      min_score preference routing terminate_after ignore_throttled ${lucene}
    SELECT GET POST /_validate/query /:index/_validate/query explain rewrite all_shards ${lucene}
  `,
    bodyOf("only_query"),
    searchBody,
  ),
  onIndexes(
    "SELECT GET POST /_field_caps /:index/_field_caps fields include_unmapped filters types",
    bodyOf("field_caps"),
    searchBody,
  ),
  onIndexes("SELECT GET POST /:index/_analyze", bodyOf("analysis"), json),
  onIndex(
    `GET POST /:index/_explain/:id preference routing stored_fields ${lucene} ${returned}`,
    "SELECT",
    ({ json }) => ({ ...select, uses: usesOfBody("only_query", json) }),
    searchBody,
  ),
  at(`GET POST /_msearch /:index/_msearch ${searchingSeveral}`, "SELECT", planSearches, {
    ...lined,
    names: "index of each header; bodies as _search",
  }),
  at(`POST GET /_search/scroll ${scrolling} {scroll_id scroll}`, "the search's", planScroll, {
    names: "scroll_id",
  }),
  at(`POST GET /_search/scroll/:scroll ${scrolling}`, "the search's", planScroll),
  at("DELETE /_search/scroll/:scroll", "any user", planEnd("scroll", "scroll_id")),
  at("DELETE /_search/scroll {scroll_id}", "any user", planEnd("scroll", "scroll_id"), {
    names: "scroll_id",
  }),
  at(`POST /:index/_search/point_in_time ${opening}`, "SELECT", openPointInTime("pit_id")),
  at(`POST /:index/_pit ${opening}`, "SELECT", openPointInTime("id")),
  at("DELETE /_search/point_in_time {pit_id}", "any user", planEnd("pit", "pit_id"), {
    names: "pit_id",
  }),
  at("DELETE /_pit {id}", "any user", planEnd("pit", "id", false), { names: "id" }),
  at(`GET POST /_mget /:index/_mget ${reading}`, "SELECT", planDocuments("documents_read"), {
    ...json,
    names: "docs._index",
  }),
  at(
    `GET POST /_mtermvectors /:index/_mtermvectors ids ${vectors}`,
    "SELECT",
    planDocuments("vectors_read"),
    { ...optionalJson, names: "docs._index" },
  ),
  onIndex(
    `GET POST /:index/_termvectors /:index/_termvectors/:id ${vectors}`,
    "SELECT",
    ({ json }) => ({ ...select, uses: usesOfBody("vectors", json) }),
    optionalJson,
  ),

  onIndex(`GET /:index/_doc/:id /:index/_source/:id ${reading}`, "SELECT", select),
  onIndex(
    `PUT POST /:index/_doc/:id ${writing} op_type pipeline`,
    "INSERT UPDATE, or INSERT with op_type=create; CREATE for a new index",
    ({ query }) =>
      query.get("op_type") === "create" ? stored("INSERT") : stored("INSERT", "UPDATE"),
    stream,
  ),
  onIndex(`POST /:index/_doc ${writing} op_type pipeline`, inserting, stored("INSERT"), stream),
  onIndex(`PUT POST /:index/_create/:id ${writing} pipeline`, inserting, stored("INSERT"), stream),
  onIndex(`DELETE /:index/_doc/:id ${writing}`, "DELETE", useOfDelete),
  onIndex(
    `POST /:index/_update/:id ${writing} ${returned} retry_on_conflict`,
    "UPDATE; INSERT with an upsert; SELECT with _source; CREATE for a new index",
    useOfUpdate,
    { ...json, names: "scripts: CREATE, DELETE" },
  ),
  at(`POST PUT /_bulk /:index/_bulk ${writing} ${returned} pipeline`, "by action", planBulk, {
    ...lined,
    names: "_index of each action",
  }),
  onIndexes(`DELETE POST /:index/_delete_by_query ${byQuery}`, bodyOf("by_query"), {
    ...searchBody,
    ...json,
  }),
  onIndexes(`UPDATE POST /:index/_update_by_query pipeline ${byQuery}`, usesOfUpdates, searchBody),

  onIndex(
    `PUT /:index ${waits} wait_for_active_shards`,
    "CREATE",
    ({ json }) => ({ ...create, uses: usesOfBody("new_index", json) }),
    { ...optionalJson, names: "aliases, their filters" },
  ),
  onIndexes(`CREATE PUT POST /:index/_mapping write_index_only ${waits}`, bodyOf("mappings"), {
    ...json,
    names: "percolator: CREATE on all",
  }),
  onIndexes(
    `CREATE PUT /:index/_settings flat_settings preserve_existing ${waits}`,
    bodyOf("settings"),
    { ...json, names: "pipelines, files: CREATE on all" },
  ),
  onIndexes(
    `CREATE PUT POST /:index/_alias/:name /:index/_aliases/:name ${waits}`,
    ({ json, path }) => readAlias(json, path.name ?? ""),
    { ...optionalJson, names: "the alias, its filter" },
  ),
  onIndexes(
    `CREATE DELETE /:index/_alias/:name /:index/_aliases/:name ${waits}`,
    ({ path }) => usesOf(namesIn(path.name), ["CREATE"], { isNew: true }),
    { names: "the alias" },
  ),
  at(`POST /_aliases ${waits} {actions}`, "CREATE, DROP with remove_index", planAliasActions, {
    names: "indexes and aliases of each action",
  }),
  onIndex("PUT /_data_stream/:index", "CREATE", create),
  clusterPaths.flatMap((path) => [
    ...at(`GET ${path} ${path}/:id ${waits} local flat_settings`, "CREATE on all", planCluster),
    ...at(`PUT ${path}/:id create cause order ${waits}`, "CREATE on all", planCluster, json),
    ...at(`DELETE ${path}/:id ${waits}`, "CREATE on all", planCluster),
  ]),
].flat();

export const opensearch: Preset = {
  name: "opensearch",
  title: "OpenSearch 2 and 3, and Elasticsearch 8",
  tested: ["2.19", "3.8"],
  values: {
    index: /^(?:_all$|[^_])/,
    id: /^[^/]/s,
    name: /^[^_]/,
    field: /^[^/]/s,
    setting: /^[a-z*]/,
    metric: /^[a-z]/,
  },
  headers: ["x-opaque-id", "x-elastic-client-meta"],
  endpoints,
  databaseIn: (_path, defaultDatabase) => defaultDatabase,
  version: {
    path: "/",
    read: (body) => {
      const version = isObject(body) && isObject(body.version) ? body.version.number : undefined;
      return typeof version === "string" ? version : undefined;
    },
  },
};
