import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import path from "node:path";
import { text } from "node:stream/consumers";
import { decodeJwt } from "jose";
import t, { type Test } from "tap";
import { refusalOf, send } from "../journeys/mcp.ts";
import { staffedHome } from "../journeys/staff.ts";
import { eventually } from "../kit/eventually.ts";
import { auditOf, startGateway, type TestGateway, temporaryHome } from "../kit/gateway.ts";
import { listening } from "../kit/listening.ts";
import { readPage } from "../kit/page.ts";
import { insert } from "../kit/queries.ts";
import { runInShell } from "../kit/shell.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { runWarm } from "../kit/warm-command.ts";
import { statelessCall } from "../mcp/messages.ts";
import { makeKey, metadataPlaces, TestIssuer, type TokenChanges } from "../oauth/issuer.ts";

/** The settings of the pages on identity providers, run against tokens of exactly their form. */

type Claims = Readonly<Record<string, unknown>>;
type Header = TokenChanges["header"];

const select = { Select: { database: "main", from: "orders", columns: ["*"] } };
const now = Math.floor(Date.now() / 1000);
const typ = { typ: "JWT" };

/** Claims of every provider, and none of those that the kit adds. */
function base(): Claims {
  return { iat: now, exp: now + 300, scope: undefined, jti: undefined };
}

function writeKeys(file: string, { keys }: TestIssuer, use = "sig"): void {
  const all = keys.map(({ jwk }) => ({ ...jwk, use }));
  writeFileSync(file, JSON.stringify({ keys: all }), { mode: 0o600 });
}

type Open = Awaited<ReturnType<typeof openPage>>;

/**
 * A gateway with the blocks of a page, whose issuers are replaced by local ones, in order.
 *
 * @param change applies another setting of the page
 */
async function openPage(t: Test, name: string, change = (config: string) => config) {
  const page = readPage(name);
  const home = await staffedHome(t, ["root * Owner"], page.access);
  const issuers: TestIssuer[] = [];
  const config: string[] = [];
  for (const block of page.configuration) {
    const issuer = await TestIssuer.start(t);
    issuer.place = metadataPlaces["OpenID Connect Discovery"];
    issuer.keys = [await makeKey("provider-key", "RS256")];
    const keys = path.join(home, `keys-${issuers.length}.json`);
    writeKeys(keys, issuer);
    const secret = path.join(home, "client-secret");
    writeFileSync(secret, "secret", { mode: 0o600 });
    // A table of the page's first issuer.
    const login = issuers.length === 0 ? page.login : "";
    issuers.push(issuer);
    config.push(
      `${block}${login}`
        .replace(/^client_secret_file = ".*"$/m, `client_secret_file = "${secret}"`)
        .replace(/^issuer = ".*"$/m, `issuer = "${issuer.url}"`)
        .replace(/^jwks_file = ".*"$/m, `jwks_file = "${keys}"`),
    );
  }
  const upstream = await new RecordingUpstream().listen(t);
  const gateway = await startGateway(t, {
    home,
    upstream: upstream.url,
    config: change(config.join("")),
  });
  const [issuer, second] = issuers;
  if (issuer === undefined) throw new Error(`${name} has no issuer`);
  return { page, gateway, issuer, second: second ?? issuer };
}

/** A setting that a page names in a sentence, such as `groups_claim = "groups"`. */
function settingIn({ page }: Open, key: string): string {
  const setting = new RegExp(`\`(${key} = .*?)\``).exec(page.content)?.[1];
  if (setting === undefined) throw new Error(`the page has no other ${key}`);
  return setting;
}

interface Accepted {
  readonly claims: Claims;
  readonly header?: Header;
  readonly user: string;
  readonly entry: string;
  readonly role?: string;
}

/** Both ways in which the page checks a token: the query, and the command. @returns the token */
async function checkAccepted(
  t: Test,
  { gateway, issuer }: Open,
  { claims, header = typ, user, entry, role = "ReadOnly" }: Accepted,
): Promise<string> {
  const token = await issuer.sign("gatehouse", { header, claims: { ...base(), ...claims } });
  const answer = await gateway.query(select, token);
  t.equal(answer.status, 200, answer.text);
  t.match(await auditOf(gateway, answer), { user, operations: [{ entry, role }] });
  const { stdout } = await runWarm(gateway.home, ["token", "explain", "-"], token);
  const [place = "", group] = entry.replace(/\)$/, "").split(" (group ");
  const of = group === undefined ? "" : ` (group ${group})`;
  for (const line of ["verdict: accepted", `user: ${user}`, `entry: ${role} on ${place}${of}`]) {
    t.ok(stdout.split("\n").includes(line), line);
  }
  return token;
}

/** Claims of the token in place of the usual ones, or another token and its gateway. */
type Cause = Claims | (() => Promise<{ gateway: TestGateway; token: string }>);

