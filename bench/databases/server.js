/** Answers the requests of `scenarios.ts` as the databases do, without a database. */
import { createServer } from "node:http";

const ids = Array.from({ length: 10 }, (_, at) => String(at));
const text = "The text of a document that was found. ".repeat(10);
const collection = {
  id: "00000000-0000-4000-8000-000000000001",
  name: "bench",
  tenant: "default_tenant",
  database: "main",
};
const found = {
  ids: [ids],
  documents: [ids.map(() => text)],
  metadatas: [ids.map(() => ({ lang: "en" }))],
  distances: [ids.map((_, at) => at / 10)],
};
const hits = ids.map((_id) => ({ _index: "logs-1", _id, _score: 1, _source: { message: text } }));
const items = Array.from({ length: 500 }, (_, at) => ({
  index: { _index: "logs-1", _id: String(at), status: 200, result: "updated" },
}));
const openIndex = { name: "logs-1", attributes: ["open"] };
const resolved = { indices: [openIndex], aliases: [], data_streams: [] };
const mapping = { "logs-1": { mappings: { properties: { message: { type: "text" } } } } };

/** The first whose pattern fits. */
const answers = [
  [/\/by-id\//, collection],
  [/\/query$/, found],
  [/\/upsert$/, {}],
  [/\/_bulk/, { took: 1, errors: false, items }],
  [/\/_search/, { took: 1, hits: { total: { value: 10, relation: "eq" }, hits } }],
  [/\/version$/, "1.0.0"],
  [/^\/$/, { version: { number: "2.19.6", distribution: "opensearch" } }],
  [/^\/_resolve/, resolved],
  [/./, mapping],
].map(([pattern, body]) => [pattern, Buffer.from(JSON.stringify(body))]);

const server = createServer((request, response) => {
  request.resume().once("end", () => {
    const [, body] = answers.find(([pattern]) => pattern.test(request.url)) ?? [];
    response.writeHead(200, { "content-type": "application/json", "content-length": body.length });
    response.end(body);
  });
});
server.keepAliveTimeout = 600_000;
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
