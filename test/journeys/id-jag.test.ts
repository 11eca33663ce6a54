import { randomUUID } from "node:crypto";
import { writeFileSync } from "node:fs";
import path from "node:path";
import {
  Client,
  CrossAppAccessProvider,
  createPrivateKeyJwtAuth,
  StreamableHTTPClientTransport,
} from "@modelcontextprotocol/client";
import { exportJWK } from "jose";
import t from "tap";
import { groupGrant } from "../access/kit.ts";
import { freePort } from "../kit/free-port.ts";
import { startGateway, temporaryHome } from "../kit/gateway.ts";
import { runWarm } from "../kit/warm-command.ts";
import { statelessCall } from "../mcp/messages.ts";
import { openDocumentHost } from "../oauth/document-host.ts";
import { makeKey, TestIssuer } from "../oauth/issuer.ts";
import { callTool, refusalOf, send } from "./mcp.ts";
import { soon, staffedHome, succeed, tokenOf } from "./staff.ts";

const rights = `
${groupGrant("staff:engineering", "main", "ReadOnly")}
`;
const issuer = await TestIssuer.start(t);
const host = await openDocumentHost(t);
const authority = path.join(temporaryHome(t), "authority.pem");
writeFileSync(authority, host.cert);
const options = {
  home: await staffedHome(t, ["root * Owner"], rights),
  port: await freePort(),
  env: { NODE_EXTRA_CA_CERTS: authority },
};
const configuration = `
[mcp]
private_client_hosts = ["${host.host}"]

${issuer.section('groups_claim = "groups"')}`;
const gateway = await startGateway(t, { ...options, config: `${configuration}id_jag = true\n` });
const root = await tokenOf(gateway, "root");
await gateway.query({ CreateDatabase: { database: "main" } }, root);
const columns = [{ name: "id", type: "int", primary_key: true }];
await gateway.query({ CreateTable: { database: "main", table: "t", columns } }, root);

const clientId = `${host.url}/agent.json`;
const { jwk, privateKey, alg, kid } = await makeKey("agent");
host.served.set("/agent.json", {
  document: {
    client_id: clientId,
    client_name: "Agent",
    jwks_uri: `${host.url}/keys.json`,
    grant_types: ["urn:ietf:params:oauth:grant-type:jwt-bearer"],
    token_endpoint_auth_method: "private_key_jwt",
  },
});
host.served.set("/keys.json", { document: { keys: [jwk] } });

const select = { database: "main", from: "t", columns: ["*"] };

/** An MCP client whose company's provider answers for its user. */
async function connect(groups: readonly string[]) {
  const provider = new CrossAppAccessProvider({
    clientId,
    clientSecret: "unused",
    expectedIssuer: gateway.url,
    assertion: ({ authorizationServerUrl, resourceUrl, scope }) =>
      issuer.sign(authorizationServerUrl, {
        header: { typ: "oauth-id-jag+jwt" },
        claims: { resource: resourceUrl, client_id: clientId, groups, jti: randomUUID(), scope },
      }),
  });
  const addClientAuthentication = createPrivateKeyJwtAuth({
    issuer: clientId,
    subject: clientId,
    alg,
    privateKey: await exportJWK(privateKey),
    claims: { kid },
  });
  const authProvider = Object.assign(provider, { addClientAuthentication });
  const url = new URL(`${gateway.url}/mcp`);
  const client = new Client({ name: "agent", version: "1.0.0" });
  await client.connect(new StreamableHTTPClientTransport(url, { authProvider }));
  t.teardown(() => client.close());
  return { client, token: provider.tokens()?.access_token ?? "", tokens: provider.tokens() };
}

t.test("a client library connects without a browser, with the rights of the groups", async (t) => {
  const { client, token, tokens } = await connect(["engineering"]);
  t.equal(tokens?.refresh_token, undefined);
  t.match(await client.callTool({ name: "select", arguments: select }), { isError: undefined });
  const drop = await callTool(gateway, "drop_table", { database: "main", table: "t" }, token);
  t.equal(refusalOf(drop), "role_insufficient", "the group's role decides");
  await t.rejects(connect(["sales"]), /invalid_grant|grant request is invalid/);

  const listed = await runWarm(gateway.home, ["token", "list", "--json"]);
  const own = { username: "staff:alice", client: clientId, app: "Agent", database: "*" };
  t.match(JSON.parse(listed.stdout).apps, [own]);
});

t.test("the id of a token ends it", async (t) => {
  const { token } = await connect(["engineering"]);
  const list = () => send(gateway, statelessCall("tools/list"), token);
  t.equal((await list()).status, 200);
  const { jti } = JSON.parse(Buffer.from(token.split(".")[1] ?? "", "base64url").toString());
  const ended = await runWarm(gateway.home, ["token", "revoke", jti]);
  t.equal(ended.code, 0, ended.stderr);
  await soon(t, "refused", async () => (await list()).status === 401);
});

t.test("an assertion opens no door itself", async (t) => {
  const claims = { aud: [gateway.url, "gatehouse"], groups: ["engineering"] };
  const bearer = await issuer.sign("", { claims, header: { typ: "oauth-id-jag+jwt" } });
  t.equal((await send(gateway, statelessCall("tools/list"), bearer)).status, 401);
  const answer = await gateway.query({ Select: select }, bearer);
  t.match(answer, { status: 401, body: { code: "token_invalid" } });
  await succeed(gateway.query({ Select: select }, await tokenOf(gateway, "root")));
});

t.test("a token of an assertion ends where assertions are accepted no more", async (t) => {
  const { client, token } = await connect(["engineering"]);
  await client.close();
  await gateway.service.stop();
  const again = await startGateway(t, { ...options, config: configuration });
  t.equal(refusalOf(await send(again, statelessCall("tools/list"), token)), "token_revoked");
});
