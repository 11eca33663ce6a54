/** Forged, confusing and extreme tokens of external issuers, and issuers that misbehave. */
import { createHmac, createPublicKey } from "node:crypto";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import path from "node:path";
import { text } from "node:stream/consumers";
import t from "tap";
import { Refusal } from "../../src/core/base/refusal.ts";
import { grant, refusedBy } from "../access/kit.ts";
import { encodePart } from "../identity/forge.ts";
import { send } from "../journeys/mcp.ts";
import { staffedHome, succeed, tokenOf } from "../journeys/staff.ts";
import { stopClock } from "../kit/clock.ts";
import { eventually } from "../kit/eventually.ts";
import { type Answer, auditOf, startGateway, temporaryHome } from "../kit/gateway.ts";
import { listening } from "../kit/listening.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { runWarm } from "../kit/warm-command.ts";
import { statelessCall } from "../mcp/messages.ts";
import {
  type IssuerKey,
  issuerSettings,
  issuersWith,
  makeKey,
  TestIssuer,
} from "../oauth/issuer.ts";

type Claims = Readonly<Record<string, unknown>>;

const [staff, staffx, app] = await Promise.all([
  TestIssuer.start(t),
  TestIssuer.start(t),
  TestIssuer.start(t),
]);

/** Answers of the introspection endpoint, by token. */
const answers = new Map<string, object>();
/** Questions about tokens that begin with `slow`. */
const waiting: ServerResponse[] = [];
const endpoint = createServer(async (request, response) => {
  const token = new URLSearchParams(await text(request)).get("token") ?? "";
  if (token.startsWith("slow")) waiting.push(response);
  else response.end(JSON.stringify(answers.get(token) ?? { active: false }));
});
const secretFile = path.join(temporaryHome(t), "secret");
writeFileSync(secretFile, "secret", { mode: 0o600 });
const introspection = `introspection = { url = "http://127.0.0.1:${await listening(t, endpoint)}", client_id = "g", client_secret_file = "${secretFile}", cache = 0 }`;

function issuerTable(prefix: string, url: string, keys: string): string {
  return `[[issuers]]\nissuer = "${url}"\nprefix = "${prefix}"\n${keys}\n`;
}
const groups = 'audience = "gatehouse"\ngroups_claim = "groups"';
const config = [
  issuerTable("staff", staff.url, `opens = ["query", "mcp"]\n${groups}\n${introspection}`),
  issuerTable("staffx", staffx.url, `opens = ["query"]\n${groups}`),
  // The client's id is the audience, as it is for ID tokens.
  issuerTable("app", app.url, 'opens = ["query"]\naudience = "the-app"'),
].join("");
const groupEntry = (group: string, database: string) =>
  `[[acl]]\ngroup = "${group}"\ndatabase = "${database}"\nrole = "ReadOnly"\n`;
const rights = [
  grant("staff:alice", "main", "ReadOnly"),
  grant("app:alice", "main", "ReadOnly"),
  '[[groups]]\nname = "x"\nmembers = ["root"]\n',
  groupEntry("x", "local"),
  groupEntry("staff:x", "ofstaff"),
  groupEntry("staffx:x", "ofstaffx"),
].join("");
const upstream = await new RecordingUpstream().listen(t);
const gateway = await startGateway(t, {
  home: await staffedHome(t, ["root main Owner"], rights),
  upstream: upstream.url,
  config,
});
const from = (database: string) => ({ Select: { database, from: "t", columns: ["*"] } });
const select = from("main");
const sign = (claims: Claims = {}, issuer = staff) =>
  issuer.sign("gatehouse", { claims: { groups: [], ...claims } });
const codeOf = ({ status, body }: Answer) => `${status} ${body.code ?? ""}`.trim();
const query = async (token: string, content: object = select) =>
  codeOf(await gateway.query(content, token));

function keyOf({ keys: [key] }: TestIssuer): IssuerKey {
  if (key === undefined) throw new Error("the issuer has no key");
  return key;
}

