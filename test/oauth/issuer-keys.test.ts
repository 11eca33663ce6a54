import { mock } from "node:test";
import t from "tap";
import { refusedBy } from "../access/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { makeKey } from "./issuer.ts";
import { openSetting, resource } from "./issuer-setting.ts";

/** Longer than keys are left alone for after they were fetched. */
const COOLDOWN_MS = 5100;

t.test("keys rotate under their issuer, and made-up ones cost it nothing", async (t) => {
  const { issuer, fresh, verify, refusal } = await openSetting(t);
  mock.timers.enable({ apis: ["Date"], now: Date.now() });
  t.teardown(() => mock.timers.reset());
  const issuers = fresh();
  await verify(await issuer.sign(resource), issuers);
  await verify(await issuer.sign(resource), issuers);
  t.equal(issuer.fetches, 1, "keys are remembered");

  const old = issuer.keys[0];
  issuer.keys = [await makeKey("second")];
  mock.timers.tick(COOLDOWN_MS);
  t.equal(await verify(await issuer.sign(resource), issuers), "staff:alice", "the new key");
  t.equal(issuer.fetches, 2, "it was asked for");
  const header = { kid: "made-up" };
  const outdated = old === undefined ? {} : { key: old };
  for (let count = 0; count < 20; count++) {
    t.equal(await refusal(count % 2 === 0 ? { header } : outdated, issuers), "issuer_unreachable");
  }
  t.equal(issuer.fetches, 2, "which was just done");
  mock.timers.tick(COOLDOWN_MS);
  await Promise.all(Array.from({ length: 20 }, () => refusal({ header }, issuers)));
  t.equal(issuer.fetches, 3, "it is asked once more, later");
  mock.timers.tick(COOLDOWN_MS);
  t.equal(
    await refusal(outdated, issuers),
    "token_invalid",
    "a key that was looked for and is gone",
  );
});

t.test("a good token waits for the next fetch after a made-up one has used this one", async (t) => {
  const { issuer, fresh, verify, refused } = await openSetting(t);
  mock.timers.enable({ apis: ["Date"], now: Date.now() });
  t.teardown(() => mock.timers.reset());
  const issuers = fresh();
  await verify(await issuer.sign(resource), issuers);
  mock.timers.tick(COOLDOWN_MS);
  t.match(await refused({ header: { kid: "made-up" } }, issuers), { code: "token_invalid" });
  mock.timers.tick(1500);
  issuer.keys = [await makeKey("second")];
  const soon = { code: "issuer_unreachable", status: 503, retryAfter: 4, detail: "unknown_key" };
  t.match(await refused({}, issuers), soon);
  mock.timers.tick(4000);
  t.equal(await verify(await issuer.sign(resource), issuers), "staff:alice");
});

t.test("an issuer that is out of reach is waited for", async (t) => {
  const { issuer, fresh, verify, refusal } = await openSetting(t);
  const issuers = fresh();
  const token = await issuer.sign(resource);
  await issuer.stop();
  const refused = await refusedBy(verify(token, issuers));
  t.match(refused, { code: "issuer_unreachable", status: 503, retryAfter: 2 });
  await issuer.listen();
  t.equal(await refusal(token, issuers), "issuer_unreachable", "it is left alone for a moment");
  t.equal(issuer.fetches, 0);
  await eventually(
    "it is asked again",
    async () => (await verify(token, issuers).catch(() => "")) === "staff:alice",
  );
});

t.test("keys that are known serve while their issuer is out of reach", async (t) => {
  const { issuer, fresh, verify, refusal } = await openSetting(t);
  mock.timers.enable({ apis: ["Date"], now: Date.now() });
  t.teardown(() => mock.timers.reset());
  const issuers = fresh();
  await verify(await issuer.sign(resource), issuers);
  issuer.failure = 500;
  mock.timers.tick(COOLDOWN_MS);
  t.equal(await refusal({ header: { kid: "made-up" } }, issuers), "issuer_unreachable");
  t.equal(await verify(await issuer.sign(resource), issuers), "staff:alice");
  mock.timers.tick(660_000);
  t.equal(await refusal({}, issuers), "issuer_unreachable", "but not for ever");
});

t.test("an answer that holds no keys is none", async (t) => {
  const { issuer, refusal } = await openSetting(t);
  for (const answer of [{}, { keys: "none" }, { keys: [1] }, [], "keys"]) {
    issuer.others.set("/keys", answer);
    t.equal(await refusal({}), "issuer_unreachable", JSON.stringify(answer));
  }
  issuer.others.set("/keys", { keys: [{ kty: "oct", kid: "first", alg: "HS256", k: "c2VjcmV0" }] });
  t.equal(await refusal({}), "token_invalid", "a shared secret");
});

t.test("an issuer that is back is found so without a token", async (t) => {
  const { issuer, fresh, refusal } = await openSetting(t);
  const issuers = fresh();
  t.strictSame(issuers.states, { staff: "unused" });
  await issuer.stop();
  mock.timers.enable({ apis: ["setTimeout"] });
  t.teardown(() => mock.timers.reset());
  t.equal(await refusal({}, issuers), "issuer_unreachable");
  t.strictSame(issuers.states, { staff: "unreachable" });
  await issuer.listen();
  const later = performance.now() + 30_000;
  const passed = mock.method(performance, "now", () => later);
  mock.timers.tick(30_000);
  passed.mock.restore();
  mock.timers.reset();
  await eventually("it is found", () => issuers.states.staff === "ok");
  issuers.close();
});
