import { generateKeyPairSync, randomBytes } from "node:crypto";
import { chmodSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { createRemoteJWKSet, exportJWK, generateKeyPair, type JWK, jwtVerify } from "jose";
import type { Test } from "tap";
import t from "tap";
import type { SigningAlgorithm } from "../../src/core/identity/jwt-verification.ts";
import { keyFilesIn } from "../../src/core/identity/key-file.ts";
import {
  canSign,
  ensureSigner,
  findSigner,
  type KeyStore,
  keyState,
  makeKey,
  noteMachineToken,
  openLiveKeyRing,
  revokeKey,
  rotateKey,
  type StoredKey,
} from "../../src/core/identity/key-store.ts";
import { refusedBy } from "../access/kit.ts";
import { openGatewaySetup, select } from "../gateway/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { type TestGateway, temporaryHome } from "../kit/gateway.ts";
import { runCommand } from "../kit/process.ts";
import { readKey, readKeys } from "./forge.ts";

const privateMembers = ["d", "p", "q", "dp", "dq", "qi", "k", "oth"];

async function checkPublished(t: Test, gateway: TestGateway, algorithm: string): Promise<string> {
  const token = await gateway.login();
  t.equal((await gateway.query(select, token)).status, 200);
  const { headers, body } = await gateway.request("/.well-known/jwks.json");
  t.match(headers.get("content-type"), /^application\/json/);
  const key = readKeys(gateway.home).find(({ alg }) => alg === algorithm);
  t.match(body.keys, [{ alg: algorithm, use: "sig", kid: key?.kid }]);
  t.equal([body.keys].flat().length, 1);
  for (const name of privateMembers) t.notMatch(JSON.stringify(body), `"${name}":`);
  const published = createRemoteJWKSet(new URL(`${gateway.url}/.well-known/jwks.json`));
  const { payload, protectedHeader } = await jwtVerify(token, published, {
    issuer: "gatehouse",
    audience: "gatehouse",
    typ: "JWT",
    algorithms: [algorithm],
  });
  t.equal(payload.sub, "admin");
  t.equal(protectedHeader.alg, algorithm);
  return token;
}

t.test("RS256 tokens work at the gateway and verify with the published key", async (t) => {
  const { gateway } = await openGatewaySetup(t, { auth: 'signing_algorithm = "RS256"' });
  await checkPublished(t, gateway, "RS256");
});

t.test("HS256 works and publishes no key", async (t) => {
  const { gateway } = await openGatewaySetup(t, { auth: 'signing_algorithm = "HS256"' });
  t.equal((await gateway.query(select, await gateway.login())).status, 200);
  const { body, text } = await gateway.request("/.well-known/jwks.json");
  t.strictSame(body, { keys: [] });
  t.notMatch(text, readKey(gateway.home).kid);
});

// The gateways of the next tests follow each other on one service directory.
const home = temporaryHome(t);
const directory = path.join(home, "keys");
let old = "";

t.test("keys are private to their owner and survive a restart, and so do tokens", async (t) => {
  const { gateway } = await openGatewaySetup(t, { home });
  old = await checkPublished(t, gateway, "ES256");
  const { kid } = readKey(home);
  t.equal(statSync(directory).mode & 0o777, 0o700);
  t.equal(statSync(path.join(directory, `${kid}.json`)).mode & 0o777, 0o600);
  t.equal(await gateway.service.stop(), 0);

  chmodSync(path.join(directory, `${kid}.json`), 0o644);
  const { gateway: again } = await openGatewaySetup(t, { home, auth: "check_permissions = false" });
  t.equal(readKey(home).kid, kid);
  t.equal((await again.query(select, old)).status, 200);
  await again.service.stop();
  chmodSync(path.join(directory, `${kid}.json`), 0o600);
});

t.test("another algorithm has its own key and refuses tokens of the old one", async (t) => {
  const auth = 'signing_algorithm = "EdDSA"';
  const { gateway: changed } = await openGatewaySetup(t, { home, auth });
  const algorithms = readKeys(home).map(({ alg }) => alg);
  t.strictSame(algorithms.sort(), ["ES256", "EdDSA"]);
  t.equal((await changed.query(select, old)).body.code, "token_invalid");
  await checkPublished(t, changed, "EdDSA");
  await changed.service.stop();

  const { gateway: back } = await openGatewaySetup(t, { home });
  t.equal((await back.query(select, old)).status, 200, "the old key is still there");
  await back.service.stop();
});

t.test("a broken key file prevents the start, and the message does not quote it", async (t) => {
  const { kid = "", jwk } = readKeys(home).find(({ alg }) => alg === "ES256") ?? {};
  const file = path.join(directory, `${kid}.json`);
  const whole = readFileSync(file, "utf8");
  const broken = [
    whole.slice(0, -20),
    whole.replace('"kid"', '"name"'),
    whole.replace(`"d": "${jwk?.d}"`, `"e": "${jwk?.d}"`),
  ];
  for (const text of broken) {
    writeFileSync(file, text);
    const { code, stdout, stderr } = await runCommand(home, ["serve", "--port", "0"]);
    t.equal(code, 1);
    t.match(`${stdout}${stderr}`, file);
    t.notMatch(`${stdout}${stderr}`, String(jwk?.d));
  }
  writeFileSync(file, whole);
});

t.test("keys without an access file prevent the start, with advice", async (t) => {
  rmSync(path.join(home, "access_control.toml"));
  const { code, stdout, stderr } = await runCommand(home, ["serve", "--port", "0"]);
  t.equal(code, 1);
  const output = `${stdout}${stderr}`;
  t.match(output, "restore the file");
  t.match(output, /`\/\S+\/gatehouse user add <name> --admin`/);
  t.notOk(readdirSync(home).includes("access_control.toml"), "no new administrator");
});

const LIFETIME = 3600;

function now(): number {
  return Math.floor(Date.now() / 1000);
}

async function put(keys: KeyStore, key: StoredKey): Promise<StoredKey> {
  await keys.change(async () => [{ kind: "put", key }]);
  return key;
}

function noKeys(t: Test): KeyStore {
  return keyFilesIn(temporaryHome(t), { checkRead: true });
}

async function oneKey(t: Test): Promise<{ keys: KeyStore; old: StoredKey }> {
  const keys = noKeys(t);
  return { keys, old: await put(keys, await makeKey("ES256")) };
}

async function find(keys: KeyStore, kid: string): Promise<StoredKey | undefined> {
  return (await keys.read()).find((key) => key.kid === kid);
}

t.test("a retired key verifies until its login tokens have expired", async (t) => {
  const { keys, old } = await oneKey(t);
  const earliest = now() + LIFETIME;
  const made = await rotateKey(keys, "ES256", LIFETIME);
  t.equal(findSigner(await keys.read(), "ES256")?.kid, made.kid);
  const { verifies_until: until = 0 } = (await find(keys, old.kid)) ?? {};
  t.ok(until > earliest, "covers tokens issued until every gateway knows the new key");
  t.ok(until < earliest + 120);
});

t.test("a new key verifies at every gateway before it signs", async (t) => {
  const { keys, old } = await oneKey(t);
  const propagated: StoredKey[][] = [];
  const watched = {
    ...keys,
    propagated: async () => void propagated.push([...(await keys.read())]),
  };
  const { kid } = await rotateKey(watched, "ES256", LIFETIME);
  const [between = []] = propagated;
  t.equal(findSigner(between, "ES256")?.kid, old.kid);
  const made = between.find((key) => key.kid === kid);
  t.equal(made && keyState(made, now()), "verifies");
  t.equal(findSigner(await keys.read(), "ES256")?.kid, kid);
});

t.test("a new key that is revoked during its rotation stays revoked", async (t) => {
  const { keys, old } = await oneKey(t);
  const propagated = async () => {
    const made = (await keys.read()).find(({ kid }) => kid !== old.kid);
    await revokeKey(keys, "ES256", made?.kid ?? "");
  };
  const refused = await refusedBy(rotateKey({ ...keys, propagated }, "ES256", LIFETIME));
  t.equal(refused?.code, "key_not_found");
  t.strictSame(await keys.read(), [old]);
});

t.test("a retired key verifies until its longest machine token has expired", async (t) => {
  const { keys, old } = await oneKey(t);
  const later = now() + 10 * LIFETIME;
  await noteMachineToken(keys, old.kid, later);
  await noteMachineToken(keys, old.kid, later - 1);
  await rotateKey(keys, "ES256", LIFETIME);
  t.equal((await find(keys, old.kid))?.verifies_until, later);
});

t.test("a second rotation extends no key and deletes expired keys", async (t) => {
  const { keys, old } = await oneKey(t);
  const { kid } = await put(keys, await makeKey("ES256"));
  await put(keys, { ...old, verifies_until: now() + 10 });
  const past = await put(keys, { ...(await makeKey("EdDSA")), verifies_until: now() - 1 });
  await rotateKey(keys, "ES256", LIFETIME);
  t.ok(((await find(keys, old.kid))?.verifies_until ?? 0) <= now() + 10);
  t.ok((await find(keys, kid))?.verifies_until, "every key that signed is retired");
  t.equal(await find(keys, past.kid), undefined);
});

t.test("a rotation leaves keys of another algorithm as they are", async (t) => {
  const { keys, old } = await oneKey(t);
  await rotateKey(keys, "HS256", LIFETIME);
  t.strictSame(await find(keys, old.kid), old);
  t.equal(findSigner(await keys.read(), "ES256")?.kid, old.kid);
});

t.test("a retired key verifies through its last second", async (t) => {
  const { old } = await oneKey(t);
  const retired = { ...old, verifies_until: 100 };
  t.equal(keyState(old, 1e12), "signs");
  t.equal(keyState(retired, 100), "verifies");
  t.equal(keyState(retired, 101), "expired");
});

t.test("a machine token of a key that was just retired or deleted is not issued", async (t) => {
  const { keys, old } = await oneKey(t);
  await rotateKey(keys, "ES256", LIFETIME);
  for (const kid of [old.kid, "unknown"]) {
    const refusal = await refusedBy(noteMachineToken(keys, kid, now() + 10 * LIFETIME));
    t.equal(refusal.code, "key_not_found");
  }
});

t.test("a revoked key ends soon after its directory could be read again", async (t) => {
  const { keys, old } = await oneKey(t);
  await rotateKey(keys, "ES256", LIFETIME);
  let isFailing = false;
  const failures: unknown[] = [];
  const reading = <Result>(read: () => Promise<Result>) => {
    if (!isFailing) return read();
    throw Object.assign(new Error("too many open files"), { code: "EMFILE" });
  };
  const live = await openLiveKeyRing(
    {
      ...keys,
      read: async () => reading(() => keys.read()),
      names: async () => reading(() => keys.names()),
    },
    {
      algorithm: "ES256",
      mayCreate: false,
      onReplaced: () => {},
      onReload: () => {},
      onFailure: (error) => failures.push(error),
    },
  );
  t.teardown(() => live.close());
  isFailing = true;
  await revokeKey(keys, "ES256", old.kid);
  await eventually("the failure is reported", () => failures.length > 0);
  await delay(1200);
  t.equal(failures.length, 1, "and only once");
  t.ok(live.ring.verifier(old.kid));
  isFailing = false;
  await eventually("it is gone", () => live.ring.verifier(old.kid) === undefined);
});

t.test("a token of a machine changes no keys, a rotation does", async (t) => {
  const { keys, old } = await oneKey(t);
  const reloads: boolean[] = [];
  const live = await openLiveKeyRing(keys, {
    algorithm: "ES256",
    mayCreate: false,
    onReplaced: () => {},
    onReload: (isChanged) => reloads.push(isChanged),
    onFailure: (error) => t.fail(String(error)),
  });
  t.teardown(() => live.close());
  reloads.length = 0;
  await noteMachineToken(keys, old.kid, now() + 10 * LIFETIME);
  await eventually("the token is seen", () => reloads.length > 0);
  t.notOk(reloads.includes(true));
  await rotateKey(keys, "ES256", LIFETIME);
  await eventually("the new key is seen", () => reloads.includes(true));
});

t.test("revoking an unknown key is refused", async (t) => {
  const { keys, old } = await oneKey(t);
  for (const kid of ["unknown", "../access_control", ""]) {
    t.equal((await refusedBy(revokeKey(keys, "ES256", kid))).code, "key_not_found");
  }
  t.strictSame(await keys.read(), [old]);
});

t.test("no key name looks like a command-line option", async (t) => {
  // One thumbprint in 64 begins with a hyphen.
  const made = Array.from({ length: 300 }, () => makeKey("EdDSA"));
  for (const { kid } of await Promise.all(made)) t.match(kid, /^\w/);
});

t.test("simultaneous requests for a first key create one key", async (t) => {
  const keys = noKeys(t);
  await Promise.all(Array.from({ length: 8 }, () => ensureSigner(keys, "ES256")));
  t.equal((await keys.read()).length, 1);
});

t.test("simultaneous rotations leave one signing key and keep all others", async (t) => {
  const { keys } = await oneKey(t);
  await Promise.all(Array.from({ length: 5 }, () => rotateKey(keys, "ES256", LIFETIME)));
  const all = await keys.read();
  t.equal(all.length, 6);
  t.equal(all.filter((key) => key.verifies_until === undefined).length, 1);
});

async function generate(algorithm: string): Promise<JWK> {
  const { privateKey } = await generateKeyPair(algorithm, { extractable: true });
  return exportJWK(privateKey);
}

function isAccepted(alg: SigningAlgorithm, jwk: JWK): Promise<boolean> {
  return canSign({ kid: "k", alg, created: 1, jwk: { ...jwk, kty: jwk.kty ?? "" } });
}

function secret(bytes: number): JWK {
  return { kty: "oct", k: randomBytes(bytes).toString("base64url") };
}

t.test("a stored key must be able to sign with the algorithm of its file", async (t) => {
  const [ec, other, ed] = [
    await generate("ES256"),
    await generate("ES256"),
    await generate("EdDSA"),
  ];
  const rsa = await generate("RS256");
  const good: [SigningAlgorithm, JWK][] = [
    ["ES256", ec],
    ["ES256", { ...ec, use: "sig", alg: "ES256", key_ops: ["sign"] }],
    ["EdDSA", ed],
    ["RS256", rsa],
    ["HS256", secret(32)],
  ];
  for (const [alg, jwk] of good) t.ok(await isAccepted(alg, jwk), `${alg} ${Object.keys(jwk)}`);

  const { privateKey: short } = generateKeyPairSync("rsa", { modulusLength: 1024 });
  const { privateKey: low } = generateKeyPairSync("rsa", {
    modulusLength: 2048,
    publicExponent: 3,
  });
  const { d: _, ...publicOnly } = ec;
  const bad: [what: string, SigningAlgorithm, JWK][] = [
    ["the public half of another key", "ES256", { ...ec, x: other.x ?? "", y: other.y ?? "" }],
    ["a private number of another key", "ES256", { ...ec, d: other.d ?? "" }],
    ["no private half", "ES256", publicOnly],
    ["a key of another curve", "ES256", await generate("ES384")],
    ["a key of another type", "ES256", ed],
    ["a key for encryption", "ES256", { ...ec, use: "enc" }],
    ["a key that may not sign", "ES256", { ...ec, key_ops: ["verify"] }],
    ["a key for another algorithm", "RS256", { ...rsa, alg: "PS256" }],
    ["a modulus of 1024 bits", "RS256", short.export({ format: "jwk" })],
    ["a low exponent", "RS256", low.export({ format: "jwk" })],
    ["an exponent of one", "RS256", { ...rsa, e: "AQ" }],
    ["a secret of 31 bytes", "HS256", secret(31)],
    ["an empty secret", "HS256", secret(0)],
    ["a public key as a secret", "HS256", publicOnly],
    ["a secret for signatures", "ES256", secret(32)],
  ];
  for (const [what, alg, jwk] of bad) t.notOk(await isAccepted(alg, jwk), what);
});
