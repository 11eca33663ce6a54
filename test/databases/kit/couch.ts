import { createHash } from "node:crypto";
import type { ServerResponse } from "node:http";
import type { Test } from "tap";
import { type ReceivedRequest, RecordingUpstream } from "../../kit/upstream.ts";

type Members = Readonly<Record<string, unknown>>;

interface Stored {
  rev: string;
  body: Members;
  isDeleted: boolean;
}

interface Database {
  readonly documents: Map<string, Stored>;
  readonly checkpoints: Map<string, Stored>;
  security: unknown;
}

class Failure extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

function isMembers(value: unknown): value is Members {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function members(value: unknown): Members {
  if (!isMembers(value)) throw new Failure(400, "must be an object");
  return value;
}

const list = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

/**
 * What CouchDB 3.5 and PouchDB Server 4.2 do, as recorded, as far as names are concerned. Where they
 * differ, it takes the reading that an attacker would like: `_id` in a body goes before the path,
 * checkpoints are listed by their keys, and headers replace methods.
 */
export class CouchStub extends RecordingUpstream {
  readonly #databases = new Map<string, Database>();

  constructor() {
    super();
    this.answer = (request, response) => {
      try {
        const { searchParams } = new URL(request.url, this.url);
        const isFeed = (searchParams.get("feed") ?? "normal") !== "normal";
        if (isFeed) return stream(response, searchParams.has("heartbeat"));
        const [status, body] = this.#answer(request);
        send(response, status, body);
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
        send(response, error.status, { error: "refused", reason: error.message });
      }
    };
  }

  static async open(t: Pick<Test, "teardown">): Promise<CouchStub> {
    return new CouchStub().listen(t);
  }

  addDatabase(name: string, ...ids: string[]): void {
    const database = this.#create(name);
    for (const id of ids) write(database, id, { of: name });
  }

  #create(name: string): Database {
    if (this.#databases.has(name)) throw new Failure(412, "file_exists");
    const made = { documents: new Map(), checkpoints: new Map(), security: {} };
    this.#databases.set(name, made);
    return made;
  }

  #find(name: unknown): Database {
    const found = this.#databases.get(String(name));
    if (found === undefined) throw new Failure(404, "no such database");
    return found;
  }

  #answer({ method: sent, url, headers, body }: ReceivedRequest): [status: number, body: unknown] {
    const override = headers["x-http-method-override"];
    const method = sent === "POST" && typeof override === "string" ? override : sent;
    const [path = "", query = ""] = url.split("?");
    const parameters = new URLSearchParams(query.replaceAll(";", "&"));
    // Empty segments are dropped.
    const segments = path.split("/").filter((one) => one !== "");
    const [name, ...rest] = segments.map((one) => decodeURIComponent(one.replaceAll("+", " ")));
    const read = () => members(JSON.parse(body.toString() || "{}"));
    if (name === undefined) return [200, { couchdb: "Welcome", version: "3.5.0" }];
    if (name === "_all_dbs") return [200, ["_users", ...this.#databases.keys()].sort()];
    if (name === "_uuids") return [200, { uuids: ["1", "2"] }];
    if (name === "_replicate") return this.#replicate(read());
    if (name === "_dbs_info") return [200, list(read().keys).map((key) => ({ key }))];
    if (rest.length === 0 && method === "PUT") {
      this.#create(name);
      return [201, { ok: true }];
    }
    const database = this.#find(name);
    if (rest.length === 0 && method === "DELETE") {
      this.#databases.delete(name);
      return [200, { ok: true }];
    }
    if (rest.length === 0) {
      if (method !== "POST") return [200, { db_name: name, doc_count: database.documents.size }];
      const document = read();
      return [
        201,
        write(database, String(document._id ?? `made-${database.documents.size}`), document),
      ];
    }
    const isParts = String(headers["content-type"]).startsWith("multipart/");
    const isFile = method === "PUT" && rest.length > (rest[0]?.startsWith("_") ? 2 : 1);
    const json = isParts || isFile || body.length === 0 ? {} : read();
    return ofDatabase(database, method, rest, json, parameters, headers);
  }

  #replicate({ source, target, create_target: isNew }: Members): [number, unknown] {
    const from = this.#find(source);
    const to = isNew === true ? this.#create(String(target)) : this.#find(target);
    for (const [id, stored] of from.documents) to.documents.set(id, { ...stored });
    return [200, { ok: true }];
  }
}

