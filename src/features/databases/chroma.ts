import { Refusal } from "../../core/base/refusal.ts";
import type { PermissionClass } from "../../core/query/permissions.ts";
import { badRequest, requireMembers } from "./body.ts";
import {
  type Access,
  isObject,
  type Json,
  type JsonObject,
  type Plan,
  type Preset,
  type PresetEndpoint,
  type PresetRequest,
  words,
} from "./preset.ts";

const DEFAULT_TENANT = "default_tenant";
/** Databases of a tenant that a caller is asked about if the tenant has none. */
const DEFAULT_DATABASE = "default_database";
/** How long the name of a collection is remembered, which can be renamed. */
const NAME_MEMORY_MS = 1000;

const plainName = /^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$/;
/** Chroma's rule for collections. */
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

/** The database of the path. */
function databaseOf({ path }: PresetRequest): string {
  return databaseIn(path) ?? "";
}

function collectionsPath({ path }: PresetRequest): string {
  return `/api/v2/tenants/${path.tenant}/databases/${path.database}/collections`;
}

/** Chroma's own answer, which its clients turn into a NotFoundError. */
function notFound(message: string): { readonly status: number; readonly body: Json } {
  return { status: 404, body: { error: "NotFoundError", message } };
}

/** The right to see a database of which the caller may use anything at all. */
function seeing(request: PresetRequest, database: string): readonly Access[] {
  const isPartial = !request.may("SELECT", database) && request.mayInside("SELECT", database);
  return isPartial ? [] : [{ permissions: ["SELECT"], database }];
}

function readBody({ json }: PresetRequest, members: ReadonlySet<string>): JsonObject {
  // Chroma takes the elements of an array for the members.
  if (!isObject(json)) throw badRequest("the body must be an object");
  requireMembers(json, members);
  return json;
}

function readName(value: Json | undefined, member: string, pattern: RegExp): string {
  if (typeof value === "string" && pattern.test(value)) return value;
  const rule =
    pattern === plainName
      ? "1 to 63 letters, digits, _ and -, the first a letter or digit"
      : "3 to 512 letters, digits, ., _ and -, the first and last a letter or digit";
  throw badRequest(`${member} must be ${rule}`);
}

const nameMembers: ReadonlySet<string> = new Set(["name"]);
const forkMembers: ReadonlySet<string> = new Set(["new_name"]);
const schemaMembers: ReadonlySet<string> = new Set(["defaults", "keys"]);
const creationMembers: ReadonlySet<string> = new Set(
  words("name metadata configuration schema get_or_create"),
);
const changeMembers: ReadonlySet<string> = new Set([
  "new_name",
  "new_metadata",
  "new_configuration",
]);

/** The names in a list of databases or collections. */
function namesIn(body: Json | undefined): string[] {
  if (!Array.isArray(body)) throw new Refusal("upstream_broken", { detail: "not a list" });
  return body.map(nameIn);
}

function nameIn(item: Json): string {
  const name = isObject(item) ? item.name : undefined;
  if (typeof name === "string") return name;
  throw new Refusal("upstream_broken", { detail: "an item without a name" });
}

/** The databases of a tenant of which the caller may read anything. */
async function readableDatabases(request: PresetRequest, tenant: string): Promise<string[]> {
  const { status, body } = await request.lookup(`/api/v2/tenants/${tenant}/databases`);
  if (status !== 200) throw new Refusal("upstream_broken", { detail: `status ${status}` });
  return namesIn(body).filter((name) => isReadable(request, tenant, name));
}

function isReadable(request: PresetRequest, tenant: string, name: string): boolean {
  return plainName.test(name) && request.mayInside("SELECT", databaseName(tenant, name));
}

function readCount(request: PresetRequest, parameter: string, fallback: number): number {
  const text = request.query.get(parameter);
  if (text === undefined) return fallback;
  if (/^\d{1,9}$/.test(text)) return Number(text);
  throw badRequest(`${parameter} must be a whole number`);
}

/**
 * A list without what the caller may not read. The page is cut from the rest here: Chroma's pages
 * would tell how much is hidden.
 */
function filteredList(
  request: PresetRequest,
  accesses: readonly Access[],
  isShown: (name: string) => boolean,
): Plan {
  const offset = readCount(request, "offset", 0);
  const end = offset + readCount(request, "limit", Number.POSITIVE_INFINITY);
  const answer = (body: Json): Json => {
    if (!Array.isArray(body)) throw new Refusal("upstream_broken", { detail: "not a list" });
    return body.filter((item) => isShown(nameIn(item))).slice(offset, end);
  };
  return { accesses, query: new Map(), answer };
}

