import { writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { pino } from "pino";
import t from "tap";
import { emptySnapshot } from "../../src/access/snapshot.ts";
import { epochSeconds } from "../../src/clock.ts";
import { loadConfiguration } from "../../src/config/load.ts";
import type { IssuerSettings } from "../../src/config/schema.ts";
import { RevocationIndex } from "../../src/identity/revocations.ts";
import { subjectKey } from "../../src/identity/sign-in.ts";
import { isRecent, openSignIns, type SignIns } from "../../src/oauth/client/sign-ins.ts";
import { openStateIn } from "../../src/oauth/server/state-file.ts";
import { temporaryDirectory } from "../access/kit.ts";
import { PlainBrowser } from "./browser.ts";
import { IdentityProvider, type ProviderUser } from "./identity-provider.ts";
import { issuerSettings } from "./issuer.ts";

const redirectUri = "http://127.0.0.1:4999/oauth/callback/staff";
const elsewhere = "http://127.0.0.1:4998/callback/staff";
const browser = "one";
const place = { redirectUri, browser, snapshot: emptySnapshot };
const ann = { sub: "ann", groups: ["engineering"] };

const directory = temporaryDirectory(t);
const state = await openStateIn(path.join(directory, "oauth"));
t.teardown(() => state.store.close());
const log = pino({ level: "silent" });
const { mcp } = loadConfiguration({ cwd: "/", env: {} }).configuration;

async function providerOf(...users: ProviderUser[]): Promise<IdentityProvider> {
  const provider = await IdentityProvider.start(t, ...users);
  await provider.open({ redirectUris: [redirectUri, elsewhere] });
  return provider;
}

/** The sign-ins of one process. All processes share the state. */
function processOf(
  { url, clientSecret }: IdentityProvider,
  changes: Partial<IssuerSettings> = { groups_claim: "groups" },
): Promise<SignIns> {
  const file = path.join(directory, clientSecret);
  writeFileSync(file, clientSecret, { mode: 0o600 });
  const login = {
    ...{ client_id: "gatehouse", client_secret_file: file },
    ...{ label: "Sign in", scopes: [], recheck: 1 },
  };
  const index = new RevocationIndex();
  const revocations = {
    isRevoked: index.isRevoked.bind(index),
    earliestIssue: index.earliestIssue.bind(index),
    async revokeToken({ tokenId, expiresAt }: { tokenId: string; expiresAt: number }) {
      index.add({ jti: tokenId, until: expiresAt });
    },
    revokeUser: () => Promise.reject(new Error("unused")),
  };
  const issuers = [issuerSettings(url, { login, ...changes })];
  return openSignIns({ configuration: { mcp, issuers }, state, revocations, log });
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

t.test("sign-ins end with the issuer, even if another one has its prefix", async (t) => {
  const [old, other] = [await providerOf(ann), await providerOf(ann)];
  const [before, after] = [await processOf(old), await processOf(other)];
  const revoked = { code: "token_revoked", detail: "unknown_issuer" };
  old.refreshes = false;
  const { credential, username } = await signIn(before, old);
  await t.rejects(after.current(credential, username), revoked);
  old.refreshes = true;
  const renewable = await signIn(before, old);
  await delay(1100);
  await t.rejects(after.current(renewable.credential, username), revoked);
  t.strictSame(other.requests, [], "it never gets a refresh token of the other");
});

t.test("a slow check remains the only one when the next period begins", async (t) => {
  const provider = await providerOf(ann);
  const [one, two] = [await processOf(provider), await processOf(provider)];
  const { credential, username } = await signIn(one, provider);
  const asked = () => provider.requests.filter((route) => route === "/token").length;
  await delay(1100);
  const { now } = Date;
  t.teardown(() => {
    Date.now = now;
  });
  const first = one.current(credential, username);
  await delay(1);
  const rest = 15_000 - (now() % 15_000);
  Date.now = () => now() + rest;
  const both = await Promise.all([first, two.current(credential, username)]);
  t.strictSame(
    both.map(({ subject }) => subject.groups),
    [["staff:engineering"], ["staff:engineering"]],
  );
  t.equal(asked(), 2, "one code and one refresh token");
});

t.test("no user has the name under which the logout of another one is kept", async (t) => {
  const name = `sub=${subjectKey("staff", "preferred_username", "ann")}`;
  const provider = await providerOf({ sub: "bob", preferred_username: name });
  const signIns = await processOf(provider, { username_claim: "preferred_username" });
  await t.rejects(signIn(signIns, provider), { code: "sign_in_refused", detail: "bad_username" });
});

t.test(
  "a sign-in is recent up to an age, and the provider's clock may be ahead by a minute",
  (t) => {
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
  },
);
