import { createHash } from "node:crypto";
import { runCooperatively, visitEach } from "../../core/base/cooperative-scheduling.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { parseUnrounded } from "../../core/json/exact.ts";
import { quoteName } from "../../core/json/fault.ts";
import type { PermissionClass } from "../../core/query/permissions.ts";
import { badRequest, readJson, requireMembers, requireObject } from "./body.ts";
import { filteredList } from "./path.ts";
import {
  type Access,
  type EndpointOptions,
  endpointsAt,
  forEveryUser,
  isObject,
  type Json,
  type JsonObject,
  type Plan,
  type Preset,
  type PresetEndpoint,
  type PresetRequest,
  replyWith,
  words,
} from "./preset.ts";

/**
 * The databases that a grant can name. CouchDB also allows `$()+/` in names, and its own begin with
 * `_`: those are 404 here.
 */
const databaseName = /^[A-Za-z0-9-][A-Za-z0-9_-]{0,62}$/;
/** Also a design document or checkpoint whose slash is encoded: CouchDB reads both spellings. */
const documentName = /^(?:[^_]|_(?:design|local)\/.)/s;

const DESIGN = "_design/";
const CHECKPOINT = "_local/";

/** Of one checkpoint, for a caller without UPDATE. */
const MAX_CHECKPOINT_BYTES = 64 * 1024;
const MAX_CHECKPOINT_ID_LENGTH = 255;

type Planner = PresetEndpoint["plan"];

function accessTo(
  { path: { database = "" } }: PresetRequest,
  permissions: readonly PermissionClass[],
  element?: number,
): Access {
  return { permissions, database, element };
}

function select(request: PresetRequest): Plan {
  return { accesses: [accessTo(request, ["SELECT"])] };
}

/** @throws Refusal `bad_request` */
function requireList(json: Json | undefined, what: string): readonly Json[] {
  if (!Array.isArray(json)) throw badRequest(`${what} must be an array`);
  return json;
}

/**
 * Reads each object of a list in a body, in steps.
 *
 * @returns how many there are
 * @throws Refusal
 */
async function readEach(
  body: JsonObject,
  name: string,
  read: (object: JsonObject, element: number) => void,
): Promise<number> {
  const list = requireList(body[name], name);
  const readOne = (one: Json, element: number) =>
    read(requireObject(one, `each of ${name}`), element);
  await runCooperatively(visitEach(list, readOne));
  return list.length;
}

// Documents

/** The id of a document, in either spelling: `_design%2Fa` as one segment, or `_design/a`. */
function documentId({ path: { doc = "", ddoc, checkpoint } }: PresetRequest): string {
  if (checkpoint !== undefined) return CHECKPOINT + checkpoint;
  return ddoc === undefined ? doc : DESIGN + ddoc;
}

/** One spelling for all servers, which differ in how they read an encoded slash. */
function documentPath({ path: { database = "" } }: PresetRequest, id: string, rest = ""): string {
  const prefix = [DESIGN, CHECKPOINT].find((one) => id.startsWith(one)) ?? "";
  const segments = rest === "" ? [] : rest.split("/").map(encodeURIComponent);
  const name = encodeURIComponent(id.slice(prefix.length));
  return [`/${database}/${prefix}${name}`, ...segments].join("/");
}

/** Design documents run code in the database. */
function withDesign(id: string, permissions: readonly PermissionClass[]): PermissionClass[] {
  return id.startsWith(DESIGN) ? [...permissions, "CREATE"] : [...permissions];
}

/**
 * Without a revision, CouchDB answers 409 if the document exists. With one, it also creates a
 * document that does not exist.
 */
function rightsWith(isRevision: boolean): readonly PermissionClass[] {
  return isRevision ? ["INSERT", "UPDATE"] : ["INSERT"];
}

/**
 * The rights for writing one document.
 *
 * @param isRevision true if a revision stands outside the document
 * @param isReplicated true with `new_edits: false`, where any revision may be written
 * @throws Refusal `bad_request`
 */
function rightsToWrite(
  id: string,
  document: JsonObject,
  isReplicated: boolean,
  isRevision = false,
): PermissionClass[] {
  if (readFlag(document._deleted, "_deleted", false)) return withDesign(id, ["DELETE"]);
  const { _rev: rev, _revisions: revisions } = document;
  const hasAny = isRevision || rev !== undefined || revisions !== undefined;
  return withDesign(id, rightsWith(isReplicated || hasAny));
}

