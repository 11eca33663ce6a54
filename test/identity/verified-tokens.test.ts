import { deepEqual } from "node:assert/strict";
import { createHmac, createSecretKey, type KeyObject } from "node:crypto";
import { mock } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import fc from "fast-check";
import t, { type Test } from "tap";
import { parseAccessFile } from "../../src/core/access/parse.ts";
import { Refusal } from "../../src/core/base/refusal.ts";
import { passwordFingerprint, tokenCaller } from "../../src/core/identity/authenticate.ts";
import { deriveHere } from "../../src/core/identity/hash.ts";
import { type Pin, verifyPinned } from "../../src/core/identity/jwt-verification.ts";
import { keyFilesIn } from "../../src/core/identity/key-file.ts";
import { openKeyRing, revokeKey, rotateKey } from "../../src/core/identity/key-store.ts";
import type { LoginContext } from "../../src/core/identity/login.ts";
import { hashPassword } from "../../src/core/identity/password.ts";
import { createLoginThrottle } from "../../src/core/identity/throttle.ts";
import { createTokenAuthority, VerifiedTokens } from "../../src/core/identity/token.ts";
import { VerifiedPasswords } from "../../src/core/identity/verified-passwords.ts";
import type { JsonObject } from "../../src/core/json/exact.ts";
import { hashWith, refusalOf, refusedBy, SALT, user } from "../access/kit.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { encodePart } from "./forge.ts";

/** Epoch seconds. */
const START = 1_800_000_000;

/** Stops the clock at `START`. The result sets it, in seconds since then. */
function stopClock(t: Test): (seconds: number) => void {
  mock.timers.enable({ apis: ["Date"], now: START * 1000 });
  t.teardown(() => mock.timers.reset());
  return (seconds) => mock.timers.setTime((START + seconds) * 1000);
}

/** Two secrets of the same word are equal, but not the same object. */
function secretOf(word: string): KeyObject {
  return createSecretKey(Buffer.from(word.padEnd(32, ".")));
}

function pinOf(keys: ReadonlyMap<string, KeyObject>): Pin {
  return {
    algorithm: "HS256",
    verifier: (kid) => keys.get(kid),
    type: "JWT",
    issuer: "gatehouse",
    audience: "gatehouse",
    longest: 1000,
  };
}

/** By default valid for a minute from `START` on. */
function tokenOf(key: KeyObject, kid: string, claims: Record<string, unknown> = {}): string {
  const always = { iss: "gatehouse", aud: "gatehouse", exp: START + 60 };
  const header = encodePart({ alg: "HS256", kid, typ: "JWT" });
  const input = `${header}.${encodePart({ ...always, ...claims })}`;
  return `${input}.${createHmac("sha256", key).update(input).digest("base64url")}`;
}

function read(claims: JsonObject): JsonObject {
  if (claims.sub === "refused") throw new Refusal("token_invalid");
  return claims;
}

const secret = secretOf("one");
const keys = () => new Map([["a", secret]]);

t.test("a valid token is verified once and then cached", (t) => {
  stopClock(t);
  const verified = new VerifiedTokens(pinOf(keys()), read);
  const token = tokenOf(secret, "a", { sub: "alice" });
  const first = verified.verify(token);
  t.equal(first.sub, "alice");
  t.equal(verified.verify(token), first, "the very same claims");
  t.equal(verified.verify(` ${token}`.slice(1)), first, "also as another string object");
  t.equal(verified.size, 1);
  t.end();
});

t.test("refused tokens are not cached and evict no valid token", (t) => {
  const setClock = stopClock(t);
  const current = keys();
  const verified = new VerifiedTokens(pinOf(current), read, 8);
  const good = tokenOf(secret, "a", { sub: "alice" });
  const claims = verified.verify(good);
  const stranger = secretOf("stranger");
  for (let n = 0; n < 100; n++) {
    const bad = [
      tokenOf(stranger, "a", { n }),
      tokenOf(secret, "b", { n }),
      tokenOf(secret, "a", { n, exp: START }),
      tokenOf(secret, "a", { n, nbf: START + 1 }),
      tokenOf(secret, "a", { n, sub: "refused" }),
      `${good.slice(0, -3)}${String(n).padStart(3, "A")}`,
      `${good}.${n}`,
      good.slice(0, n),
    ];
    for (const token of bad)
      t.type(
        refusalOf(() => verified.verify(token)),
        "string",
      );
  }
  t.equal(verified.size, 1);
  t.equal(verified.verify(good), claims);

  const early = tokenOf(secret, "a", { nbf: START + 1 });
  const unnamed = tokenOf(secret, "b");
  for (const token of [early, unnamed]) t.ok(refusalOf(() => verified.verify(token)));
  setClock(1);
  current.set("b", secret);
  for (const token of [early, unnamed]) {
    t.equal(
      refusalOf(() => verified.verify(token)),
      undefined,
      "it can become valid later",
    );
  }
  t.end();
});

