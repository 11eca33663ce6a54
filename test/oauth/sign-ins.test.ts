import { generateKeyPairSync } from "node:crypto";
import { renameSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as delay } from "node:timers/promises";
import type { JWK } from "jose";
import { pino } from "pino";
import t, { type Test } from "tap";
import { emptySnapshot } from "../../src/core/access/snapshot.ts";
import { epochSeconds } from "../../src/core/base/clock.ts";
import { Refusal } from "../../src/core/base/refusal.ts";
import type { IssuerSettings } from "../../src/core/config/schema.ts";
import { type LiveRevocations, RevocationIndex } from "../../src/core/identity/revocations.ts";
import { subjectKey } from "../../src/core/identity/sign-in.ts";
import { isRecent, SignIns, takeTurn } from "../../src/features/oauth/client/sign-ins.ts";
import { openStateFile, openStateIn } from "../../src/features/oauth/server/state-file.ts";
import type { StateStore } from "../../src/features/oauth/server/state-store.ts";
import { movableClock } from "../kit/clock.ts";
import { eventually } from "../kit/eventually.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { PlainBrowser } from "./browser.ts";
import { IdentityProvider, type ProviderUser } from "./identity-provider.ts";
import { issuerSettings, issuersWith } from "./issuer.ts";
import { testState } from "./state-contract.ts";

const redirectUri = "http://127.0.0.1:4999/oauth/callback/staff";
const elsewhere = "http://127.0.0.1:4998/callback/staff";
const browser = "one";
const RECHECK_SECONDS = 60;
const place = { redirectUri, browser, snapshot: emptySnapshot };
const ann = { sub: "ann", groups: ["engineering"] };

const directory = temporaryHome(t);
const state = await openStateIn(path.join(directory, "oauth"));
t.teardown(() => state.store.close());
const log = pino({ level: "silent" });

async function providerOf(...users: ProviderUser[]): Promise<IdentityProvider> {
  const provider = await IdentityProvider.start(t, ...users);
  await provider.open({ redirectUris: [redirectUri, elsewhere] });
  return provider;
}

/** The sign-ins of one process. All processes share the state. */
function processOf(
  { url, clientSecret }: IdentityProvider,
  changes: Partial<IssuerSettings> = { groups_claim: "groups" },
  store: StateStore = state.store,
): Promise<SignIns> {
  const file = path.join(directory, clientSecret);
  writeFileSync(file, clientSecret, { mode: 0o600 });
  const login = {
    client_id: "gatehouse",
    client_secret_file: file,
    label: "Sign in",
    scopes: [],
    recheck: RECHECK_SECONDS,
  };
  const index = new RevocationIndex();
  const unused = () => Promise.reject(new Error("unused"));
  const revocations: LiveRevocations = {
    users: index.users,
    stale: false,
    isRevoked: index.isRevoked.bind(index),
    earliestIssue: index.earliestIssue.bind(index),
    revoke: async (revocation) => index.add(revocation),
    revokeUser: unused,
    reload: unused,
    close: unused,
  };
  const settings = issuerSettings(url, { login, ...changes });
  return SignIns.open({
    settings: [settings],
    issuers: issuersWith(settings),
    state: { ...state, store },
    revocations,
    log,
  });
}

/** Signs the provider's user in. @returns the query of the redirect */
async function answerOf(signIns: SignIns, { url }: IdentityProvider): Promise<string> {
  const start = await signIns.begin("staff", { redirectUri, next: "/", browser });
  return new URL((await new PlainBrowser(url).open(start)).url).search.slice(1);
}

async function signIn(signIns: SignIns, provider: IdentityProvider) {
  const query = await answerOf(signIns, provider);
  return (await signIns.finish("staff", { ...place, query })).signedIn;
}

t.test("a sign-in ends where it began: pages of the console are another place", async (t) => {
  const provider = await providerOf(ann);
  const signIns = await processOf(provider);
  const query = await answerOf(signIns, provider);
  const refused = { code: "sign_in_expired" };
  const other = { ...place, redirectUri: elsewhere, query };
  await t.rejects(signIns.finish("staff", other), refused);
  t.match(await signIns.finish("staff", { ...place, query }), { next: "/" });
});

