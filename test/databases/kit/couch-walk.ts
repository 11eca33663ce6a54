import { equal } from "node:assert/strict";
import { ask, type PlainAnswer } from "../../kit/client.ts";

interface Request {
  readonly method: string;
  readonly path: string;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

const ids = ["a", "b/c", "d e", "ü+", "_design/app", "_design/x y"];
const design = { views: { all: { map: "function (doc) { emit(doc._id, null); }" } } };

/** Random requests of a user who may do anything with one database, and nothing with others. */
export class CouchWalk {
  readonly #database: string;
  readonly #revisions = new Map<string, string>();
  #state: number;
  #count = 0;

  constructor(database: string, seed: number) {
    this.#database = database;
    this.#state = seed;
  }

  #below(limit: number): number {
    // mulberry32
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % limit;
  }

  #one<Item>(items: readonly [Item, ...Item[]]): Item {
    return items[this.#below(items.length)] ?? items[0];
  }

  next(): Request {
    this.#count++;
    const id = this.#one(["a", ...ids]);
    const path = `/${this.#database}/${this.#below(2) === 0 ? encodeURIComponent(id) : spelled(id)}`;
    const rev = this.#revisions.get(id);
    const revision = rev === undefined ? {} : { _rev: rev };
    const content = id.startsWith("_") ? design : { n: this.#below(5) };
    const at = (rest: string) => `/${this.#database}/${rest}`;
    return this.#one<() => Request>([
      () => ({ method: "GET", path }),
      () => ({ method: "GET", path: `${path}?revs=true&conflicts=true` }),
      () => ({ method: "HEAD", path }),
      () => ({ method: "PUT", path, body: { ...content, ...revision } }),
      () => ({ method: "PUT", path, body: { ...content, ...revision, _id: id } }),
      () => ({
        method: "PUT",
        path: `${path}?rev=${rev ?? ""}`,
        body: { ...revision, _deleted: true },
      }),
      () => ({ method: "DELETE", path: `${path}?rev=${rev ?? "1-0"}` }),
      () => ({ method: "COPY", path, headers: { destination: `copy-${this.#count}` } }),
      () => ({ method: "GET", path: at("_all_docs?include_docs=true") }),
      () => ({ method: "GET", path: at(`_all_docs?limit=${this.#below(4)}&descending=true`) }),
      () => ({ method: "POST", path: at("_all_docs"), body: { keys: [id, "none"] } }),
      () => ({ method: "GET", path: at("_changes") }),
      () => ({ method: "GET", path: at("_changes?include_docs=true&style=all_docs") }),
      () => ({ method: "POST", path: at("_bulk_get?revs=true"), body: { docs: [{ id }] } }),
      () => ({ method: "POST", path: at("_revs_diff"), body: { [id]: ["1-0"] } }),
      () => ({ method: "POST", path: at("_find"), body: { selector: { n: { $gte: 1 } } } }),
      () => ({
        method: "POST",
        path: at("_bulk_docs"),
        body: {
          docs: [
            { _id: `bulk-${this.#count}`, n: 1 },
            { ...content, ...revision, _id: id },
          ],
        },
      }),
      () => ({ method: "PUT", path: at("_local/mine"), body: { n: this.#count } }),
      () => ({ method: "GET", path: at("_local%2Fmine") }),
      () => ({ method: "GET", path: at("_security") }),
      () => ({ method: "GET", path: at("") }),
      () => ({ method: "GET", path: "/_all_dbs" }),
      () => ({ method: "GET", path: `/_all_dbs?limit=${this.#below(3)}&skip=${this.#below(2)}` }),
      () => ({ method: "GET", path: "/_session" }),
      () => ({ method: "GET", path: "/_up" }),
      () => ({ method: "GET", path: at("_design/app/_view/all") }),
      () => ({ method: "GET", path: at("_no_such_thing") }),
      () => ({ method: "GET", path: "/gatehouse_test_other/_all_docs" }),
    ])();
  }

  /** Remembers revisions, so that some later changes succeed. */
  learn(text: string): void {
    for (const [, key, rev] of text.matchAll(/"(?:_id|id)":"([^"]+)"[^{}]*?"_?rev":"([^"]+)"/g)) {
      if (key !== undefined && rev !== undefined) this.#revisions.set(key, rev);
    }
  }
}

function spelled(id: string): string {
  return id.split("_design/").map(encodeURIComponent).join("_design/");
}

/** What differs between two servers of the same content. */
const volatile = [
  /"(?:request_id|instance_start_time|uuid)":"[^"]*"/g,
  // CouchDB's sequences name its shards and nodes, and sizes depend on the lengths of their names.
  /"(\d+)-g[\w-]*"/g,
  /"sizes":\{[^}]*\}/g,
];

function shown({ status, headers, body }: PlainAnswer): string {
  const text = volatile.reduce((one, pattern) => one.replaceAll(pattern, '"$1"'), body.toString());
  const { etag = "", "content-type": type = "" } = headers;
  // Others are hashes of what differs.
  const revision = /^"\d+-[0-9a-f]{32}"$/.test(etag) ? etag : "";
  return [status, type, revision, text].join("\n");
}

/**
 * Sends the same random requests to two gateways.
 *
 * @returns how often each status was answered
 * @throws AssertionError for the first pair of answers that differ
 */
export async function walkBoth(
  gateways: readonly [string, string],
  authorization: readonly [string, string],
  walk: CouchWalk,
  count: number,
): Promise<ReadonlyMap<number, number>> {
  const statuses = new Map<number, number>();
  for (let step = 0; step < count; step++) {
    const { method, path, body, headers } = walk.next();
    const send = (at: 0 | 1) =>
      ask(`${gateways[at]}${path}`, {
        method,
        headers: {
          authorization: authorization[at],
          ...(body === undefined ? {} : { "content-type": "application/json" }),
          ...headers,
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
    const one = await send(0);
    const other = await send(1);
    equal(shown(other), shown(one), `${step}: ${method} ${path} ${JSON.stringify(body)}`);
    walk.learn(one.body.toString());
    statuses.set(one.status, (statuses.get(one.status) ?? 0) + 1);
  }
  return statuses;
}
