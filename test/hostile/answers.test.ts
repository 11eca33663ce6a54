import t from "tap";
import { ask } from "../kit/client.ts";
import { startGateway } from "../kit/gateway.ts";
import { queryHeaders, select } from "../kit/queries.ts";
import { RawUpstream } from "../kit/raw-upstream.ts";
import { Wire, wireRequest } from "../kit/wire.ts";

const config = '[[routes]]\npath = "/open"\nmethods = ["POST"]\naccess = "public"\n';

/** Heads of an upstream's answer by which a second one, or a cookie, might be slipped in. */
const splits = {
  "a CR in a value": "X-A: b\rSet-Cookie: evil=1\r\n",
  "a CR and a space in a value": "X-A: b\r Set-Cookie: evil=1\r\n",
  "a line end without CR": "X-A: b\nSet-Cookie: evil=1\r\n",
  "a NUL in a value": "X-A: b\0Set-Cookie: evil=1\r\n",
  "a folded line": "X-A: b\r\n Set-Cookie: evil=1\r\n",
  "a line end in a name": "X-A\nSet-Cookie: evil=1\r\n",
  "a space before the colon": "Set-Cookie : evil=1\r\n",
  "two lengths": "Content-Length: 0\r\n",
  "a length and chunks": "Transfer-Encoding: chunked\r\n",
  "chunked twice": "Transfer-Encoding: chunked, chunked\r\n",
  "an empty name": ": Set-Cookie: evil=1\r\n",
};

t.test("an answer of the upstream's can not be made into two", async (t) => {
  let head = "";
  const body = '{"status":"success"}\r\nHTTP/1.1 200 OK\r\nSet-Cookie: evil=1\r\n\r\n';
  const upstream = await new RawUpstream((socket) => {
    socket.end(`HTTP/1.1 200 OK\r\nContent-Length: 20\r\n${head}\r\n${body}`);
  }).listen();
  t.teardown(() => upstream.close());
  const gateway = await startGateway(t, { upstream: upstream.url, config });
  const headers = { ...queryHeaders(await gateway.login()), Connection: "close" };
  for (const target of ["/query", "/open"]) {
    for (const [what, lines] of Object.entries(splits)) {
      head = lines;
      const wire = await Wire.open(gateway.url);
      wire.send(wireRequest(`POST ${target}`, headers, select));
      const text = await wire.untilClosed();
      t.match(text, /^HTTP\/1\.1 502 .*"upstream_broken"/s, `${target}: ${what}`);
      t.notMatch(text, /^Set-Cookie/im, what);
      t.equal(text.split("HTTP/1.1").length, 2, `${what}: one answer`);
    }
    head = "";
    const wire = await Wire.open(gateway.url);
    wire.send(wireRequest(`POST ${target}`, headers, select));
    const text = await wire.untilClosed();
    t.match(
      text,
      /^HTTP\/1\.1 200 .*\{"status":"success"\}$/s,
      "what follows an answer stays there",
    );
  }
});

t.test("what a client says is in no line of the answer's head", async (t) => {
  const upstream = await new RawUpstream(() => {}).listen();
  t.teardown(() => upstream.close());
  const gateway = await startGateway(t, {
    upstream: upstream.url,
    config: '[server]\ntrusted_proxies = ["127.0.0.1"]\nallowed_origins = ["https://app.test"]\n',
  });
  const token = await gateway.login();
  const evil = "evil%0d%0aSet-Cookie:%20a=1";
  const said = {
    authorization: `Bearer ${token}`,
    origin: `https://app.test ${evil}`,
    "x-request-id": evil,
    "x-forwarded-host": evil,
    "x-forwarded-proto": evil,
    "access-control-request-method": evil,
    "access-control-request-headers": evil,
    "mcp-session-id": evil,
  };
  for (const path of [`/api/users/${evil}`, `/api/access/${evil}/${evil}`, "/mcp", `/${evil}`]) {
    for (const method of ["GET", "DELETE", "OPTIONS", "POST"]) {
      const answer = await ask(`${gateway.url}${path}`, { method, headers: said });
      t.ok(answer.status >= 400, `${method} ${path} is ${answer.status}`);
      t.notMatch(answer.rawHeaders.join("\n"), /evil/, `${method} ${path}`);
    }
  }
});