t.test(
  "a new client secret is sent at once, and a file that is gone changes nothing",
  async (t) => {
    const provider = await providerOf(ann);
    const signIns = await processOf(provider);
    const file = path.join(directory, provider.clientSecret);
    await signIn(signIns, provider);
    writeFileSync(file, "another");
    await t.rejects(signIn(signIns, provider));
    writeFileSync(file, provider.clientSecret);
    await signIn(signIns, provider);
    rmSync(file);
    await signIn(signIns, provider);
  },
);

t.test("sign-ins end with the issuer, even if another one has its prefix", async (t) => {
  const [old, other] = [await providerOf(ann), await providerOf(ann)];
  const [before, after] = [await processOf(old), await processOf(other)];
  const revoked = { code: "token_revoked", detail: "unknown_issuer" };
  old.refreshes = false;
  const { credential, username } = await signIn(before, old);
  await t.rejects(after.current(credential, username), revoked);
  old.refreshes = true;
  const renewable = await signIn(before, old);
  movableClock(t)(RECHECK_SECONDS + 1);
  await t.rejects(after.current(renewable.credential, username), revoked);
  t.strictSame(other.requests, [], "it never gets a refresh token of the other");
});

/** A sign-in that is due, at two processes. The second one stalls at its turn until `goOn`. */
async function dueSignIn(t: Test, stalls: "before" | "after" = "before") {
  const provider = await providerOf(ann);
  const turn = Promise.withResolvers<void>();
  const late = Promise.withResolvers<void>();
  const { store } = state;
  const [one, two] = [
    await processOf(provider),
    await processOf(provider, undefined, {
      ...store,
      async claim(...taken) {
        const early = stalls === "after" ? await store.claim(...taken) : undefined;
        turn.resolve();
        await late.promise;
        return early ?? store.claim(...taken);
      },
    }),
  ];
  const { credential, username } = await signIn(one, provider);
  const pass = movableClock(t);
  pass(RECHECK_SECONDS + 1);
  return {
    provider,
    pass,
    turn: turn.promise,
    goOn: late.resolve,
    askOne: () => one.current(credential, username),
    askTwo: () => two.current(credential, username),
    refreshes: () => provider.requests.filter((route) => route === "/token").length - 1,
  };
}

const engineering = { subject: { groups: ["staff:engineering"] } };

t.test("a slow check remains the only one, whenever another process takes its turn", async (t) => {
  const { provider, pass, turn, goOn, askOne, askTwo, refreshes } = await dueSignIn(t);
  const held = Promise.withResolvers<void>();
  provider.held = held.promise;
  const second = askTwo();
  await turn;
  pass(14);
  const first = askOne();
  await eventually("the provider is asked", () => refreshes() === 1);
  pass(14);
  goOn();
  await delay(300);
  t.equal(refreshes(), 1);
  held.resolve();
  t.match(await Promise.all([first, second]), [engineering, engineering]);
  t.equal(refreshes(), 1, "the refresh token was used once");
});

t.test("a process that stalls before its turn uses no refresh token that is used up", async (t) => {
  const { turn, pass, goOn, askOne, askTwo, refreshes } = await dueSignIn(t);
  const second = askTwo();
  await turn;
  t.match(await askOne(), engineering);
  pass(120);
  goOn();
  t.match(await second, engineering, "it takes the result of the other");
  t.equal(refreshes(), 1);
});

t.test("a process that stalls does not repeat a check that has failed", async (t) => {
  const { provider, turn, pass, goOn, askOne, askTwo, refreshes } = await dueSignIn(t);
  const second = askTwo();
  await turn;
  provider.failures.add("/token");
  t.match(await askOne(), engineering, "the outage is tolerated");
  pass(120);
  goOn();
  t.match(await second, engineering);
  t.equal(refreshes(), 1);
});

t.test("the turn of a process that has died ends, and its token is used once", async (t) => {
  const { pass, turn, goOn, askOne, askTwo, refreshes } = await dueSignIn(t, "after");
  const second = askTwo();
  await turn;
  pass(31);
  t.match(await askOne(), engineering);
  t.equal(refreshes(), 1);
  goOn();
  t.match(await second, engineering, "it had only stalled");
  t.equal(refreshes(), 1);
});