t.test("the cache keeps the most recently used tokens", (t) => {
  stopClock(t);
  const verified = new VerifiedTokens(pinOf(keys()), read, 16);
  const often = tokenOf(secret, "a", { sub: "often" });
  const claims = verified.verify(often);
  for (let n = 0; n < 1000; n++) {
    verified.verify(tokenOf(secret, "a", { n }));
    if (n % 4 === 0 && verified.verify(often) !== claims) t.fail("a token in use was evicted");
  }
  t.equal(verified.size, 16);
  t.equal(
    verified.verify(tokenOf(secret, "a", { n: 0 })).n,
    0,
    "an evicted token is verified again",
  );
  t.end();
});

/** The claims, or the code of the refusal. */
function outcome(verify: () => JsonObject): unknown {
  try {
    return verify();
  } catch (error) {
    if (error instanceof Refusal) return error.code;
    throw error;
  }
}

const names = ["a", "b"];
const words = ["one", "two"];
const arbitraryToken = fc
  .record({
    kid: fc.constantFrom(...names),
    word: fc.constantFrom(...words),
    exp: fc.integer({ min: START, max: START + 6 }),
    nbf: fc.option(fc.integer({ min: START - 2, max: START + 4 }), { freq: 1, nil: undefined }),
    sub: fc.constantFrom("alice", "bob", "carol", "refused"),
    aud: fc.constantFrom("gatehouse", "gatehouse", "gatehouse", "other"),
  })
  .map(({ kid, word, ...claims }) => tokenOf(secretOf(word), kid, claims));
const arbitraryStep = fc.oneof(
  { weight: 6, arbitrary: fc.record({ show: fc.nat() }) },
  fc.record({ clock: fc.integer({ min: -1, max: 6 }) }),
  fc.record({ name: fc.constantFrom(...names), word: fc.constantFrom(...words, undefined) }),
);

t.test("the cache never changes a result, whatever happens to the clock and the keys", (t) => {
  const setClock = stopClock(t);
  const tokens = fc.array(arbitraryToken, { minLength: 1, maxLength: 6 });
  const steps = fc.array(arbitraryStep, { minLength: 1, maxLength: 100 });
  fc.assert(
    fc.property(tokens, steps, fc.integer({ min: 1, max: 3 }), (shownTokens, done, max) => {
      setClock(0);
      const current = new Map([["a", secretOf("one")]]);
      const pin: Pin = pinOf(current);
      const verified = new VerifiedTokens(pin, read, max);
      for (const step of done) {
        if ("clock" in step) setClock(step.clock);
        else if ("name" in step) {
          if (step.word === undefined) current.delete(step.name);
          else current.set(step.name, secretOf(step.word));
        } else {
          const token = shownTokens[step.show % shownTokens.length] ?? "";
          const expected = outcome(() => read(verifyPinned(pin, token).claims));
          const found = outcome(() => {
            const { isKept, ...claims } = verified.verify(token);
            return isKept() ? claims : {};
          });
          deepEqual(found, expected);
        }
      }
    }),
    { numRuns: 500 },
  );
  t.end();
});

async function open(t: Test) {
  const directory = temporaryHome(t);
  const keys = keyFilesIn(directory, { checkRead: true });
  const load = () => openKeyRing(keys, "ES256");
  let ring = await load();
  const tokens = createTokenAuthority(() => ring, "gatehouse");
  const alice = parseAccessFile(user("alice"), "access.toml").users.get("alice");
  if (alice === undefined) throw new Error("there is no alice");
  const { token, claims } = await tokens.issue({
    username: "alice",
    database: "*",
    role: undefined,
    credential: passwordFingerprint(alice),
    lifetime: 60,
    notBefore: 0,
  });
  const revoked = new Set<string>();
  return {
    keys,
    tokens,
    token,
    claims,
    revoked,
    async reload() {
      ring = await load();
    },
    /** The code with which alice is refused under this access file. */
    refusal(file: string) {
      const snapshot = parseAccessFile(file, "access.toml");
      const revocations = { isRevoked: ({ tokenId }: { tokenId: string }) => revoked.has(tokenId) };
      return refusalOf(() => tokenCaller(snapshot, revocations, tokens.verify(token)));
    },
  };
}

t.test("a cached token is checked against users and revocations on every use", async (t) => {
  const { refusal, revoked, claims } = await open(t);
  const good = user("alice");
  const hash = `password_hash = "${hashWith()}"`;
  const salt = `${SALT.slice(0, -2)}QQ`;
  const files: [why: string, file: string, code: string][] = [
    ["the user is gone", user("bob"), "user_gone"],
    ["the user is disabled", user("alice", `${hash}\ndisabled = true`), "token_revoked"],
    [
      "older tokens are ended",
      user("alice", `${hash}\ntokens_valid_after = ${claims.issuedAt}`),
      "token_revoked",
    ],
    ["the password is another", user("alice", hash.replace(SALT, salt)), "token_revoked"],
    ["there is no password", user("alice", ""), "token_revoked"],
  ];
  for (const [why, file, code] of files) {
    t.equal(refusal(good), undefined, "it is good");
    t.equal(refusal(file), code, why);
  }
  t.equal(refusal(good), undefined);
  revoked.add(claims.tokenId);
  t.equal(refusal(good), "token_revoked", "it was revoked");
  revoked.clear();
  t.equal(refusal(good), undefined, "no refusal is cached");
});

