import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import path from "node:path";
import { text } from "node:stream/consumers";
import t from "tap";
import { grant, user } from "../access/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { type Answer, auditOf, startGateway, temporaryHome } from "../kit/gateway.ts";
import { listening } from "../kit/listening.ts";
import { insert } from "../kit/queries.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { runWarm } from "../kit/warm-command.ts";
import { acceptSockets, openSocket } from "../kit/web-socket.ts";
import { statelessCall } from "../mcp/messages.ts";
import { makeKey, TestIssuer } from "../oauth/issuer.ts";
import { refusalOf, send } from "./mcp.ts";
import { editInForce, putInForce, staffedHome, succeed, textOf, tokenOf } from "./staff.ts";

const select = { Select: { database: "main", from: "t", columns: ["*"] } };
const list = statelessCall("tools/list");
const [staff, ci] = [await TestIssuer.start(t), await TestIssuer.start(t)];

const answers = new Map<string, object>();
const endpoint = createServer(async (request, response) => {
  const token = new URLSearchParams(await text(request)).get("token") ?? "";
  response.end(JSON.stringify(answers.get(token) ?? { active: false }));
});
const secretFile = path.join(temporaryHome(t), "secret");
writeFileSync(secretFile, "secret", { mode: 0o600 });
const config = `
[[issuers]]
issuer = "${staff.url}"
prefix = "staff"
opens = ["query"]
audience = "gatehouse"
groups_claim = "groups"
attribute_claims = { tenant = "tenant_id" }
introspection = { url = "http://127.0.0.1:${await listening(t, endpoint)}", client_id = "g", client_secret_file = "${secretFile}" }
[[issuers]]
issuer = "${ci.url}"
prefix = "ci"
opens = ["mcp", "query"]
audience = ["gatehouse", "api://gatehouse"]
default_scopes = ["mcp:tools"]
required_claims = { repository = "acme/app" }
[[routes]]
path = "/live"
access = "authenticated"
upgrade = true
[[routes]]
path = "/db/:database/stats"
access = "SELECT"
`;
const upstream = await new RecordingUpstream().listen(t);
const rights = [
  grant("staff:alice", "main", "ReadOnly"),
  grant("staff:Zoë Ç", "main", "ReadOnly"),
  grant("ci:repo:acme/app:ref:refs/heads/main", "main", "ReadWrite"),
].join("");
const gateway = await startGateway(t, {
  home: await staffedHome(t, ["root * Owner"], rights),
  upstream: upstream.url,
  config,
});
const root = await tokenOf(gateway, "root");
const sign = (claims: Readonly<Record<string, unknown>> = {}) =>
  staff.sign("gatehouse", { claims: { groups: [], ...claims } });
const workload = { sub: "repo:acme/app:ref:refs/heads/main", repository: "acme/app" };
const signCi = (claims: Readonly<Record<string, unknown>> = {}) =>
  ci.sign("gatehouse", { claims: { ...workload, scope: undefined, ...claims } });
const codeOf = ({ status, body }: Answer) => `${status} ${body.code ?? ""}`.trim();

t.test("a token of an issuer that opens `query` opens every door but /mcp", async (t) => {
  const token = await sign({ jti: "s-1", azp: "app" });
  const answer = await gateway.query(select, token);
  t.equal(answer.status, 200);
  t.equal(upstream.takeOne().headers["x-gatehouse-user"], "staff:alice");
  t.match(await auditOf(gateway, answer), {
    user: "staff:alice",
    tokenId: "s-1",
    client: "app",
    via: "query",
    decision: "allow",
    operations: [{ operation: "Select", role: "ReadOnly", entry: "main" }],
  });
  t.equal(codeOf(await gateway.query(insert, token)), "403 role_insufficient");
  t.equal(codeOf(await gateway.get("/schema", token)), "404 schema_not_offered");
  t.equal((await gateway.get("/db/main/stats", token)).status, 200);
  t.equal(codeOf(await gateway.get("/db/other/stats", token)), "403 no_grant");
  const me = await gateway.get("/api/me", token);
  t.match(me.body, {
    user: { username: "staff:alice", email: null, disabled: false },
    token: { database: "*" },
    access: [{ database: "main", role: "ReadOnly" }],
  });
  t.equal(codeOf(await gateway.get("/api/access", token)), "403 role_insufficient");
  const accepted = acceptSockets(t, upstream);
  const client = await openSocket(`${gateway.url}/live`, token);
  await eventually("the socket is open", () => accepted.length === 1);
  client.socket.close();
  upstream.take();
  t.equal(codeOf(await send(gateway, list, token)), "401 token_invalid");
  await succeed(gateway.send("POST", "/logout", undefined, token));
  t.equal(codeOf(await gateway.query(select, token)), "401 token_revoked");
  t.equal((await gateway.query(select, await sign({ jti: "s-2" }))).status, 200);
  t.equal((await gateway.query(select, root)).status, 200, "login tokens go on working");
});

