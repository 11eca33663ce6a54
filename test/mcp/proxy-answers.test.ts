import type { ServerResponse } from "node:http";
import { pipeline, Readable } from "node:stream";
import t, { type Test } from "tap";
import { ask, open, type PlainAnswer } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { initialize, statelessCall } from "./messages.ts";
import { openProxied } from "./proxied.ts";

const policy = [{ name: "shown", permission: "SELECT", database: "main" }] as const;
const grants = { alice: { main: "ReadOnly" } } as const;
const list = statelessCall("tools/list");
const call = statelessCall("tools/call", { name: "shown", arguments: {} });
const tools =
  '{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"shown","inputSchema":{"maximum":9223372036854775807}},{"name":"hidden"},{"n\\u0061me":"hidden"}]}}';
const shown =
  '{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"shown","inputSchema":{"maximum":9223372036854775807}}]}}';

/** The proxy in front of a server that answers as a test wants. */
async function openBefore(t: Test, answer: (response: ServerResponse) => void): Promise<string> {
  const upstream = await new RecordingUpstream().listen();
  t.teardown(() => upstream.close());
  upstream.answer = (_request, response) => answer(response);
  const { endpoint } = await openProxied(t, { grants, policy, target: `${upstream.url}/mcp` });
  return endpoint.url;
}

function codeOf({ body }: PlainAnswer): unknown {
  return JSON.parse(body.toString()).code;
}

t.test("a list in JSON is filtered, and every number in it keeps its digits", async (t) => {
  const url = await openBefore(t, (response) => {
    response.writeHead(200, { "content-type": "application/json", etag: '"of the whole"' });
    response.end(tools);
  });
  const answer = await ask(url, list);
  t.equal(answer.body.toString(), shown);
  t.equal(answer.headers.etag, undefined);
});

t.test("a list whose tools are long is filtered, wherever their names stand", async (t) => {
  const long = Array.from({ length: 5000 }, (_, at) => ({ at, of: "x".repeat(at % 40) }));
  const named = (name: unknown) => [{ name, long }, { long, name }, { name }, { long: { name } }];
  const listed = ["shown", [], ...["shown", "hidden", 1, "shown"].flatMap(named)];
  const url = await openBefore(t, (response) => {
    response.writeHead(200, { "content-type": "application/json" });
    response.end(
      JSON.stringify({ jsonrpc: "2.0", id: 1, result: { tools: listed } }, undefined, 1),
    );
  });
  const { body } = await ask(url, list);
  const expected = listed.filter((tool) => Object(tool).name === "shown");
  t.strictSame(JSON.parse(body.toString()).result.tools, expected);
});

t.test("nobody is told to keep a filtered list, whatever the server says", async (t) => {
  const empty = { jsonrpc: "2.0", id: 1, result: { tools: [] } };
  const forNobody = { ttlMs: 0, cacheScope: "private" };
  const complete = { resultType: "complete" };
  for (const [hints, expected] of [
    [{}, {}],
    [complete, { ...complete, ...forNobody }],
    [{ ttlMs: 60_000 }, forNobody],
    [
      { ...complete, ttlMs: 1, cacheScope: "public" },
      { ...complete, ...forNobody },
    ],
  ]) {
    const url = await openBefore(t, (response) => {
      const cached = { "cache-control": "public, max-age=60", expires: "soon", age: "1" };
      response.writeHead(200, { "content-type": "application/json", ...cached });
      response.end(JSON.stringify({ ...empty, result: { ...empty.result, ...hints } }));
    });
    const { body, headers } = await ask(url, list);
    t.strictSame(JSON.parse(body.toString()).result, { tools: [], ...expected });
    t.equal(headers["cache-control"], "no-store");
    t.notOk("expires" in headers || "age" in headers);
  }
});

for (const [name, end] of [
  ["line feeds", "\n"],
  ["carriage returns", "\r"],
  ["both", "\r\n"],
] as const) {
  t.test(`a list in events that end in ${name} is filtered, however it is cut`, async (t) => {
    const event = ["event: message", "id: 7", `data: ${tools}`, "", ""].join(end);
    const stream = Buffer.from(`: é${end}${end}${event}data:${end}${end}`);
    let cut = 1;
    const url = await openBefore(t, async (response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      for (let at = 0; at < stream.length; at += cut) {
        response.write(stream.subarray(at, at + cut));
        if (cut < 20) await new Promise(setImmediate);
      }
      response.end();
    });
    for (cut of [1, 7, stream.length]) {
      const text = (await ask(url, list)).body.toString();
      t.match(text, ": é");
      t.match(text, `data: ${shown}`);
      t.match(text, "id: 7");
      t.notMatch(text, "hidden");
    }
  });
}

