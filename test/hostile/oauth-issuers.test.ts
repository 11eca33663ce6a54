import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { gzipSync } from "node:zlib";
import { SignJWT } from "jose";
import { pino } from "pino";
import t, { type Test } from "tap";
import { createExternalIssuers } from "../../src/oauth/external-issuers.ts";
import { makeKey } from "../oauth/issuer.ts";

const resource = "https://gate.example.com/mcp";
const key = await makeKey("first");
const keys = JSON.stringify({ keys: [key.jwk] });
const large = JSON.stringify({ keys: [key.jwk], padding: "x".repeat(300 * 1024) });

/** What an issuer answers with, at either of its places. */
type Behaviour = (response: ServerResponse, text: string) => void;

function json(response: ServerResponse, text: string | Buffer, headers = {}): void {
  response.writeHead(200, { "content-type": "application/json", ...headers }).end(text);
}

/** Sends a little at a time, for ever. */
function drip(response: ServerResponse): void {
  response.writeHead(200, { "content-type": "application/json" });
  const timer = setInterval(() => response.write(" "), 200);
  response.once("close", () => clearInterval(timer));
}

/** An issuer that behaves so, and how its good token fares. */
async function refusalOf(
  t: Test,
  behaviour: { readonly metadata?: Behaviour; readonly keys?: Behaviour },
): Promise<{ code: string; asked: string[] }> {
  const asked: string[] = [];
  const server = createServer(({ url: place = "" }, response) => {
    asked.push(place);
    const text = JSON.stringify({ issuer: url, jwks_uri: `${url}/keys` });
    if (place === "/keys") (behaviour.keys ?? json)(response, keys);
    else if (place.startsWith("/elsewhere")) json(response, place.endsWith("keys") ? keys : text);
    else (behaviour.metadata ?? json)(response, text);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    server.close();
    server.closeAllConnections();
  });
  const address: AddressInfo | string | null = server.address();
  const url = `http://127.0.0.1:${typeof address === "object" ? address?.port : ""}`;
  const settings = { issuer: url, prefix: "staff", username_claim: "sub" };
  const issuers = createExternalIssuers([settings], () => resource, pino({ level: "silent" }));
  const token = await signFor(url);
  const outcome = issuers.verify(url, token).then(({ user }) => user);
  const code = await outcome.catch((error: { code?: string }) => String(error.code));
  return { code, asked };
}

/** A token of this issuer's user `alice`. */
async function signFor(issuer: string): Promise<string> {
  return new SignJWT({})
    .setProtectedHeader({ alg: key.alg, kid: key.kid, typ: "at+jwt" })
    .setIssuer(issuer)
    .setAudience(resource)
    .setSubject("alice")
    .setIssuedAt()
    .setExpirationTime("10m")
    .sign(key.privateKey);
}

const somewhere =
  (place: string): Behaviour =>
  (response) =>
    void response.writeHead(302, { location: place }).end();

const behaviours: Readonly<Record<string, Parameters<typeof refusalOf>[1]>> = {
  "metadata that is elsewhere": { metadata: somewhere("/elsewhere/metadata") },
  "keys that are elsewhere": { keys: somewhere("/elsewhere/keys") },
  "more metadata than anyone needs": {
    metadata: (response, text) => json(response, text + " ".repeat(300 * 1024)),
  },
  "more keys than anyone needs": { keys: (response) => json(response, large) },
  "many keys in few bytes": {
    keys: (response) => json(response, gzipSync(large), { "content-encoding": "gzip" }),
  },
  "metadata that comes slowly": { metadata: drip },
  "keys that come slowly": { keys: drip },
  "metadata that never comes": { metadata: () => {} },
  "keys that never come": { keys: () => {} },
  "keys that break off": {
    keys: (response) => {
      response.writeHead(200, { "content-length": "9999" }).write(keys);
      setTimeout(() => response.destroy(), 50);
    },
  },
  "keys beyond https": {
    metadata: (response, text) =>
      json(response, text.replace(/"jwks_uri":"[^"]*"/, '"jwks_uri":"http://192.0.2.1/keys"')),
  },
  "keys in a file": {
    metadata: (response, text) =>
      json(response, text.replace(/"jwks_uri":"[^"]*"/, '"jwks_uri":"file:///etc/passwd"')),
  },
  "a name that is nearly its own": {
    metadata: (response, text) => json(response, text.replace(/("issuer":"[^"]*)"/, '$1/"')),
  },
};

t.test("an issuer that behaves oddly is out of reach, and soon", async (t) => {
  const outcomes = Object.entries(behaviours).map(async ([what, behaviour]) => {
    const { code, asked } = await refusalOf(t, behaviour);
    t.equal(code, "issuer_unreachable", what);
    t.notOk(
      asked.some((place) => place.startsWith("/elsewhere")),
      "no redirect is followed",
    );
  });
  await Promise.all(outcomes);
  t.equal((await refusalOf(t, {})).code, "staff:alice", "and one that does not is not");
});
