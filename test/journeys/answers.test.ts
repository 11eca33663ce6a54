import t from "tap";
import { checkRefusal, openGatewaySetup, select } from "../gateway/kit.ts";

const json = { "content-type": "application/json" };

const { gateway, upstream } = await openGatewaySetup(t, {
  config: "[server]\nmax_body_bytes = 1024\n",
});
const reader = await gateway.addUser("reader", "ReadOnly");

t.test("every refusal has the documented status, message and shape", async (t) => {
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

t.test("a request that breaks several rules is answered for the first one", async (t) => {
  const huge = "[".repeat(2000);
  const denied = '{"DropTable":{"database":"main","table":"t"';
  const text = "text/plain";
  const json = "application/json";
  for (const [first, status, line, token, type, body] of [
    ["the path", 404, "PUT /nowhere", "", text, huge],
    ["the method", 405, "PUT /query", "", text, huge],
    ["the missing token", 401, "POST /query", "", text, huge],
    ["the token", 401, "POST /query", "e30.e30.e30", text, huge],
    ["the media type", 415, "POST /query", reader, text, huge],
    ["the size", 413, "POST /query", reader, json, huge],
    ["the grammar", 400, "POST /query", reader, json, `${denied},"x":1}}`],
    ["the rights", 403, "POST /query", reader, json, `${denied}}}`],
  ] as const) {
    const [method = "", path = ""] = line.split(" ");
    const bearer: Record<string, string> = token === "" ? {} : { authorization: `Bearer ${token}` };
    const headers = { "content-type": type, ...bearer };
    t.equal((await gateway.request(path, { method, headers, body })).status, status, first);
  }
  const weak = { username: "new", password: "short", role: "Owner" };
  t.equal((await gateway.send("POST", "/api/users", weak, reader)).status, 400);
  t.equal(upstream.take().length, 0, "the upstream received nothing");
});

t.test("a refusal of the upstream is marked as allowed by the gateway", async (t) => {
  upstream.answer = (_request, response) => {
    response.writeHead(403, { "content-type": "text/plain", "x-gatehouse-decision": "deny" });
    response.end("not today");
  };
  const answer = await gateway.query(select, await gateway.login());
  t.equal(answer.status, 403);
  t.equal(answer.text, "not today");
  t.equal(answer.headers.get("x-gatehouse-decision"), "allow");
});