t.test("the embedded server goes on until an issuer opens mcp", async (t) => {
  const metadata = await gateway.request("/.well-known/oauth-protected-resource/mcp");
  t.strictSame(metadata.body.authorization_servers, [ci.url]);
  t.equal((await gateway.request("/.well-known/oauth-authorization-server")).status, 404);
  const other = await startGateway(t, {
    home: await staffedHome(t, ["root * Owner"]),
    upstream: upstream.url,
    config: `[[issuers]]\nissuer = "${staff.url}"\nprefix = "staff"\nopens = ["query"]\naudience = "a"\n`,
  });
  const both = await other.request("/.well-known/oauth-protected-resource/mcp");
  t.strictSame(both.body.authorization_servers, [other.url]);
  t.equal((await other.request("/.well-known/oauth-authorization-server")).status, 200);
  t.equal((await send(other, list, await tokenOf(other, "root"))).status, 200);
});

t.test("a workload uses both doors with the token that it has", async (t) => {
  const token = await signCi();
  t.equal((await gateway.query(select, token)).status, 200);
  t.equal(refusalOf(await send(gateway, list, token)), undefined, "with the default scopes");
  const narrow = await signCi({ scope: "openid" });
  t.equal(refusalOf(await send(gateway, list, narrow)), "insufficient_scope");
  const fork = await gateway.query(select, await signCi({ repository: "evil/app" }));
  t.equal(codeOf(fork), "401 token_invalid");
  t.match(await auditOf(gateway, fork), {
    detail: "claim_mismatch",
    issuer: ci.url,
    user: `ci:${workload.sub}`,
  });
  upstream.take();
});

t.test("the reason of a refusal is in the audit and the log, and not in the answer", async (t) => {
  const cases: [detail: string, token: string][] = [
    ["wrong_audience", await sign({ aud: "another" })],
    ["bad_signature", await staff.sign("gatehouse", { key: await makeKey("first") })],
    ["no_username", await sign({ sub: undefined })],
    ["bad_username", await sign({ sub: "a,b" })],
    ["expired", await sign({ exp: Math.floor(Date.now() / 1000) - 60 })],
    ["inactive", "opaque"],
    ["unknown_issuer", await sign({ iss: "https://evil.example" })],
    ["wrong_type", await sign({ typ: "ID" })],
  ];
  for (const [detail, token] of cases) {
    const answer = await gateway.query(select, token);
    t.equal(answer.status, 401, detail);
    t.notMatch(answer.text, detail === "expired" ? "token expired:" : detail);
    t.match(answer.headers.get("www-authenticate"), /^Bearer realm="gatehouse", error=/);
    t.match(await auditOf(gateway, answer), { detail, decision: "deny" }, detail);
    await gateway.service.logged((line) => line.msg === "refused" && line.detail === detail);
  }
  const shut = await send(gateway, list, await sign());
  t.match(await auditOf(gateway, shut), { detail: "wrong_door", issuer: staff.url });
  t.strictSame(upstream.take(), []);
});

