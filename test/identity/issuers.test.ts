import { chmodSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import path from "node:path";
import { text } from "node:stream/consumers";
import { mock } from "node:test";
import { gzipSync } from "node:zlib";
import { pino } from "pino";
import t, { type Test } from "tap";
import type { IssuerSettings } from "../../src/core/config/schema.ts";
import { Issuers } from "../../src/features/issuers/issuers.ts";
import { refusedBy } from "../access/kit.ts";
import { stopClock } from "../kit/clock.ts";
import { eventually } from "../kit/eventually.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { listening } from "../kit/listening.ts";
import {
  issuerSettings,
  issuersWith,
  makeKey,
  TestIssuer,
  type TokenChanges,
} from "../oauth/issuer.ts";

type Claims = Readonly<Record<string, unknown>>;

const issuer = await TestIssuer.start(t);
/** One for all tests, so that keys are fetched once. */
const settings = issuerSettings(issuer.url, { opens: ["query"], audience: "gatehouse" });

async function read(claims: Claims, changes: Partial<IssuerSettings> = {}, more?: TokenChanges) {
  const issuers = issuersWith({ ...settings, ...changes });
  return issuers.verify(await issuer.sign("gatehouse", { claims, ...more }), "query");
}

async function detailOf(...args: Parameters<typeof read>): Promise<string | undefined> {
  return (await refusedBy(read(...args))).detail;
}

const now = Math.floor(Date.now() / 1000);
const times = { iat: now, nbf: now, exp: now + 600 };
const noScope = { scope: undefined, jti: undefined };

t.test("tokens of workloads and providers are accepted in the form that they have", async (t) => {
  const kubernetes = {
    ...noScope,
    ...times,
    aud: ["gatehouse"],
    jti: "0b9c3bd1-8f3f-4a57-9a3c-5f3d3a1c7a43",
    "kubernetes.io": {
      namespace: "prod",
      pod: { name: "reporter-5d9", uid: "6c1b" },
      serviceaccount: { name: "reporter", uid: "1d2e" },
    },
    sub: "system:serviceaccount:prod:reporter",
  };
  const pod = await read(kubernetes, { prefix: "k8s" }, { header: { typ: undefined } });
  t.match(pod, { user: "k8s:system:serviceaccount:prod:reporter", scopes: new Set() });

  const github = {
    ...noScope,
    ...times,
    jti: "example-id",
    sub: "repo:acme/app:environment:prod",
    repository: "acme/app",
    repository_owner: "acme",
    ref: "refs/heads/main",
    run_attempt: "1",
  };
  const rule = { prefix: "ci", required_claims: { repository: ["acme/app", "acme/lib"] } };
  const typ = { header: { typ: "JWT" } };
  t.match(await read(github, rule, typ), { user: "ci:repo:acme/app:environment:prod" });
  const fork = { ...github, repository: "evil/app" };
  t.equal(await detailOf(fork, rule, typ), "claim_mismatch");

  const svid = {
    ...noScope,
    aud: ["gatehouse"],
    sub: "spiffe://example.org/ns/prod/sa/web",
    ...times,
  };
  const spiffe = await read(svid, { prefix: "mesh" }, { header: { typ: "JOSE" } });
  t.match(spiffe, { user: "mesh:spiffe://example.org/ns/prod/sa/web" });

  const entra = {
    ...noScope,
    ...times,
    aud: "gatehouse",
    azp: "11112222-bbbb-3333-cccc-4444dddd5555",
    name: "Alice",
    oid: "00aa00aa-bb11-cc22-dd33-44ee44ee44ee",
    roles: ["Reader", "Writer"],
    scp: "mcp:tools",
    sub: "AAAAAAAAAAAAAAAAAAAAAIkzqFVrSaSaFHy782bbtaQ",
    tid: "aaaabbbb-0000-cccc-1111-dddd2222eeee",
    ver: "2.0",
  };
  const roles: Partial<IssuerSettings> = { username_claim: "oid", groups_claim: "roles" };
  t.match(await read(entra, roles, typ), {
    user: "staff:00aa00aa-bb11-cc22-dd33-44ee44ee44ee",
    client: entra.azp,
    groups: ["staff:Reader", "staff:Writer"],
    scopes: new Set(["mcp:tools"]),
  });
  const overage = {
    _claim_names: { groups: "src1" },
    _claim_sources: { src1: { endpoint: "https://graph.example.com/users/x/getMemberObjects" } },
  };
  for (const marker of [overage, { hasgroups: true }, { groups: ["a"], hasgroups: true }]) {
    const token = await read({ ...entra, ...marker }, { ...roles, groups_claim: "groups" });
    t.match(token, { groups: undefined, groupsProblem: "groups_overage" });
  }

  const keycloak = {
    ...times,
    aud: ["gatehouse", "account"],
    azp: "app",
    typ: "Bearer",
    nonce: "of the sign-in",
    sid: "a-session",
    preferred_username: "alice",
    realm_access: { roles: ["offline_access", "engineering"] },
  };
  const realm = { username_claim: "preferred_username", groups_claim: "realm_access.roles" };
  t.match(await read(keycloak, realm, typ), {
    user: "staff:alice",
    groups: ["staff:engineering", "staff:offline_access"],
  });
});

t.test("groups are read by name, by path, and by a name with dots", async (t) => {
  const url = "https://x.example/groups";
  const claims = {
    groups: ["b", "a", "b"],
    one: "c",
    deep: { er: { list: ["d"] } },
    "deep.er": ["e"],
    [url]: ["f"],
    none: [],
  };
  const groupsOf = async (groups_claim: NonNullable<IssuerSettings["groups_claim"]>) =>
    (await read(claims, { groups_claim })).groups?.join();
  t.equal(await groupsOf("groups"), "staff:a,staff:b");
  t.equal(await groupsOf("one"), "staff:c");
  t.equal(await groupsOf("deep.er.list"), "staff:d");
  t.equal(await groupsOf(["deep.er"]), "staff:e");
  t.equal(await groupsOf([url]), "staff:f");
  t.equal(await groupsOf("none"), "", "an empty list is not a missing one");
  t.equal((await read(claims)).groups, undefined);
});

t.test("groups that are missing, malformed or too many are unknown, not empty", async (t) => {
  const problemOf = async (groups: unknown, groups_claim = "groups") => {
    const { groups: read_, groupsProblem } = await read({ groups }, { groups_claim });
    t.equal(read_, undefined);
    return groupsProblem;
  };
  t.equal(await problemOf(undefined), "groups_missing");
  t.equal(await problemOf(["a"], "groups.list"), "groups_missing");
  t.equal(await problemOf(["a"], "groups.length"), "groups_malformed", "not of the claim");
  t.equal(await problemOf(["a"], "toString"), "groups_missing", "nor of its prototype");
  for (const value of [null, 7, true, { a: "b" }, ["a", 1], [["a"]], [null]]) {
    t.equal(await problemOf(value), "groups_malformed", JSON.stringify(value));
  }
  const many = Array.from({ length: 1001 }, (_, at) => `g${at}`);
  t.equal(await problemOf(many), "groups_too_many");
  t.equal((await read({ groups: many.slice(1) }, { groups_claim: "groups" })).groups?.length, 1000);
});

t.test("a group may have any name in NFC without control characters", async (t) => {
  const names = [
    "ok",
    "a,b",
    "R&D (EU)",
    ' "x" ',
    "a\\b;c?d%2f",
    "<b>",
    "..",
    "*",
    "\u2028",
    "ü/ber",
  ];
  const longest = "\u{1f600}".repeat(200);
  const ignored = ["", "a\u0308", "x".repeat(201), "tab\there", "\u007f", "\ud800", `${longest}x`];
  const groups = [...names, longest, ...ignored];
  const token = await read({ groups }, { groups_claim: "groups" });
  t.strictSame(token.groups, [...names, longest].map((name) => `staff:${name}`).sort());
  t.equal(token.droppedGroups, 7);
  t.strictSame(token.ignoredGroups, ignored);
});

t.test("with groups_claim_optional, a token without the claim has no groups", async (t) => {
  const optional = { groups_claim_optional: true };
  for (const groups_claim of ["groups", "realm_access.roles"]) {
    t.match(await read({}, { groups_claim, ...optional }), {
      groups: [],
      groupsProblem: undefined,
    });
  }
  const problems: [problem: string, claims: Claims, groups_claim?: string][] = [
    ["groups_malformed", { groups: { a: "b" } }],
    ["groups_malformed", { groups: null }],
    ["groups_malformed", { realm_access: "x" }, "realm_access.roles"],
    ["groups_malformed", { realm_access: null }, "realm_access.roles"],
    ["groups_malformed", { realm: { access: 7 } }, "realm.access.roles"],
    ["groups_overage", { hasgroups: true }],
    ["groups_overage", { _claim_names: { groups: "src1" } }],
  ];
  for (const [problem, claims, groups_claim = "groups"] of problems) {
    const { groups, groupsProblem } = await read(claims, { groups_claim, ...optional });
    t.strictSame([groups, groupsProblem], [undefined, problem]);
  }
});

t.test("required claims must equal the value, or one of several", async (t) => {
  const required = (required_claims: IssuerSettings["required_claims"]) => ({ required_claims });
  const claims = { tenant: "acme", level: 3, isHuman: false, list: ["acme", 7], words: "a b" };
  for (const good of [
    { tenant: ["beta", "acme"], level: 3, isHuman: false },
    { list: "acme" },
    { list: ["other", 7] },
    { scope: "mcp:tools" },
    { scope: "mcp:resources" },
    { scope: ["none", "mcp:tools"] },
    { scope: "mcp:tools mcp:resources" },
  ]) {
    t.match(await read(claims, required(good)), { user: "staff:alice" }, JSON.stringify(good));
  }
  const scp = { scope: undefined, scp: "mcp:tools other" };
  t.match(await read(scp, required({ scp: "mcp:tools" })), { user: "staff:alice" });
  const scps = { scope: undefined, scp: ["mcp:tools", "a b"] };
  t.match(await read(scps, required({ scp: "mcp:tools" })), { user: "staff:alice" });
  t.equal(await detailOf(scps, required({ scp: "a" })), "claim_mismatch", "elements are whole");
  for (const wrong of [
    { tenant: "ACME" },
    { tenant: ["a", "b"] },
    { level: "3" },
    { isHuman: true },
    { list: "7" },
    { list: "acm" },
    { words: "a" },
    { scope: "mcp" },
    { scope: "" },
    { absent: "acme" },
    { toString: "acme" },
  ]) {
    t.equal(await detailOf(claims, required(wrong)), "claim_mismatch", JSON.stringify(wrong));
  }
});

t.test("names of claims with escapes are read as they are, whatever was read before", async (t) => {
  const claims = { iss: issuer.url, ...times, aud: "gatehouse", sub: "alice", active: true };
  const withTenant = (name: string) => `${JSON.stringify(claims).slice(0, -1)},"${name}":"acme"}`;
  const content = withTenant(String.raw`https:\/\/acme\/tenant`);
  const required_claims = { "https://acme/tenant": "acme" };
  // Node 26 compares a key with those of earlier objects as it is spelled.
  JSON.parse(withTenant(String.raw`https:\\/\\/acme\\/ten`));
  const issuers = issuersWith({ ...settings, required_claims });
  t.match(await issuers.verify(await issuer.signText(content), "query"), { user: "staff:alice" });

  const { open } = await openEndpoint(t, (_token, response) => {
    response.setHeader("content-type", "application/json").end(content);
  });
  const asked = open({}, { required_claims });
  t.match(await asked.verify("opaque", "query"), { user: "staff:alice" });
});

t.test("attributes come from claims, and unusable ones are left out", async (t) => {
  const attribute_claims = { tenant: "tid", "level-2": "level", regions: "regions", gone: "gone" };
  const claims = { tid: "acme", level: 3, regions: ["us", "eu"] };
  t.strictSame(
    (await read(claims, { attribute_claims })).attributes,
    new Map<string, unknown>([
      ["tenant", "acme"],
      ["level-2", 3],
      ["regions", ["eu", "us"]],
    ]),
  );
  for (const tid of [null, { a: 1 }, 1.5, ["a", 1], "x".repeat(1025)]) {
    const token = await read({ tid }, { attribute_claims: { tenant: "tid" } });
    t.strictSame(token.attributes, new Map(), JSON.stringify(tid));
  }
  const named = { iss: issuer.url, ...times, aud: "gatehouse", sub: "alice" };
  const content = `${JSON.stringify(named).slice(0, -1)},"tid":-0}`;
  const issuers = issuersWith({ ...settings, attribute_claims: { tenant: "tid" } });
  const { attributes } = await issuers.verify(await issuer.signText(content), "query");
  t.strictSame(attributes, new Map(), "JSON would write it as 0");
});

t.test("default scopes are for tokens without scopes", async (t) => {
  const default_scopes = ["mcp:tools"] as const;
  const scopesOf = async (claims: Claims) => [...(await read(claims, { default_scopes })).scopes];
  t.strictSame(await scopesOf({ scope: undefined }), ["mcp:tools"]);
  t.strictSame(await scopesOf({ scope: "" }), []);
  t.strictSame(await scopesOf({ scope: undefined, scp: [] }), []);
});

t.test("an ID token, a refresh token and a logout token are not access tokens", async (t) => {
  for (const [claims, header] of [
    [{ nonce: "n" }, { typ: "JWT" }],
    [{ at_hash: "x" }, { typ: "JWT" }],
    [{ c_hash: "x" }, { typ: undefined }],
    [{ typ: "ID" }, { typ: "JWT" }],
    [{ s_hash: "x" }, { typ: "JWT" }],
    [{ typ: "Refresh" }, { typ: "JWT" }],
    [{ token_use: "id" }, { typ: "JWT" }],
    [{ token_use: "refresh_token" }, { typ: "JWT" }],
    [{ token_type: "refresh" }, { typ: "JWT" }],
    [{ typ: "Bearer", token_use: "id" }, { typ: "JWT" }],
    [{ events: { "http://schemas.openid.net/event/backchannel-logout": {} } }, { typ: "JWT" }],
    [{}, { typ: "logout+jwt" }],
    [{}, { typ: "id_token+jwt" }],
    [{}, { typ: "oauth-id-jag+jwt" }],
    [{}, { typ: "client-authentication+jwt" }],
  ] as const) {
    t.equal(await detailOf(claims, {}, { header }), "wrong_type", JSON.stringify([claims, header]));
  }
  for (const claims of [{ token_use: "access" }, { token_type: "Bearer" }, { typ: "Bearer" }]) {
    const token = await read(claims, {}, { header: { typ: "JWT" } });
    t.equal(token.user, "staff:alice", JSON.stringify(claims));
  }
  t.equal(await detailOf({ aud: "the-app" }), "wrong_audience");
});

t.test("no token has the id under which sessions or sign-ins are revoked", async (t) => {
  for (const jti of ["session:", "session:abc", "sign-in:abc"]) {
    t.match((await read({ jti })).tokenId, /^[0-9a-f]{64}$/, jti);
  }
  t.equal((await read({ jti: "a:b" })).tokenId, "a:b");
});

t.test("one of several audiences is enough", async (t) => {
  const audience = ["api://gatehouse", "gatehouse"];
  t.match(await read({}, { audience }), { user: "staff:alice" });
  t.match(await read({ aud: ["x", "api://gatehouse"] }, { audience }), { user: "staff:alice" });
  t.equal(await detailOf({ aud: ["x"] }, { audience }), "wrong_audience");
});

t.test("one issuer cannot sign for another", async (t) => {
  const guests = await TestIssuer.start(t);
  const both = issuersWith(
    { ...settings, opens: ["query", "mcp"] },
    { ...settings, issuer: guests.url, prefix: "guests" },
  );
  const claims = { iss: guests.url, sub: "staff:alice" };
  const forged = both.verify(await issuer.sign("gatehouse", { claims }), "query");
  t.match(await refusedBy(forged), { detail: "bad_signature", token: { issuer: guests.url } });
  const named = await both.verify(
    await guests.sign("gatehouse", { claims: { sub: "staff:alice" } }),
    "query",
  );
  t.equal(named.user, "guests:staff:alice");
  const shut = await refusedBy(both.verify(await guests.sign("gatehouse"), "mcp"));
  t.match(shut, { code: "token_invalid", status: 401, detail: "wrong_door" });
});

t.test("a verified token is verified once, while the keys stay the same", async (t) => {
  const own = await TestIssuer.start(t);
  const issuers = issuersWith({ ...settings, issuer: own.url });
  const token = await own.sign("gatehouse");
  t.equal(issuers.recall(token, "query"), undefined);
  const verified = await issuers.verify(token, "query");
  t.equal(issuers.recall(token, "query"), verified);
  t.equal(issuers.recall(token, "mcp"), undefined, "not at another door");
  t.equal(issuers.recall(`${token}A`, "query"), undefined);
  stopClock(t, Date.now() + 6000);
  own.keys = [await makeKey("second")];
  await issuers.verify(await own.sign("gatehouse"), "query");
  t.equal(issuers.recall(token, "query"), undefined, "its key is gone");
  t.equal((await refusedBy(issuers.verify(token, "query"))).detail, "unknown_key");
  const second = await own.sign("gatehouse");
  await issuers.verify(second, "query");
  t.ok(issuers.recall(second, "query"));
  mock.timers.tick(601_000);
  t.equal(issuers.recall(second, "query"), undefined, "keys are old, and the token has expired");
});

t.test("a key that is replaced under the same id is fetched once its tokens arrive", async (t) => {
  const own = await TestIssuer.start(t);
  const issuers = issuersWith({ ...settings, issuer: own.url });
  const old = await own.sign("gatehouse");
  await issuers.verify(old, "query");
  own.keys = [await makeKey(own.keys[0]?.kid ?? "")];
  const token = await own.sign("gatehouse");
  t.equal((await refusedBy(issuers.verify(token, "query"))).detail, "bad_signature", "too soon");
  stopClock(t, Date.now() + 6000);
  t.match(await issuers.verify(token, "query"), { user: "staff:alice" });
  t.equal((await refusedBy(issuers.verify(old, "query"))).detail, "bad_signature");
});

t.test("a token in use ends with its key, also while no newer keys are fetched", async (t) => {
  const own = await TestIssuer.start(t);
  const issuers = issuersWith({ ...settings, issuer: own.url });
  const token = await issuers.verify(await own.sign("gatehouse"), "query");
  stopClock(t, Date.now() + 6000);
  const [first] = own.keys;
  own.keys = [await makeKey("second"), ...own.keys];
  await issuers.verify(await own.sign("gatehouse"), "query");
  t.equal(token.isKept?.(), true);
  own.failure = 500;
  mock.timers.tick(60_000);
  own.keys = own.keys.filter((key) => key !== first);
  t.equal(token.isKept?.(), true, "the issuer does not answer");
  own.failure = undefined;
  const third = await makeKey("third");
  own.keys.push(third);
  await issuers.verify(await own.sign("gatehouse", { key: third }), "query");
  await eventually("the key is gone", async () => token.isKept?.() === false);
});

t.test("keys can be at a URL of their own, or in a file that is read again", async (t) => {
  issuer.others.set("/apart", { keys: [(await makeKey("x")).jwk, issuer.keys[0]?.jwk] });
  const place = issuer.place;
  issuer.place = "/nowhere";
  t.match(await read({}, { jwks_url: `${issuer.origin}/apart` }), { user: "staff:alice" });
  issuer.place = place;

  const file = path.join(temporaryHome(t), "keys.json");
  const later = await makeKey("later");
  const write = (...keys: unknown[]) => writeFileSync(file, JSON.stringify({ keys }));
  const issuers = issuersWith({ ...settings, jwks_file: file });
  t.teardown(() => issuers.close());
  const verify = (token: string) => issuers.verify(token, "query");
  const old = await issuer.sign("gatehouse");
  t.match(await refusedBy(verify(old)), { code: "issuer_unreachable", retryAfter: 2 });
  t.strictSame(issuers.states, { staff: "unreachable" });
  write(issuer.keys[0]?.jwk);
  t.match(await verify(old), { user: "staff:alice" });
  t.strictSame(issuers.states, { staff: "ok" });
  t.equal(
    (await refusedBy(verify(await issuer.sign("gatehouse", { key: later })))).detail,
    "unknown_key",
  );
  write(later.jwk);
  t.match(await verify(await issuer.sign("gatehouse", { key: later })), { user: "staff:alice" });
  t.equal(issuers.recall(old, "query"), undefined);
  t.equal((await refusedBy(verify(old))).detail, "unknown_key");
  write(issuer.keys[0]?.jwk);
  await eventually("the file is noticed without a token", () =>
    verify(old).then(
      () => true,
      () => false,
    ),
  );
  writeFileSync(file, "not JSON");
  await eventually("it is reported", () => issuers.states.staff === "unreachable");
  t.match(await verify(old), { user: "staff:alice" }, "the last good keys stay in use");
});

type Answer = (token: string, response: ServerResponse) => void;

async function openEndpoint(t: Test, answer: Answer) {
  const seen: { token: string; authorization: string | undefined }[] = [];
  const onRequest = async (request: IncomingMessage, response: ServerResponse) => {
    const form = new URLSearchParams(await text(request));
    const token = form.get("token") ?? "";
    seen.push({ token, authorization: request.headers.authorization });
    answer(token, response);
  };
  const server = createServer((...both) => void onRequest(...both));
  const file = path.join(temporaryHome(t), "secret");
  writeFileSync(file, "a secret:/?\n");
  chmodSync(file, 0o600);
  const url = `http://127.0.0.1:${await listening(t, server)}/introspect`;
  const open = (changes: object = {}, more: Partial<IssuerSettings> = {}): Issuers =>
    issuersWith({
      ...settings,
      ...more,
      introspection: {
        url,
        client_id: "gate way",
        client_secret_file: file,
        cache: 30,
        always: false,
        ...changes,
      },
    });
  return { seen, open, file };
}

const json = (response: ServerResponse, body: object) => void response.end(JSON.stringify(body));
const active = { active: true, sub: "alice", aud: "gatehouse", iat: now, exp: now + 600 };

t.test("a token in use ends once its issuer says that it is inactive", async (t) => {
  const answers: Record<string, object> = { ended: active, lasting: active };
  const { seen, open } = await openEndpoint(t, (token, response) =>
    json(response, answers[token] ?? {}),
  );
  const issuers = open({ cache: 0 });
  const [ended, lasting] = [
    await issuers.verify("ended", "query"),
    await issuers.verify("lasting", "query"),
  ];
  answers.ended = { active: false };
  t.equal(ended.isKept?.(), true, "it is not asked about at each check");
  stopClock(t, Date.now() + 11_000);
  await eventually("it has ended", async () => ended.isKept?.() === false);
  t.equal(lasting.isKept?.(), true);
  await eventually("it was asked about", async () => seen.length === 4);
  t.equal(lasting.isKept?.(), true);
});

t.test("a token in use ends once its issuer names other groups or attributes", async (t) => {
  const about = { ...active, groups: ["a", "b"], tenant: ["acme", "base"] };
  const answers: Record<string, object> = {
    left: about,
    moved: about,
    unknown: about,
    same: about,
  };
  const { seen, open } = await openEndpoint(t, (token, response) =>
    json(response, answers[token] ?? {}),
  );
  const claims = { groups_claim: "groups", attribute_claims: { tenant: "tenant" } };
  const issuers = open({ cache: 0 }, claims);
  const inUse = (token: string) => issuers.verify(token, "query");
  const [left, moved] = [await inUse("left"), await inUse("moved")];
  const [unknown, same] = [await inUse("unknown"), await inUse("same")];
  answers.left = { ...about, groups: ["a"] };
  answers.moved = { ...about, tenant: ["acme", "other"] };
  answers.unknown = { ...about, groups: undefined };
  answers.same = { ...about, groups: ["b", "a"], tenant: ["base", "acme"], exp: now + 700 };
  stopClock(t, Date.now() + 11_000);
  for (const token of [left, moved, unknown]) {
    await eventually("it has ended", async () => token.isKept?.() === false);
  }
  t.equal(same.isKept?.(), true);
  await eventually("it was asked about", async () => seen.length === 8);
  t.equal(same.isKept?.(), true, "the same in another order");
  t.strictSame((await inUse("left")).groups, ["staff:a"], "a new request counts with them");
});

t.test("an issuer is asked about tokens that are not JWTs", async (t) => {
  const answers: Record<string, object> = {
    good: { ...active, jti: "j-1", client_id: "app", scope: "a b", groups: ["x"] },
    inactive: { active: false },
    "inactive.with-claims": { ...active, active: false },
    misdirected: { ...active, aud: "another" },
    "without-audience": { ...active, aud: undefined },
    foreign: { ...active, iss: "https://evil.example" },
    expired: { ...active, exp: now - 60 },
    eternal: { ...active, exp: undefined },
    early: { ...active, nbf: now + 600 },
    refresh: { ...active, token_use: "refresh_token" },
  };
  const { seen, open } = await openEndpoint(t, (token, response) =>
    json(response, answers[token] ?? { active: false }),
  );
  const issuers = open({}, { groups_claim: "groups" });
  const [good] = await Promise.all([
    issuers.verify("good", "query"),
    issuers.verify("good", "query"),
  ]);
  t.match(good, { user: "staff:alice", tokenId: "j-1", client: "app", groups: ["staff:x"] });
  const basic = Buffer.from("gate+way:a+secret%3A%2F%3F").toString("base64");
  t.strictSame(seen, [{ token: "good", authorization: `Basic ${basic}` }], "asked once");
  t.match(issuers.recall("good", "query"), good);
  const details = {
    inactive: "inactive",
    "inactive.with-claims": "inactive",
    foreign: "bad_claim",
    misdirected: "wrong_audience",
    "without-audience": "wrong_audience",
    expired: "expired",
    eternal: "no_expiry",
    early: "not_yet_valid",
    refresh: "wrong_type",
  };
  for (const [token, detail] of Object.entries(details)) {
    const refusal = await refusedBy(issuers.verify(token, "query"));
    t.match(refusal, { status: 401, detail, token: { issuer: issuer.url } }, token);
    t.equal(issuers.recall(token, "query"), undefined);
  }
  const asked = seen.length;
  t.match(
    await issuers.verify(await issuer.sign("gatehouse", { claims: { groups: [] } }), "query"),
    {
      user: "staff:alice",
    },
  );
  const stranger = await TestIssuer.start(t);
  const foreign = issuers.verify(await stranger.sign("gatehouse"), "query");
  t.equal((await refusedBy(foreign)).detail, "unknown_issuer");
  t.equal((await refusedBy(issuers.verify("good", "mcp"))).detail, "no_jwt", "not at that door");
  t.equal(seen.length, asked, "JWTs are verified here");
});

t.test("members of an answer that are null count as absent", async (t) => {
  const nulls = { nbf: null, iss: null, jti: null, client_id: null, scope: null, scp: null };
  const more = {
    cnf: null,
    _claim_names: null,
    hasgroups: null,
    typ: null,
    nonce: null,
    sid: null,
  };
  const answers: Record<string, object> = {
    good: { ...active, ...nulls, ...more, realm_access: { roles: ["x"], other: null } },
    groupless: { ...active, realm_access: { roles: null } },
    listed: { ...active, realm_access: { roles: ["x", null] } },
    eternal: { ...active, exp: null },
    nameless: { ...active, sub: null },
    unsure: { ...active, active: null },
  };
  const { open } = await openEndpoint(t, (token, response) => json(response, answers[token] ?? {}));
  const issuers = open({}, { groups_claim: "realm_access.roles", default_scopes: ["mcp:tools"] });
  const good = await issuers.verify("good", "query");
  t.match(good, { user: "staff:alice", groups: ["staff:x"], scopes: new Set(["mcp:tools"]) });
  t.match(await issuers.verify("groupless", "query"), { groupsProblem: "groups_missing" });
  t.match(await issuers.verify("listed", "query"), { groupsProblem: "groups_malformed" });
  const refusal = (token: string) => refusedBy(issuers.verify(token, "query"));
  t.match(await refusal("eternal"), { status: 401, detail: "no_expiry" });
  t.match(await refusal("nameless"), { status: 401, detail: "no_username" });
  const cause = /\/introspect answered with an invalid active/;
  t.match(await refusal("unsure"), { code: "issuer_unreachable", token: { cause } });
});

t.test("an answer counts for `cache` seconds, and not past the token's expiry", async (t) => {
  let isActive = true;
  const start = Date.now();
  const { seen, open } = await openEndpoint(t, (_, response) =>
    json(
      response,
      isActive ? { ...active, exp: Math.floor(start / 1000) + 20 } : { active: false },
    ),
  );
  stopClock(t, start);
  const issuers = open({ cache: 10 });
  await issuers.verify("a", "query");
  isActive = false;
  mock.timers.tick(9000);
  t.ok(issuers.recall("a", "query"));
  mock.timers.tick(2000);
  t.equal(issuers.recall("a", "query"), undefined);
  t.equal((await refusedBy(issuers.verify("a", "query"))).detail, "inactive");
  isActive = true;
  const long = open({ cache: 300 });
  await long.verify("b", "query");
  mock.timers.tick(60_000);
  t.equal(long.recall("b", "query"), undefined, "it has expired");
  const none = open({ cache: 0 });
  await refusedBy(none.verify("c", "query"));
  t.equal(seen.length, 4);
});

t.test("a replaced secret is used from the next question on, unless it is unusable", async (t) => {
  const { seen, open, file } = await openEndpoint(t, (_, response) => json(response, active));
  const issuers = open({ cache: 0, client_id: "g" });
  const ask = async () => {
    await issuers.verify("opaque", "query");
    const [, sent = ""] = seen.at(-1)?.authorization?.split(" ") ?? [];
    return Buffer.from(sent, "base64").toString();
  };
  t.equal(await ask(), "g:a+secret%3A%2F%3F");
  writeFileSync(file, "another");
  t.equal(await ask(), "g:another");
  for (const content of ["", "two\nlines"]) {
    writeFileSync(file, content);
    t.equal(await ask(), "g:another");
  }
  rmSync(file);
  t.equal(await ask(), "g:another");
  writeFileSync(file, "third", { mode: 0o600 });
  t.equal(await ask(), "g:third");
});

t.test("with `always`, the issuer decides about its JWTs too", async (t) => {
  const { seen, open } = await openEndpoint(t, (_, response) => json(response, { active: false }));
  const issuers = open({ always: true });
  const token = await issuer.sign("gatehouse");
  t.equal((await refusedBy(issuers.verify(token, "query"))).detail, "inactive");
  t.match(seen, [{ token }]);
});

t.test("an endpoint that is down, slow or strange is answered with 503", async (t) => {
  const large = JSON.stringify({ ...active, filler: "x".repeat(8_000_000) });
  const behaviours: Record<string, (response: ServerResponse) => void> = {
    "an error": (response) => void response.writeHead(401).end(),
    "no JSON": (response) => void response.end("<html>"),
    "no `active`": (response) => json(response, { sub: "alice" }),
    "`active` as text": (response) => json(response, { ...active, active: "true" }),
    "times as text": (response) => json(response, { ...active, exp: "never" }),
    "a redirect": (response) => void response.writeHead(302, { location: "/else" }).end(),
    "a broken connection": (response) => void response.destroy(),
    megabytes: (response) => void response.end(large),
    "compressed megabytes": (response) =>
      void response.setHeader("content-encoding", "gzip").end(gzipSync(large)),
    "bytes that never end": (response) => {
      const timer = setInterval(() => response.write(" "), 200);
      response.once("close", () => clearInterval(timer));
    },
    silence: () => {},
  };
  const silent = await TestIssuer.start(t);
  const token = await silent.sign("gatehouse");
  silent.isSilent = true;
  const ofSilent = [{}, { jwks_url: `${silent.origin}/keys` }].map((more) => {
    const issuers = issuersWith({ ...settings, issuer: silent.url, ...more });
    return refusedBy(issuers.verify(token, "query"));
  });
  await Promise.all(
    Object.entries(behaviours).map(async ([name, behave]) => {
      const { open } = await openEndpoint(t, (_, response) => behave(response));
      const issuers = open();
      const refusal = await refusedBy(issuers.verify("opaque", "query"));
      t.match(refusal, { code: "issuer_unreachable", status: 503, retryAfter: 2 }, name);
      t.strictSame(issuers.states, { staff: "unreachable" }, name);
    }),
  );
  for (const refusal of await Promise.all(ofSilent)) t.equal(refusal.code, "issuer_unreachable");
});

t.test("made-up tokens cause a bounded number of questions at one time", async (t) => {
  const waiting: ServerResponse[] = [];
  const { seen, open } = await openEndpoint(t, (_, response) => void waiting.push(response));
  const issuers = open();
  const all = Array.from({ length: 200 }, (_, at) =>
    refusedBy(issuers.verify(`made-up-${at}`, "query")),
  );
  const excess = await Promise.race(all.slice(-1));
  const limited = { code: "issuer_unreachable", detail: "too_many_questions", retryAfter: 1 };
  t.match(excess, limited);
  t.strictSame(issuers.states, { staff: "unused" }, "the issuer has not failed");
  await eventually("the others wait", () => waiting.length >= 64);
  t.equal(seen.length, 64);
  for (const response of waiting) json(response, { active: false });
  await Promise.all(all);
});

t.test("a token in use is asked about although the clock was set back", async (t) => {
  let isActive = true;
  const { open } = await openEndpoint(t, (_, response) =>
    json(response, isActive ? active : { active: false }),
  );
  const { isKept } = await open({ cache: 0 }).verify("in use", "query");
  isActive = false;
  stopClock(t, Date.now() - 3_600_000);
  await eventually("it ends", () => isKept?.() === false);
});

t.test("new keys of an issuer count although the clock was set back", async (t) => {
  const own = await TestIssuer.start(t);
  const issuers = issuersWith({ ...settings, issuer: own.url });
  await issuers.verify(await own.sign("gatehouse"), "query");
  own.keys = [await makeKey("second")];
  stopClock(t, Date.now() - 3_600_000);
  const token = await own.sign("gatehouse", { claims: { iat: now - 3600 } });
  t.match(await issuers.verify(token, "query"), { user: "staff:alice" });
});

t.test("questions about tokens in use leave room for others", async (t) => {
  let waiting: ServerResponse[] | undefined;
  const { open } = await openEndpoint(t, (_, response) => {
    if (waiting === undefined) json(response, active);
    else waiting.push(response);
  });
  const issuers = open({ cache: 0 });
  const names = Array.from({ length: 50 }, (_, at) => `in-use-${at}`);
  const tokens = await Promise.all(names.map((name) => issuers.verify(name, "query")));
  waiting = [];
  stopClock(t, Date.now() + 11_000);
  for (const { isKept } of tokens) t.equal(isKept?.(), true);
  await eventually("some are asked about", () => waiting?.length === 32);
  const other = issuers.verify("other", "query");
  await eventually("another one is, too", () => waiting?.length === 33);
  for (const response of waiting) json(response, active);
  waiting = undefined;
  t.match(await other, { user: "staff:alice" });
});

t.test("an issuer that does not answer is tried with one token in use at a time", async (t) => {
  const own = await TestIssuer.start(t);
  const warnings: string[] = [];
  const log = pino({ level: "warn" }, { write: (line: string) => void warnings.push(line) });
  const issuers = new Issuers([{ ...settings, issuer: own.url }], () => "", log);
  t.teardown(() => issuers.close());
  const exp = now + 7200;
  const names = ["a", "b", "c", "d"];
  const tokens = await Promise.all(
    names.map(async (sub) =>
      issuers.verify(await own.sign("gatehouse", { claims: { sub, exp } }), "query"),
    ),
  );
  own.failure = 500;
  stopClock(t, Date.now() + 601_000);
  const checkAll = () => {
    for (const { isKept } of tokens) t.equal(isKept?.(), true);
  };
  checkAll();
  await eventually("each has been tried", () => warnings.length === 4);
  for (let second = 0; second < 15; second++) {
    mock.timers.tick(1000);
    checkAll();
    await new Promise(setImmediate);
  }
  await eventually("one is tried again", () => warnings.length === 5);
  own.failure = undefined;
  own.keys = [await makeKey("other")];
  mock.timers.tick(11_000);
  await eventually("all end once the issuer answers", () => {
    mock.timers.tick(1000);
    return tokens.every(({ isKept }) => isKept?.() === false);
  });
});
