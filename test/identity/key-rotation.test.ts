import t, { type Test } from "tap";
import { createKeyFile, readKeyFiles, writeKeyFile } from "../../src/identity/key-file.ts";
import {
  ensureSigner,
  keyState,
  noteMachineToken,
  revokeKey,
  rotateKey,
  signerOf,
} from "../../src/identity/key-rotation.ts";
import type { StoredKey } from "../../src/identity/stored-key.ts";
import { refusedBy, temporaryDirectory } from "../access/kit.ts";

const LIFETIME = 3600;

function now(): number {
  return Math.floor(Date.now() / 1000);
}

function keysIn(directory: string): Promise<StoredKey[]> {
  return readKeyFiles(directory, { checkRead: true });
}

/** A directory with one key in it. */
async function oneKey(t: Test): Promise<{ directory: string; old: StoredKey }> {
  const directory = temporaryDirectory(t);
  return { directory, old: await createKeyFile(directory, "ES256") };
}

async function find(directory: string, kid: string): Promise<StoredKey | undefined> {
  return (await keysIn(directory)).find((key) => key.kid === kid);
}

t.test("a key that signs no more verifies for as long as its login tokens live", async (t) => {
  const { directory, old } = await oneKey(t);
  const earliest = now() + LIFETIME;
  const made = await rotateKey(directory, "ES256", LIFETIME);
  t.equal(signerOf(await keysIn(directory), "ES256")?.kid, made.kid);
  const { verifies_until: until = 0 } = (await find(directory, old.kid)) ?? {};
  t.ok(until > earliest, "also a token of the moments until a gateway has noticed");
  t.ok(until < earliest + 120);
});

t.test("and for as long as its longest token for a machine", async (t) => {
  const { directory, old } = await oneKey(t);
  const later = now() + 10 * LIFETIME;
  await noteMachineToken(directory, old.kid, later);
  await noteMachineToken(directory, old.kid, later - 1);
  await rotateKey(directory, "ES256", LIFETIME);
  t.equal((await find(directory, old.kid))?.verifies_until, later);
});

t.test("a second rotation prolongs nothing and deletes what is past", async (t) => {
  const { directory, old } = await oneKey(t);
  const { kid } = await createKeyFile(directory, "ES256");
  await writeKeyFile(directory, { ...old, verifies_until: now() + 10 });
  const past = await createKeyFile(directory, "EdDSA");
  await writeKeyFile(directory, { ...past, verifies_until: now() - 1 });
  await rotateKey(directory, "ES256", LIFETIME);
  t.ok(((await find(directory, old.kid))?.verifies_until ?? 0) <= now() + 10);
  t.ok((await find(directory, kid))?.verifies_until, "every key that signed is retired");
  t.equal(await find(directory, past.kid), undefined);
});

t.test("a rotation leaves keys of another algorithm as they are", async (t) => {
  const { directory, old } = await oneKey(t);
  await rotateKey(directory, "HS256", LIFETIME);
  t.strictSame(await find(directory, old.kid), old);
  t.equal(signerOf(await keysIn(directory), "ES256")?.kid, old.kid);
});

t.test("a key is good to its last second and not a second longer", async (t) => {
  const { old } = await oneKey(t);
  const retired = { ...old, verifies_until: 100 };
  t.equal(keyState(old, 1e12), "signs");
  t.equal(keyState(retired, 100), "verifies");
  t.equal(keyState(retired, 101), "expired");
});

t.test("a token of a key that has just been retired or deleted is not handed out", async (t) => {
  const { directory, old } = await oneKey(t);
  await rotateKey(directory, "ES256", LIFETIME);
  for (const kid of [old.kid, "unknown"]) {
    const refusal = await refusedBy(noteMachineToken(directory, kid, now() + 10 * LIFETIME));
    t.equal(refusal.code, "key_not_found");
  }
});

t.test("a key that is not there is not revoked", async (t) => {
  const { directory, old } = await oneKey(t);
  for (const kid of ["unknown", "../access_control", ""]) {
    t.equal((await refusedBy(revokeKey(directory, "ES256", kid))).code, "key_not_found");
  }
  t.strictSame(await keysIn(directory), [old]);
});

t.test("no key has a name that a command line would take for an option", async (t) => {
  const directory = temporaryDirectory(t);
  // One thumbprint in 64 begins with a hyphen.
  const made = Array.from({ length: 300 }, () => createKeyFile(directory, "EdDSA"));
  for (const { kid } of await Promise.all(made)) t.match(kid, /^\w/);
});

t.test("of many who ask for a key at one moment all get the same", async (t) => {
  const directory = temporaryDirectory(t);
  const asked = Array.from({ length: 8 }, () => ensureSigner(directory, "ES256"));
  const names = new Set((await Promise.all(asked)).map(({ kid }) => kid));
  t.equal(names.size, 1);
  t.equal((await keysIn(directory)).length, 1);
});

t.test("rotations at one moment leave one key that signs, and forget none", async (t) => {
  const { directory } = await oneKey(t);
  await Promise.all(Array.from({ length: 5 }, () => rotateKey(directory, "ES256", LIFETIME)));
  const keys = await keysIn(directory);
  t.equal(keys.length, 6);
  t.equal(keys.filter((key) => key.verifies_until === undefined).length, 1);
});