function planTenant(request: PresetRequest, names: readonly string[]): Plan {
  const { tenant = "" } = request.path;
  // Every client asks for the default tenant at its start.
  if (tenant === DEFAULT_TENANT || names.length > 0) return { accesses: [] };
  const database = databaseName(tenant, DEFAULT_DATABASE);
  return { accesses: [{ permissions: ["SELECT"], database }] };
}

async function planIdentity(request: PresetRequest): Promise<Plan> {
  const databases = await readableDatabases(request, DEFAULT_TENANT);
  // The client takes `*` for any tenant.
  const tenant = databases.length > 0 ? DEFAULT_TENANT : "*";
  return {
    accesses: [],
    reply: { status: 200, body: { user_id: request.user ?? "", tenant, databases } },
  };
}

async function planCreation(request: PresetRequest): Promise<Plan> {
  const body = readBody(request, creationMembers);
  const { schema = null, get_or_create: isShared = false } = body;
  if (isObject(schema)) requireMembers(schema, schemaMembers, "schema");
  else if (schema !== null) throw badRequest("schema must be an object");
  if (typeof isShared !== "boolean") throw badRequest("get_or_create must be true or false");
  const table = readName(body.name, "name", collectionName);
  const database = databaseOf(request);
  const creation: Plan = { accesses: [{ permissions: ["CREATE"], database, table }] };
  if (!isShared) return creation;
  // A caller who may not read the collection must not learn whether it exists.
  if (!request.may("SELECT", database, table)) {
    return { accesses: [{ permissions: ["CREATE", "SELECT"], database, table }] };
  }
  const path = `${collectionsPath(request)}/${table}`;
  const { status } = await request.lookup(path);
  if (status === 404) return creation;
  if (status !== 200) throw new Refusal("upstream_broken", { detail: `status ${status}` });
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
  const missing = notFound(`Collection [${id}] does not exist`);
  // Only callers who may read something in the database learn whether a UUID exists.
  if (!request.mayInside("SELECT", database)) {
    return { accesses: [{ permissions, database }], reply: missing };
  }
  const path = `${collectionsPath(request)}/by-id/${id}`;
  const { status, body } = await request.lookup(path, NAME_MEMORY_MS);
  if (status === 404) return { accesses: seeing(request, database), reply: missing };
  if (status !== 200 || !isObject(body)) {
    throw new Refusal("upstream_broken", { detail: `status ${status}` });
  }
  const table = nameIn(body);
  const isHere = body.id === id && body.tenant === tenant && body.database === name;
  if (!isHere || !collectionName.test(table)) {
    return { accesses: seeing(request, database), reply: missing };
  }
  const accesses: Access[] = [{ permissions, database, table }];
  for (const other of newNames) {
    accesses.push({ permissions: ["CREATE"], database, table: other });
  }
  return { accesses };
}

function forEveryUser(path: string): PresetEndpoint {
  return { method: "GET", path, right: "every user", plan: () => ({ accesses: [] }) };
}

/** A request with documents or vectors, whose body names no collection. */
function withRecords(
  action: string,
  permissions: readonly PermissionClass[],
  parameters: readonly string[] = [],
): PresetEndpoint {
  return {
    method: "POST",
    path: `${collectionPath}/${action}`,
    right: permissions.join(", "),
    names: "name of the UUID",
    parameters,
    body: "stream",
    plan: (request) => planById(request, permissions),
  };
}

function aboutCollection(path: string, parameters: readonly string[] = []): PresetEndpoint {
  return {
    method: "GET",
    path,
    right: "SELECT",
    names: "name of the UUID",
    parameters,
    plan: (request) => planById(request, ["SELECT"]),
  };
}