t.test("many processes at once ask a provider once each time", async (t) => {
  const provider = await providerOf(ann);
  const { store } = state;
  const slowly =
    <Given extends unknown[], Answer>(run: (...given: Given) => Promise<Answer>) =>
    async (...given: Given) => {
      await delay(Math.random() * 20);
      const answer = await run(...given);
      await delay(Math.random() * 20);
      return answer;
    };
  const [find, put, claim] = [slowly(store.find), slowly(store.put), slowly(store.claim)];
  const slow = { ...store, find, put, claim };
  const processes = await Promise.all(
    Array.from({ length: 4 }, () => processOf(provider, undefined, slow)),
  );
  const [first] = processes;
  if (first === undefined) throw new Error("no process");
  const { credential, username } = await signIn(first, provider);
  const pass = movableClock(t);
  for (let round = 1; round <= 12; round++) {
    pass(RECHECK_SECONDS + 7);
    const answers = processes.map((one) => one.current(credential, username));
    t.match(
      await Promise.all(answers),
      processes.map(() => engineering),
    );
    t.equal(provider.requests.filter((route) => route === "/token").length, 1 + round);
  }
});

t.test("a turn is taken by one process, and others wait for its result", async (t) => {
  const { store } = state;
  let result: string | undefined;
  const findResult = async () => result;
  t.strictSame(await takeTurn(store, "work", findResult), { isOurs: true });
  const waiting = takeTurn(store, "work", findResult);
  t.strictSame(await takeTurn(store, "other work", findResult), { isOurs: true });
  t.equal(await Promise.race([waiting, delay(250, "waits")]), "waits");
  result = "done";
  t.strictSame(await waiting, { isOurs: false, result: "done" });
});

t.test("a turn is left alone if an earlier one has just had the result", async (t) => {
  const found = await takeTurn(state.store, "finished work", async () => "done");
  t.strictSame(found, { isOurs: false, result: "done" });
});

t.test("who waits for a turn gives up, and may take it once it has ended", async (t) => {
  const none = async () => undefined;
  t.strictSame(await takeTurn(state.store, "endless work", none), { isOurs: true });
  const late = await takeTurn(state.store, "endless work", none, 150);
  t.strictSame(late, { isOurs: false, result: undefined });
  movableClock(t)(31);
  t.strictSame(await takeTurn(state.store, "endless work", none), { isOurs: true });
});

t.test("one usable key of a provider is enough for a sign-in", async (t) => {
  const provider = await providerOf(ann);
  const sets: ((key: JWK) => unknown[])[] = [
    (key) => [null, key],
    (key) => [{ kid: "one" }, "key", key],
    (key) => [key, { ...key, alg: undefined }],
  ];
  for (const keySet of sets) {
    provider.keySet = keySet;
    t.match(await signIn(await processOf(provider), provider), engineering);
  }
});

t.test("a key of a provider that cannot be used is no refusal of the provider", async (t) => {
  const provider = await providerOf(ann);
  const { publicKey } = generateKeyPairSync("rsa", { modulusLength: 1024 });
  const short = { ...publicKey.export({ format: "jwk" }), alg: "RS256", kid: "one" };
  const unreachable = { code: "issuer_unreachable", detail: "unusable_key" };
  provider.keySet = () => [short];
  const cause = /^The key "one" of \S+\/jwks cannot be used: found RSA of 1024 bits/;
  await t.rejects(signIn(await processOf(provider), provider), {
    ...unreachable,
    token: { issuer: provider.url, cause },
  });
  provider.keySet = ({ n: _, e: __, ...key }) => [{ ...key, x5c: ["MIIB"] }];
  await t.rejects(signIn(await processOf(provider), provider), unreachable);
  provider.keySet = (key) => [{ ...key, kid: "another" }];
  const unknown = { code: "issuer_unreachable", detail: "unknown_key" };
  await t.rejects(signIn(await processOf(provider), provider), unknown);
  const stranger = generateKeyPairSync("rsa", { modulusLength: 2048 }).publicKey;
  provider.keySet = (key) => [{ ...key, ...stranger.export({ format: "jwk" }) }];
  const refused = { code: "sign_in_refused", detail: "bad_signature" };
  await t.rejects(signIn(await processOf(provider), provider), refused);
});