/**
 * The id in a body. Empty for one that the server is to choose.
 *
 * @throws Refusal `bad_request` for a checkpoint or another reserved id
 */
function bodyId({ _id: id = "" }: JsonObject): string {
  if (typeof id !== "string") throw badRequest("_id must be a string");
  if (id.startsWith("_") && !/^_design\/./s.test(id)) {
    throw badRequest(`_id ${quoteName(id)} cannot be used in a body`);
  }
  return id;
}

/** @throws Refusal `bad_request` */
function readFlag(value: Json | undefined, name: string, otherwise: boolean): boolean {
  if (value === undefined) return otherwise;
  if (typeof value !== "boolean") throw badRequest(`${name} must be true or false`);
  return value;
}

function hasRevision({ query, headers }: PresetRequest): boolean {
  return query.has("rev") || headers["if-match"] !== undefined;
}

/** For the document of the path, an attachment of it, or one of the caller's checkpoints. */
function documentPlan(
  rightsOf: (request: PresetRequest, id: string) => readonly PermissionClass[],
): Planner {
  return (request) => {
    const id = documentId(request);
    const { name } = request.path;
    if (id.startsWith(CHECKPOINT) && name === undefined) return planCheckpoint(request, id);
    if (id.startsWith(CHECKPOINT)) throw new Refusal("not_found");
    const accesses = [accessTo(request, rightsOf(request, id))];
    return { accesses, path: documentPath(request, id, name) };
  };
}

const readDocument = documentPlan(() => ["SELECT"]);
const deleteDocument = documentPlan((_request, id) => withDesign(id, ["DELETE"]));
const writeAttachment = documentPlan((request, id) =>
  withDesign(id, rightsWith(hasRevision(request))),
);

const writeDocument = documentPlan((request, id) => {
  const document = requireObject(request.json);
  // Some servers take the one, others the other.
  if (document._id !== undefined && document._id !== id) {
    throw badRequest("_id must be the id in the path");
  }
  const edits = request.query.get("new_edits") ?? "true";
  if (edits !== "true" && edits !== "false") throw badRequest("new_edits must be true or false");
  return rightsToWrite(id, document, edits === "false", hasRevision(request));
});

