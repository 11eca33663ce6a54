import t from "tap";
import { checkRefusal, openSetting, select, sendRaw } from "../gateway/kit.ts";
import { startGateway } from "../kit/gateway.ts";
import { RecordingUpstream } from "../kit/upstream.ts";

const json = { "content-type": "application/json" };

const shared = await openSetting(t);

t.test("every refusal has the documented status, message and shape", async (t) => {
  const { gateway, upstream } = await openSetting(t, {
    config: "[server]\nmax_body_bytes = 1024\n",
  });
  const reader = await gateway.addUser("reader", "ReadOnly");
  const insert = { Insert: { database: "main", table: "t", values: [{ id: 1 }] } };
  const bearer = { ...json, authorization: `Bearer ${reader}` };

  checkRefusal(t, await gateway.query(select), {
    status: 401,
    code: "unauthenticated",
    message: "Missing Authorization header",
  });
  checkRefusal(t, await gateway.query(select, "nonsense"), {
    status: 401,
    code: "token_invalid",
    message: "Invalid token format",
  });
  checkRefusal(t, await gateway.query(insert, reader), {
    status: 403,
    code: "role_insufficient",
    message: "Insufficient permissions for this operation",
  });
  checkRefusal(
    t,
    await gateway.query({ Select: { ...select.Select, database: "other" } }, reader),
    {
      status: 403,
      code: "no_grant",
      message: "Insufficient permissions for this operation",
    },
  );
  checkRefusal(t, await gateway.query({ Select: { ...select.Select, database: "MAIN" } }, reader), {
    status: 403,
    code: "database_case_mismatch",
  });
  checkRefusal(t, await gateway.query('{"Select":{"database":"main","database":"x"}}', reader), {
    status: 400,
    code: "duplicate_key",
  });
  checkRefusal(t, await gateway.send("POST", "/nowhere", {}), { status: 404, code: "not_found" });

  const wrongMethod = await gateway.request("/query");
  checkRefusal(t, wrongMethod, { status: 405, code: "method_not_allowed" });
  t.equal(wrongMethod.headers.get("allow"), "POST");
  const allowed = await gateway.request("/healthz", { method: "DELETE" });
  t.equal(allowed.headers.get("allow"), "GET, HEAD");

  const large = { ...select.Select, from: "t".repeat(2000) };
  checkRefusal(t, await gateway.query({ Select: large }, reader), {
    status: 413,
    code: "body_too_large",
    message: "Request body too large: the limit is 1024 bytes",
  });
  const text = { ...bearer, "content-type": "text/plain" };
  const plain = await gateway.request("/query", { method: "POST", headers: text, body: "{}" });
  checkRefusal(t, plain, { status: 415, code: "unsupported_media_type" });
  t.equal(upstream.take().length, 0, "the upstream received nothing of all this");
});

t.test("an existing user is a conflict", async (t) => {
  const { gateway, upstream } = shared;
  const content = { username: "admin", password: "long enough", role: "ReadOnly" };
  const answer = await gateway.send("POST", "/api/users", content, await gateway.login());
  checkRefusal(t, answer, { status: 409, code: "user_exists" });
  t.equal(upstream.take().length, 0);
});

t.test("too many wrong passwords are answered with 429 and the time to wait", async (t) => {
  const { gateway } = await openSetting(t, { auth: "max_failures_per_user_and_address = 2" });
  const wrong = { username: "admin", password: "a wrong one" };
  const credentials = { code: "credentials_invalid", message: "Invalid username or password" };
  for (let attempt = 0; attempt < 2; attempt++) {
    checkRefusal(t, await gateway.send("POST", "/login", wrong), { status: 401, ...credentials });
  }
  const answer = await gateway.send("POST", "/login", wrong);
  checkRefusal(t, answer, { status: 429, code: "too_many_attempts" });
  const seconds = Number(answer.headers.get("retry-after"));
  t.ok(seconds > 0 && seconds <= 900, "within the window");
});

t.test("an upstream that is down is a 502 in the documented shape", async (t) => {
  const upstream = await new RecordingUpstream().listen();
  const { url } = upstream;
  await upstream.close();
  const gateway = await startGateway(t, { upstream: url });
  const answer = await gateway.query(select, await gateway.login());
  checkRefusal(t, answer, { status: 502, code: "upstream_unreachable" });
  t.equal(answer.headers.get("x-gatehouse-decision"), "allow", "the gateway itself allowed it");
});