t.test("a cached token survives a key rotation, but not the revocation of its key", async (t) => {
  const { refusal, reload, keys } = await open(t);
  const file = user("alice");
  const [kid = ""] = await keys.names();
  t.equal(refusal(file), undefined);
  await rotateKey(keys, "ES256", 60);
  await reload();
  t.equal(refusal(file), undefined, "the old key verifies");
  t.equal(refusal(file), undefined);
  await revokeKey(keys, "ES256", kid);
  await reload();
  t.equal(refusal(file), "token_invalid", "the key is revoked");
  t.equal(refusal(file), "token_invalid");
});

const costs = { memory: 64, time: 1, parallelism: 1 };
const PASSWORD = "correct horse";
const here = { address: "203.0.113.9", isShared: false };
const unused = () => {
  throw new Error("unused");
};

async function snapshotWith(password = PASSWORD, more = "") {
  const hash = await hashPassword(password, costs);
  return parseAccessFile(user("alice", `password_hash = "${hash}"\n${more}`), "access.toml");
}

async function openPasswords() {
  let snapshot = await snapshotWith();
  const counted = { hashes: 0 };
  const login: LoginContext = {
    snapshot: () => snapshot,
    revocations: { earliestIssue: unused },
    change: unused,
    tokens: { issue: unused },
    throttle: createLoginThrottle({ perUserAndAddress: 3, perAddress: 50, window: 60 }),
    hashing: {
      run(_costs, _client, work) {
        counted.hashes++;
        return work(deriveHere);
      },
      close: unused,
    },
    costs,
    tokenLifetime: 60,
    onUpgradeFailed: unused,
  };
  const passwords = new VerifiedPasswords(login);
  return {
    counted,
    verify: (password = PASSWORD, origin = here) => passwords.verify("alice", password, origin),
    isRecalled: (password = PASSWORD, origin = here) =>
      passwords.recall(snapshot, "alice", password, origin) !== undefined,
    async setAccess(password?: string, more?: string) {
      snapshot = await snapshotWith(password, more);
    },
  };
}

/** Sets the clock of this process forward. */
function forward(t: Test) {
  let added = 0;
  const { now } = performance;
  t.intercept(performance, "now", { value: () => now.call(performance) + added });
  return async (seconds: number) => {
    added += seconds * 1000;
    // The memory reads the clock once in a millisecond.
    await delay(5);
  };
}

t.test("a verified password is remembered for 60 seconds from its verification", async (t) => {
  const wait = forward(t);
  const { verify, isRecalled, counted } = await openPasswords();
  t.notOk(isRecalled(), "nothing was verified");
  await verify();
  await wait(40);
  t.ok(isRecalled());
  await wait(19);
  t.ok(isRecalled(), "using it does not prolong it");
  await wait(2);
  t.notOk(isRecalled());
  t.equal(counted.hashes, 1);
});

t.test("it is remembered for its address, with a /64 of IPv6 as one", async (t) => {
  const { verify, isRecalled } = await openPasswords();
  const at = (address: string) => ({ address, isShared: false });
  await verify(PASSWORD, at("2001:db8::1"));
  t.ok(isRecalled(PASSWORD, at("2001:db8::2")));
  t.notOk(isRecalled(PASSWORD, at("2001:db8:0:1::1")));
  t.notOk(isRecalled());
});

t.test("a wrong password makes it forget, and is no guess against the memory", async (t) => {
  const { verify, isRecalled, counted } = await openPasswords();
  await verify();
  t.notOk(isRecalled("wrong horse"));
  t.notOk(isRecalled(), "the right one has to be verified again");
  for (let at = 0; at < 3; at++) {
    t.equal((await refusedBy(verify("wrong horse"))).code, "credentials_invalid");
  }
  t.equal((await refusedBy(verify())).code, "too_many_attempts");
  t.equal(counted.hashes, 4);
  t.notOk(isRecalled());
});

t.test("another hash of the same password, a disabled and a removed user end it", async (t) => {
  const { verify, isRecalled, setAccess } = await openPasswords();
  await verify();
  await setAccess();
  t.notOk(isRecalled(), "another salt");
  await verify();
  t.ok(isRecalled());
  await setAccess("another horse");
  t.notOk(isRecalled());
  await verify("another horse");
  await setAccess("another horse", "disabled = true");
  t.notOk(isRecalled("another horse"));
  t.equal((await refusedBy(verify("another horse"))).code, "credentials_invalid");
});

t.test("requests at one time share one verification, also a failing one", async (t) => {
  const { verify, counted } = await openPasswords();
  await Promise.all(Array.from({ length: 20 }, () => verify()));
  t.equal(counted.hashes, 1);
  const wrong = Array.from({ length: 20 }, () => refusedBy(verify("wrong horse")));
  const codes = (await Promise.all(wrong)).map(({ code }) => code);
  t.strictSame([...new Set(codes)], ["credentials_invalid"]);
  t.equal(counted.hashes, 2);
});