t.test("a list that comes again on the stream of a session is filtered too", async (t) => {
  const upstream = await new RecordingUpstream().listen();
  t.teardown(() => upstream.close());
  upstream.answer = ({ method }, response) => {
    if (method === "POST") {
      response.writeHead(200, { "content-type": "application/json", "mcp-session-id": "s" });
      response.end('{"jsonrpc":"2.0","id":1,"result":{}}');
    } else {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.end(`data: ${tools}\n\n`);
    }
  };
  const { endpoint } = await openProxied(t, { grants, policy, target: `${upstream.url}/mcp` });
  t.equal((await ask(endpoint.url, initialize)).headers["mcp-session-id"], "s");
  const headers = { "mcp-session-id": "s", accept: "text/event-stream", "last-event-id": "6" };
  const answer = await ask(endpoint.url, { headers });
  t.equal(answer.body.toString(), `data: ${shown}\n\n`);
});

t.test("a list that cannot be read safely does not reach the client", async (t) => {
  const twice = '{"jsonrpc":"2.0","id":1,"result":{"tools":[],"tools":[{"name":"hidden"}]}}';
  for (const [type, body] of [
    ["application/json", twice],
    ["application/json", tools.slice(0, -1)],
    ["application/json", tools.replace('"maximum":', '"maximum":1,"maximum":')],
    ["text/event-stream", `data: ${twice}\n\n`],
  ] as const) {
    const url = await openBefore(t, (response) => {
      response.writeHead(200, { "content-type": type });
      response.end(body);
    });
    await t.rejects(ask(url, list), { code: "ECONNRESET" });
  }
});

t.test("a coded or unknown form of a list is a 502", async (t) => {
  for (const headers of [
    { "content-type": "application/json", "content-encoding": "gzip" },
    { "content-type": "text/plain" },
  ]) {
    const url = await openBefore(t, (response) => {
      response.writeHead(200, headers);
      response.end(tools);
    });
    const answer = await ask(url, list);
    t.equal(answer.status, 502);
    t.equal(codeOf(answer), "upstream_broken");
  }
});

t.test("a redirect or a 401 of the server behind is a 502", async (t) => {
  for (const [status, headers] of [
    [307, { location: "http://127.0.0.1:1/" }],
    [401, { "www-authenticate": 'Bearer realm="inner"' }],
  ] as const) {
    const url = await openBefore(t, (response) => {
      response.writeHead(status, headers);
      response.end();
    });
    const answer = await ask(url, call);
    t.equal(answer.status, 502);
    t.equal(codeOf(answer), "upstream_broken");
  }
});

t.test("a server that is not there is a 502", async (t) => {
  const { endpoint } = await openProxied(t, { grants, policy, target: "http://127.0.0.1:1/mcp" });
  const answer = await ask(endpoint.url, call);
  t.equal(answer.status, 502);
  t.equal(codeOf(answer), "upstream_unreachable");
});

t.test("cookies, challenges and sessions that are not the client's stay behind", async (t) => {
  const url = await openBefore(t, (response) => {
    response.writeHead(403, {
      "content-type": "application/json",
      "set-cookie": "a=b",
      "www-authenticate": "Bearer",
      "mcp-session-id": "another",
      "x-gatehouse-user": "root",
    });
    response.end("{}");
  });
  const { status, headers } = await ask(url, call);
  t.equal(status, 403);
  for (const name of ["set-cookie", "www-authenticate", "mcp-session-id", "x-gatehouse-user"]) {
    t.equal(headers[name], undefined, name);
  }
});

t.test("a stream waits for a client that reads slowly", async (t) => {
  const chunk = Buffer.from(`: ${"x".repeat(64 * 1024)}\n\n`);
  let taken = 0;
  function* chunks(): Generator<Buffer> {
    for (; taken < 2000; taken++) yield chunk;
  }
  const url = await openBefore(t, (response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    pipeline(Readable.from(chunks()), response, () => {});
  });
  const stream = await open(url, call);
  let before = 0;
  await eventually("the server behind waits", () => {
    const isSame = taken === before;
    before = taken;
    return isSame && taken > 0;
  });
  t.ok(taken < 1000, `${taken} of 2000 chunks were taken`);
  stream.destroy();
});
