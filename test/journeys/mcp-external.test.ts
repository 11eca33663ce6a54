import { createServer } from "node:http";
import Provider from "oidc-provider";
import t, { type Test } from "tap";
import { grant } from "../access/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { auditOf, startGateway, type TestGateway } from "../kit/gateway.ts";
import { listening } from "../kit/listening.ts";
import { tables } from "../kit/tables.ts";
import { runWarm } from "../kit/warm-command.ts";
import { statelessCall } from "../mcp/messages.ts";
import { TestIssuer } from "../oauth/issuer.ts";
import { reserveMetrics } from "../observe/exposition.ts";
import { callTool, refusalOf, send } from "./mcp.ts";
import { soon, staffedHome, textOf, tokenOf } from "./staff.ts";

const list = statelessCall("tools/list");
const select = { database: "main", from: "t", columns: ["*"] };
const url = "https://gate.example.com";
const resource = `${url}/mcp`;

async function open(t: Test, issuers: Readonly<Record<string, string>>, config = "") {
  const servers = tables(
    "mcp.authorization_servers",
    Object.entries(issuers).map(([prefix, issuer]) => ({ issuer, prefix })),
  );
  const alice = grant("staff:alice", "main", "ReadWrite");
  const gateway = await startGateway(t, {
    home: await staffedHome(t, ["root * Owner"], alice),
    config: `[server]\npublic_url = "${url}"\n${servers}${config}`,
  });
  const root = await tokenOf(gateway, "root");
  await gateway.query({ CreateDatabase: { database: "main" } }, root);
  const columns = [{ name: "id", type: "int", primary_key: true }];
  await gateway.query({ CreateTable: { database: "main", table: "t", columns } }, root);
  return gateway;
}

async function run({ home }: TestGateway, words: string): Promise<string> {
  const { code, stdout, stderr } = await runWarm(home, words.split(" "));
  if (code !== 0) throw new Error(stderr);
  return stdout;
}

const issuer = await TestIssuer.start(t);
const gateway = await open(t, { staff: issuer.url });

t.test("users of an external issuer log in with its tokens and have their grants", async (t) => {
  const metadata = await gateway.request("/.well-known/oauth-protected-resource/mcp");
  t.match(metadata.body, { resource, authorization_servers: [issuer.url] });
  const own = await gateway.request("/.well-known/oauth-authorization-server");
  t.equal(own.status, 404, "there is one answer to where tokens come from");
  t.equal((await gateway.request("/oauth/authorize")).status, 404);

  const token = await issuer.sign(resource, { claims: { jti: "j-1" } });
  const answer = await callTool(gateway, "select", select, token);
  t.equal(refusalOf(answer), undefined);
  t.match(await auditOf(gateway, answer), {
    user: "staff:alice",
    tokenId: "j-1",
    decision: "allow",
    operations: [{ operation: "Select", database: "main", role: "ReadWrite" }],
  });
  const drop = await callTool(gateway, "drop_table", { database: "main", table: "t" }, token);
  t.equal(refusalOf(drop), "role_insufficient");
  const login = await tokenOf(gateway, "root");
  t.equal((await send(gateway, list, login)).status, 200, "login tokens go on working");
  t.equal((await gateway.query({ Select: select }, token)).status, 401, "on /mcp alone");
  const refused = await send(gateway, list, await issuer.sign(`${gateway.url}/mcp`));
  t.equal(refusalOf(refused), "token_invalid", "its address is another audience");
  const described = `${url}/.well-known/oauth-protected-resource/mcp`;
  const challenge = `Bearer realm="mcp", resource_metadata="${described}", error="invalid_token", scope="mcp:tools mcp:resources"`;
  t.equal(refused.headers.get("www-authenticate"), challenge);
});

t.test("an unreachable issuer is answered with 503 until it is back", async (t) => {
  const issuer = await TestIssuer.start(t);
  const { section, value } = await reserveMetrics();
  const gateway = await open(t, { staff: issuer.url }, section);
  const isTold = async (state: string, reachable: number) => {
    const { status, body } = await gateway.request("/readyz");
    t.equal(status, 200);
    t.strictSame(body.issuers, { staff: state });
    t.strictSame(await value('gatehouse_issuer_reachable{issuer="staff"}'), reachable, state);
  };
  await isTold("unused", Number.NaN);
  const token = await issuer.sign(resource);
  await issuer.stop();
  const answer = await send(gateway, list, token);
  t.equal(answer.status, 503);
  t.equal(refusalOf(answer), "issuer_unreachable");
  t.equal(answer.headers.get("retry-after"), "2");
  t.equal(answer.headers.get("www-authenticate"), null, "it is not the token's fault");
  await gateway.service.logged(({ msg }) => msg === "an authorization server is unreachable");
  await isTold("unreachable", 0);
  t.equal((await send(gateway, list, await tokenOf(gateway, "root"))).status, 200);
  await issuer.listen();
  await eventually("it works", async () => (await send(gateway, list, token)).status === 200);
  await isTold("ok", 1);
  await issuer.stop();
  t.equal((await send(gateway, list, token)).status, 200, "keys are remembered");
});