const endpoints: readonly PresetEndpoint[] = [
  forEveryUser("/api/v2/heartbeat"),
  forEveryUser("/api/v2/healthcheck"),
  forEveryUser("/api/v2/version"),
  forEveryUser("/api/v2/pre-flight-checks"),
  {
    method: "GET",
    path: "/api/v2/auth/identity",
    right: "every user",
    names: "databases in the answer",
    plan: planIdentity,
  },
  {
    method: "POST",
    path: "/api/v2/tenants",
    right: "administrator",
    names: "body: name",
    body: "json",
    plan(request) {
      readName(readBody(request, nameMembers).name, "name", plainName);
      return { accesses: [], isForAdministrators: true };
    },
  },
  {
    method: "GET",
    path: tenantPath,
    right: "SELECT on a database of the tenant",
    async plan(request) {
      const { tenant = "" } = request.path;
      const isKnown = tenant === DEFAULT_TENANT;
      return planTenant(request, isKnown ? [] : await readableDatabases(request, tenant));
    },
  },
  {
    method: "GET",
    path: `${tenantPath}/databases`,
    right: "every user",
    names: "databases in the answer",
    parameters: ["limit", "offset"],
    plan(request) {
      const { tenant = "" } = request.path;
      return filteredList(request, [], (name) => isReadable(request, tenant, name));
    },
  },
  {
    method: "POST",
    path: `${tenantPath}/databases`,
    right: "CREATE DATABASE",
    names: "body: name",
    body: "json",
    plan(request) {
      const name = readName(readBody(request, nameMembers).name, "name", plainName);
      const database = databaseName(request.path.tenant ?? "", name);
      return { accesses: [{ permissions: ["CREATE DATABASE"], database }] };
    },
  },
  {
    method: "GET",
    path: databasePath,
    right: "SELECT on anything in it",
    plan: (request) => ({ accesses: seeing(request, databaseOf(request)) }),
  },
  {
    method: "DELETE",
    path: databasePath,
    right: "DROP DATABASE",
    plan(request) {
      const database = databaseOf(request);
      return { accesses: [{ permissions: ["DROP DATABASE"], database }] };
    },
  },
  {
    method: "GET",
    path: `${databasePath}/collections`,
    right: "SELECT on anything in the database",
    names: "collections in the answer",
    parameters: ["limit", "offset"],
    plan(request) {
      const database = databaseOf(request);
      return filteredList(request, seeing(request, database), (name) =>
        request.may("SELECT", database, name),
      );
    },
  },
  {
    method: "GET",
    path: `${databasePath}/collections_count`,
    right: "SELECT on anything in the database",
    names: "collections, of which it counts those that the caller may read",
    plan(request) {
      const database = databaseOf(request);
      const isCounted = (name: string) => request.may("SELECT", database, name);
      return {
        accesses: seeing(request, database),
        path: collectionsPath(request),
        answer: (body) => namesIn(body).filter(isCounted).length,
      };
    },
  },
  {
    method: "POST",
    path: `${databasePath}/collections`,
    right: "CREATE, or SELECT with get_or_create if it exists",
    names: "body: name",
    body: "json",
    plan: planCreation,
  },
  {
    method: "GET",
    path: namedPath,
    right: "SELECT",
    plan: (request) => planByName(request, "SELECT"),
  },
  {
    method: "DELETE",
    path: namedPath,
    right: "DROP",
    plan: (request) => planByName(request, "DROP"),
  },
  aboutCollection(`${databasePath}/collections/by-id/:id`),
  {
    method: "PUT",
    path: namedPath,
    right: "CREATE on the old and the new name",
    names: "name of the UUID; body: new_name",
    body: "json",
    plan(request) {
      const { new_name: name = null } = readBody(request, changeMembers);
      const renamed = name === null ? [] : [readName(name, "new_name", collectionName)];
      const { name: id = "" } = request.path;
      if (!uuid.test(id)) throw badRequest("a collection is changed by its UUID");
      return planById(request, ["CREATE"], renamed, id);
    },
  },
  {
    method: "POST",
    path: `${collectionPath}/fork`,
    right: "SELECT, and CREATE on the new name",
    names: "name of the UUID; body: new_name",
    body: "json",
    plan(request) {
      const { new_name: name } = readBody(request, forkMembers);
      return planById(request, ["SELECT"], [readName(name, "new_name", collectionName)]);
    },
  },
  aboutCollection(`${collectionPath}/count`, ["read_level"]),
  aboutCollection(`${collectionPath}/fork_count`),
  aboutCollection(`${collectionPath}/indexing_status`),
  withRecords("get", ["SELECT"]),
  withRecords("query", ["SELECT"], ["limit", "offset"]),
  withRecords("search", ["SELECT"]),
  withRecords("add", ["INSERT"]),
  withRecords("update", ["UPDATE"]),
  withRecords("upsert", ["INSERT", "UPDATE"]),
  withRecords("delete", ["DELETE"]),
];

function planByName(request: PresetRequest, permission: PermissionClass): Plan {
  const { name: table } = request.path;
  return { accesses: [{ permissions: [permission], database: databaseOf(request), table }] };
}

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