t.test("a signature that the issuer's key did not make opens no door", async (t) => {
  const good = await sign();
  t.equal(await query(good), "200");
  const [, payload = "", signature = ""] = good.split(".");
  const { jwk } = keyOf(staff);
  const publicKey = createPublicKey({ key: { ...jwk }, format: "jwk" });
  const forged: [name: string, token: string][] = [];
  const secrets = {
    PEM: publicKey.export({ type: "spki", format: "pem" }),
    DER: publicKey.export({ type: "spki", format: "der" }),
    JWK: JSON.stringify(jwk),
    x: String(jwk.x),
    nothing: "",
  };
  for (const [name, secret] of Object.entries(secrets)) {
    const head = `${encodePart({ alg: "HS256", kid: "first", typ: "at+jwt" })}.${payload}`;
    const mac = createHmac("sha256", secret).update(head).digest("base64url");
    forged.push([`HS256 with the public key as ${name}`, `${head}.${mac}`]);
  }
  for (const alg of ["none", "None", "NONE", "", null, ["ES256"], undefined, "RS256", "ES384"]) {
    const head = `${encodePart({ alg, kid: "first", typ: "at+jwt" })}.${payload}`;
    forged.push([`${alg} with the signature of another algorithm`, `${head}.${signature}`]);
    forged.push([`${alg} without a signature`, `${head}.`]);
  }
  const zeros = Buffer.alloc(64).toString("base64url");
  const head = good.slice(0, good.lastIndexOf("."));
  forged.push(["a signature of zeros", `${head}.${zeros}`]);
  const mallory = await makeKey("first");
  const own = {
    "a key of its own": {},
    "a key in the token": { jwk: mallory.jwk },
    "a key elsewhere": { jku: `${app.origin}/keys`, x5u: `${app.origin}/keys` },
    "an extension": { crit: ["b64"], b64: true },
  };
  for (const [name, header] of Object.entries(own)) {
    const token = await staff.sign("gatehouse", { key: mallory, header, claims: { groups: [] } });
    forged.push([name, token]);
  }
  const fetches = [staff.fetches, app.fetches];
  for (const [name, token] of forged) {
    for (const door of ["/query", "/mcp"]) {
      const answer =
        door === "/mcp"
          ? await send(gateway, statelessCall("tools/list"), token)
          : await gateway.query(select, token);
      // An algorithm of another kind of key may be that of a key which has just been added.
      const isOk = answer.status === 401 || codeOf(answer) === "503 issuer_unreachable";
      t.ok(isOk, `${name} at ${door}: ${codeOf(answer)}`);
    }
  }
  t.strictSame(app.fetches, fetches[1], "no key is fetched because a token says so");
  t.ok(staff.fetches <= (fetches[0] ?? 0) + 1);
  t.strictSame(upstream.take().length, 1);
});

t.test("no issuer speaks for another, for the gateway, or for its users", async (t) => {
  const wrong: [name: string, token: string][] = [
    ["another issuer's name", await sign({ iss: staffx.url })],
    ["a list of issuers", await sign({ iss: [staff.url, staffx.url] })],
    ["the issuer of login tokens", await sign({ iss: "gatehouse", sub: "root", database: "*" })],
    ["the gateway itself", await sign({ iss: gateway.url, sub: "root" })],
    ["a name with a slash", await sign({ iss: `${staff.url}/` })],
    ["a name in capitals", await sign({ iss: staff.url.replace("staff", "STAFF") })],
  ];
  for (const [name, token] of wrong) t.equal(await query(token), "401 token_invalid", name);
  t.equal(await query(await sign({ sub: "staff:alice" }, staffx)), "403 no_grant");
  t.equal(await query(await sign({ sub: "x:alice" })), "403 no_grant");
  t.equal(await query(await sign({ sub: "group:staff:x" }), from("ofstaff")), "403 no_grant");
});

t.test("a group of a token is never a local group or that of another issuer", async (t) => {
  const databases = ["local", "ofstaff", "ofstaffx"];
  const opened = async (names: readonly string[], issuer: TestIssuer) => {
    const token = await sign({ sub: "mallory", groups: names }, issuer);
    const codes = await Promise.all(databases.map((name) => query(token, from(name))));
    return databases.filter((_, at) => codes[at] === "200").join();
  };
  t.equal(await opened(["x"], staff), "ofstaff");
  t.equal(await opened(["x"], staffx), "ofstaffx");
  const names = ["group:x", "group:staff:x", "staff:x", "staffx:x", ":x", "x:x", "../x", "X", " x"];
  for (const issuer of [staff, staffx]) t.equal(await opened(names, issuer), "");
  const { body } = await gateway.get("/api/me", await sign({ groups: names }));
  t.match(body.access, [{ database: "main" }]);
  t.equal((body.access as unknown[]).length, 1);
});

