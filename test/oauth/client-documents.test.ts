import { spawnSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { createSocket, type Socket } from "node:dgram";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { mock } from "node:test";
import { SignJWT } from "jose";
import t, { type Test } from "tap";
import { epochSeconds } from "../../src/core/base/clock.ts";
import { startGateway, temporaryHome } from "../kit/gateway.ts";
import { tables } from "../kit/tables.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { PlainBrowser } from "./browser.ts";
import { authorize, exchange } from "./flow.ts";
import { type IssuerKey, makeKey } from "./issuer.ts";
import {
  authorizeUrl,
  documentsOf,
  type OAuthSetup,
  openOAuthSetup,
  postForm,
  REDIRECT,
} from "./kit.ts";

const CLIENT = "https://app.example.com/oauth/client.json";
const KEYS = "https://app.example.com/oauth/keys.json";
const key = await makeKey("first", "RS256");

/** As ChatGPT has it. */
const document = {
  client_id: CLIENT,
  client_name: "ChatGPT",
  client_uri: "https://app.example.com",
  redirect_uris: [REDIRECT],
  grant_types: ["authorization_code", "refresh_token"],
  response_types: ["code"],
  token_endpoint_auth_method: "private_key_jwt",
  token_endpoint_auth_methods_supported: ["none", "private_key_jwt"],
  token_endpoint_auth_signing_alg: "RS256",
  jwks_uri: KEYS,
};

function open(t: Test, changes: object = {}, keys: unknown = { keys: [key.jwk] }) {
  const all = { [CLIENT]: { ...document, ...changes }, [KEYS]: keys };
  return openOAuthSetup(t, { documents: documentsOf(all) });
}

/** Parameters of a client that authenticates with a key (RFC 7523, section 2.2). */
async function signed(
  { url }: OAuthSetup,
  { privateKey, alg, kid }: IssuerKey = key,
  seconds = 60,
) {
  const times = { iat: epochSeconds(), exp: epochSeconds() + seconds };
  const claims = { iss: CLIENT, sub: CLIENT, aud: `${url}/oauth/token`, jti: randomUUID() };
  const token = new SignJWT({ ...claims, ...times }).setProtectedHeader({ alg, kid });
  return {
    client_assertion_type: "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
    client_assertion: await token.sign(privateKey),
  };
}

async function connect(setting: OAuthSetup, by: object = {}) {
  const authorized = await authorize(setting, { clientId: CLIENT });
  return exchange(setting, authorized, { ...by });
}

t.test("a client may leave out the key that its document makes optional", async (t) => {
  const setting = await open(t);
  const refreshBy = async (token: unknown, by: object) =>
    postForm(`${setting.url}/oauth/token`, {
      grant_type: "refresh_token",
      client_id: CLIENT,
      refresh_token: String(token),
      ...by,
    });
  const first = await connect(setting, await signed(setting));
  t.equal(first.status, 200, "with the key");
  const next = await refreshBy(first.body.refresh_token, await signed(setting));
  t.equal(next.status, 200);
  const forged = await connect(setting, await signed(setting, await makeKey("first", "RS256")));
  t.match(forged, { status: 401, body: { error: "invalid_client" } }, "another key");
  const anonymous = await connect(setting);
  t.equal(anonymous.status, 200, "without a key");
  t.equal((await refreshBy(anonymous.body.refresh_token, {})).status, 200);
});

const { token_endpoint_auth_methods_supported: _, ...keyed } = document;
const inline = { ...keyed, jwks_uri: null, jwks: { keys: [key.jwk] } };
const alone = { token_endpoint_auth_methods_supported: ["private_key_jwt"] };

t.test("a client whose document demands a key needs it", async (t) => {
  for (const [name, changes] of Object.entries({
    alone,
    absent: { token_endpoint_auth_methods_supported: null },
    "the method is chosen": { ...alone, token_endpoint_auth_method: null },
    inline: { ...inline, ...alone },
  })) {
    const setting = await open(t, changes);
    t.equal((await connect(setting, await signed(setting))).status, 200, name);
    t.match(await connect(setting), { status: 401, body: { error: "invalid_client" } }, name);
  }
});

t.test("a client's assertion expires within an hour, also between two seconds", async (t) => {
  const setting = await open(t, alone);
  for (const [seconds, expected] of [
    [60.5, 200],
    [3590, 200],
    [3700, 401],
    [1e20, 401],
  ] as const) {
    const { status } = await connect(setting, await signed(setting, key, seconds));
    t.equal(status, expected, String(seconds));
  }
  t.match(setting.events.at(-1)?.fields.reason, "expires too late");
});

t.test("unknown members, values and keys of a document do no harm", async (t) => {
  const others = [null, 1, "x", {}, { kty: "oct", k: "c2VjcmV0" }, { kty: "EC", crv: "P-256" }];
  const keys = { keys: [...others, { ...key.jwk, x5c: null, unknown: [] }] };
  for (const changes of [
    { logo_uri: null, contacts: "none", scope: ["x"], jwks: null, software_id: {} },
    { token_endpoint_auth_methods_supported: [null, 1, "tls_client_auth", "private_key_jwt"] },
    { token_endpoint_auth_method: "tls_client_auth" },
    { grant_types: ["authorization_code", "urn:ietf:params:oauth:grant-type:jwt-bearer", "x"] },
    { grant_types: null, response_types: ["code", "token"] },
    { jwks_uri: null, jwks: keys },
  ]) {
    const setting = await open(t, changes, keys);
    t.equal((await connect(setting, await signed(setting))).status, 200, JSON.stringify(changes));
  }
});

t.test("a rotated key counts at once, and a made-up one causes few requests", async (t) => {
  const keys = { keys: [key.jwk] };
  let fetched = 0;
  const setting = await openOAuthSetup(t, {
    documents: (url) => {
      if (url === KEYS) fetched += 1;
      return documentsOf({ [CLIENT]: document, [KEYS]: keys })(url);
    },
  });
  const now = performance.now.bind(performance);
  let passed = 0;
  mock.method(performance, "now", () => now() + passed);
  t.teardown(() => mock.restoreAll());
  t.equal((await connect(setting, await signed(setting))).status, 200);
  const second = await makeKey("second");
  keys.keys = [second.jwk];
  passed = 6000;
  t.equal((await connect(setting, await signed(setting, second))).status, 200);
  t.equal(fetched, 2);
  const madeUp = await makeKey("third");
  for (let at = 0; at < 3; at++) {
    t.equal((await connect(setting, await signed(setting, madeUp))).status, 401);
  }
  t.equal(fetched, 2);
});

t.test("the reason why a document is refused is in the audit and on the page", async (t) => {
  const cases: [changes: object, reason: RegExp][] = [
    [{ client_id: `${CLIENT}2` }, /client_id: must be the URL of the document/],
    [{ client_id: null }, /client_id: must be the URL/],
    [{ jwks_uri: null }, /must contain either jwks or jwks_uri/],
    [
      {
        token_endpoint_auth_method: "client_secret_post",
        token_endpoint_auth_methods_supported: ["client_secret_post"],
      },
      /token_endpoint_auth_method: must be none or private_key_jwt/,
    ],
    [{ jwks: { keys: [key.jwk] } }, /must contain either jwks or jwks_uri/],
    [{ jwks_uri: "http://app.example.com/keys" }, /jwks_uri/],
    [{ jwks_uri: null, jwks: { keys: [{ kty: "oct" }] } }, /jwks\.keys: must contain a public key/],
    [{ redirect_uris: "x" }, /redirect_uris: .*expected array/],
    [{ redirect_uris: ["myapp://cb"] }, /the scheme myapp is not in mcp\.app_schemes/],
    [{ grant_types: ["client_credentials"] }, /grant_types/],
    [{ jwks: { keys: [{ kid: "€".repeat(4000) }] } }, /larger than 5120 bytes/],
    [{ client_uri: "€".repeat(1700) }, /larger than 5120 bytes/],
  ];
  for (const [changes, reason] of cases) {
    const setting = await open(t, changes);
    const url = authorizeUrl(setting, { client_id: CLIENT });
    const page = await new PlainBrowser(setting.url).open(url);
    t.equal(page.status, 400, String(reason));
    t.match(page.text, reason);
    t.match(page.text, "ask the operator of this gateway");
    const { name, fields } = setting.events.at(-1) ?? {};
    t.match({ name, ...fields }, { name: "oauth_client", document: CLIENT, outcome: "refused" });
    t.match(fields?.reason, reason);
  }
});

t.test("a document that cannot be fetched reveals nothing of the network", async (t) => {
  for (const error of ["the host has an address that is not public", "connect ECONNREFUSED"]) {
    const setting = await openOAuthSetup(t, { documents: () => Promise.reject(new Error(error)) });
    const url = authorizeUrl(setting, { client_id: CLIENT });
    const page = await new PlainBrowser(setting.url).open(url);
    t.match(page.text, "invalid_client_metadata: the document cannot be fetched");
    t.notMatch(page.text, error);
    t.equal(setting.events.at(-1)?.fields.reason, error);
  }
});

t.test("the reason why a key set is refused is in the audit", async (t) => {
  const setting = await open(t, alone, { keys: [{ kty: "oct", k: "c2VjcmV0" }] });
  t.equal((await connect(setting, await signed(setting))).status, 401);
  const refused = setting.events.find(({ name }) => name === "oauth_client");
  t.match(refused?.fields, { document: KEYS, reason: /must contain a public key/ });
});

const SILENT_SERVER = "127.77.0.53";

/** A name server that takes questions and answers none; undefined where none can be. */
async function openSilentNames(t: Test): Promise<Socket | undefined> {
  const socket = createSocket("udp4");
  t.teardown(() => socket.close());
  socket.bind(53, SILENT_SERVER);
  return once(socket, "listening").then(
    () => socket,
    () => undefined,
  );
}

t.test("hosts of documents whose names are not found keep no one else waiting", async (t) => {
  const ownMounts = ["unshare", "--map-root-user", "--mount", "sh", "-e", "-c"];
  const home = temporaryHome(t);
  const file = path.join(home, "resolv.conf");
  writeFileSync(file, `nameserver ${SILENT_SERVER}\n`);
  const bind = `mount --bind ${file} /etc/resolv.conf`;
  const [program = "", ...flags] = ownMounts;
  const canMount = spawnSync(program, [...flags, bind]).status === 0;
  const names = canMount ? await openSilentNames(t) : undefined;
  if (names === undefined) {
    t.comment("this system allows no mounts, or no name server on port 53");
    return;
  }
  const asked = once(names, "message");
  const upstream = await new RecordingUpstream().listen(t);
  const gateway = await startGateway(t, {
    // A connection to it looks its name up.
    upstream: upstream.url.replace("127.0.0.1", "localhost"),
    config: tables("routes", [{ path: "/status", access: "public" }]),
    through: [...ownMounts, `${bind}; exec "$0" "$@"`],
  });
  const visits = Array.from({ length: 10 }, (_, at) => {
    const client = { client_id: `https://host${at}.example.com/client.json` };
    return fetch(authorizeUrl(gateway, client));
  });
  await asked;
  t.equal((await gateway.request("/status")).status, 200);
  for (const { status } of await Promise.all(visits)) t.equal(status, 400);
});