/** Each row of the page's table of errors has a token that causes it. */
async function checkRefused(
  t: Test,
  { page, gateway, issuer }: Open,
  usual: Claims,
  causes: Readonly<Record<string, Cause>>,
): Promise<void> {
  const details = page.rows("`detail`", "Cause").map(([detail]) => detail);
  t.strictSame(Object.keys(causes).sort(), details.sort());
  for (const [detail, cause] of Object.entries(causes)) {
    const claims = { ...base(), ...usual, ...cause };
    const sent =
      typeof cause === "function"
        ? await cause()
        : { gateway, token: await issuer.sign("gatehouse", { header: typ, claims }) };
    const answer = await sent.gateway.query(select, sent.token);
    const line = await auditOf(sent.gateway, answer);
    t.equal(line.detail ?? line.reason, detail);
    t.equal(answer.status, /^(?:groups_|no_grant)/.test(detail) ? 403 : 401, detail);
  }
}

const list = statelessCall("tools/list");

const keycloak = {
  jti: "onrtro:b51b6451-aaac-95f9-b5e7-d6be79a482e9",
  aud: ["gatehouse", "account"],
  sub: "930ee48d-887d-4352-bd3f-d0a4a9cb74a2",
  typ: "Bearer",
  azp: "reports",
  sid: "ys1B3Erdf90saLBjqveMcZA8",
  acr: "1",
  nonce: "of the sign-in",
  realm_access: { roles: ["offline_access", "uma_authorization", "default-roles-staff"] },
  resource_access: { account: { roles: ["manage-account", "view-profile"] } },
  scope: "openid email mcp:tools profile",
  email_verified: true,
  groups: ["/analysts"],
  preferred_username: "alice",
};

