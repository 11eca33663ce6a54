/** Follows docs/connect-keycloak.md with a real Keycloak, where Java and Maven are installed. */
import { writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { consoleConfig } from "../console/kit.ts";
import { callTool, refusalOf, send } from "../journeys/mcp.ts";
import { staffedHome } from "../journeys/staff.ts";
import { eventually } from "../kit/eventually.ts";
import { auditOf, startGateway, type TestGateway } from "../kit/gateway.ts";
import { type Keycloak, missingProgram, REDIRECT_URI, startKeycloak } from "../kit/keycloak.ts";
import { readPage } from "../kit/page.ts";
import { runInShell } from "../kit/shell.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { statelessCall } from "../mcp/messages.ts";
import { PlainBrowser } from "../oauth/browser.ts";
import { allowAll, signInAt } from "../oauth/flow.ts";

const page = readPage("connect-keycloak.md");
const select = { Select: { database: "main", from: "orders", columns: ["*"] } };
const list = statelessCall("tools/list");
const password = "a password of a test";
const settings: Readonly<Record<string, string>> = {
  "Included Client Audience": "included.client.audience",
  "Token Claim Name": "claim.name",
  "Full group path": "full.path",
  "Add to access token": "access.token.claim",
};

interface Mapper {
  readonly id: string;
  readonly name: string;
  readonly properties: { readonly name: string; readonly defaultValue?: string }[];
}

/** The mappers of the page's table, with the defaults of the admin console. */
async function mappersOf(keycloak: Keycloak) {
  const info = await keycloak.read<{ protocolMapperTypes: Record<string, Mapper[]> }>(
    "/serverinfo",
  );
  const types = info.protocolMapperTypes["openid-connect"] ?? [];
  const mappers = new Map<string, Record<string, string>>();
  for (const [name = "", setting = "", value = ""] of page.rows("Mapper", "Setting", "Value")) {
    const key = settings[setting];
    if (key === undefined) throw new Error(`the test does not know the setting ${setting}`);
    const written = { On: "true", Off: "false" }[value] ?? value;
    mappers.set(name, { ...mappers.get(name), [key]: written });
  }
  return Array.from(mappers, ([name, config]) => {
    const type = types.find((one) => one.name === name);
    if (type === undefined) throw new Error(`Keycloak has no mapper ${name}`);
    const defaults = type.properties.flatMap(({ name, defaultValue }) =>
      defaultValue === undefined ? [] : [[name, String(defaultValue)]],
    );
    const all = { ...Object.fromEntries(defaults), ...config };
    return { name, protocol: "openid-connect", protocolMapper: type.id, config: all };
  });
}

interface Realm {
  readonly keycloak: Keycloak;
  readonly alice: string;
  readonly analysts: string;
  readonly secret: string;
  readonly gatehouse: string;
  readonly scope: string;
}

/** The steps of "Configure Keycloak" and "Check it". */
async function configure(keycloak: Keycloak): Promise<Realm> {
  const closed = { publicClient: false, standardFlowEnabled: false };
  const secret = "secret of the gateway";
  const gatehouse = await keycloak.create("clients", { clientId: "gatehouse", ...closed, secret });
  const mappers = await mappersOf(keycloak);
  const createScope = async (name: string, isVisible: boolean) => {
    const attributes = { "include.in.token.scope": String(isVisible) };
    const content = { name, protocol: "openid-connect", attributes };
    const id = await keycloak.create("client-scopes", content);
    for (const mapper of mappers) {
      await keycloak.create(`client-scopes/${id}/protocol-mappers/models`, mapper);
    }
    return id;
  };
  const scope = await createScope("gatehouse", false);
  for (const name of ["mcp:tools", "mcp:resources"]) {
    const id = await createScope(name, true);
    await keycloak.put(`default-optional-client-scopes/${id}`);
  }
  const analysts = await keycloak.create("groups", { name: "analysts" });
  const createClient = async (clientId: string, more: object) => {
    const own = { clientId, publicClient: false, secret: `${clientId} secret` };
    return keycloak.create("clients", { ...own, redirectUris: [REDIRECT_URI], ...more });
  };
  const app = await createClient("app", {});
  await createClient("another", {});
  const reports = await createClient("reports", { serviceAccountsEnabled: true });
  for (const client of [app, reports]) {
    await keycloak.put(`clients/${client}/default-client-scopes/${scope}`);
  }
  const place = `/realms/${keycloak.realm}/clients/${reports}/service-account-user`;
  const account = await keycloak.read(place);
  await keycloak.put(`users/${account.id}/groups/${analysts}`);
  const alice = await keycloak.create("users", {
    username: "alice",
    enabled: true,
    email: "alice@example.com",
    emailVerified: true,
    firstName: "Alice",
    lastName: "Example",
    credentials: [{ type: "password", value: password, temporary: false }],
  });
  await keycloak.put(`users/${alice}/groups/${analysts}`);
  return { keycloak, alice, analysts, secret, gatehouse, scope };
}

/** @param more blocks of configuration after the issuer */
async function openGateway(
  t: Test,
  { keycloak, secret }: Realm,
  { more = "", change = (config: string) => config, access = page.access } = {},
) {
  const home = await staffedHome(t, ["root * Owner"], access);
  const file = path.join(home, "client-secret");
  writeFileSync(file, secret, { mode: 0o600 });
  const config = change([...page.configuration, more].join("\n"))
    .replaceAll("https://login.example.com", keycloak.url)
    .replaceAll(/^client_secret_file = ".*"$/gm, `client_secret_file = "${file}"`)
    .replace(/^cache = .*$/m, "cache = 1");
  const upstream = await new RecordingUpstream().listen(t);
  return startGateway(t, { home, upstream: upstream.url, config });
}

const tokensOf = async ({ keycloak }: Realm, id = "app", scope = "openid") =>
  keycloak.tokensOf("alice", password, { id, secret: `${id} secret`, scope });

async function detailOf(gateway: TestGateway, token: string): Promise<unknown> {
  const answer = await gateway.query(select, token);
  if (answer.status === 200) return 200;
  const { detail, reason } = await auditOf(gateway, answer);
  return `${answer.status} ${detail ?? reason}`;
}

/** Signs in on the login page of the gateway, as an MCP client has it opened. @returns a token */
async function signIn(keycloak: Keycloak, gateway: TestGateway): Promise<string> {
  const browser = new PlainBrowser(gateway.url);
  const begun = await signInAt(gateway, browser);
  const back = await keycloak.signIn(begun.page.url, "alice", password);
  const page = await browser.open(back.href);
  return (await allowAll(gateway, browser, { ...begun, page })).accessToken;
}

async function play(t: Test): Promise<void> {
  const realm = await configure(await startKeycloak(t, "staff"));
  const { keycloak, alice, analysts } = realm;
  const gateway = await openGateway(t, realm);

  await t.test("a group of a user gives rights at both doors", async (t) => {
    const { access_token: token } = await tokensOf(realm, "app", "openid mcp:tools");
    const answer = await gateway.query(select, token);
    t.equal(answer.status, 200, answer.text);
    t.match(await auditOf(gateway, answer), {
      user: `staff:${alice}`,
      client: "app",
      issuer: undefined,
      operations: [{ role: "ReadOnly", entry: "main (group staff:/analysts)" }],
    });
    t.equal(refusalOf(await send(gateway, list, token)), undefined);
    const { access_token: narrow } = await tokensOf(realm);
    t.equal(refusalOf(await send(gateway, list, narrow)), "insufficient_scope");
  });

  await t.test("the commands of the page print what they say", async (t) => {
    const commands = [...page.code("sh"), ...readPage("issuers.md").code("sh")].join("\n");
    const script = commands.replaceAll("https://login.example.com", keycloak.url);
    const printed = await runInShell(gateway, script, { SECRET: "reports secret" });
    t.match(printed, /^verdict: accepted$/m);
    t.match(printed, "entry: ReadOnly on main (group staff:/analysts)\n");
    t.match(printed, /^\{"status":"success"/m);
  });

  await t.test("tokens for others and ID tokens are refused", async (t) => {
    const another = await tokensOf(realm, "another");
    t.equal(await detailOf(gateway, another.access_token), "401 wrong_audience");
    t.equal(await detailOf(gateway, another.id_token), "401 wrong_audience");
    const { id_token: id } = await tokensOf(realm);
    t.equal(await detailOf(gateway, id), "401 wrong_audience");
  });

  await t.test("the next token of a user who left a group has no rights of it", async (t) => {
    const { access_token: before } = await tokensOf(realm);
    const others = await keycloak.create("groups", { name: "others" });
    await keycloak.put(`users/${alice}/groups/${others}`);
    await keycloak.remove(`users/${alice}/groups/${analysts}`);
    t.equal(await detailOf(gateway, before), 200, "until it expires");
    t.equal(await detailOf(gateway, (await tokensOf(realm)).access_token), "403 no_grant");
    await keycloak.remove(`users/${alice}/groups/${others}`);
    t.equal(await detailOf(gateway, (await tokensOf(realm)).access_token), "403 groups_missing");
    await keycloak.put(`users/${alice}/groups/${analysts}`);
  });

  await t.test("realm roles count in place of groups", async (t) => {
    const setting = /`(groups_claim = "realm_access.roles")`/.exec(page.content)?.[1] ?? "";
    const place = `/realms/${keycloak.realm}/roles/analysts`;
    await keycloak.create("roles", { name: "analysts" });
    const role = await keycloak.read(place);
    const change = (config: string) => config.replace(/^groups_claim = .*$/m, setting);
    const access = page.access.replace("staff:/analysts", "staff:analysts");
    const gateway = await openGateway(t, realm, { change, access });
    t.equal(await detailOf(gateway, (await tokensOf(realm)).access_token), "403 no_grant");
    await keycloak.create(`users/${alice}/role-mappings/realm`, [role]);
    t.equal(await detailOf(gateway, (await tokensOf(realm)).access_token), 200);
  });

  await t.test("an MCP client registers, and has the claims of its scopes", async (t) => {
    const register = (scope: string) =>
      fetch(`${keycloak.issuer}/clients-registrations/openid-connect`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ client_name: "mcp", redirect_uris: [REDIRECT_URI], scope }),
      });
    t.equal((await register("mcp:tools")).status, 403, "no host is trusted at first");
    const kind = "org.keycloak.services.clientregistration.policy.ClientRegistrationPolicy";
    const place = `/realms/${keycloak.realm}/components?type=${kind}`;
    const policies = await keycloak.read<Record<string, string>[]>(place);
    const hosts = policies.find(
      ({ providerId, subType }) => providerId === "trusted-hosts" && subType === "anonymous",
    );
    const config = {
      "trusted-hosts": ["127.0.0.1"],
      "host-sending-registration-request-must-match": ["false"],
      "client-uris-must-match": ["true"],
    };
    await keycloak.put(`components/${hosts?.id}`, { ...hosts, config });
    t.equal((await register("openid mcp:tools")).status, 403, "openid is not allowed");
    const registered = await register("mcp:tools mcp:resources");
    const client = JSON.parse(await registered.text());
    t.equal(registered.status, 201);
    t.equal(client.scope.split(" ").sort().join(" "), "mcp:resources mcp:tools");
    const clients = `/realms/${keycloak.realm}/clients`;
    const [found] = await keycloak.read<Record<string, string>[]>(
      `${clients}?clientId=${client.client_id}`,
    );
    const example = await keycloak.read<Record<string, unknown>>(
      `${clients}/${found?.id}/evaluate-scopes/generate-example-access-token?scope=mcp:tools&userId=${alice}`,
    );
    const claims = { aud: "gatehouse", sub: alice, groups: ["/analysts"], scope: "mcp:tools" };
    t.match(example, claims);
  });

  await t.test("people sign in on the pages of the gateway", async (t) => {
    const { config: console, url } = await consoleConfig();
    const open = async (recheck: number, further = "") => {
      const login = page.login.replace(/^recheck = .*$/m, `recheck = ${recheck}`);
      const gateway = await openGateway(t, realm, { more: `${login}${further}` });
      const logout = `${gateway.url}/oauth/backchannel-logout/staff`;
      await keycloak.put(`clients/${realm.gatehouse}`, {
        standardFlowEnabled: true,
        redirectUris: [`${gateway.url}/oauth/callback/staff`, `${url}/callback/staff`],
        attributes: {
          "backchannel.logout.url": logout,
          "backchannel.logout.session.required": "true",
        },
      });
      return gateway;
    };
    await keycloak.put(`clients/${realm.gatehouse}/default-client-scopes/${realm.scope}`);
    const becomes = async (gateway: TestGateway, token: string, expected?: string) => {
      const query = { database: "main", from: "orders", columns: ["*"] };
      const call = async () => refusalOf(await callTool(gateway, "select", query, token));
      await eventually(String(expected), async () => (await call()) === expected);
      t.pass(String(expected));
    };
    const gateway = await open(1);
    const token = await signIn(keycloak, gateway);
    await becomes(gateway, token);
    await keycloak.remove(`users/${alice}/groups/${analysts}`);
    await becomes(gateway, token, "groups_unavailable");
    await keycloak.put(`users/${alice}/groups/${analysts}`);
    await becomes(gateway, token);
    await keycloak.put(`users/${alice}`, { enabled: false });
    await becomes(gateway, token, "token_revoked");
    await keycloak.put(`users/${alice}`, { enabled: true });
    const told = await open(86_400, console);
    const second = await signIn(keycloak, told);
    await becomes(told, second);
    const browser = new PlainBrowser(url);
    const begun = await browser.open(`${url}/sign-in/staff?again=yes&next=%2Foverview`);
    const overview = await browser.open((await keycloak.signIn(begun.url, "alice", password)).href);
    t.match(overview.text, `<bdi>staff:${alice}</bdi>`, "the console is open");
    await keycloak.logOut(alice);
    await becomes(told, second, "token_revoked");
    t.match((await browser.open(`${url}/overview`)).url, "/sign-in", "the console is closed");
    t.match(await told.service.logged(({ msg }) => msg === "oauth_logout"), { outcome: "allowed" });
  });

  const asking = await openGateway(t, realm, { more: page.introspection });
  await t.test("with introspection, changes at Keycloak count for old tokens", async (t) => {
    const { access_token: token } = await tokensOf(realm);
    const becomes = async (expected: unknown) => {
      await eventually(String(expected), async () => (await detailOf(asking, token)) === expected);
      t.pass(String(expected));
    };
    await becomes(200);
    await keycloak.remove(`users/${alice}/groups/${analysts}`);
    await becomes("403 groups_missing");
    await keycloak.put(`users/${alice}/groups/${analysts}`);
    await becomes(200);
    await keycloak.put(`users/${alice}`, { enabled: false });
    await becomes("401 inactive");
    await keycloak.put(`users/${alice}`, { enabled: true });
    await becomes(200);
    await keycloak.logOut(alice);
    await becomes("401 inactive");
  });
}

const missing = await missingProgram();
t.test("Keycloak, set up as its page says", { timeout: 1_200_000 }, async (t) => {
  if (missing === undefined) await play(t);
  else t.pass(`not run: ${missing} is not installed`);
});