function stream(response: ServerResponse, isAlive: boolean): void {
  response.writeHead(200, { "content-type": "application/json" }).write("\n");
  if (!isAlive) return;
  const beat = setInterval(() => response.write("\n"), 200);
  response.once("close", () => clearInterval(beat));
}

function send(response: ServerResponse, status: number, body: unknown): void {
  const text = `${JSON.stringify(body)}\n`;
  const etag = `"${createHash("md5").update(text).digest("hex")}"`;
  response.writeHead(status, { "content-type": "application/json", etag }).end(text);
}

/** Revisions follow from the content, as in CouchDB, unless they are replicated. */
function write(database: Database, id: string, sent: Members, isNew = true): Members {
  const isCheckpoint = id.startsWith("_local/");
  const stored = isCheckpoint ? database.checkpoints : database.documents;
  const { _id, _rev, _deleted, ...body } = sent;
  const found = stored.get(id);
  if (found !== undefined && !found.isDeleted && !isCheckpoint && isNew && found.rev !== _rev) {
    throw new Failure(409, "conflict");
  }
  const count = Number((found?.rev ?? "0").split("-")[0]) + 1;
  const hash = createHash("md5").update(JSON.stringify([id, body, _deleted ?? false]));
  const rev = isNew ? `${count}-${hash.digest("hex")}` : String(_rev);
  stored.set(id, { rev, body, isDeleted: _deleted === true });
  return { ok: true, id, rev };
}

function read(database: Database, id: string): Members {
  const found = (id.startsWith("_local/") ? database.checkpoints : database.documents).get(id);
  if (found === undefined || found.isDeleted) throw new Failure(404, "missing");
  return { _id: id, _rev: found.rev, ...found.body };
}

function rowsOf(database: Database, keys: readonly unknown[] | undefined, isWhole: boolean) {
  const ids = keys ?? [...database.documents.keys()].sort();
  const rows = ids.flatMap((id): Members[] => {
    try {
      const doc = read(database, String(id));
      const row = { id, key: id, value: { rev: doc._rev } };
      return [isWhole ? { ...row, doc } : row];
    } catch {
      return keys === undefined ? [] : [{ key: id, error: "not_found" }];
    }
  });
  return { total_rows: database.documents.size, offset: 0, rows };
}

function ofDatabase(
  database: Database,
  method: string,
  [first = "", ...rest]: string[],
  json: Members,
  parameters: URLSearchParams,
  headers: ReceivedRequest["headers"],
): [status: number, body: unknown] {
  const keys = parameters.get("keys");
  const asked = Array.isArray(json.keys) ? json.keys : keys === null ? undefined : JSON.parse(keys);
  const isWhole = parameters.get("include_docs") === "true";
  const ok = { ok: true };
  switch (first) {
    case "_all_docs":
    case "_local_docs":
      return [200, rowsOf(database, asked, isWhole)];
    case "_find":
      return [200, { docs: rowsOf(database, undefined, true).rows, bookmark: "nil" }];
    case "_changes":
      return [200, { results: rowsOf(database, undefined, isWhole).rows, last_seq: "1" }];
    case "_bulk_get":
      return [
        200,
        { results: list(json.docs).map((one) => read(database, String(members(one).id))) },
      ];
    case "_bulk_docs":
      return [
        201,
        list(json.docs).map((one) => {
          const { _id: id = "made", ...document } = members(one);
          try {
            return write(database, String(id), document, json.new_edits !== false);
          } catch {
            return { id, error: "conflict" };
          }
        }),
      ];
    case "_security":
      if (method === "GET") return [200, database.security];
      database.security = json;
      return [200, ok];
    case "_explain":
    case "_index":
    case "_revs_diff":
    case "_ensure_full_commit":
    case "_compact":
      return [method === "GET" ? 200 : 201, ok];
  }
  const isSystem = first === "_design" || first === "_local";
  const id = isSystem ? `${first}/${rest.shift()}` : first;
  if (rest[0]?.startsWith("_")) return [200, { rows: [] }];
  if (rest.length > 0) return [201, { ok: true, id }];
  const rev = parameters.get("rev");
  const revision = rev === null ? {} : { _rev: rev };
  if (method === "GET") return [200, read(database, id)];
  if (method === "DELETE") return [200, write(database, id, { ...revision, _deleted: true })];
  if (method === "COPY") {
    const [target = ""] = String(headers.destination).split("?");
    const { _id, _rev, ...copied } = read(database, id);
    return [201, write(database, decodeURIComponent(target), copied)];
  }
  return [201, write(database, String(json._id ?? id), { ...revision, ...json })];
}
