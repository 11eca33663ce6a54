import { readdirSync } from "node:fs";
import t from "tap";
import { ask } from "../kit/client.ts";
import { startGateway, TestGateway } from "../kit/gateway.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { deployed, deployedPath, fill } from "./programs.ts";

type Who = "visitor" | "stranger" | "reader" | "writer" | "admin";
type Case = [who: Who, line: string, status: number, body?: string];

const base64 = (text: string) => Buffer.from(text).toString("base64");
const key = JSON.stringify({ key: base64("greeting") });
const pair = JSON.stringify({ key: base64("greeting"), value: base64("hello") });

const databases: Record<string, { url: string; cases: Case[] }> = {
  datasette: {
    url: "http://127.0.0.1:8001",
    cases: [
      ["visitor", "GET /main", 401],
      ["visitor", "GET /-/static/app.css", 200],
      ["reader", "GET /main?_size=5", 200],
      ["reader", "GET /main/tickets.json?id__gt=1&_size=5", 200],
      ["reader", "GET /main/tickets/1.json", 200],
      ["reader", "GET /main/-/query.json?sql=select+1", 200],
      ["stranger", "GET /main/tickets.json", 403],
      ["stranger", "GET /main/-/query.json?sql=select+1", 403],
      ["stranger", "GET /MAIN", 403],
      ["reader", "GET /main.json", 404],
      ["reader", "GET /main,other/tickets", 404],
      ["reader", "GET /_internal/tables", 404],
      ["reader", "GET /main%2f..%2fother/tickets", 400],
      ["admin", "POST /main/-/create", 405, "{}"],
      ["admin", "POST /main/tickets/-/insert", 404, "{}"],
      ["reader", "GET /main/tickets?_size=1&_size=2", 400],
    ],
  },
  etcd: {
    url: "http://127.0.0.1:2379",
    cases: [
      ["visitor", "POST /v3/kv/range", 401, key],
      ["writer", "POST /v3/kv/put", 403, pair],
      ["admin", "POST /v3/kv/put", 200, pair],
      ["reader", "POST /v3/kv/range", 200, key],
      ["reader", "POST /v3/watch", 200, `{"create_request":${key}}`],
      ["stranger", "POST /v3/kv/range", 403, key],
      ["stranger", "POST /v3/watch", 403, `{"create_request":${key}}`],
      ["reader", "POST /v3/kv/range?key=Zm9v", 400, key],
      ["reader", "POST /v3/kv/rang%65", 404, key],
      ["reader", "POST /v3/kv/deleterange", 403, key],
      ["admin", "POST /v3/kv/deleterange", 200, key],
      ["writer", "POST /v3/kv/txn", 403, "{}"],
      ["admin", "POST /v3/auth/disable", 404, "{}"],
      ["admin", "POST /v3beta/kv/range", 404, key],
      ["admin", "GET /v3/kv/range", 405],
    ],
  },
  meilisearch: {
    url: "http://127.0.0.1:7700",
    cases: [
      ["visitor", "GET /health", 200],
      ["visitor", "POST /indexes/main/search", 401, "{}"],
      ["reader", "POST /indexes/main/search", 200, '{"q":"a"}'],
      ["reader", "GET /indexes/main/search?q=a&limit=5", 200],
      ["reader", "GET /indexes/main/documents/1", 200],
      ["stranger", "POST /indexes/main/search", 403, "{}"],
      ["reader", "POST /indexes/main/documents", 403, "[]"],
      ["writer", "POST /indexes/main/documents?primaryKey=id", 200, "[]"],
      ["writer", "DELETE /indexes/main/documents/1", 200],
      ["writer", "PATCH /indexes/main/settings", 403, "{}"],
      ["writer", "DELETE /indexes/main", 403],
      ["admin", "DELETE /indexes/main", 200],
      ["writer", "POST /indexes", 403, '{"uid":"other"}'],
      ["admin", "POST /indexes", 200, '{"uid":"other"}'],
      ["reader", "GET /tasks/1", 403],
      ["admin", "GET /tasks/1", 200],
      ["admin", "POST /multi-search", 404, "{}"],
      ["admin", "POST /swap-indexes", 404, "[]"],
      ["admin", "GET /keys", 404],
      ["admin", "GET /indexes", 405],
      ["reader", "GET /indexes/main,other/search?q=a", 404],
      ["reader", "GET /indexes/main/search?q=a&q=b", 400],
      ["reader", "GET /indexes/main/search?q=a&indexUid=other", 400],
    ],
  },
  rqlite: {
    url: "http://127.0.0.1:4001",
    cases: [
      ["visitor", "POST /db/query", 401, '["select 1"]'],
      ["reader", "POST /db/query?timings", 200, '["select 1"]'],
      ["reader", "GET /db/query?q=select+1&level=strong", 200],
      ["stranger", "POST /db/query", 403, '["select 1"]'],
      ["writer", "POST /db/execute", 403, '["drop table t"]'],
      ["admin", "POST /db/execute?transaction", 200, '["drop table t"]'],
      ["writer", "POST /db/request", 403, '["select 1"]'],
      ["writer", "GET /db/backup", 403],
      ["admin", "GET /db/backup", 200],
      ["admin", "POST /db/load", 404, "x"],
      ["admin", "POST /remove", 404, "{}"],
      ["reader", "POST /db/query?redirect=x", 400, '["select 1"]'],
    ],
  },
  victoriametrics: {
    url: "http://127.0.0.1:8428",
    cases: [
      ["visitor", "GET /api/v1/query?query=up", 401],
      ["reader", "GET /api/v1/query?query=up&time=1", 200],
      ["reader", "POST /api/v1/query_range", 200, "query=up&start=1"],
      ["reader", "GET /api/v1/label/__name__/values", 200],
      ["reader", "GET /api/v1/series?match[]=up", 200],
      ["stranger", "GET /api/v1/query?query=up", 403],
      ["reader", "POST /api/v1/import/prometheus", 403, "up 1"],
      ["writer", "POST /api/v1/import/prometheus", 200, "up 1"],
      ["writer", "POST /api/v1/write", 200, "x"],
      ["admin", "POST /api/v1/admin/tsdb/delete_series", 404, "x"],
      ["admin", "GET /api/v1/admin/tsdb/delete_series?match[]=up", 404],
      ["admin", "GET /-/reload", 404],
      ["reader", "GET /api/v1/query?query=up&query=down", 400],
      ["reader", "GET /api/v1/query?query=up&extra_label=a", 400],
      ["reader", "GET /api/v1/query/", 404],
    ],
  },
  webdis: {
    url: "http://127.0.0.1:7379",
    cases: [
      ["visitor", "GET /HGET/main/greeting", 401],
      ["reader", "PUT /HSET/main/greeting", 403, "hello/you"],
      ["writer", "PUT /HSET/main/greeting", 200, "hello/you"],
      ["reader", "GET /HGET/main/greeting", 200],
      ["reader", "GET /HGET/m%61in/greeting.txt", 200],
      ["writer", "GET /HGET/other/greeting", 403],
      ["writer", "GET /HGET/MAIN/greeting", 403],
      ["reader", "GET /HINCRBY/main/count/5", 403],
      ["writer", "GET /HINCRBY/main/count/-5", 200],
      ["writer", "GET /HINCRBY/main/count/5.txt", 404],
      ["reader", "GET /HGETALL/main", 200],
      ["reader", "GET /HGET/main/greeting?type=text/html", 400],
      ["reader", "GET /HGET/main/greeting?callback=x", 400],
      ["stranger", "GET /HGET/main/greeting", 403],
      ["admin", "GET /HGETALL/main.txt", 404],
      ["admin", "GET /HGETALL/_all", 404],
      ["admin", "GET /HGETALL/main%2fx", 400],
      ["reader", "GET /HDEL/main/count", 403],
      ["writer", "GET /HDEL/main/count", 200],
      ["writer", "GET /DEL/main", 403],
      // Webdis runs the body of a POST, whatever the path.
      ["admin", "POST /HGET/main/greeting", 405, "FLUSHALL"],
      ["admin", "GET /FLUSHALL", 404],
      ["admin", "GET /7/HGET/main/greeting", 404],
      ["admin", "GET /DEL/main", 200],
    ],
  },
};