/** An id, and the revision that the copy replaces. */
const destination = /^((?:_design\/)?[A-Za-z0-9._~!$'()*,=:@%-]+)(?:\?rev=[0-9]+-[0-9a-f]+)?$/;
const dotStep = /(?:^|[/\\])\.\.?(?:[/\\]|$)/;

/**
 * The id to which a document is copied. CouchDB decodes it, PouchDB Server does not.
 *
 * @throws Refusal `bad_request`
 */
function destinationId(header: string): string {
  const [, written = ""] = destination.exec(header) ?? [];
  let id = "";
  try {
    id = decodeURIComponent(written);
  } catch {
    // Refused as empty.
  }
  if (!documentName.test(id) || id.startsWith(CHECKPOINT) || dotStep.test(id)) {
    throw badRequest("Destination must be the id of a document, encoded, with ?rev= if it exists");
  }
  return id;
}

const copyDocument: Planner = (request) => {
  const source = documentId(request);
  if (source.startsWith(CHECKPOINT)) throw new Refusal("not_found");
  const header = String(request.headers.destination ?? "");
  const rights = withDesign(destinationId(header), ["SELECT", ...rightsWith(header.includes("?"))]);
  return { accesses: [accessTo(request, rights)], path: documentPath(request, source) };
};

// Checkpoints

/** A space for each user, so that no user reads or moves the checkpoints of others. */
function checkpointPrefix(user: string | undefined): string {
  if (user === undefined) return "";
  return `${createHash("sha256").update(user).digest("base64url").slice(0, 22)}-`;
}

/**
 * Replication stores how far it came in `_local/` documents, also for those who only read. They are
 * not replicated, are in no list, and belong to the user who wrote them.
 *
 * @throws Refusal `bad_request`, `body_too_large`
 */
function planCheckpoint(request: PresetRequest, id: string): Plan {
  const { user, query, headers, json, bytes, path } = request;
  const prefix = CHECKPOINT + checkpointPrefix(user);
  const name = id.slice(CHECKPOINT.length);
  if (name.length > MAX_CHECKPOINT_ID_LENGTH)
    throw badRequest("the id of the checkpoint is too long");
  const plan: Plan = {
    accesses: [accessTo(request, ["SELECT"])],
    path: documentPath(request, prefix + name),
    query: new Map(query.entries().filter(([parameter]) => parameter === "rev")),
    answer: (answer) => withoutPrefix(answer, prefix),
  };
  if (json === undefined) return plan;
  if (/^multipart/i.test(headers["content-type"] ?? ""))
    throw new Refusal("unsupported_media_type");
  requireObject(json);
  const { _id: inBody = id, ...document }: JsonObject = parseUnrounded(bytes.toString());
  if (inBody !== id) throw badRequest("_id must be the id in the path");
  const body = Buffer.from(JSON.stringify(document));
  if (body.length > MAX_CHECKPOINT_BYTES && !request.may("UPDATE", path.database ?? "")) {
    const message = `Without UPDATE, a checkpoint is limited to ${MAX_CHECKPOINT_BYTES} bytes`;
    throw new Refusal("body_too_large", { message });
  }
  return { ...plan, body };
}

function withoutPrefix(answer: Json, prefix: string): Json {
  if (!isObject(answer)) return answer;
  const members = Object.entries(answer).map(([name, value]) => {
    const isId = /^_?id$/.test(name) && typeof value === "string" && value.startsWith(prefix);
    return [name, isId ? CHECKPOINT + value.slice(prefix.length) : value];
  });
  return Object.fromEntries(members);
}

/**
 * CouchDB lists checkpoints if they are asked for by their ids.
 *
 * @throws Refusal `bad_request`
 */
function requireNoCheckpoints(ids: readonly Json[]): void {
  if (ids.some((id) => typeof id === "string" && id.startsWith("_local"))) {
    throw badRequest("checkpoints (_local/) are in no list");
  }
}

// Several documents

const createDocument: Planner = (request) => {
  const document = requireObject(request.json);
  const rights = rightsToWrite(bodyId(document), document, false);
  return { accesses: [accessTo(request, rights)] };
};

const writeDocuments: Planner = async (request) => {
  const isReplicated = !readFlag(request.members.new_edits, "new_edits", true);
  /** The first document with each set of rights. */
  const accesses = new Map<string, Access>();
  const elements = await readEach(request.members, "docs", (document, element) => {
    const rights = rightsToWrite(bodyId(document), document, isReplicated);
    const key = rights.join();
    if (!accesses.has(key)) accesses.set(key, accessTo(request, rights, element));
  });
  if (elements === 0) return { accesses: [accessTo(request, ["INSERT"])] };
  return { accesses: [...accesses.values()], elements };
};

const getParameters = "attachments att_encoding_info latest r revs";

const getDocuments: Planner = async (request) => {
  const elements = await readEach(request.members, "docs", ({ id = null }) =>
    requireNoCheckpoints([id]),
  );
  return { ...select(request), elements };
};

// Lists of documents and views

const viewParameters = `attachments att_encoding_info conflicts descending end_key end_key_doc_id
  endkey endkey_docid group group_level include_docs inclusive_end key keys limit partition reduce
  skip sorted stable stale start_key start_key_doc_id startkey startkey_docid update update_seq`;
const viewMembers = new Set(words(viewParameters));
const queriesMembers = new Set(["queries"]);

/** The value of a parameter that is JSON. @throws Refusal `bad_request` */
function jsonParameter({ query }: PresetRequest, name: string): Json {
  const text = query.get(name);
  if (text === undefined) return null;
  try {
    return readJson(Buffer.from(text));
  } catch {
    throw badRequest(`the query parameter ${name} must be JSON`);
  }
}

/** Keys as ids of documents. @throws Refusal `bad_request` */
function keysIn({ key = null, keys }: JsonObject): readonly Json[] {
  return [key, ...(keys === undefined || keys === null ? [] : requireList(keys, "keys"))];
}

/** @param isOfIds true where keys are ids of documents */
function list(isOfIds: boolean): Planner {
  const requireView = (query: JsonObject, where?: string): void => {
    requireMembers(query, viewMembers, where);
    if (isOfIds) requireNoCheckpoints(keysIn(query));
  };
  return async (request) => {
    const body = request.json === undefined ? {} : requireObject(request.json);
    if (isOfIds) {
      const key = jsonParameter(request, "key");
      requireNoCheckpoints(keysIn({ key, keys: jsonParameter(request, "keys") }));
    }
    const plan = select(request);
    // `nano` sends several queries without `/queries` in the path.
    if (body.queries === undefined) {
      requireView(body);
      return plan;
    }
    requireMembers(body, queriesMembers);
    const elements = await readEach(body, "queries", (query) => requireView(query, "a query"));
    return { ...plan, elements };
  };
}

/** The body has a member for each document, and design documents need CREATE. */
const purge: Planner = (request) => {
  const ids = Object.keys(requireObject(request.json));
  const design = ids.find((id) => id.startsWith(DESIGN)) ?? "";
  return { accesses: [accessTo(request, withDesign(design, ["DELETE", "DROP"]))] };
};

const deleteIndex: Planner = (request) => {
  const { database = "", type = "", index = "" } = request.path;
  const ddoc = request.path.design ?? request.path.ddoc ?? "";
  const name = ddoc.startsWith(DESIGN) ? ddoc.slice(DESIGN.length) : ddoc;
  const segments = [DESIGN.slice(0, -1), name, type, index].map(encodeURIComponent);
  return {
    accesses: [accessTo(request, ["CREATE"])],
    path: [`/${database}/_index`, ...segments].join("/"),
  };
};

const feeds = new Set(["normal", "longpoll", "continuous", "live", "eventsource"]);
/** Built in, or a function of a design document. */
const changesFilter = /^(?:_doc_ids|_selector|_design|_view|[^_/][^/]*\/[^/]+)$/;

const changes: Planner = (request) => {
  const feed = request.query.get("feed") ?? "normal";
  if (!feeds.has(feed)) throw badRequest(`feed must be one of ${[...feeds].join(", ")}`);
  const filter = request.query.get("filter");
  if (filter !== undefined && !changesFilter.test(filter)) {
    throw badRequest("filter must be <design document>/<function>");
  }
  return { ...select(request), isStream: feed !== "normal" };
};

// Servers

function listDatabases(nameOf: (item: Json) => Json | undefined): Planner {
  return (request) => {
    const isReadable = (item: Json) => {
      const name = nameOf(item);
      return typeof name === "string" && databaseName.test(name) && request.may("SELECT", name);
    };
    return { accesses: [], ...filteredList(request, "skip", isReadable) };
  };
}

/** CouchDB takes 100 by default. */
const MOST_KEYS = 1000;

const describeDatabases: Planner = ({ members }) => {
  const keys = requireList(members.keys, "keys");
  if (keys.length > MOST_KEYS) throw badRequest(`keys has more than ${MOST_KEYS} names`);
  const accesses = keys.map((database, element): Access => {
    return { permissions: ["SELECT"], database: requireDatabase(database), element };
  });
  return { accesses };
};

/** @throws Refusal `not_found` */
function requireDatabase(name: Json | undefined): string {
  if (typeof name === "string" && databaseName.test(name)) return name;
  const message = "Not found: name a database of this server, as in its path, and not a URL";
  throw new Refusal("not_found", { message });
}

/** The server copies with its own rights, so a URL could reach anywhere. */
const replicate: Planner = ({ members: body }) => {
  const isNew = readFlag(body.create_target, "create_target", false);
  const write: PermissionClass[] = ["INSERT", "UPDATE", "DELETE", "CREATE"];
  if (isNew) write.push("CREATE DATABASE");
  return {
    isForAdministrators: true,
    accesses: [
      { permissions: ["SELECT"], database: requireDatabase(body.source) },
      { permissions: write, database: requireDatabase(body.target) },
    ],
    isStream: true,
  };
};

const tellUser: Planner = ({ user, isAdministrator }) => {
  const userCtx = { name: user ?? null, roles: isAdministrator() ? ["_admin"] : [] };
  const info = { authentication_handlers: ["gatehouse"], authenticated: "gatehouse" };
  return replyWith(200, { ok: true, userCtx, info });
};

/** CouchDB's replicator takes 404 for a server without sessions, and sends Basic instead. */
const startSession: Planner = () => {
  const message = "Not found: there are no sessions; send the credential with each request";
  throw new Refusal("not_found", { message });
};

// The table

/** A GET has no body, also where a POST of the same path has one. */
function on(
  text: string,
  right: string,
  plan: Planner,
  options: EndpointOptions = {},
): PresetEndpoint[] {
  return endpointsAt(text, right, plan, options).map((endpoint) =>
    endpoint.method === "GET" ? { ...endpoint, body: "none" } : endpoint,
  );
}

/** Endpoints that need one right on the database of the path. */
function needing(
  right: PermissionClass,
  text: string,
  options: EndpointOptions = {},
): PresetEndpoint[] {
  return on(text, right, (request) => ({ accesses: [accessTo(request, [right])] }), options);
}

const json: EndpointOptions = { body: "json" };
const optionalJson: EndpointOptions = { body: "optional json" };
/** What `curl --data` sends is taken for JSON, as CouchDB does with PUT. */
const types = ["application/json", "application/x-www-form-urlencoded"];
const anyJson: EndpointOptions = { body: "json", types };

const replicated = `source target cancel continuous create_target create_target_params doc_ids filter
  query_params selector since_seq checkpoint_interval use_checkpoints winning_revs_only`;
const found = `selector limit skip sort fields use_index allow_fallback conflicts r bookmark update
  stable stale execution_stats partition`;

const documentParameters = `attachments att_encoding_info atts_since conflicts deleted
  deleted_conflicts latest local_seq meta open_revs r rev revs revs_info`;

const needsCreate = "CREATE for _design/";
const ofDocuments = `by document; ${needsCreate}`;
const written = `by revision and _deleted; ${needsCreate}`;

function ofDocument(path: string): PresetEndpoint[] {
  // CouchDB's replicator sends a document with attachments in parts.
  const body: EndpointOptions = {
    body: "json",
    types: [...types, "multipart/related"],
    names: "_id",
  };
  const target: EndpointOptions = { names: "Destination header" };
  return [
    on(`GET ${path} ${documentParameters}`, "SELECT", readDocument),
    on(`PUT ${path} rev new_edits batch w`, written, writeDocument, body),
    on(`DELETE ${path} rev batch w`, `DELETE; ${needsCreate}`, deleteDocument),
    on(`COPY ${path} rev batch w`, `SELECT, by revision; ${needsCreate}`, copyDocument, target),
  ].flat();
}

function ofAttachment(path: string): PresetEndpoint[] {
  const file: EndpointOptions = { body: "stream", types: ["*"] };
  return [
    on(`GET ${path} rev`, "SELECT", readDocument),
    on(`PUT ${path} rev`, `by revision; ${needsCreate}`, writeAttachment, file),
    on(`DELETE ${path} rev batch`, `DELETE; ${needsCreate}`, deleteDocument),
  ].flat();
}

const database = "/:database";
const partition = `${database}/_partition/:partition`;
const view = "_design/:ddoc/_view/:view";

function ofDatabase(path: string): PresetEndpoint[] {
  return [
    needing("SELECT", `GET ${path}`),
    needing("CREATE DATABASE", `PUT ${path} n partitioned q`, { body: "optional json", types }),
    needing("DROP DATABASE", `DELETE ${path}`),
    on(`POST ${path} batch w`, written, createDocument, { body: "json", names: "_id" }),
  ].flat();
}

const lists = ["_all_docs", "_design_docs"].flatMap((name) => [
  on(`GET POST ${database}/${name} ${viewParameters}`, "SELECT", list(true), optionalJson),
  on(`POST ${database}/${name}/queries ${viewParameters}`, "SELECT", list(true), json),
]);

const searches = [database, partition].flatMap((path) => [
  needing("SELECT", `POST ${path}/_find ${path}/_explain {${found}}`),
  on(`GET POST ${path}/${view} ${viewParameters}`, "SELECT", list(false), optionalJson),
]);

const changesParameters = `attachments att_encoding_info conflicts descending doc_ids feed filter
  heartbeat include_docs last-event-id limit seq_interval since style timeout view`;
const listParameters = "descending end_key endkey inclusive_end key limit skip start_key startkey";

const listNames = listDatabases((item) => item);
const listInfo = listDatabases((item) => (isObject(item) ? item.key : undefined));

const endpoints: readonly PresetEndpoint[] = [
  on("GET / /_up", "every user", forEveryUser),
  on("GET /_uuids count", "every user", forEveryUser),
  on("GET /_session basic", "every user", tellUser),
  on("POST /_session", "404", startSession, { body: "stream", types: ["*"] }),
  on(`GET /_all_dbs ${listParameters}`, "every user, filtered", listNames),
  on(`GET /_dbs_info ${listParameters}`, "every user, filtered", listInfo),
  on("POST /_dbs_info {keys}", "SELECT", describeDatabases, { names: "keys" }),
  on(`POST /_replicate {${replicated}}`, "administrators", replicate, { names: "source, target" }),
  ofDatabase(database),
  ofDatabase(`${database}/`),
  ofDocument(`${database}/:doc`),
  ofDocument(`${database}/_design/:ddoc`),
  on(`GET ${database}/_local/:checkpoint rev`, "SELECT", readDocument),
  on(`PUT ${database}/_local/:checkpoint rev batch w`, "SELECT", writeDocument, anyJson),
  on(`DELETE ${database}/_local/:checkpoint rev batch w`, "SELECT", deleteDocument),
  ofAttachment(`${database}/:doc/:name*`),
  ofAttachment(`${database}/_design/:ddoc/:name*`),
  on(`POST ${database}/_bulk_docs {docs new_edits w}`, ofDocuments, writeDocuments, {
    names: "docs._id",
  }),
  on(`POST ${database}/_bulk_get ${getParameters} {docs ${getParameters}}`, "SELECT", getDocuments),
  ...lists,
  ...searches,
  needing("SELECT", `GET ${partition}`),
  on(`GET POST ${partition}/_all_docs ${viewParameters}`, "SELECT", list(true), optionalJson),
  on(`POST ${database}/${view}/queries ${viewParameters}`, "SELECT", list(false), json),
  needing("SELECT", `GET ${database}/_design/:ddoc/_info ${database}/_index`),
  needing("CREATE", `POST ${database}/_index {index ddoc name type partitioned w}`),
  needing("CREATE", `POST ${database}/_index/_bulk_delete`, json),
  on(
    `DELETE ${database}/_index/:design/:type/:index ${database}/_index/_design/:ddoc/:type/:index`,
    "CREATE",
    deleteIndex,
  ),
  on(
    `GET POST ${database}/_changes ${changesParameters} {doc_ids selector}`,
    "SELECT",
    changes,
    optionalJson,
  ),
  needing("SELECT", `POST ${database}/_revs_diff ${database}/_missing_revs`, json),
  needing("SELECT", `POST ${database}/_ensure_full_commit`, optionalJson),
  needing("GRANT", `GET ${database}/_security`),
  // Only an Owner has this right.
  needing("CREATE DATABASE", `PUT ${database}/_security`, anyJson),
  needing("SELECT", `GET ${database}/_revs_limit`),
  needing("CREATE", `PUT ${database}/_revs_limit`, anyJson),
  needing(
    "CREATE",
    `POST ${database}/_compact ${database}/_compact/:ddoc ${database}/_view_cleanup`,
    optionalJson,
  ),
  on(`POST ${database}/_purge`, `DELETE, DROP; ${needsCreate}`, purge, json),
].flat();

export const couchdb: Preset = {
  name: "couchdb",
  title: "CouchDB 3 and PouchDB Server",
  tested: ["3.5", "pouchdb-server 4.2"],
  values: { database: databaseName, doc: documentName, design: documentName },
  headers: ["destination", "if-match", "if-none-match", "if-range", "last-event-id", "range"],
  endpoints,
  databaseIn: ({ database }) => database,
  version: { path: "/", read: readVersion },
};

/** PouchDB Server counts its versions differently from CouchDB. */
function readVersion(body: Json): string | undefined {
  if (!isObject(body) || typeof body.version !== "string") return undefined;
  return "express-pouchdb" in body ? `pouchdb-server ${body.version}` : body.version;
}