t.test("a renewed refresh token is kept although the keys cannot be read just then", async (t) => {
  const provider = await providerOf(ann);
  const { credential, username } = await signIn(await processOf(provider), provider);
  const later = await processOf(provider);
  const pass = movableClock(t);
  pass(RECHECK_SECONDS + 1);
  provider.failures.add("/jwks");
  t.match(await later.current(credential, username), engineering, "tolerated");
  provider.failures.clear();
  pass(19);
  await delay(2100);
  provider.users.set("ann", { ...ann, groups: ["sales"] });
  const sales = { subject: { groups: ["staff:sales"] } };
  t.match(await later.current(credential, username), sales, "the provider accepts the new one");
});

t.test("where the groups claim is optional, users in no group sign in", async (t) => {
  const provider = await providerOf({ sub: "zoe" });
  const optional = { groups_claim: "groups", groups_claim_optional: true };
  const none = { subject: { groups: [] } };
  t.match(await signIn(await processOf(provider, optional), provider), none);
  provider.groupsInIdToken = false;
  t.match(await signIn(await processOf(provider, optional), provider), none);
  provider.users.set("zoe", { sub: "zoe", groups: ["R&D, EU"] });
  const found = { subject: { groups: ["staff:R&D, EU"] } };
  t.match(await signIn(await processOf(provider, optional), provider), found, "of userinfo");
  provider.users.set("zoe", { sub: "zoe" });
  await t.rejects(signIn(await processOf(provider), provider), { code: "groups_unavailable" });
});

t.test("a stream goes on while groups and attributes are the same, in any order", async (t) => {
  const pass = movableClock(t);
  for (const claims of [{ groups_claim: "groups" }, { attribute_claims: { teams: "groups" } }]) {
    const provider = await providerOf({ sub: "ann", groups: ["one", "two"] });
    const signIns = await processOf(provider, claims);
    const signedIn = await signIn(signIns, provider);
    const recheck = async (groups: readonly string[]) => {
      provider.users.set("ann", { sub: "ann", groups });
      pass(RECHECK_SECONDS + 1);
      await signIns.current(signedIn.credential, signedIn.username);
      signIns.requireUnchanged(signedIn);
    };
    await recheck(["two", "one"]);
    await t.rejects(recheck(["two"]), { code: "token_revoked", detail: "groups_changed" });
  }
});

t.test("groups are unknown, and not none, if no answer of the provider has claims", async (t) => {
  const provider = await providerOf(ann);
  provider.changes.set(
    "/.well-known/openid-configuration",
    ({ userinfo_endpoint: _, ...more }) => more,
  );
  const signIns = await processOf(provider, {
    groups_claim: "groups",
    groups_claim_optional: true,
  });
  const { credential, username } = await signIn(signIns, provider);
  provider.changes.set("/token", ({ id_token: _, ...more }) => more);
  const pass = movableClock(t);
  pass(RECHECK_SECONDS + 1);
  const unknown = { code: "groups_unavailable", detail: "groups_missing" };
  await t.rejects(signIns.current(credential, username), unknown);
  provider.changes.delete("/token");
  pass(RECHECK_SECONDS + 1);
  const known = { subject: { groups: ["staff:engineering"] } };
  t.match(await signIns.current(credential, username), known, "the next answer counts");
});

t.test("a provider is asked again once the clock was set back", async (t) => {
  const provider = await providerOf(ann);
  const signIns = await processOf(provider);
  const { credential, username } = await signIn(signIns, provider);
  provider.users.set("ann", { ...ann, groups: ["sales"] });
  movableClock(t)(-3600);
  const sales = { subject: { groups: ["staff:sales"] } };
  t.match(await signIns.current(credential, username), sales);
});

t.test("no user has the name under which the logout of another one is kept", async (t) => {
  const name = `sub=${subjectKey("staff", "preferred_username", "ann")}`;
  const provider = await providerOf({ sub: "bob", preferred_username: name });
  const signIns = await processOf(provider, { username_claim: "preferred_username" });
  await t.rejects(signIn(signIns, provider), { code: "sign_in_refused", detail: "bad_username" });
});

t.test("a sign-in is recent up to an age, and the provider's clock may be ahead", (t) => {
  for (const [age, isFresh] of [
    [0, true],
    [295, true],
    [305, false],
    [-55, true],
    [-65, false],
  ] as const) {
    t.equal(isRecent({ authTime: epochSeconds() - age }, 300), isFresh, `${age} s`);
  }
  t.equal(isRecent({ authTime: undefined }, 300), false);
  t.end();
});

