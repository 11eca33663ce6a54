import t from "tap";
import { checkRefusal, openSetting, select } from "../gateway/kit.ts";

const json = { "content-type": "application/json" };

const shared = await openSetting(t);

t.test("every refusal has the documented status, message and shape", async (t) => {
  const { gateway, upstream } = await openSetting(t, {
    config: "[server]\nmax_body_bytes = 1024\n",
  });
  const reader = await gateway.addUser("reader", "ReadOnly");
  const insert = { Insert: { database: "main", table: "t", values: [{ id: 1 }] } };
  const bearer = { ...json, authorization: `Bearer ${reader}` };

  const denied = "Insufficient permissions for this operation";
  const on = (database: string) => ({ Select: { ...select.Select, database } });
  const large = { Select: { ...select.Select, from: "t".repeat(2000) } };
  const tooLarge = "Request body too large: the limit is 1024 bytes";
  const twice = '{"Select":{"database":"main","database":"x"}}';
  const table: [query: unknown, token: string | undefined, number, string, message?: string][] = [
    [select, undefined, 401, "unauthenticated", "Missing Authorization header"],
    [select, "nonsense", 401, "token_invalid", "Invalid token format"],
    [insert, reader, 403, "role_insufficient", denied],
    [on("other"), reader, 403, "no_grant", denied],
    [on("MAIN"), reader, 403, "database_case_mismatch"],
    [twice, reader, 400, "duplicate_key"],
    [large, reader, 413, "body_too_large", tooLarge],
  ];
  for (const [query, token, status, code, message] of table) {
    const expected = { status, code, ...(message === undefined ? {} : { message }) };
    checkRefusal(t, await gateway.query(query, token), expected);
  }
  checkRefusal(t, await gateway.send("POST", "/nowhere", {}), { status: 404, code: "not_found" });

  const wrongMethod = await gateway.request("/query");
  checkRefusal(t, wrongMethod, { status: 405, code: "method_not_allowed" });
  t.equal(wrongMethod.headers.get("allow"), "POST");
  const allowed = await gateway.request("/healthz", { method: "DELETE" });
  t.equal(allowed.headers.get("allow"), "GET, HEAD");

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
  const ask = async (path: string, method: string, token: string, type: string, body: string) => {
    const bearer: Record<string, string> = token === "" ? {} : { authorization: `Bearer ${token}` };
    const headers = { "content-type": type, ...bearer };
    return (await gateway.request(path, { method, headers, body })).status;
  };
  const denied = '{"DropTable":{"database":"main","table":"t"';
  const json = "application/json";
  t.equal(await ask("/nowhere", "PUT", "", "text/plain", huge), 404, "the path comes first");
  t.equal(await ask("/query", "PUT", "", "text/plain", huge), 405, "then the method");
  t.equal(await ask("/query", "POST", "", "text/plain", huge), 401, "the token");
  t.equal(await ask("/query", "POST", expired, "text/plain", huge), 401);
  t.equal(await ask("/query", "POST", token, "text/plain", huge), 415, "the media type");
  t.equal(await ask("/query", "POST", token, json, huge), 413, "the size");
  t.equal(await ask("/query", "POST", token, json, `${denied},"x":1}}`), 400, "the grammar");
  t.equal(await ask("/query", "POST", token, json, `${denied}}}`), 403, "then the rights");
  const weak = { username: "new", password: "short", role: "Owner" };
  t.equal((await gateway.send("POST", "/api/users", weak, token)).status, 400);
  t.equal(upstream.take().length, 0, "the upstream received nothing");
});
