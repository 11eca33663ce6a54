import type { PermissionClass } from "../../core/query/permissions.ts";
import { badRequest, brokenAnswer, requireMembers } from "./body.ts";
import { filteredList } from "./path.ts";
import {
  type Access,
  type EndpointOptions,
  forEveryUser,
  isObject,
  type Json,
  endpointsAt as on,
  type Plan,
  type Preset,
  type PresetEndpoint,
  type PresetRequest,
  replyWith,
} from "./preset.ts";

const DEFAULT_TENANT = "default_tenant";
/** Databases of a tenant that a caller is asked about if the tenant has none. */
const DEFAULT_DATABASE = "default_database";
/** How long the name of a collection is remembered, which can be renamed. */
const NAME_MEMORY_MS = 1000;

const plainName = /^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$/;
const collectionName = /^(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._-]{1,510}[A-Za-z0-9]$/;
// Chroma also accepts upper case, braces and no hyphens, which no client sends.
const uuid = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

const tenantPath = "/api/v2/tenants/:tenant";
const databasePath = `${tenantPath}/databases/:database`;
const namedPath = `${databasePath}/collections/:name`;
const collectionPath = `${databasePath}/collections/:id`;

function databaseName(tenant: string, database: string): string {
  return tenant === DEFAULT_TENANT ? database : `${tenant}.${database}`;
}

function databaseIn({ tenant = "", database }: PresetRequest["path"]): string | undefined {
  return database === undefined ? undefined : databaseName(tenant, database);
}

function databaseOf({ path }: PresetRequest): string {
  return databaseIn(path) ?? "";
}

function collectionsPath({ path }: PresetRequest): string {
  return `/api/v2/tenants/${path.tenant}/databases/${path.database}/collections`;
}

/** The right to see a database of which the caller may use anything at all. */
function seeing(request: PresetRequest, database: string): readonly Access[] {
  const isPartial = !request.may("SELECT", database) && request.mayInside("SELECT", database);
  return isPartial ? [] : [{ permissions: ["SELECT"], database }];
}

function readName(value: Json | undefined, member: string, pattern: RegExp): string {
  if (typeof value === "string" && pattern.test(value)) return value;
  const rule =
    pattern === plainName
      ? "1 to 63 letters, digits, _ and -, the first a letter or digit"
      : "3 to 512 letters, digits, ., _ and -, the first and last a letter or digit";
  throw badRequest(`${member} must be ${rule}`);
}

const schemaMembers = new Set(["defaults", "keys"]);

function namesIn(body: Json | undefined): string[] {
  if (!Array.isArray(body)) throw brokenAnswer("not a list");
  return body.map(nameIn);
}

function nameIn(item: Json): string {
  const name = isObject(item) ? item.name : undefined;
  if (typeof name === "string") return name;
  throw brokenAnswer("an item without a name");
}

/** The databases of a tenant of which the caller may read anything. */
async function readableDatabases(request: PresetRequest, tenant: string): Promise<string[]> {
  const { status, body } = await request.lookup(`/api/v2/tenants/${tenant}/databases`);
  if (status !== 200) throw brokenAnswer(`status ${status}`);
  return namesIn(body).filter((name) => isReadable(request, tenant, name));
}

function isReadable(request: PresetRequest, tenant: string, name: string): boolean {
  return plainName.test(name) && request.mayInside("SELECT", databaseName(tenant, name));
}

async function planTenant(request: PresetRequest): Promise<Plan> {
  const { tenant = "" } = request.path;
  // Every client asks for the default tenant at its start.
  if (tenant === DEFAULT_TENANT) return { accesses: [] };
  if ((await readableDatabases(request, tenant)).length > 0) return { accesses: [] };
  const database = databaseName(tenant, DEFAULT_DATABASE);
  return { accesses: [{ permissions: ["SELECT"], database }] };
}

async function planIdentity(request: PresetRequest): Promise<Plan> {
  const databases = await readableDatabases(request, DEFAULT_TENANT);
  // The client takes `*` for any tenant.
  const tenant = databases.length > 0 ? DEFAULT_TENANT : "*";
  return replyWith(200, { user_id: request.user ?? "", tenant, databases });
}