t.test("a sign-in is used for an hour while its state cannot be written", async (t) => {
  const provider = await providerOf(ann);
  const cause = new Refusal("busy");
  const claim = () => Promise.reject(cause);
  const signIns = await processOf(provider, undefined, { ...state.store, claim });
  const { credential, username } = await signIn(signIns, provider);
  const asked = provider.requests.length;
  const pass = movableClock(t);
  pass(RECHECK_SECONDS + 1);
  t.match(await signIns.current(credential, username), { username });
  pass(3600);
  await t.rejects(signIns.current(credential, username), cause);
  t.equal(provider.requests.length, asked, "no refresh token is used up");
});

const later = () => epochSeconds() + 60;

type StateFiles = [ReturnType<typeof openStateFile>, ReturnType<typeof openStateFile>];

async function openFiles(t: Test): Promise<StateFiles> {
  const file = path.join(temporaryHome(t), "state.sqlite");
  const stores: StateFiles = [openStateFile(file), openStateFile(file)];
  t.teardown(() => stores.forEach((store) => void store.close()));
  return stores;
}

testState(t, openFiles);

t.test("expired records are removed", async (t) => {
  const [store] = await openFiles(t);
  const expires = epochSeconds();
  await store.put("Client", "a", { payload: "{}", grantId: undefined, uid: undefined, expires });
  store.sweep();
  await store.keepClient("a", later());
  t.equal(await store.find("Client", "a"), undefined);
  await store.put("Client", "b", { payload: "{}", expires: later() });
  const pass = movableClock(t);
  pass(400 * 24 * 3600);
  store.sweep();
  pass(-400 * 24 * 3600);
  t.ok(await store.find("Client", "b"), "a clock that jumps ahead and back removes nothing");
});

t.test("a file that another process has locked holds up no other work", async (t) => {
  const file = path.join(temporaryHome(t), "state.sqlite");
  const store = openStateFile(file);
  const holder = new DatabaseSync(file);
  t.teardown(() => store.close().then(() => holder.close()));
  holder.exec("BEGIN IMMEDIATE");
  const start = performance.now();
  await openStateFile(file).close();
  t.ok(performance.now() - start < 2500, "nor does the removal of expired records");
  const earlier = store.put("Session", "a", { payload: '"earlier"', expires: later() });
  await store.find("Session", "a");
  holder.exec("COMMIT");
  await store.remove("Session", "a");
  await earlier;
  t.equal(await store.find("Session", "a"), undefined, "no write overtakes an earlier one");
  holder.exec("BEGIN IMMEDIATE");
  setTimeout(() => holder.exec("COMMIT"), 200);
  const written: number[] = [];
  const numbers = Array.from({ length: 50 }, (_, number) => number);
  await Promise.all([
    ...numbers.map(async (number) => {
      await store.put("Client", `${number}`, { payload: "{}", expires: later() });
      written.push(number);
    }),
    store.revokeToken("x", later()),
  ]);
  t.strictSame(written, numbers, "those who wait have their turns");
  t.ok(store.isTokenRevoked("x"));
});

t.test("a state file that was replaced takes no writes, which would be lost", async (t) => {
  const file = path.join(temporaryHome(t), "state.sqlite");
  const store = openStateFile(file);
  t.teardown(() => store.close());
  renameSync(file, `${file}.old`);
  await t.rejects(store.revokeToken("one", 9e9), { code: "busy", detail: /was moved or replaced/ });
  renameSync(`${file}.old`, file);
  await store.revokeToken("one", 9e9);
  t.ok(store.isTokenRevoked("one"));
});

t.test("a revocation is kept until the token has certainly expired", async (t) => {
  const [one, other] = await openFiles(t);
  await one.revokeToken("x", later());
  await one.revokeToken("y", epochSeconds() - 1);
  await one.revokeToken("z", epochSeconds() - 30 * 24 * 3600);
  other.sweep();
  t.ok(other.isTokenRevoked("z"), "the clock may have been wrong at the start");
  other.sweep(3_600_000);
  t.strictSame(
    ["x", "y", "z"].map((token) => other.isTokenRevoked(token)),
    [true, true, false],
  );
});