t.test("an upstream that hangs up is a 502, one that dawdles a 504", async (t) => {
  const upstream = await new RecordingUpstream().listen();
  t.teardown(() => upstream.close());
  const config = `[upstream]\nurl = "${upstream.url}"\nresponse_timeout = 1\n`;
  const gateway = await startGateway(t, { config });
  const token = await gateway.login();
  upstream.answer = (_request, response) => response.destroy();
  checkRefusal(t, await gateway.query(select, token), { status: 502, code: "upstream_broken" });
  upstream.answer = () => undefined;
  checkRefusal(t, await gateway.query(select, token), { status: 504, code: "upstream_timeout" });
});

t.test("the upstream's own refusal is told from the gateway's", async (t) => {
  const { gateway, upstream } = shared;
  upstream.answer = (_request, response) => {
    response.writeHead(403, { "content-type": "text/plain", "x-gatehouse-decision": "deny" });
    response.end("not today");
  };
  const answer = await gateway.query(select, await gateway.login());
  t.equal(answer.status, 403);
  t.equal(answer.text, "not today");
  t.equal(answer.headers.get("x-gatehouse-decision"), "allow");
});

t.test("a request that breaks several rules hears of the first", async (t) => {
  const { gateway, upstream } = await openSetting(t, {
    config: "[server]\nmax_body_bytes = 1024\n",
  });
  const token = await gateway.addUser("reader", "ReadOnly");
  const expired = "e30.e30.e30";
  const huge = "[".repeat(2000);
  const ask = (
    path: string,
    method: string,
    bearer: string | undefined,
    type: string,
    body: string,
  ) =>
    gateway.request(path, {
      method,
      headers: {
        "content-type": type,
        ...(bearer === undefined ? {} : { authorization: `Bearer ${bearer}` }),
      },
      body,
    });
  const { status: status404 } = await ask("/nowhere", "PUT", undefined, "text/plain", huge);
  t.equal(status404, 404, "the path comes first");
  t.equal(
    (await ask("/query", "PUT", undefined, "text/plain", huge)).status,
    405,
    "then the method",
  );
  t.equal((await ask("/query", "POST", undefined, "text/plain", huge)).status, 401, "the token");
  t.equal((await ask("/query", "POST", expired, "text/plain", huge)).status, 401);
  t.equal((await ask("/query", "POST", token, "text/plain", huge)).status, 415, "the media type");
  t.equal((await ask("/query", "POST", token, "application/json", huge)).status, 413, "the size");
  const denied = '{"DropTable":{"database":"main","table":"t"';
  const json = "application/json";
  t.equal(
    (await ask("/query", "POST", token, json, `${denied},"x":1}}`)).status,
    400,
    "the grammar",
  );
  t.equal((await ask("/query", "POST", token, json, `${denied}}}`)).status, 403, "then the rights");
  const weak = { username: "new", password: "short", role: "Owner" };
  t.equal((await gateway.send("POST", "/api/users", weak, token)).status, 400);
  t.equal(upstream.take().length, 0, "the upstream received nothing");
});

t.test("a caller without a token is answered before it has sent its body", async (t) => {
  const { gateway } = shared;
  const lines = ["POST /query HTTP/1.1", "Content-Type: application/json", "Content-Length: 1000"];
  const answer = await sendRaw(gateway.url, lines);
  t.equal(answer.status, 401);
  const expecting = await sendRaw(gateway.url, [...lines, "Expect: 100-continue"]);
  t.equal(expecting.status, 401, "and it is not told to go on");
});

t.test("what is no HTTP at all is refused in the documented shape", async (t) => {
  const { gateway } = shared;
  const broken = await sendRaw(gateway.url, ["FETCH /query HTTP/1.1"]);
  t.equal(broken.status, 400);
  const body = JSON.parse(broken.text);
  t.match(body, { status: "error", code: "bad_request", message: String, request_id: String });
  t.match(broken.head, `X-Request-Id: ${body.request_id}`);
  const headers = await sendRaw(gateway.url, ["GET /healthz HTTP/1.1", `A: ${"a".repeat(70_000)}`]);
  t.equal(headers.status, 431);
  t.equal(JSON.parse(headers.text).code, "headers_too_large");
});