t.test("a user without an entry is 403, and one with unknown groups as well", async (t) => {
  const answer = await gateway.query(select, await sign({ sub: "unknown" }));
  t.equal(codeOf(answer), "403 no_grant");
  t.equal(answer.headers.get("www-authenticate"), null);
  const missing = await gateway.query(select, await sign({ groups: undefined }));
  t.equal(codeOf(missing), "403 groups_unavailable");
  const why = { detail: "groups_missing", user: "staff:alice", issuer: staff.url };
  t.match(await auditOf(gateway, missing), why);
  const dropped = await gateway.query(select, await sign({ groups: ["a\u0308", "c", ""] }));
  t.equal(dropped.status, 200);
  t.match(await auditOf(gateway, dropped), { droppedGroups: 2 });
  upstream.take();
});

t.test("groups give rights, those of the token and local ones", async (t) => {
  const groups = [
    '[[groups]]\nname = "engineering"\nmembers = ["staff:eve"]\n',
    '[[acl]]\ngroup = "staff:engineering"\ndatabase = "main"\nrole = "ReadOnly"\n',
    '[[acl]]\ngroup = "engineering"\ndatabase = "local"\nrole = "ReadOnly"\n',
    '[[acl]]\ngroup = "staff:R&D, \\"EU\\""\ndatabase = "odd"\nrole = "ReadOnly"\n',
    '[[acl]]\ngroup = "staff:tenants"\ndatabase = "shop"\nrole = "ReadOnly"\nrow_filter = [{ column = "tenant", cmp = "=", value = "@tenant" }]\n',
  ].join("");
  await editInForce(gateway, (text_) => text_ + groups);
  const dan = await sign({ sub: "dan", groups: ["engineering"] });
  const answer = await gateway.query(select, dan);
  t.equal(answer.status, 200);
  const operations = [{ role: "ReadOnly", entry: "main (group staff:engineering)" }];
  t.match(await auditOf(gateway, answer), { user: "staff:dan", operations });
  t.match((await gateway.get("/api/me", dan)).body.access, [{ database: "main" }]);
  const local = { Select: { database: "local", from: "t", columns: ["*"] } };
  t.equal(codeOf(await gateway.query(local, dan)), "403 no_grant", "a local group is another one");
  const odd = { Select: { database: "odd", from: "t", columns: ["*"] } };
  const rita = await gateway.query(odd, await sign({ sub: "rita", groups: ['R&D, "EU"'] }));
  t.equal(rita.status, 200);
  const byOdd = [{ entry: 'odd (group staff:R&D, "EU")' }];
  t.match(await auditOf(gateway, rita), { operations: byOdd, droppedGroups: undefined });
  const eve = await sign({ sub: "eve", groups: [] });
  t.equal((await gateway.query(local, eve)).status, 200);
  t.equal(codeOf(await gateway.query(select, eve)), "403 no_grant");
  const outsider = await signCi({ sub: "x", groups: ["engineering", "staff:engineering"] });
  t.equal(codeOf(await gateway.query(select, outsider)), "403 no_grant", "no groups_claim");
  const shop = { Select: { database: "shop", from: "t", columns: ["id"] } };
  const tenant = { sub: "dan", groups: ["tenants"], tenant_id: "acme" };
  upstream.take();
  t.equal((await gateway.query(shop, await sign(tenant))).status, 200);
  t.match(upstream.takeOne().body.toString(), '"acme"');
  const without = await sign({ ...tenant, tenant_id: undefined });
  t.equal(codeOf(await gateway.query(shop, without)), "403 attribute_missing");
  upstream.take();
});