t.test("every file in deploy/examples has a test", async (t) => {
  const files = readdirSync(deployedPath("examples"));
  t.strictSame(
    files.sort(),
    Object.keys(databases).map((name) => `${name}.toml`),
  );
});

for (const [name, { url, cases }] of Object.entries(databases)) {
  t.test(`${name}: only allowed requests are forwarded, byte for byte`, async (t) => {
    const upstream = await new RecordingUpstream().listen(t);
    const written = fill(deployed(`examples/${name}.toml`), { [url]: upstream.url });
    const accept = /^accept = .*$/m.exec(written)?.[0] ?? "";
    const config = written.replace(`[auth]\n${accept}`, "");
    const gateway = await startGateway(t, { config, auth: accept });
    const basePath = /^base_path = "(.*)"$/m.exec(written)?.[1] ?? "";
    const own = new TestGateway(gateway.home, gateway.service, gateway.url + basePath);
    const tokens: Record<string, string> = {
      admin: await own.login(),
      stranger: await own.addUser("stranger", "ReadOnly", "other"),
      reader: await own.addUser("reader", "ReadOnly"),
      writer: await own.addUser("writer", "ReadWrite"),
    };
    for (const [who, line, status, body = ""] of cases) {
      const [method = "", path] = line.split(" ");
      const token = tokens[who];
      const headers = token === undefined ? {} : { Authorization: `Bearer ${token}` };
      const answer = await ask(`${gateway.url}${path}`, { method, headers, body });
      t.equal(answer.status, status, `${who}: ${line}`);
      const received = upstream.take();
      const forwarded = received.map(({ method, url, body }) => [`${method} ${url}`, `${body}`]);
      t.strictSame(forwarded, status === 200 ? [[line, body]] : [], `${who}: ${line}`);
      t.notOk(received[0]?.headers.authorization, "the token is not forwarded");
    }
  });
}
