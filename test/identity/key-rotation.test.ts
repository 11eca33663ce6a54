import t, { type Test } from "tap";
import type { SigningAlgorithm } from "../../src/identity/jwt-verification.ts";
import { keyFilesIn } from "../../src/identity/key-file.ts";
import {
  ensureSigner,
  type KeyStore,
  keyState,
  makeKey,
  noteMachineToken,
  revokeKey,
  rotateKey,
  type StoredKey,
  signerOf,
} from "../../src/identity/key-store.ts";
import { refusedBy, temporaryDirectory } from "../access/kit.ts";

const LIFETIME = 3600;

function now(): number {
  return Math.floor(Date.now() / 1000);
}

async function put(keys: KeyStore, key: StoredKey): Promise<StoredKey> {
  await keys.change(async () => [{ kind: "put", key }]);
  return key;
}

async function putNew(keys: KeyStore, algorithm: SigningAlgorithm): Promise<StoredKey> {
  return put(keys, await makeKey(algorithm));
}

function noKeys(t: Test): KeyStore {
  return keyFilesIn(temporaryDirectory(t), { checkRead: true });
}

/** A directory with one key in it. */
async function oneKey(t: Test): Promise<{ keys: KeyStore; old: StoredKey }> {
  const keys = noKeys(t);
  return { keys, old: await putNew(keys, "ES256") };
}

async function find(keys: KeyStore, kid: string): Promise<StoredKey | undefined> {
  return (await keys.read()).find((key) => key.kid === kid);
}

t.test("a key that signs no more verifies for as long as its login tokens live", async (t) => {
  const { keys, old } = await oneKey(t);
  const earliest = now() + LIFETIME;
  const made = await rotateKey(keys, "ES256", LIFETIME);
  t.equal(signerOf(await keys.read(), "ES256")?.kid, made.kid);
  const { verifies_until: until = 0 } = (await find(keys, old.kid)) ?? {};
  t.ok(until > earliest, "also a token of the moments until a gateway has noticed");
  t.ok(until < earliest + 120);
});

t.test("a new key verifies wherever keys are read before it signs", async (t) => {
  const { keys, old } = await oneKey(t);
  const settled: StoredKey[][] = [];
  const watched = { ...keys, settled: async () => void settled.push([...(await keys.read())]) };
  const { kid } = await rotateKey(watched, "ES256", LIFETIME);
  const [between = []] = settled;
  t.equal(signerOf(between, "ES256")?.kid, old.kid);
  const made = between.find((key) => key.kid === kid);
  t.equal(made && keyState(made, now()), "verifies");
  t.equal(signerOf(await keys.read(), "ES256")?.kid, kid);
});

t.test("a new key that is revoked before it signs is not brought back", async (t) => {
  const { keys, old } = await oneKey(t);
  const settled = async () => {
    const made = (await keys.read()).find(({ kid }) => kid !== old.kid);
    await revokeKey(keys, "ES256", made?.kid ?? "");
  };
  const refused = await refusedBy(rotateKey({ ...keys, settled }, "ES256", LIFETIME));
  t.equal(refused?.code, "key_not_found");
  t.strictSame(await keys.read(), [old]);
});

t.test("and for as long as its longest token for a machine", async (t) => {
  const { keys, old } = await oneKey(t);
  const later = now() + 10 * LIFETIME;
  await noteMachineToken(keys, old.kid, later);
  await noteMachineToken(keys, old.kid, later - 1);
  await rotateKey(keys, "ES256", LIFETIME);
  t.equal((await find(keys, old.kid))?.verifies_until, later);
});

t.test("a second rotation prolongs nothing and deletes what is past", async (t) => {
  const { keys, old } = await oneKey(t);
  const { kid } = await putNew(keys, "ES256");
  await put(keys, { ...old, verifies_until: now() + 10 });
  const past = await putNew(keys, "EdDSA");
  await put(keys, { ...past, verifies_until: now() - 1 });
  await rotateKey(keys, "ES256", LIFETIME);
  t.ok(((await find(keys, old.kid))?.verifies_until ?? 0) <= now() + 10);
  t.ok((await find(keys, kid))?.verifies_until, "every key that signed is retired");
  t.equal(await find(keys, past.kid), undefined);
});

t.test("a rotation leaves keys of another algorithm as they are", async (t) => {
  const { keys, old } = await oneKey(t);
  await rotateKey(keys, "HS256", LIFETIME);
  t.strictSame(await find(keys, old.kid), old);
  t.equal(signerOf(await keys.read(), "ES256")?.kid, old.kid);
});

t.test("a key is good to its last second and not a second longer", async (t) => {
  const { old } = await oneKey(t);
  const retired = { ...old, verifies_until: 100 };
  t.equal(keyState(old, 1e12), "signs");
  t.equal(keyState(retired, 100), "verifies");
  t.equal(keyState(retired, 101), "expired");
});

t.test("a token of a key that has just been retired or deleted is not handed out", async (t) => {
  const { keys, old } = await oneKey(t);
  await rotateKey(keys, "ES256", LIFETIME);
  for (const kid of [old.kid, "unknown"]) {
    const refusal = await refusedBy(noteMachineToken(keys, kid, now() + 10 * LIFETIME));
    t.equal(refusal.code, "key_not_found");
  }
});

t.test("a key that is not there is not revoked", async (t) => {
  const { keys, old } = await oneKey(t);
  for (const kid of ["unknown", "../access_control", ""]) {
    t.equal((await refusedBy(revokeKey(keys, "ES256", kid))).code, "key_not_found");
  }
  t.strictSame(await keys.read(), [old]);
});

t.test("no key has a name that a command line would take for an option", async (t) => {
  // One thumbprint in 64 begins with a hyphen.
  const made = Array.from({ length: 300 }, () => makeKey("EdDSA"));
  for (const { kid } of await Promise.all(made)) t.match(kid, /^\w/);
});

t.test("of many who ask for a key at one moment all get the same", async (t) => {
  const keys = noKeys(t);
  await Promise.all(Array.from({ length: 8 }, () => ensureSigner(keys, "ES256")));
  t.equal((await keys.read()).length, 1);
});

t.test("rotations at one moment leave one key that signs, and forget none", async (t) => {
  const { keys } = await oneKey(t);
  await Promise.all(Array.from({ length: 5 }, () => rotateKey(keys, "ES256", LIFETIME)));
  const all = await keys.read();
  t.equal(all.length, 6);
  t.equal(all.filter((key) => key.verifies_until === undefined).length, 1);
});
