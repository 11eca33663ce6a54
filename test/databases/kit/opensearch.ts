import type { Test } from "tap";
import { isObject, type Json, type JsonObject } from "../../../src/features/databases/preset.ts";
import { RecordingUpstream } from "../../kit/upstream.ts";

interface Index {
  readonly documents: Map<string, JsonObject>;
  readonly aliases: Map<string, JsonObject>;
  mappings: JsonObject;
}

interface Answer {
  readonly status: number;
  readonly body: Json;
}

interface Asked {
  readonly method: string;
  readonly parts: readonly string[];
  readonly query: URLSearchParams;
  readonly body: Json;
  readonly lines: readonly string[];
}

class Failure extends Error {
  readonly status: number;

  constructor(status: number, type: string) {
    super(type);
    this.status = status;
  }
}

const ok = (body: Json): Answer => ({ status: 200, body });
const done = ok({ acknowledged: true });
const shards = { total: 1, successful: 1, skipped: 0, failed: 0 };

function objectIn(value: Json | undefined): JsonObject {
  return isObject(value) ? value : {};
}

function listIn(value: Json | undefined): readonly Json[] {
  return Array.isArray(value) ? value : value === undefined ? [] : [value];
}

function textIn(value: Json | undefined): string {
  return typeof value === "string" ? value : "";
}

function toPattern(name: string): RegExp {
  return new RegExp(`^${name.replaceAll(".", "\\.").replaceAll("*", ".*")}$`);
}

/**
 * What OpenSearch 2.19.6 does, as recorded, as far as names are concerned: a name may be in the
 * path, the query string and everywhere in a body, and `_all` means indexes that begin with a dot.
 */
export class OpenSearchStub extends RecordingUpstream {
  readonly #indexes = new Map<string, Index>();
  /** The names of indexes of a scroll or point in time. */
  readonly #handles = new Map<string, string>();
  /** The status of lookups, if it is not 200. */
  lookupStatus = 200;
  /** True for Elasticsearch, which answers 404 if one of the names to resolve does not exist. */
  resolvesAll = false;

  constructor() {
    super();
    this.answer = ({ method, url, body: bytes }, response) => {
      const body = bytes.toString();
      const { pathname, searchParams: query } = new URL(url, "http://stub");
      const parts = pathname.slice(1).split("/").map(decodeURIComponent);
      const lines = body.split("\n");
      let answer: Answer;
      try {
        const isLines = /_(?:bulk|msearch)$/.test(pathname);
        const json: Json = body === "" || isLines ? null : JSON.parse(body);
        answer = this.#answer({ method, parts, query, body: json, lines });
      } catch (error) {
        const status = error instanceof Failure ? error.status : 400;
        const type = error instanceof Error ? error.message : "";
        answer = { status, body: { error: { type }, status } };
      }
      const isText = parts[0] === "_cat" && query.get("format") !== "json";
      const text = isText
        ? listIn(answer.body).map((row) => `${Object.values(objectIn(row)).join(" ")}\n`)
        : [JSON.stringify(answer.body)];
      response.writeHead(answer.status, {
        "content-type": isText ? "text/plain" : "application/json",
      });
      response.end(method === "HEAD" ? undefined : text.join(""));
    };
  }

  static async open(t: Pick<Test, "teardown">): Promise<OpenSearchStub> {
    return new OpenSearchStub().listen(t);
  }