t.test("a boundary for a client applies to the client of a token, at each route", async (t) => {
  const before = textOf(gateway);
  const boundary = '[[boundaries]]\nvia = "query"\nclient = "app"\nrole = "None"\n';
  await putInForce(gateway, `${before}\n${boundary}`);
  const tokens = {
    azp: await sign({ azp: "app" }),
    client_id: await sign({ azp: "other", client_id: "app" }),
    "azp beside null": await sign({ azp: "app", client_id: null }),
  };
  for (const [claim, token] of Object.entries(tokens)) {
    const answer = await gateway.query(select, token);
    t.equal(codeOf(answer), "403 role_insufficient", claim);
    const operations = [{ boundary: "query client=app" }];
    t.match(await auditOf(gateway, answer), { client: "app", operations });
    t.equal(codeOf(await gateway.get("/db/main/stats", token)), "403 role_insufficient");
  }
  t.equal((await gateway.query(select, await sign({ azp: "other" }))).status, 200);
  t.equal((await gateway.query(select, await sign({ azp: undefined }))).status, 200);
  t.equal((await gateway.query(select, root)).status, 200);
  await putInForce(gateway, before);
  upstream.take();
});

t.test("names beyond ASCII reach the upstream percent-encoded", async (t) => {
  t.equal((await gateway.query(select, await sign({ sub: "Zoë Ç" }))).status, 200);
  const name = upstream.takeOne().headers["x-gatehouse-user"];
  t.equal(name, "staff:Zo%C3%AB %C3%87");
  t.equal(decodeURIComponent(String(name)), "staff:Zoë Ç");
});

t.test("a record of the user disables it and ends its tokens", async (t) => {
  const token = await sign({ sub: "Zoë Ç", jti: "z-1" });
  t.equal((await gateway.query(select, token)).status, 200);
  await gateway.edit((text_) => text_ + user("staff:Zoë Ç", "disabled = true"));
  await eventually("it is in force", async () => {
    return codeOf(await gateway.query(select, token)) === "401 token_revoked";
  });
  upstream.take();
});

t.test("token explain says what the gateway makes of a token", async (t) => {
  const explain = async (token: string, ...flags: string[]) => {
    const { code, stdout, stderr } = await runWarm(gateway.home, [
      "token",
      "explain",
      token,
      ...flags,
    ]);
    if (stdout === "") throw new Error(stderr);
    return { code, stdout };
  };
  const view = async (token: string) => JSON.parse((await explain(token, "--json")).stdout);
  const token = await sign({ groups: ["engineering"], tenant_id: "acme" });
  t.match(await view(token), {
    verdict: "accepted",
    issuer: staff.url,
    prefix: "staff",
    opens: ["query"],
    user: "staff:alice",
    groups: ["staff:engineering"],
    attributes: { tenant: "acme" },
    key: "first",
    algorithm: "ES256",
    claims: { aud: "gatehouse", tenant_id: "acme" },
    entries: [{ entry: "main", role: "ReadOnly" }],
  });
  const text_ = (await explain(token)).stdout;
  t.match(text_, "verdict: accepted\n");
  t.match(text_, "entry: ReadOnly on main");
  t.match(text_, "claim sub: alice\n");
  const odd = await sign({ groups: ["R&D, EU", "x".repeat(201), "a\u0308"] });
  t.match(await view(odd), {
    groups: ["staff:R&D, EU"],
    ignored_groups: 2,
    ignored_group_names: ["x".repeat(201), "a\u0308"],
  });
  const stranger = await sign({ sub: "stranger", groups: ["", "ok"] });
  const noGrant = { code: "no_grant", groups: ["staff:ok"], ignored_group_names: [""] };
  t.match(await view(stranger), noGrant);
  staff.raw.set("/keys", { body: "\u{feff}{}" });
  const cause = `${staff.origin}/keys begins with a byte-order mark, which JSON does not allow`;
  t.match(await view(token), { code: "issuer_unreachable", detail: "unreachable", cause });
  t.match((await explain(token)).stdout, `cause: "${cause}"\n`);
  staff.raw.clear();
  const wrong = await sign({ aud: "another" });
  t.equal((await explain(wrong)).code, 1);
  t.match(await view(wrong), {
    verdict: "refused",
    code: "token_invalid",
    detail: "wrong_audience",
  });
  t.match(await view(root), { verdict: "accepted", issuer: "gatehouse", user: "root" });
  t.match(await view("never-asked"), { verdict: "unknown", prefix: "staff" });
  t.match(await view(await sign({ iss: "https://evil.example" })), { detail: "unknown_issuer" });
});
