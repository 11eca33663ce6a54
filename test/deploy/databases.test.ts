import { readdirSync } from "node:fs";
import t from "tap";
import { ask } from "../kit/client.ts";
import { startGateway } from "../kit/gateway.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { deployed, deployedPath, fill } from "./programs.ts";

type Who = "nobody" | "stranger" | "reader" | "writer" | "admin";
type Case = [who: Who, line: string, status: number, body?: string];

const base64 = (text: string) => Buffer.from(text).toString("base64");
const key = JSON.stringify({ key: base64("greeting") });
const pair = JSON.stringify({ key: base64("greeting"), value: base64("hello") });

const databases: Record<string, { url: string; cases: Case[] }> = {
  etcd: {
    url: "http://127.0.0.1:2379",
    cases: [
      ["nobody", "POST /v3/kv/range", 401, key],
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
  webdis: {
    url: "http://127.0.0.1:7379",
    cases: [
      ["nobody", "GET /HGET/main/greeting", 401],
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
    const config = fill(deployed(`examples/${name}.toml`), { [url]: upstream.url });
    const gateway = await startGateway(t, { config });
    const tokens: Record<string, string> = {
      admin: await gateway.login(),
      stranger: await gateway.addUser("stranger", "ReadOnly", "other"),
      reader: await gateway.addUser("reader", "ReadOnly"),
      writer: await gateway.addUser("writer", "ReadWrite"),
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
