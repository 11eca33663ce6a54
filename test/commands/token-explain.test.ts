import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import path from "node:path";
import t from "tap";
import { grant, groupGrant } from "../access/kit.ts";
import { encodePart } from "../identity/forge.ts";
import { passwordOf, staffedHome, succeed, tokenOf } from "../journeys/staff.ts";
import { freePort } from "../kit/free-port.ts";
import { startGateway, temporaryHome, writeConfiguration } from "../kit/gateway.ts";
import { listening } from "../kit/listening.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { runWarm } from "../kit/warm-command.ts";
import { PlainBrowser } from "../oauth/browser.ts";
import { allowAll, obtainTokens, signInAt } from "../oauth/flow.ts";
import { IdentityProvider } from "../oauth/identity-provider.ts";
import { registered } from "../oauth/kit.ts";

const provider = await IdentityProvider.start(t, { sub: "ann", groups: ["engineering"] });
let questions = 0;
const endpoint = createServer((_, response) => {
  questions++;
  response.end('{"active":false}');
});
const asks = `http://127.0.0.1:${await listening(t, endpoint)}/introspect`;
const secretFile = path.join(temporaryHome(t), "secret");
writeFileSync(secretFile, provider.clientSecret, { mode: 0o600 });
const rights = `${grant("alice", "main", "ReadWrite")}${grant("alice", "archive", "ReadOnly")}
${groupGrant("staff:engineering", "main", "ReadOnly")}
`;
const port = await freePort();
const config = `
[server]
port = ${port}
[[issuers]]
issuer = "${provider.url}"
prefix = "staff"
opens = ["query"]
audience = "gatehouse"
groups_claim = "groups"
introspection = { url = "${asks}", client_id = "gatehouse", client_secret_file = "${secretFile}" }
login = { client_id = "gatehouse", client_secret_file = "${secretFile}", label = "Sign in" }
`;
const upstream = await new RecordingUpstream().listen(t);
const gateway = await startGateway(t, {
  home: await staffedHome(t, ["root * Owner", "alice app ReadOnly"], rights),
  port,
  config,
  upstream: upstream.url,
});
await provider.open({ redirectUris: [`${gateway.url}/oauth/callback/staff`] });

async function explain(token: string, home = gateway.home) {
  const { code, stdout, stderr } = await runWarm(home, ["token", "explain", token, "--json"]);
  if (stdout === "") throw new Error(stderr);
  return { exit: code, ...JSON.parse(stdout) };
}

t.test("token explain shows user, limits and entries of an app's access token", async (t) => {
  const clientId = await registered(gateway);
  const { accessToken } = await obtainTokens(gateway, {
    clientId,
    username: "alice",
    password: passwordOf("alice"),
    database: "main",
    reach: "read",
  });
  t.match(await explain(accessToken), {
    exit: 0,
    verdict: "accepted",
    issuer: gateway.url,
    opens: ["mcp"],
    user: "alice",
    client: clientId,
    database: "main",
    read_only: true,
    type: "at+jwt",
    scopes: ["mcp:tools", "mcp:resources"],
    claims: { sub: "alice", grant: String },
    entries: [
      { entry: "app", role: "ReadOnly" },
      { entry: "main", role: "ReadWrite" },
      { entry: "archive", role: "ReadOnly" },
    ],
  });
  const forged = `${accessToken.slice(0, accessToken.lastIndexOf("."))}.${"A".repeat(86)}`;
  t.match(await explain(forged), { exit: 1, verdict: "refused", claims: { sub: "alice" } });
  t.equal((await runWarm(gateway.home, ["token", "revoke", "--client", clientId])).code, 0);
  const revoked = { verdict: "refused", code: "token_revoked", detail: "grant_revoked" };
  t.match(await explain(accessToken), revoked);
  const elsewhere = await staffedHome(t, ["alice main ReadWrite"]);
  writeConfiguration(elsewhere, { config });
  t.match(await explain(accessToken, elsewhere), { verdict: "refused", detail: "unknown_key" });
});

t.test("token explain shows the groups of a sign-in and asks the provider nothing", async (t) => {
  const browser = new PlainBrowser(gateway.url, provider.url);
  const signedIn = await signInAt(gateway, browser);
  const { accessToken } = await allowAll(gateway, browser, signedIn);
  const requests = provider.requests.length;
  t.match(await explain(accessToken), {
    verdict: "accepted",
    user: "staff:ann",
    groups: ["staff:engineering"],
    entries: [{ entry: "main", role: "ReadOnly", group: "staff:engineering" }],
  });
  t.equal(provider.requests.length, requests);
});

t.test("token explain shows user and entries of a login token", async (t) => {
  const token = await tokenOf(gateway, "alice", "main");
  t.match(await explain(token), {
    exit: 0,
    verdict: "accepted",
    issuer: "gatehouse",
    user: "alice",
    database: "main",
    type: "JWT",
    claims: { sub: "alice", aud: "gatehouse" },
    entries: [{ entry: "app" }, { entry: "main", role: "ReadWrite" }, { entry: "archive" }],
  });
  await succeed(gateway.send("POST", "/logout", undefined, token));
  t.match(await explain(token), { verdict: "refused", detail: "revoked" });
});

t.test(
  "token explain sends an opaque token nowhere, and names the issuer that would know",
  async (t) => {
    const known = {
      verdict: "unknown",
      issuer: provider.url,
      prefix: "staff",
      opens: ["query"],
      asks,
      note: `an opaque token: only introspection by ${provider.url} would tell, which was not asked`,
    };
    for (const token of ["ya29.opaque", "a.b.c"]) {
      t.match(await explain(token), { exit: 0, ...known, claims: undefined }, token);
    }
    t.equal(questions, 0);
    const without = await staffedHome(t, ["alice main ReadWrite"]);
    const note = "an opaque token, and no issuer has introspection";
    const refused = { code: "token_invalid", verdict: "refused", detail: "no_jwt", note };
    t.match(await explain("opaque", without), refused);
  },
);

t.test("claims cannot write to the terminal", async (t) => {
  const clear = "\u009b2J\u001b[2J\u202e";
  const claims = { iss: clear, [clear]: clear, list: [clear], deep: { list: [clear] } };
  const token = [{ alg: clear, kid: clear, typ: clear }, claims].map(encodePart).join(".");
  const { stdout } = await runWarm(gateway.home, ["token", "explain", `${token}.AAAA`]);
  t.match(stdout, "claim deep: ");
  t.notMatch(stdout.replaceAll("\n", ""), /[\p{Cc}\p{Cf}]/u);
});

t.test("token explain knows opaque tokens, also those that have ended", async (t) => {
  const before = questions;
  const flags = ["token", "issue", "alice", "--opaque", "--name", "ci", "--database", "main"];
  const token = (await runWarm(gateway.home, flags)).stdout.trim();
  const found = await explain(token);
  t.match(found, {
    exit: 0,
    verdict: "accepted",
    issuer: "gatehouse",
    type: "opaque",
    name: "ci",
    user: "alice",
    database: "main",
    entries: [{ entry: "app" }],
  });
  t.equal((await runWarm(gateway.home, ["token", "revoke", found.token])).code, 0);
  t.match(await explain(token), {
    exit: 1,
    verdict: "refused",
    code: "token_revoked",
    name: "ci",
    user: "alice",
    token: found.token,
  });
  const unknown = { exit: 1, code: "token_invalid", note: /no token of the inventory/ };
  t.match(await explain(token.slice(0, -1)), unknown);
  t.equal(questions, before, "no issuer was asked");
});
