/** Requests of the ordinary clients of databases with a preset. */
export interface DatabaseScenario {
  readonly name: string;
  readonly preset: "chroma" | "opensearch" | "couchdb";
  readonly path: string;
  readonly contentType: string;
  readonly body: string;
  readonly connections: number;
}

/** Of the collection here, and of a real Chroma after `prepareChroma`. */
const collections = "/api/v2/tenants/default_tenant/databases/main/collections";
export const STUB_ID = "00000000-0000-4000-8000-000000000001";
const DIMENSIONS = 768;
const ANSWERS = 10;
const ADDED = 100;
const LINES = 1000;

function vector(seed: number): number[] {
  return Array.from({ length: DIMENSIONS }, (_, at) => Math.sin(seed * DIMENSIONS + at));
}

const text = "The text of a document that was found. ".repeat(ANSWERS);
const found = Array.from({ length: ANSWERS }, (_, at) => String(at));
const hits = found.map((_id) => ({
  _index: "logs-1",
  _id,
  _score: 1,
  _source: { message: text },
}));
const items = Array.from({ length: LINES / 2 }, (_, at) => ({
  index: { _index: "logs-1", _id: String(at), status: 200, result: "updated" },
}));

/** Answers to the scenarios, and to the lookups that these need. */
export const answers: ReadonlyMap<string, string> = new Map(
  Object.entries({
    [`${collections}/by-id/${STUB_ID}`]: {
      id: STUB_ID,
      name: "bench",
      tenant: "default_tenant",
      database: "main",
    },
    [`${collections}/${STUB_ID}/query`]: {
      ids: [found],
      documents: [found.map(() => text)],
      metadatas: [found.map(() => ({ lang: "en" }))],
      distances: [found.map((_, at) => at / ANSWERS)],
    },
    [`${collections}/${STUB_ID}/upsert`]: {},
    "/api/v2/version": "1.0.0",
    "/": { version: { number: "2.19.6", distribution: "opensearch" } },
    "/_bulk": { took: 1, errors: false, items },
    "/logs-1/_search": { took: 1, hits: { total: { value: ANSWERS, relation: "eq" }, hits } },
    "/logs-1/_mapping": { "logs-1": { mappings: { properties: { message: { type: "text" } } } } },
    "/_resolve/index/logs-1": {
      indices: [{ name: "logs-1", attributes: ["open"] }],
      aliases: [],
      data_streams: [],
    },
  }).map(([path, answer]) => [path, JSON.stringify(answer)]),
);

/** @param id the collection */
export function scenariosOf(id: string): DatabaseScenario[] {
  const json = "application/json";
  const query = { query_embeddings: [vector(1)], n_results: ANSWERS, where: { lang: "en" } };
  const added = Array.from({ length: ADDED }, (_, at) => at);
  const addition = {
    ids: added.map(String),
    embeddings: added.map((at) =>
      Buffer.from(new Float32Array(vector(at)).buffer).toString("base64"),
    ),
    documents: added.map((at) => `The document ${at} of the collection`),
  };
  const bulk = Array.from({ length: LINES / 2 }, (_, at) => {
    const document = { at, message: `The document ${at} of the index`, level: "info" };
    return `{"index":{"_index":"logs-1","_id":"${at}"}}\n${JSON.stringify(document)}\n`;
  });
  const search = {
    query: {
      bool: { must: [{ match: { message: "document" } }], filter: [{ term: { level: "info" } }] },
    },
    size: ANSWERS,
  };
  return [
    {
      name: `Chroma: query by a vector of ${DIMENSIONS}`,
      preset: "chroma",
      path: `${collections}/${id}/query`,
      contentType: json,
      body: JSON.stringify(query),
      connections: 32,
    },
    {
      name: `Chroma: upsert of ${ADDED} vectors`,
      preset: "chroma",
      path: `${collections}/${id}/upsert`,
      contentType: json,
      body: JSON.stringify(addition),
      connections: 8,
    },
    {
      name: `OpenSearch: bulk of ${LINES} lines`,
      preset: "opensearch",
      path: "/_bulk",
      contentType: "application/x-ndjson",
      body: bulk.join(""),
      connections: 8,
    },
    {
      name: "OpenSearch: search",
      preset: "opensearch",
      path: "/logs-1/_search",
      contentType: json,
      body: JSON.stringify(search),
      connections: 32,
    },
  ];
}

/** Makes the collection with as many vectors as a query returns. @returns its UUID */
export async function prepareChroma(url: string): Promise<string> {
  const post = async (path: string, body: unknown): Promise<unknown> => {
    const headers = { "content-type": "application/json" };
    const sent = { method: "POST", headers, body: JSON.stringify(body) };
    const answer = await fetch(`${url}${path}`, sent);
    return answer.json();
  };
  await post("/api/v2/tenants/default_tenant/databases", { name: "main" });
  const made = await post(collections, { name: "bench", get_or_create: true });
  const id = typeof made === "object" && made !== null && "id" in made ? String(made.id) : "";
  const ids = Array.from({ length: 1000 }, (_, at) => at);
  await post(`${collections}/${id}/upsert`, {
    ids: ids.map(String),
    embeddings: ids.map(vector),
    documents: ids.map((at) => `The document ${at} of the collection`),
    metadatas: ids.map(() => ({ lang: "en" })),
  });
  return id;
}