t.test("strange claims are refused or ignored, and break nothing", async (t) => {
  const now = Math.floor(Date.now() / 1000);
  const raw = async (json: string) => {
    const key = keyOf(staff).privateKey;
    const head = `${encodePart({ alg: "ES256", kid: "first", typ: "at+jwt" })}.${Buffer.from(json).toString("base64url")}`;
    const signed = await crypto.subtle.sign(
      { name: "ECDSA", hash: "SHA-256" },
      key,
      Buffer.from(head),
    );
    return `${head}.${Buffer.from(signed).toString("base64url")}`;
  };
  const start = `{"iss":"${staff.url}","aud":"gatehouse","iat":${now},"exp":${now + 60},"groups":[]`;
  const twice = await raw(`${start},"sub":"alice","sub":"mallory"}`);
  const { user } = await auditOf(gateway, await gateway.query(select, twice));
  t.equal(user, "staff:mallory", "the last of equal names counts (RFC 7519, section 4)");
  const other = await raw(`${start},"sub":"alice","iss":"${staffx.url}"}`);
  t.equal(await query(other), "401 token_invalid", "for the choice of the key, too");
  const deep = `${"[".repeat(5000)}${"]".repeat(5000)}`;
  for (const claim of ["x", "groups", "tenant_id", "sub", "aud", "scope", "jti", "cnf"]) {
    const answer = await gateway.query(
      select,
      await raw(`${start},"sub":"alice","${claim}":${deep}}`),
    );
    t.ok(answer.status < 500, `deep ${claim}: ${codeOf(answer)}`);
  }
  const proto = `"__proto__":{"sub":"alice","groups":["x"]},"constructor":{"prototype":{"a":1}}`;
  t.equal(
    await query(await raw(`${start},${proto}}`)),
    "401 token_invalid",
    "no name is inherited",
  );
  for (const json of ["null", "[]", "1", '"x"', "{", "", "{}", `${start}}x`, `\ufeff{}`]) {
    t.equal(await query(await raw(json)), "401 token_invalid", json);
  }
  const many = Array.from({ length: 1001 }, (_, at) => `g${at}`);
  t.equal(await query(await sign({ groups: many })), "403 groups_unavailable");
  t.equal(await query(await sign({ groups: many.slice(1) })), "200");
  const times = [now + 60.5, 1e20, 1e300, "1e400", now + 400 * 86_400];
  for (const exp of times) {
    const token = await raw(
      `{"iss":"${staff.url}","aud":"gatehouse","iat":${now - 0.5},"exp":${exp},"groups":[],"sub":"alice","jti":"exp-${exp}"}`,
    );
    t.equal(await query(token), "200", `exp ${exp}`);
    t.equal((await gateway.get("/api/me", token)).status, 200);
    const tools = await send(gateway, statelessCall("tools/list"), token);
    t.ok(tools.status < 500, `exp ${exp} at /mcp: ${codeOf(tools)}`);
    await succeed(gateway.send("POST", "/logout", undefined, token));
    t.equal(await query(token), "401 token_revoked", `exp ${exp}`);
  }
  const old = await sign({ iat: now - 367 * 86_400, exp: now + 60 });
  t.equal(await query(old), "401 token_expired", "revocations are kept for 366 days");
  t.match(await runWarm(gateway.home, ["token", "list"]), { code: 0 }, "revocations are readable");
  for (const line of readFileSync(path.join(gateway.home, "revocations"), "utf8")
    .trim()
    .split("\n")) {
    t.ok(Number.isSafeInteger(JSON.parse(line).until), line);
  }
  upstream.take();
});

t.test("one opaque token is revoked, not those with the same beginning", async (t) => {
  const now = Math.floor(Date.now() / 1000);
  const active = {
    active: true,
    sub: "alice",
    aud: "gatehouse",
    iat: now,
    exp: now + 60,
    groups: [],
  };
  for (const token of ["ya29.one", "ya29.two", "a.b.one", "a.b.two"]) answers.set(token, active);
  for (const [one, two] of [
    ["ya29.one", "ya29.two"],
    ["a.b.one", "a.b.two"],
  ] as const) {
    t.equal(await query(one), "200");
    await succeed(gateway.send("POST", "/logout", undefined, one));
    t.equal(await query(one), "401 token_revoked");
    t.equal(await query(two), "200", two);
  }
});