t.test("token revoke accepts every id of an external token that the audit shows", async (t) => {
  const upper = "0B9C3BD1-8F3F-4A57-9A3C-5F3D3A1C7A43";
  for (const jti of [undefined, "urn:x/7", upper, upper.toLowerCase(), "x".repeat(300)]) {
    const token = await issuer.sign(resource, { claims: { jti } });
    const { tokenId } = await auditOf(gateway, await send(gateway, list, token));
    await run(gateway, `token revoke ${tokenId}`);
    await soon(t, `${tokenId} is revoked`, async () => {
      return refusalOf(await send(gateway, list, token)) === "token_revoked";
    });
  }
  const other = await issuer.sign(resource, { claims: { jti: "another" } });
  t.equal(refusalOf(await send(gateway, list, other)), undefined);
  const { code, stderr } = await runWarm(gateway.home, ["token", "revoke", other]);
  t.match({ code, stderr }, { code: 2, stderr: "this is a token; give only its id" });
});

/** A certified authorization server with one machine client. */
async function openProvider(t: Test): Promise<string> {
  const server = createServer();
  const issuer = `http://127.0.0.1:${await listening(t, server)}`;
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: "alice",
        client_secret: "a secret of some length",
        grant_types: ["client_credentials"],
        redirect_uris: [],
        response_types: [],
      },
    ],
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: false },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: () => ({
          scope: "mcp:tools mcp:resources",
          audience: resource,
          accessTokenFormat: "jwt",
          accessTokenTTL: 600,
          jwt: { sign: { alg: "RS256" } },
        }),
      },
    },
  });
  server.on("request", provider.callback());
  return issuer;
}

t.test("a token of a certified authorization server is accepted at /mcp", async (t) => {
  const issuer = await openProvider(t);
  const gateway = await open(t, { staff: issuer });
  const answer = await fetch(`${issuer}/token`, {
    method: "POST",
    headers: {
      authorization: `Basic ${Buffer.from("alice:a+secret+of+some+length").toString("base64")}`,
    },
    body: new URLSearchParams({
      grant_type: "client_credentials",
      scope: "mcp:tools",
      resource,
    }),
  });
  const body: unknown = await answer.json();
  const isTokens = typeof body === "object" && body !== null && "access_token" in body;
  const token = isTokens ? String(body.access_token) : "";
  t.equal(refusalOf(await callTool(gateway, "select", select, token)), undefined);
  const resources = await send(gateway, statelessCall("resources/list"), token);
  t.equal(refusalOf(resources), "insufficient_scope");
});

t.test("external users without a record can be listed and disabled", async (t) => {
  const codeOf = async (token: string) => refusalOf(await send(gateway, list, token));
  const root = await tokenOf(gateway, "root");
  const patch = (name: string, disabled: boolean) =>
    gateway.send("PATCH", `/api/users/${name}`, { disabled }, root);
  const view = { username: "staff:alice", email: null, disabled: false, external: true };
  const access = [{ database: "main", role: "ReadWrite" }];
  const listed = async () => (await gateway.send("GET", "/api/users", undefined, root)).body.users;
  t.match(await listed(), [
    { username: "root", external: undefined },
    { ...view, access },
  ]);
  t.match(JSON.parse(await run(gateway, "user list --json")), [{}, { ...view, access }]);

  const token = await issuer.sign(resource);
  t.equal(await codeOf(token), undefined);
  t.equal((await patch("staff:alice", false)).status, 200, "it is enabled already");
  t.notMatch(textOf(gateway), '[[users]]\nusername = "staff:alice"');
  t.match((await patch("staff:alice", true)).body.user, { ...view, disabled: true, access });
  t.equal(await codeOf(token), "token_revoked");
  t.equal((await patch("staff:alice", false)).status, 200);
  t.equal(await codeOf(token), "token_revoked", "permanently");
  const iat = Math.floor(Date.now() / 1000) + 3;
  t.equal(await codeOf(await issuer.sign(resource, { claims: { iat } })), undefined, "a new one");
  t.match(await listed(), [{}, { ...view, access }], "with a record now, and once");

  await run(gateway, "user disable staff:bob");
  await run(gateway, "user set staff:carl --attribute tenant=acme");
  const users = JSON.parse(await run(gateway, "user list --json"));
  t.match(users.at(-2), { username: "staff:bob", disabled: true, external: true });
  t.match(users.at(-1), { username: "staff:carl", attributes: { tenant: "acme" } });
  for (const name of ["stuff:bob", "bob"]) {
    t.equal((await patch(name, true)).body.code, "user_not_found", `${name} is unknown`);
    const { code, stderr } = await runWarm(gateway.home, ["user", "disable", name]);
    t.match({ code, stderr }, { code: 1, stderr: `User not found: ${name}` });
  }

  const content = { new_password: "a new password" };
  const password = await gateway.send("PUT", "/api/users/staff:bob/password", content, root);
  t.match(password, { status: 400, body: { code: "external_user" } });
  const reason = "The identity provider manages this user's password";
  for (const words of ["password staff:bob", "password staff:nobody"]) {
    const { code, stderr } = await runWarm(gateway.home, ["user", ...words.split(" ")]);
    t.match({ code, stderr }, { code: 1, stderr: reason }, "nothing is asked for");
  }
  const added = await runWarm(gateway.home, ["user", "add", "staff:eve"]);
  t.match(added, { code: 1, stderr: "add this user with --no-password" });
});