async function planCreation(request: PresetRequest): Promise<Plan> {
  const { name, schema = null, get_or_create: isShared = false } = request.members;
  if (isObject(schema)) requireMembers(schema, schemaMembers, "schema");
  else if (schema !== null) throw badRequest("schema must be an object");
  if (typeof isShared !== "boolean") throw badRequest("get_or_create must be true or false");
  const table = readName(name, "name", collectionName);
  const database = databaseOf(request);
  const creation: Plan = { accesses: [{ permissions: ["CREATE"], database, table }] };
  if (!isShared) return creation;
  // A caller who may not read the collection must not learn whether it exists.
  if (!request.may("SELECT", database, table)) {
    return { accesses: [{ permissions: ["SELECT", "CREATE"], database, table }] };
  }
  const path = `${collectionsPath(request)}/${table}`;
  const { status } = await request.lookup(path);
  if (status === 404) return creation;
  if (status !== 200) throw brokenAnswer(`status ${status}`);
  // A GET cannot create the collection again if it is deleted in the meantime.
  return { accesses: [{ permissions: ["SELECT"], database, table }], method: "GET", path };
}

/**
 * Plans a request for the collection with the UUID of the path. Chroma ignores the database in the
 * path and finds the collection by its UUID alone, so the database is checked here.
 */
async function planById(
  request: PresetRequest,
  permissions: readonly PermissionClass[],
  newNames: readonly string[] = [],
  id = request.path.id,
): Promise<Plan> {
  const { tenant, database: name } = request.path;
  const database = databaseOf(request);
  const message = `Collection [${id}] does not exist`;
  // Chroma's own answer, which its clients turn into a NotFoundError.
  const missing = { status: 404, body: { error: "NotFoundError", message } };
  // Only callers who may read something in the database learn whether a UUID exists.
  if (!request.mayInside("SELECT", database)) {
    return { accesses: [{ permissions, database }], reply: missing };
  }
  const path = `${collectionsPath(request)}/by-id/${id}`;
  const { status, body } = await request.lookup(path, NAME_MEMORY_MS);
  if (status === 404) return { accesses: seeing(request, database), reply: missing };
  if (status !== 200 || !isObject(body)) {
    throw brokenAnswer(`status ${status}`);
  }
  const table = nameIn(body);
  const isHere = body.id === id && body.tenant === tenant && body.database === name;
  // The name of a collection that is in no list of the caller stays unknown.
  if (!isHere || !collectionName.test(table) || !request.mayInside("SELECT", database, table)) {
    return { accesses: seeing(request, database), reply: missing };
  }
  const accesses: Access[] = [{ permissions, database, table }];
  for (const other of newNames) {
    accesses.push({ permissions: ["CREATE"], database, table: other });
  }
  return { accesses };
}

function planByName(request: PresetRequest, permission: PermissionClass): Plan {
  const { name: table } = request.path;
  return { accesses: [{ permissions: [permission], database: databaseOf(request), table }] };
}

/** Boundaries and limits on rates apply as for the tenant's first database. */
function planNewTenant(request: PresetRequest): Plan {
  const name = readName(request.members.name, "name", plainName);
  const database = databaseName(name, DEFAULT_DATABASE);
  const accesses: readonly Access[] = [{ permissions: ["CREATE DATABASE"], database }];
  return { accesses, isForAdministrators: true };
}

function planDatabases(request: PresetRequest): Plan {
  const { tenant = "" } = request.path;
  const isShown = (item: Json) => isReadable(request, tenant, nameIn(item));
  return { accesses: [], ...filteredList(request, "offset", isShown) };
}

function planNewDatabase(request: PresetRequest): Plan {
  const name = readName(request.members.name, "name", plainName);
  const database = databaseName(request.path.tenant ?? "", name);
  return { accesses: [{ permissions: ["CREATE DATABASE"], database }] };
}

function planCollections(request: PresetRequest): Plan {
  const database = databaseOf(request);
  const isShown = (item: Json) => request.may("SELECT", database, nameIn(item));
  return { accesses: seeing(request, database), ...filteredList(request, "offset", isShown) };
}

function planCount(request: PresetRequest): Plan {
  const database = databaseOf(request);
  const isCounted = (name: string) => request.may("SELECT", database, name);
  return {
    accesses: seeing(request, database),
    path: collectionsPath(request),
    answer: (body) => namesIn(body).filter(isCounted).length,
  };
}

async function planChange(request: PresetRequest): Promise<Plan> {
  const { new_name: name = null } = request.members;
  const renamed = name === null ? [] : [readName(name, "new_name", collectionName)];
  const { name: id = "" } = request.path;
  if (!uuid.test(id)) throw badRequest("a collection is changed by its UUID");
  return planById(request, ["CREATE"], renamed, id);
}

