import { writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { grant } from "../access/kit.ts";
import { startGateway, temporaryHome } from "../kit/gateway.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { statelessCall } from "../mcp/messages.ts";
import { PlainBrowser } from "../oauth/browser.ts";
import { exchange } from "../oauth/flow.ts";
import { IdentityProvider } from "../oauth/identity-provider.ts";
import { authorizeUrl, makePkce, REDIRECT, registered } from "../oauth/kit.ts";
import { callTool, refusalOf, send } from "./mcp.ts";
import { staffedHome } from "./staff.ts";

const provider = await IdentityProvider.start(
  t,
  { sub: "ann", groups: ["engineering"], tenant_id: "acme" },
  { sub: "bob", groups: [] },
);
const secretFile = path.join(temporaryHome(t), "secret");
writeFileSync(secretFile, provider.clientSecret, { mode: 0o600 });
const rights = `${grant("staff:bob", "archive", "ReadOnly")}
[[acl]]
group = "staff:engineering"
database = "main"
role = "ReadOnly"
`;
const upstream = await new RecordingUpstream().listen(t);
const gateway = await startGateway(t, {
  upstream: upstream.url,
  home: await staffedHome(t, ["root * Owner"], rights),
  config: `
[[issuers]]
issuer = "${provider.url}"
prefix = "staff"
opens = ["mcp"]
groups_claim = "groups"
login = { client_id = "gatehouse", client_secret_file = "${secretFile}", label = "Sign in with Example", recheck = 1 }
`,
});
await provider.open({ redirectUris: [`${gateway.url}/oauth/callback/staff`] });

async function tokensOf(browser = new PlainBrowser(gateway.url, provider.url)) {
  const clientId = await registered(gateway);
  const { verifier, challenge } = makePkce();
  let page = await browser.open(
    authorizeUrl(gateway, { client_id: clientId, code_challenge: challenge }),
  );
  const [, link = ""] = /href="(\/oauth\/sign-in\/staff[^"]*)"/.exec(page.text) ?? [];
  page = await browser.open(gateway.url + link);
  page = await browser.submit(page, { database: "*", reach: "full", action: "allow" });
  const callback = new URL(page.url);
  const { body } = await exchange(gateway, { clientId, verifier, callback, redirectUri: REDIRECT });
  return {
    accessToken: String(body.access_token),
    refreshToken: String(body.refresh_token),
    clientId,
  };
}

const select = { database: "main", from: "t", columns: ["*"] };

t.test(
  "an MCP client signs in through the provider and has the rights of its groups",
  async (t) => {
    provider.user = "ann";
    const { accessToken } = await tokensOf();
    t.match(await callTool(gateway, "select", select, accessToken), { isError: undefined });
    process.stderr.write(
      String(await refusalOf(await send(gateway, statelessCall("tools/list"), accessToken))),
    );
  },
);