t.test("the setup in docs/connect-keycloak.md works as written", async (t) => {
  const open = await openPage(t, "connect-keycloak.md");
  const { gateway } = open;
  const [user, entry] = [`staff:${keycloak.sub}`, "main (group staff:/analysts)"];
  const token = await checkAccepted(t, open, { claims: keycloak, user, entry });
  t.equal((await gateway.query(insert, token)).body.code, "role_insufficient");
  t.equal(refusalOf(await send(gateway, list, token)), undefined);
  const [check = ""] = readPage("issuers.md").code("sh");
  const printed = await runInShell(gateway, check, { TOKEN: token });
  t.match(printed, /^verdict: accepted$/m);
  t.match(printed, /^\{"status":"success"/m, "the response of the query");

  const introspected = await openIntrospected(t);
  const signed = await introspected.issuer.sign("", {
    header: typ,
    claims: { ...base(), ...keycloak },
  });
  t.equal((await introspected.gateway.query(select, signed)).status, 200);
  introspected.ended.add(signed);
  await checkRefused(t, open, keycloak, {
    wrong_audience: { aud: "account" },
    groups_missing: { groups: undefined },
    no_username: { sub: undefined },
    unknown_issuer: { iss: "http://keycloak:8080/realms/staff" },
    no_grant: { groups: ["/others"] },
    inactive: async () => ({ gateway: introspected.gateway, token: signed }),
  });

  const roles = settingIn(open, "groups_claim");
  const withRoles = await openPage(t, "connect-keycloak.md", (config) =>
    config.replace(/^groups_claim = .*$/m, roles),
  );
  const realm_access = { roles: ["default-roles-staff", "/analysts"] };
  const claims = { ...keycloak, groups: undefined, realm_access };
  await checkAccepted(t, withRoles, { claims, user, entry });
});

/** As Keycloak does, the endpoint returns the claims of the token. */
async function openIntrospected(t: Test) {
  const ended = new Set<string>();
  const endpoint = createServer(async (request, response) => {
    const token = new URLSearchParams(await text(request)).get("token") ?? "";
    const about = ended.has(token) ? { active: false } : { ...decodeJwt(token), active: true };
    response.end(JSON.stringify(about));
  });
  const url = `http://127.0.0.1:${await listening(t, endpoint)}`;
  const secret = path.join(temporaryHome(t), "secret");
  writeFileSync(secret, "secret\n", { mode: 0o600 });
  const { introspection } = readPage("connect-keycloak.md");
  const block = introspection
    .replace(/^url = ".*"$/m, `url = "${url}"`)
    .replace(/^client_secret_file = ".*"$/m, `client_secret_file = "${secret}"`)
    .replace(/^cache = .*$/m, "cache = 0");
  const open = await openPage(t, "connect-keycloak.md", (config) => config + block);
  return { ...open, ended };
}

t.test("the setup in docs/connect-entra-id.md works as written", async (t) => {
  const open = await openPage(t, "connect-entra-id.md");
  const { gateway, issuer } = open;
  const claims = {
    aud: "00001111-aaaa-2222-bbbb-3333cccc4444",
    aio: "opaque",
    azp: "11112222-bbbb-3333-cccc-4444dddd5555",
    azpacr: "1",
    name: "Alice",
    nbf: now,
    oid: "00aa00aa-bb11-cc22-dd33-44ee44ee44ee",
    preferred_username: "alice@example.com",
    rh: "opaque",
    roles: ["Analyst"],
    scp: "mcp:tools query",
    sub: "AAAAAAAAAAAAAAAAAAAAAIkzqFVrSaSaFHy782bbtaQ",
    tid: "aaaabbbb-0000-cccc-1111-dddd2222eeee",
    uti: "opaque",
    ver: "2.0",
  };
  const [user, entry] = [`entra:${claims.oid}`, "main (group entra:Analyst)"];
  const token = await checkAccepted(t, open, { claims, user, entry });
  t.equal(refusalOf(await send(gateway, list, token)), undefined);
  const overage = {
    _claim_names: { groups: "src1" },
    _claim_sources: { src1: { endpoint: "https://graph.windows.net/x/getMemberObjects" } },
  };
  await checkRefused(t, open, claims, {
    unknown_issuer: { iss: `https://sts.windows.net/${claims.tid}/`, ver: "1.0" },
    wrong_audience: { aud: "00000003-0000-0000-c000-000000000000" },
    groups_missing: { roles: undefined },
    groups_overage: overage,
    no_username: { oid: undefined },
    wrong_type: { nonce: "of the sign-in" },
    no_grant: { roles: ["Other"] },
  });

  const service = { ...claims, name: undefined, scp: undefined, sub: claims.oid };
  const application = await issuer.sign("", { header: typ, claims: { ...base(), ...service } });
  t.equal((await gateway.query(select, application)).status, 200);
  t.equal(refusalOf(await send(gateway, list, application)), "insufficient_scope");
  const scopes = settingIn(open, "default_scopes");
  const groups = settingIn(open, "groups_claim");
  const group = settingIn(open, "group");
  const changed = await openPage(t, "connect-entra-id.md", (config) =>
    config.replace(/^groups_claim = .*$/m, `${groups}\n${scopes}`),
  );
  await changed.gateway.edit((file) => file.replace(/^group = "entra:Analyst"$/m, group));
  await eventually("the entry of the group is in force", async () => {
    const ids = [/entra:(.*)"$/.exec(group)?.[1]];
    const member = { ...base(), ...service, groups: ids };
    const signed = await changed.issuer.sign("", { header: typ, claims: member });
    if (refusalOf(await send(changed.gateway, list, signed)) !== undefined) return false;
    return (await changed.gateway.query(select, signed)).status === 200;
  });
});

t.test("the setup in docs/connect-okta.md works as written", async (t) => {
  const open = await openPage(t, "connect-okta.md");
  const { gateway, second } = open;
  const claims = {
    ver: 1,
    jti: "AT.BYBJNkCefidrwo0VtGLHIZCYfSAeOyB0tVPTB6eqFss",
    aud: "https://gate.example.com",
    cid: "0oaipnnzumvqt5tiu1d6",
    uid: "00uzrjisTQK1SlAMB1d5",
    scp: ["openid", "query", "mcp:tools"],
    auth_time: now,
    sub: "joe.user@example.com",
    groups: ["gatehouse-analysts"],
  };
  const header = { typ: undefined };
  const [user, entry] = [`okta:${claims.uid}`, "main (group okta:gatehouse-analysts)"];
  const token = await checkAccepted(t, open, { claims, header, user, entry });
  t.equal(refusalOf(await send(gateway, list, token)), undefined);
  await checkRefused(t, open, claims, {
    unknown_issuer: { iss: "https://example.okta.com" },
    wrong_audience: { aud: "api://default" },
    groups_missing: { groups: undefined },
    no_username: { uid: undefined, sub: claims.cid },
    no_grant: { groups: ["gatehouse-others"] },
  });
  const service = { ...claims, uid: undefined, groups: undefined, sub: claims.cid, scp: ["query"] };
  const signed = await second.sign("", { header, claims: { ...base(), ...service } });
  const answer = await gateway.query(select, signed);
  t.match(await auditOf(gateway, answer), { user: `services:${claims.cid}`, status: 200 });
  t.equal(refusalOf(await send(gateway, list, signed)), "token_invalid", "it opens only queries");
});

t.test("the setup in docs/connect-kubernetes.md works as written", async (t) => {
  const open = await openPage(t, "connect-kubernetes.md");
  const { gateway, issuer, second } = open;
  const claims = {
    aud: ["gatehouse"],
    jti: "0b9c3bd1-8f3f-4a57-9a3c-5f3d3a1c7a43",
    "kubernetes.io": {
      namespace: "prod",
      node: { name: "node-1", uid: "5a3c" },
      pod: { name: "reporter-5d9", uid: "6c1b" },
      serviceaccount: { name: "reporter", uid: "1d2e" },
    },
    nbf: now,
    sub: "system:serviceaccount:prod:reporter",
  };
  const header = { typ: undefined };
  const [user, entry] = [`k8s:${claims.sub}`, "main (group reporters)"];
  await checkAccepted(t, open, { claims, header, user, entry });

  const svid = { aud: ["gatehouse"], sub: "spiffe://example.org/ns/prod/sa/web" };
  const signed = await second.sign("", { header: typ, claims: { ...base(), ...svid } });
  const answer = await gateway.query(select, signed);
  t.match(await auditOf(gateway, answer), { user: `mesh:${svid.sub}`, status: 200 });
  await checkRefused(t, open, claims, {
    wrong_audience: { aud: ["https://kubernetes.default.svc.cluster.local"] },
    unknown_issuer: { iss: "https://oidc.eks.eu-west-1.amazonaws.com/id/EXAMPLE" },
    unknown_key: async () => {
      const bundle = await openPage(t, "connect-kubernetes.md");
      writeKeys(path.join(bundle.gateway.home, "keys-0.json"), bundle.issuer, "jwt-svid");
      const rotated = { header, claims: { ...base(), ...claims } };
      return { gateway: bundle.gateway, token: await bundle.issuer.sign("", rotated) };
    },
    expired: { iat: now - 3660, exp: now - 60 },
    no_grant: { sub: "system:serviceaccount:dev:reporter" },
  });
  const key = await makeKey("rotated", "RS256");
  const rotated = { header, key, claims: { ...base(), ...claims } };
  const early = await gateway.query(select, await issuer.sign("", rotated));
  t.match(await auditOf(gateway, early), { detail: "unknown_key" });
  issuer.keys = [key];
  writeKeys(path.join(gateway.home, "keys-0.json"), issuer);
  t.equal((await gateway.query(select, await issuer.sign("", rotated))).status, 200);
});

t.test("the setup in docs/connect-github-actions.md works as written", async (t) => {
  const open = await openPage(t, "connect-github-actions.md");
  const { page, gateway, issuer } = open;
  const claims = {
    jti: "6f4762ed-0758-4ccb-808d-ee3af5d723a8",
    sub: "repo:acme@65/app@74:ref:refs/heads/main",
    aud: "gatehouse",
    ref: "refs/heads/main",
    sha: "example-sha",
    repository: "acme/app",
    repository_owner: "acme",
    repository_owner_id: "65",
    repository_id: "74",
    repository_visibility: "private",
    actor: "octocat",
    actor_id: "12",
    run_id: "1001",
    run_number: "10",
    run_attempt: "2",
    runner_environment: "github-hosted",
    workflow: "report",
    workflow_ref: "acme/app/.github/workflows/report.yml@refs/heads/main",
    job_workflow_ref: "acme/app/.github/workflows/report.yml@refs/heads/main",
    head_ref: "",
    base_ref: "",
    event_name: "push",
    ref_type: "branch",
    nbf: now - 300,
  };
  const entry = "main (group ci:acme/app)";
  const token = await checkAccepted(t, open, { claims, user: `ci:${claims.sub}`, entry });
  t.equal((await gateway.query(insert, token)).body.code, "role_insufficient");
  const subjects = page.rows("Job", "`sub`").map(([, sub = ""]) => sub);
  t.ok(subjects.length > 3);
  const roles: unknown[] = [];
  for (const sub of [...subjects, "repo:acme/app:environment:production"]) {
    const job = { ...base(), ...claims, sub };
    const answer = await gateway.query(select, await issuer.sign("", { header: typ, claims: job }));
    const [operation] = [(await auditOf(gateway, answer)).operations].flat();
    roles.push(JSON.parse(JSON.stringify(operation)).role);
  }
  const [first, ...others] = roles;
  t.equal(first, "ReadWrite", "the entry of a job wins over that of the repository");
  t.same([...new Set(others)], ["ReadOnly"]);
  await checkRefused(t, open, claims, {
    wrong_audience: { aud: "https://github.com/acme" },
    claim_mismatch: { repository_owner_id: "66" },
    unknown_issuer: { iss: "https://token.actions.githubusercontent.com/acme-inc" },
    bad_username: { sub: "repo:acme@65/app@74:environment:a%3Ab" },
    expired: { iat: now - 400, exp: now - 100 },
    no_grant: { repository: "acme/lib", sub: "repo:acme@65/lib@75:ref:refs/heads/main" },
  });
  const fork = { ...base(), ...claims, repository: "evil/app", repository_owner_id: "99" };
  const answer = await gateway.query(select, await issuer.sign("", { header: typ, claims: fork }));
  t.match(await auditOf(gateway, answer), { detail: "claim_mismatch", status: 401 });
});