  /** @throws Failure for an index that does not exist */
  #resolve(names: string): string[] {
    let found: string[] = [];
    for (const written of names.split(",")) {
      const name = written === "_all" ? "*" : written;
      if (name.startsWith("-")) {
        const pattern = toPattern(name.slice(1));
        found = found.filter((one) => !pattern.test(one));
        continue;
      }
      const pattern = toPattern(name);
      const fits = this.#indexes
        .entries()
        .filter(
          ([index, { aliases }]) =>
            pattern.test(index) || aliases.keys().some((alias) => pattern.test(alias)),
        )
        .map(([index]) => index)
        .toArray();
      if (fits.length === 0 && !name.includes("*")) {
        throw new Failure(404, "index_not_found_exception");
      }
      found.push(...fits);
    }
    return [...new Set(found)];
  }

  #index(name: string): Index {
    const [found = ""] = this.#resolve(name);
    const index = this.#indexes.get(found);
    if (index === undefined) throw new Failure(404, "index_not_found_exception");
    return index;
  }

  #ensure(name: string): Index {
    const isKnown = this.#indexes
      .entries()
      .some(([index, { aliases }]) => index === name || aliases.has(name));
    if (!isKnown) {
      this.#indexes.set(name, { documents: new Map(), aliases: new Map(), mappings: {} });
    }
    return this.#index(name);
  }

  #matches(query: Json, id: string, document: JsonObject): boolean {
    const [type = "match_all", value] = Object.entries(objectIn(query))[0] ?? [];
    const [field = "", wanted] = Object.entries(objectIn(value))[0] ?? [];
    if (type === "match_all") return true;
    if (type === "ids") return listIn(objectIn(value).values).includes(id);
    if (type === "match") return textIn(document[field]).includes(textIn(wanted));
    if (type === "term") return document[field] === wanted;
    if (type === "bool" || type === "constant_score") {
      return listIn(objectIn(value).filter).every((one) => this.#matches(one, id, document));
    }
    if (type !== "terms") return false;
    const lookup = objectIn(wanted);
    const values = isObject(wanted)
      ? [this.#index(textIn(lookup.index)).documents.get(textIn(lookup.id))?.[textIn(lookup.path)]]
      : listIn(wanted);
    return values.includes(document[field] ?? null);
  }

  #search(names: string, body: JsonObject, size = body.size ?? 10): JsonObject {
    const hits = this.#resolve(names).flatMap((_index) =>
      Array.from(this.#index(_index).documents, ([_id, _source]) => ({ _index, _id, _source })),
    );
    const found = hits.filter(({ _id, _source }) =>
      this.#matches(body.query ?? null, _id, _source),
    );
    const total = { value: found.length, relation: "eq" };
    return { took: 1, _shards: shards, hits: { total, hits: found.slice(0, Number(size)) } };
  }

  #write(type: string, name: string, id: string | undefined, body: JsonObject): Answer {
    const _id = id ?? String(Math.random());
    const known = type === "delete" ? this.#index(name) : this.#ensure(name);
    const { documents } = known;
    const result = { _index: name, _id };
    if (type === "create" && documents.has(_id)) return { status: 409, body: result };
    if (type === "delete") {
      return documents.delete(_id) ? ok(result) : { status: 404, body: result };
    }
    if (type === "update") {
      const old = documents.get(_id) ?? (body.doc_as_upsert === true ? {} : undefined);
      if (old === undefined) return { status: 404, body: result };
      documents.set(_id, { ...old, ...objectIn(body.doc) });
    } else documents.set(_id, body);
    return ok(result);
  }

  #bulk(index: string | undefined, lines: readonly string[]): Answer {
    const items: JsonObject[] = [];
    for (let at = 0; at < lines.length; at++) {
      const line = lines[at] ?? "";
      if (line.trim() === "") continue;
      const [type = "", target] = Object.entries<Json>(JSON.parse(line))[0] ?? [];
      const { _index = index ?? "", _id } = objectIn(target);
      const body: JsonObject = type === "delete" ? {} : JSON.parse(lines[++at] ?? "{}");
      const id = _id === undefined ? undefined : String(_id);
      const { status, body: result } = this.#write(type, textIn(_index), id, body);
      items.push({ [type]: { ...objectIn(result), status } });
    }
    return ok({ took: 1, errors: false, items });
  }

  #open(names: string): string {
    const id = `raw-${this.#handles.size}-${names}`;
    this.#handles.set(id, names);
    return id;
  }

  #opened(id: Json | undefined): string {
    const names = this.#handles.get(textIn(id));
    if (names === undefined) throw new Failure(404, "search_context_missing_exception");
    return names;
  }

  #answer(asked: Asked): Answer {
    const [first = "", second = "", third] = asked.parts;
    if (first === "") return ok({ version: { number: "2.19.6", distribution: "opensearch" } });
    if (!first.startsWith("_") || first === "_all") {
      return this.#onIndex(asked, first, second, third);
    }
    const names = asked.query.get("index") ?? "_all";
    if (first === "_cat" || first === "_cluster" || first === "_resolve") {
      // After `/_cluster/state/metadata`, the indexes are one segment later.
      return this.#list(first, second, second === "state" ? asked.parts[3] : third);
    }
    if (first === "_scripts" || first === "_index_template") return done;
    if (first === "_data_stream") {
      return ok({ data_streams: this.#resolve("_all").map((name) => ({ name })) });
    }
    if (first === "_aliases") return this.#changeAliases(asked.body);
    if (first === "_alias") return this.#aliases("_all", asked.parts[1]);
    if (first === "_search" && second === "scroll") return this.#scroll(asked);
    if (first === "_search" && second === "point_in_time") {
      for (const id of listIn(objectIn(asked.body).pit_id)) this.#handles.delete(textIn(id));
      return ok({ pits: [] });
    }
    if (first === "_pit") {
      this.#handles.delete(textIn(objectIn(asked.body).id));
      return ok({ succeeded: true, num_freed: 1 });
    }
    return this.#onIndex(asked, names, first, second);
  }

  #list(kind: string, second: string, third = "_all"): Answer {
    if (kind === "_resolve" && this.lookupStatus !== 200) {
      return { status: this.lookupStatus, body: {} };
    }
    if (kind === "_cluster") {
      if (third !== "_all") this.#resolve(third);
      return ok({ cluster_name: "stub", status: "green" });
    }
    const found = this.#resolveLeniently(third);
    if (kind === "_cat") {
      if (second === "health") return ok([{ cluster: "stub", status: "green" }]);
      if (second === "count") return ok([{ count: String(this.#resolve(third).length) }]);
      return ok(found.map((index) => ({ health: "green", index })));
    }
    const patterns = third.split(",").map((one) => toPattern(one === "_all" ? "*" : one));
    const fits = (name: string) => patterns.some((pattern) => pattern.test(name));
    const indices = [...this.#indexes.keys()].filter(fits).map((name) => ({ name }));
    const aliases = this.#indexes
      .entries()
      .flatMap(([index, { aliases }]) => aliases.keys().map((name) => ({ name, indices: [index] })))
      .filter(({ name }) => fits(name));
    const isMissing = (name: string) => !/[*]|^_all$/.test(name) && !this.#indexes.has(name);
    if (this.resolvesAll && third.split(",").some(isMissing)) return { status: 404, body: {} };
    return ok({ indices, aliases: [...aliases], data_streams: [] });
  }

  #resolveLeniently(names: string): string[] {
    try {
      return this.#resolve(names);
    } catch {
      return [];
    }
  }

  #aliases(names: string, alias = "*"): Answer {
    const pattern = toPattern(alias);
    const found: Record<string, Json> = {};
    for (const name of this.#resolve(names)) {
      const aliases = Array.from(this.#index(name).aliases).filter(([one]) => pattern.test(one));
      if (aliases.length > 0 || alias === "*") {
        found[name] = { aliases: Object.fromEntries(aliases) };
      }
    }
    if (Object.keys(found).length > 0 || alias.includes("*")) return ok(found);
    return { status: 404, body: { error: `alias [${alias}] missing`, status: 404 } };
  }

  #changeAliases(body: Json): Answer {
    for (const action of listIn(objectIn(body).actions)) {
      const { index, alias } = objectIn(Object.values(objectIn(action))[0]);
      this.#index(textIn(index)).aliases.set(textIn(alias), {});
    }
    return done;
  }

  #scroll({ method, body }: Asked): Answer {
    const { scroll_id: id } = objectIn(body);
    if (method === "DELETE") {
      for (const one of listIn(id)) this.#handles.delete(textIn(one));
      return ok({ succeeded: true, num_freed: 1 });
    }
    return ok({ ...this.#search(this.#opened(id), {}), _scroll_id: textIn(id) });
  }

  #onIndex(asked: Asked, names: string, verb: string, id: string | undefined): Answer {
    const { method, query, lines } = asked;
    const body = objectIn(asked.body);
    switch (verb) {
      case "":
        return this.#manage(method, names, body);
      case "_doc":
      case "_source":
      case "_create":
      case "_update":
        return this.#document(asked, names, verb, id);
      case "_bulk":
        return this.#bulk(names === "_all" ? undefined : names, lines);
      case "_search": {
        if (id === "point_in_time") {
          this.#resolve(names);
          return ok({ pit_id: this.#open(names) });
        }
        const { pit } = body;
        const from = pit === undefined ? names : this.#opened(objectIn(pit).id);
        const size = query.get("size") ?? undefined;
        const found = this.#search(from, body, size);
        const more: Record<string, Json> = {};
        if (query.has("scroll")) more._scroll_id = this.#open(names);
        if (pit !== undefined) more.pit_id = textIn(objectIn(pit).id);
        return ok({ ...found, ...more });
      }
      case "_pit":
        return ok({ id: this.#open(names) });
      case "_msearch": {
        const responses: JsonObject[] = [];
        for (let at = 0; at + 1 < lines.length; at += 2) {
          const { index = names }: JsonObject = JSON.parse(lines[at] || "{}");
          const search: JsonObject = JSON.parse(lines[at + 1] ?? "{}");
          responses.push(this.#search(listIn(index).join(","), search));
        }
        return ok({ took: 1, responses });
      }
      case "_mget": {
        const ids = listIn(body.ids).map((_id): JsonObject => ({ _id, _index: names }));
        const docs = [...listIn(body.docs).map(objectIn), ...ids].map((one): JsonObject => {
          const _source = this.#index(textIn(one._index ?? names)).documents.get(textIn(one._id));
          return _source === undefined
            ? { ...one, found: false }
            : { ...one, found: true, _source };
        });
        return ok({ docs });
      }
      case "_count":
      case "_delete_by_query":
      case "_update_by_query": {
        const found = objectIn(objectIn(this.#search(names, body, 1000).hits).total);
        return ok({ count: found.value ?? 0, _shards: shards });
      }
      case "_alias":
      case "_aliases":
        if (method === "GET") return this.#aliases(names, id);
        for (const name of this.#resolve(names)) this.#index(name).aliases.set(id ?? "", body);
        return done;
      case "_mapping": {
        const found = this.#resolve(names).map((name) => [
          name,
          { mappings: this.#index(name).mappings },
        ]);
        return ok(Object.fromEntries(found));
      }
      case "_settings":
      case "_stats":
      case "_field_caps":
      case "_validate":
      case "_explain":
      case "_analyze":
      case "_termvectors":
      case "_mtermvectors":
      case "_refresh":
      case "_cache":
        return ok({ indices: this.#resolve(names) });
      default:
        throw new Failure(400, `no handler for ${method} ${verb}`);
    }
  }

  #manage(method: string, names: string, body: JsonObject): Answer {
    if (method === "PUT") {
      if (this.#indexes.has(names)) throw new Failure(400, "resource_already_exists_exception");
      const aliases = Object.entries(objectIn(body.aliases));
      this.#indexes.set(names, {
        documents: new Map(),
        aliases: new Map(aliases.map(([alias, one]) => [alias, objectIn(one)])),
        mappings: objectIn(body.mappings),
      });
      return done;
    }
    const found = this.#resolve(names);
    if (method === "DELETE") for (const name of found) this.#indexes.delete(name);
    return method === "DELETE" ? done : ok(Object.fromEntries(found.map((name) => [name, {}])));
  }

  #document({ method, body }: Asked, name: string, verb: string, id: string | undefined): Answer {
    if (method === "GET" || method === "HEAD") {
      const _source = this.#index(name).documents.get(id ?? "");
      if (_source === undefined) return { status: 404, body: { found: false } };
      return ok(
        verb === "_source" ? _source : { _index: name, _id: id ?? "", found: true, _source },
      );
    }
    if (method === "DELETE") return this.#write("delete", name, id, {});
    const type = { _create: "create", _update: "update" }[verb] ?? "index";
    return this.#write(type, name, id, objectIn(body));
  }
}
