import { gzipSync } from "node:zlib";
import t, { type Test } from "tap";
import { isForwardableHeader } from "../../src/core/config/kinds.ts";
import { createGrammar } from "../../src/core/query/grammar.ts";
import { parseQuery } from "../../src/core/query/parse.ts";
import { gatewayHeaders } from "../../src/core/upstream/headers.ts";
import { toOpForm } from "../../src/core/upstream/query-form.ts";
import { ask, type PlainAnswer } from "../kit/client.ts";
import { startGateway } from "../kit/gateway.ts";
import { queryHeaders, select } from "../kit/queries.ts";
import { RawUpstream, wireAnswer } from "../kit/raw-upstream.ts";
import { type Answer, RecordingUpstream } from "../kit/upstream.ts";

t.test("no header of the gateway can be configured to come from clients", async (t) => {
  const identity = { username: "alice", roles: ["Owner"], databases: ["main"] };
  const peer = { forwardedFor: "1.2.3.4", proto: "http", host: "a.test" };
  const added = Object.keys(gatewayHeaders({ requestId: "1", peer }, identity));
  t.ok(added.length >= 7);
  for (const name of added) t.notOk(isForwardableHeader(name), name);
});

async function answers(t: Test): Promise<(answer: Answer) => Promise<PlainAnswer>> {
  const upstream = await new RecordingUpstream().listen(t);
  const gateway = await startGateway(t, { upstream: upstream.url });
  const headers = queryHeaders(await gateway.login());
  return (answer) => {
    upstream.answer = answer;
    return ask(`${gateway.url}/query`, { method: "POST", headers, body: select });
  };
}

t.test("status, headers and body of a response reach the client unchanged", async (t) => {
  const answered = await answers(t);

  const missing = await answered((_, response) => {
    response.writeHead(404, { "Content-Type": "text/plain", "X-Database": "yes" });
    response.end("no such table");
  });
  t.equal(missing.status, 404);
  t.equal(missing.body.toString(), "no such table");
  t.equal(missing.headers["content-type"], "text/plain");
  t.equal(missing.headers["x-database"], "yes");
  t.equal(missing.headers["x-gatehouse-decision"], "allow", "the gateway allowed the request");

  const empty = await answered((_, response) => response.writeHead(204).end());
  t.equal(empty.status, 204);
  t.equal(empty.body.length, 0);

  const zipped = gzipSync("x".repeat(10_000));
  const compressed = await answered((_, response) => {
    response.writeHead(200, { "Content-Encoding": "gzip", "Content-Length": zipped.length });
    response.end(zipped);
  });
  t.equal(compressed.headers["content-encoding"], "gzip");
  t.strictSame(compressed.body, zipped, "compressed bytes are passed on as bytes");

  const cookies = await answered((_, response) => {
    response.writeHead(200, ["Set-Cookie", "a=1", "Set-Cookie", "b=2", "X-Latin", "caf\xe9"]);
    response.end("{}");
  });
  t.strictSame(cookies.headers["set-cookie"], ["a=1", "b=2"]);
  t.equal(cookies.headers["x-latin"], "caf\xe9", "a value that is not ASCII keeps its bytes");
});

t.test("an upstream cannot set headers of the gateway", async (t) => {
  const answered = await answers(t);
  const answer = await answered((_, response) => {
    response.writeHead(200, {
      "X-Gatehouse-Decision": "deny",
      X_Gatehouse_User: "root",
      "X-Request-Id": "theirs",
      Connection: "X-Hop",
      "X-Hop": "1",
      "Keep-Alive": "timeout=1",
      "Proxy-Authenticate": "Basic",
    });
    response.end("{}");
  });
  const names = answer.rawHeaders.filter((_, at) => at % 2 === 0).map((name) => name.toLowerCase());
  t.equal(answer.headers["x-gatehouse-decision"], "allow");
  t.not(answer.headers["x-request-id"], "theirs");
  for (const name of ["x_gatehouse_user", "x-hop", "proxy-authenticate"]) {
    t.notOk(names.includes(name), `${name} is removed`);
  }
  t.equal(names.filter((name) => name === "x-request-id").length, 1);
  t.not(answer.headers["keep-alive"], "timeout=1");
});

t.test("interim responses of an upstream are not taken for its response", async (t) => {
  const early = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n";
  const upstream = await new RawUpstream((socket) => {
    socket.write(`HTTP/1.1 102 Processing\r\n\r\n${early}${wireAnswer('{"status":"success"}')}`);
  }).listen(t);
  const gateway = await startGateway(t, { upstream: upstream.url });
  const answer = await gateway.query(select, await gateway.login());
  t.equal(answer.status, 200);
  t.equal(answer.headers.get("link"), null);
  t.strictSame(answer.body, { status: "success" });
});

const grammar = createGrammar({ extraFields: [], operations: { TruncateTable: "DELETE" } });

function rewrite(text: string): string {
  const body = Buffer.from(text);
  return toOpForm(body, parseQuery(body, grammar)).toString();
}

t.test("the operation becomes a field and the fields keep their bytes", async (t) => {
  const fields =
    ' "database" : "m\\u0061in",\n"table":"t", "values":[{"id":12345678901234567890, "x": 1.50e+3}] ';
  t.equal(rewrite(` { "Insert" : {${fields}} } `), `{"op":"insert",${fields}}`);
});

t.test("an operation of several words becomes snake case", async (t) => {
  for (const [name, op] of [
    ["DropTable", "drop_table"],
    ["TruncateTable", "truncate_table"],
  ]) {
    const fields = '"database":"m","table":"t"';
    t.equal(rewrite(`{"${name}":{${fields}}}`), `{"op":"${op}",${fields}}`);
  }
});

t.test("a Batch becomes an array that begins with its name", async (t) => {
  const elements =
    '[{"Insert":{"database":"m","table":"t","values":[{"a":9007199254740993}]}}, {"DropTable":{"database":"m","table":"u"}}]';
  const rewritten = rewrite(`{"Batch":${elements}}`);
  t.equal(
    rewritten,
    '["batch",{"op":"insert","database":"m","table":"t","values":[{"a":9007199254740993}]},{"op":"drop_table","database":"m","table":"u"}]',
  );
  t.doesNotThrow(() => JSON.parse(rewritten));
});