t.test("made-up keys and a silent issuer keep no valid token waiting", async (t) => {
  const issuer = await TestIssuer.start(t);
  const issuers = issuersWith(issuerSettings(issuer.url, { opens: ["query"], audience: "a" }));
  t.teardown(() => issuers.close());
  const sign = (header: object) => issuer.sign("a", { header, claims: { jti: undefined } });
  const verify = async (header = {}) => issuers.verify(await sign(header), "query");
  await verify();
  stopClock(t, Date.now() + 6000);
  issuer.isSilent = true;
  let refused = 0;
  const before = issuer.requests;
  const tokens = await Promise.all(
    Array.from({ length: 200 }, (_, at) => sign({ kid: `made-up-${at}` })),
  );
  const storm = tokens.map(async (token) => {
    const refusal = await refusedBy(issuers.verify(token, "query"));
    refused++;
    return refusal;
  });
  await eventually("the issuer is asked", () => issuer.requests > before);
  const asked = issuer.requests;
  t.match(await verify({ cty: "fresh" }), { user: "staff:alice" });
  t.equal(refused, 0, "the storm still waits");
  await issuer.stop();
  const refusals = await Promise.all(storm);
  t.match(refusals[0], { code: "issuer_unreachable", status: 503, retryAfter: 2 });
  t.equal(new Set(refusals.map(({ code }) => code)).size, 1);
  t.equal(issuer.requests, asked, "asked once for all");
  t.match(await verify({ cty: "later" }), { user: "staff:alice" });
});

t.test("a slow introspection endpoint delays only tokens that need it", async (t) => {
  const root = await tokenOf(gateway, "root");
  const excess: Answer[] = [];
  const made = Array.from({ length: 100 }, async (_, at) => {
    const answer = await gateway.query(select, `slow-${at}`);
    if (answer.status === 503) excess.push(answer);
    return answer;
  });
  await eventually("the endpoint is asked", () => waiting.length + excess.length === 100);
  t.equal(await query(await sign({ jti: "quick" })), "200");
  t.equal(await query(root), "200");
  t.equal(waiting.length, 64);
  t.equal(excess[0]?.headers.get("retry-after"), "1");
  for (const response of waiting) response.end('{"active":false}');
  const codes = (await Promise.all(made)).map(codeOf);
  t.strictSame([...new Set(codes)].sort(), ["401 token_invalid", "503 issuer_unreachable"]);
});

t.test("a key set that is replaced by anything else leaves the last good one in use", async (t) => {
  const file = path.join(temporaryHome(t), "keys.json");
  const { jwk } = keyOf(staff);
  const write = (content: string | Buffer) => writeFileSync(file, content);
  write(JSON.stringify({ keys: [jwk] }));
  const settings = { opens: ["query"], audience: "gatehouse", jwks_file: file } as const;
  const issuers = issuersWith(issuerSettings(staff.url, settings));
  t.teardown(() => issuers.close());
  const verify = async (header = {}) =>
    issuers.verify(await staff.sign("gatehouse", { header }), "query");
  await verify();
  const garbage = {
    nothing: "",
    "bytes that are not UTF-8": Buffer.from([0xff, 0xfe, 0x00]),
    "half a file": JSON.stringify({ keys: [jwk] }).slice(0, -9),
    "a large file": `{"keys":[],"x":"${"x".repeat(300_000)}"}`,
    "deep arrays": "[".repeat(100_000),
  };
  for (const [name, content] of Object.entries(garbage)) {
    write(content);
    t.match(await refusedBy(verify({ kid: "another" })), { code: "issuer_unreachable" }, name);
    t.match(await verify(), { user: "staff:alice" }, name);
  }
  rmSync(file);
  mkdirSync(file);
  t.match(await refusedBy(verify({ kid: "another" })), { code: "issuer_unreachable" });
  t.match(await verify(), { user: "staff:alice" }, "a directory");
  rmSync(file, { recursive: true });
  for (const key of [
    { kty: "EC", kid: "first", crv: "P-256", x: "AA", y: "AA" },
    { ...jwk, use: "enc" },
    { ...jwk, d: "AA" },
    { kty: "oct", kid: "first", k: "AA" },
  ]) {
    write(JSON.stringify({ keys: [key] }));
    const isRefused = async () => {
      const outcome = await verify().catch((error: unknown) => error);
      return outcome instanceof Refusal && outcome.code === "token_invalid";
    };
    await eventually(`an unusable key: ${JSON.stringify(key)}`, isRefused);
  }
});