async function planFork(request: PresetRequest): Promise<Plan> {
  const { new_name: name } = request.members;
  return planById(request, ["SELECT"], [readName(name, "new_name", collectionName)]);
}

/** A request with documents or vectors, whose body names no collection. */
function withRecords(action: string, permissions: readonly PermissionClass[]): PresetEndpoint[] {
  const plan = (request: PresetRequest) => planById(request, permissions);
  const options: EndpointOptions = { names: "name of the UUID", body: "stream" };
  return on(`POST ${collectionPath}/${action}`, permissions.join(", "), plan, options);
}

function aboutCollection(path: string): PresetEndpoint[] {
  const plan = (request: PresetRequest) => planById(request, ["SELECT"]);
  return on(`GET ${path}`, "SELECT", plan, { names: "name of the UUID" });
}

const pages = "limit offset";
const named: EndpointOptions = { names: "body: name" };
const renamed: EndpointOptions = { names: "name of the UUID; body: new_name" };

const endpoints: readonly PresetEndpoint[] = [
  on(
    "GET /api/v2/heartbeat /api/v2/healthcheck /api/v2/version /api/v2/pre-flight-checks",
    "every user",
    forEveryUser,
  ),
  on("GET /api/v2/auth/identity", "every user", planIdentity, {
    names: "databases in the answer",
  }),
  on("POST /api/v2/tenants {name}", "administrator", planNewTenant, named),
  on(`GET ${tenantPath}`, "SELECT on a database of the tenant", planTenant),
  on(`GET ${tenantPath}/databases ${pages}`, "every user", planDatabases, {
    names: "databases in the answer",
  }),
  on(`POST ${tenantPath}/databases {name}`, "CREATE DATABASE", planNewDatabase, named),
  on(`GET ${databasePath}`, "SELECT on anything in it", (request) => ({
    accesses: seeing(request, databaseOf(request)),
  })),
  on(`DELETE ${databasePath}`, "DROP DATABASE", (request) => ({
    accesses: [{ permissions: ["DROP DATABASE"], database: databaseOf(request) }],
  })),
  on(
    `GET ${databasePath}/collections ${pages}`,
    "SELECT on anything in the database",
    planCollections,
    { names: "collections in the answer" },
  ),
  on(`GET ${databasePath}/collections_count`, "SELECT on anything in the database", planCount, {
    names: "collections, of which it counts those that the caller may read",
  }),
  on(
    `POST ${databasePath}/collections
      {name metadata configuration schema get_or_create}`,
    "CREATE, or SELECT with get_or_create if it exists",
    planCreation,
    named,
  ),
  on(`GET ${namedPath}`, "SELECT", (request) => planByName(request, "SELECT")),
  on(`DELETE ${namedPath}`, "DROP", (request) => planByName(request, "DROP")),
  aboutCollection(`${databasePath}/collections/by-id/:id`),
  on(
    `PUT ${namedPath} {new_name new_metadata new_configuration}`,
    "CREATE on the old and the new name",
    planChange,
    renamed,
  ),
  on(
    `POST ${collectionPath}/fork {new_name}`,
    "SELECT, and CREATE on the new name",
    planFork,
    renamed,
  ),
  aboutCollection(`${collectionPath}/count read_level`),
  aboutCollection(`${collectionPath}/fork_count`),
  aboutCollection(`${collectionPath}/indexing_status`),
  withRecords("get", ["SELECT"]),
  withRecords(`query ${pages}`, ["SELECT"]),
  withRecords("search", ["SELECT"]),
  withRecords("add", ["INSERT"]),
  withRecords("update", ["UPDATE"]),
  withRecords("upsert", ["INSERT", "UPDATE"]),
  withRecords("delete", ["DELETE"]),
].flat();

/** Chroma 1.x, API v2. */
export const chroma: Preset = {
  name: "chroma",
  title: "Chroma",
  // Chroma 1.5.9 tells the version of its API.
  tested: ["1.0"],
  values: { tenant: plainName, database: plainName, name: collectionName, id: uuid },
  headers: [],
  endpoints,
  databaseIn,
  version: {
    path: "/api/v2/version",
    read: (body) => (typeof body === "string" ? body : undefined),
  },
};
