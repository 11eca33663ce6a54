import { randomUUID } from "node:crypto";
import type { ServerResponse } from "node:http";
import type { Test } from "tap";
import { type ReceivedRequest, RecordingUpstream } from "../../kit/upstream.ts";

interface Collection {
  readonly id: string;
  name: string;
  metadata: unknown;
  readonly tenant: string;
  readonly database: string;
  readonly records: Map<string, string>;
}

class Failure extends Error {
  readonly status: number;
  readonly error: string;

  constructor(status: number, message: string, error = "ChromaError") {
    super(message);
    this.status = status;
    this.error = error;
  }
}

const notFound = (message: string) => new Failure(404, message, "NotFoundError");
const invalid = (message: string) => new Failure(400, message, "InvalidArgumentError");
const name = /^(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._-]{1,510}[A-Za-z0-9]$/;

function text(value: unknown): string {
  if (typeof value !== "string") throw new Failure(422, "invalid type");
  return value;
}

/**
 * What Chroma 1.5.9 on a single node does, as recorded, as far as names are concerned: it finds the
 * records of a collection by its UUID alone, and ignores the tenant and the database of the path.
 */
export class ChromaStub extends RecordingUpstream {
  readonly #databases = new Map<string, string>([
    ["default_tenant/default_database", randomUUID()],
  ]);
  readonly #tenants = new Set(["default_tenant"]);
  readonly #collections = new Map<string, Collection>();
  /** Answers a request in another way, if it returns true. */
  intercept: (request: ReceivedRequest, response: ServerResponse) => boolean = () => false;

  constructor() {
    super();
    this.answer = (request, response) => {
      if (this.intercept(request, response)) return;
      // The real one panics.
      if (/^\/api\/v2\/collections\/./.test(request.url)) return void response.destroy();
      try {
        const [status, body] = this.#answer(request);
        send(response, status, body);
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
        send(response, error.status, { error: error.error, message: error.message });
      }
    };
  }

  static async open(t: Pick<Test, "teardown">): Promise<ChromaStub> {
    return new ChromaStub().listen(t);
  }

  /** A collection with one record. @returns its UUID */
  addCollection(database: string, collection: string, document: string): string {
    const tenant = "default_tenant";
    if (!this.#databases.has(`${tenant}/${database}`)) {
      this.#databases.set(`${tenant}/${database}`, randomUUID());
    }
    const made = this.#create(tenant, database, { name: collection });
    made.records.set("1", document);
    return made.id;
  }

  #answer({ method, url, headers, body }: ReceivedRequest): [status: number, body: unknown] {
    const { pathname, searchParams } = new URL(url, this.url);
    const [, api, version, kind, ...rest] = pathname.split("/").map(decodeURIComponent);
    if (api === "api" && version === "v1") return [410, { error: "Unimplemented" }];
    if (api !== "api" || version !== "v2") return [404, ""];
    if (body.length > 0 && headers["content-type"]?.includes("application/json") !== true) {
      throw new Failure(415, "Expected request with `Content-Type: application/json`");
    }
    if (headers["content-encoding"] !== undefined) throw invalid("Failed to parse");
    const sent: unknown = body.length === 0 ? undefined : JSON.parse(body.toString());
    if (kind === "tenants") return this.#tenant(method, rest, sent, searchParams);
    const found = {
      heartbeat: { "nanosecond heartbeat": 1 },
      healthcheck: { is_executor_ready: true, is_log_client_ready: true },
      version: "1.0.0",
      "pre-flight-checks": { max_batch_size: 5461, supports_base64_encoding: true },
    }[kind ?? ""];
    return found === undefined ? [404, ""] : [200, found];
  }

  #tenant(
    method: string,
    [tenant, kind, database, ...rest]: string[],
    sent: unknown,
    page: URLSearchParams,
  ): [status: number, body: unknown] {
    if (tenant === undefined) {
      this.#tenants.add(text(membersOf(sent, "name").name));
      return [200, {}];
    }
    if (kind === undefined) {
      if (!this.#tenants.has(tenant)) throw notFound(`Tenant [${tenant}] not found`);
      return [200, { name: tenant, resource_name: null }];
    }
    const prefix = `${tenant}/`;
    if (database === undefined && method === "GET") {
      const all = Array.from(this.#databases, ([key, id]) => ({ id, key }));
      const own = all.filter(({ key }) => key.startsWith(prefix));
      const list = own.map(({ id, key }) => ({ id, name: key.slice(prefix.length), tenant }));
      return [200, paged(list, page)];
    }
    if (database === undefined) {
      const created = text(membersOf(sent, "name").name);
      const key = `${prefix}${created}`;
      if (this.#databases.has(key)) throw new Failure(409, `Database [${created}] already exists`);
      this.#databases.set(key, randomUUID());
      return [200, { id: this.#databases.get(key) }];
    }
    const id = this.#databases.get(prefix + database);
    if (rest.length > 0) return this.#database(method, tenant, database, rest, sent, page);
    if (id === undefined) throw notFound(`Database [${database}] not found`);
    if (method === "DELETE") this.#databases.delete(prefix + database);
    return [200, method === "DELETE" ? {} : { id, name: database, tenant }];
  }

  #database(
    method: string,
    tenant: string,
    database: string,
    [kind, first, second]: string[],
    sent: unknown,
    page: URLSearchParams,
  ): [status: number, body: unknown] {
    const all = [...this.#collections.values()];
    const here = all.filter((one) => one.tenant === tenant && one.database === database);
    if (kind === "collections_count") return [200, here.length];
    if (first === undefined && method === "GET") return [200, paged(here.map(view), page)];
    if (first === undefined) {
      const members = membersOf(sent, "name", "metadata", "configuration", "get_or_create");
      const existing = here.find((one) => one.name === members.name);
      if (existing !== undefined && members.get_or_create === true) return [200, view(existing)];
      if (existing !== undefined) throw new Failure(409, `Collection [${existing.name}] exists`);
      return [200, view(this.#create(tenant, database, members))];
    }
    if (first === "by-id") {
      const found = here.find(({ id }) => id === canonicalId(second));
      if (found === undefined) throw notFound(`Collection [${second}] does not exist`);
      return [200, view(found)];
    }
    if (second !== undefined) return this.#records(method, this.#byId(first), second, sent);
    if (method === "PUT") {
      const { new_name: to, new_metadata: metadata } = membersOf(sent, "new_name", "new_metadata");
      const changed = this.#byId(first);
      if (typeof to === "string") changed.name = to;
      if (metadata !== undefined) changed.metadata = metadata;
      return [200, {}];
    }
    const named = here.find((one) => one.name === first);
    if (named === undefined) throw notFound(`Collection [${first}] does not exist`);
    if (method === "DELETE") this.#collections.delete(named.id);
    return [200, method === "DELETE" ? {} : view(named)];
  }

  #create(tenant: string, database: string, members: Record<string, unknown>): Collection {
    const wanted = text(members.name);
    if (!name.test(wanted)) throw invalid(`Expected a name. Got: ${wanted}`);
    if (!this.#databases.has(`${tenant}/${database}`)) {
      throw invalid(`Database [${database}] does not exist`);
    }
    const records = new Map<string, string>();
    const { metadata = null } = members;
    const made = { id: randomUUID(), name: wanted, metadata, tenant, database, records };
    this.#collections.set(made.id, made);
    return made;
  }

  #byId(id: string): Collection {
    const found = this.#collections.get(canonicalId(id));
    if (found === undefined) throw notFound(`Collection [${id}] does not exist`);
    return found;
  }

  #records(
    method: string,
    { records }: Collection,
    action: string,
    sent: unknown,
  ): [status: number, body: unknown] {
    if (method === "GET") {
      return action === "count" ? [200, records.size] : [501, { error: "ChromaError" }];
    }
    const { ids = [...records.keys()], documents = [] } = membersOf(sent, "ids", "documents");
    if (!Array.isArray(ids) || !Array.isArray(documents)) throw new Failure(422, "invalid type");
    if (action === "get" || action === "query") {
      return [200, { ids, documents: ids.map((id) => records.get(String(id))) }];
    }
    if (!["add", "upsert", "update", "delete"].includes(action)) {
      return [501, { error: "ChromaError", message: "not implemented" }];
    }
    for (const [at, id] of ids.entries()) {
      if (action === "delete") records.delete(String(id));
      else if (action !== "update" || records.has(String(id))) {
        records.set(String(id), String(documents[at]));
      }
    }
    return [action === "add" ? 201 : 200, {}];
  }
}

function send(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { "content-type": "application/json", "chroma-trace-id": "0" });
  response.end(body === "" ? "" : JSON.stringify(body));
}

/** The members of an object, or of an array in the order of their names here. */
function membersOf(sent: unknown, ...names: string[]): Record<string, unknown> {
  if (Array.isArray(sent)) return Object.fromEntries(names.map((one, at) => [one, sent[at]]));
  if (typeof sent === "object" && sent !== null) return { ...sent };
  throw new Failure(422, "invalid type");
}

function paged(list: readonly unknown[], page: URLSearchParams): unknown[] {
  const offset = Number(page.get("offset") ?? 0);
  const limit = page.get("limit");
  return list.slice(offset, limit === null ? undefined : offset + Number(limit));
}

/** A UUID may be written in several ways. */
function canonicalId(written = ""): string {
  const digits = written.toLowerCase().replaceAll(/urn:uuid:|[{}-]/g, "");
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

function view({ records: _, ...collection }: Collection): object {
  return { ...collection, configuration_json: {}, dimension: null, log_position: 0, version: 0 };
}
