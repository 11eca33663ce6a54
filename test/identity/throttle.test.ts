import t from "tap";
import { FailureLimit } from "../../src/identity/failure-limit.ts";
import { addressKey, createLoginThrottle } from "../../src/identity/throttle.ts";
import { Refusal } from "../../src/refusal.ts";

const bounds = { perUserAndAddress: 3, perAddress: 5, window: 60 };
const home = { address: "192.0.2.1", isShared: false };
const away = { address: "192.0.2.2", isShared: false };
const refused = { code: "too_many_attempts", retryAfter: Number };

type Throttle = ReturnType<typeof createLoginThrottle>;

async function fail(throttle: Throttle, username: string, origin = home): Promise<void> {
  const attempt = await throttle.begin(username, origin);
  await attempt.settle("failed");
}

async function succeed(throttle: Throttle, username: string, origin = home): Promise<void> {
  const attempt = await throttle.begin(username, origin);
  await attempt.settle("succeeded");
}

t.test("failures are counted by user and address", async (t) => {
  const throttle = createLoginThrottle(bounds);
  for (let at = 0; at < 3; at++) await fail(throttle, "alice");
  await t.rejects(throttle.begin("alice", home), refused);
  await succeed(throttle, "alice", away);
  await succeed(throttle, "bob");
  await t.rejects(throttle.begin("alice", home), refused, "success elsewhere resets nothing here");
});

t.test("a success forgets the failures before it", async (t) => {
  const throttle = createLoginThrottle({ ...bounds, perAddress: 100 });
  for (let round = 0; round < 3; round++) {
    await fail(throttle, "alice");
    await fail(throttle, "alice");
    await succeed(throttle, "alice");
  }
  for (let at = 0; at < 3; at++) await fail(throttle, "alice");
  await t.rejects(throttle.begin("alice", home), refused);
});

t.test("failures of many users from one address are counted together", async (t) => {
  const throttle = createLoginThrottle(bounds);
  for (const username of ["a", "b", "c", "d", "e"]) await fail(throttle, username);
  await t.rejects(throttle.begin("f", home), refused);
  await fail(throttle, "f", away);
});

t.test("success with one's own account does not pay for guesses at others", async (t) => {
  const throttle = createLoginThrottle(bounds);
  for (const username of ["a", "b", "c", "d", "e"]) {
    await fail(throttle, username);
    if (username !== "e") await succeed(throttle, "mallory");
  }
  await t.rejects(throttle.begin("mallory", home), refused);
});

t.test("a front that everyone is behind is not blocked as one address", async (t) => {
  const throttle = createLoginThrottle(bounds);
  const front = { address: "127.0.0.1", isShared: true };
  for (const username of ["a", "b", "c", "d", "e", "f"]) await fail(throttle, username, front);
  for (let at = 0; at < 3; at++) await fail(throttle, "alice", front);
  await t.rejects(throttle.begin("alice", front), refused, "but its users are");
  await succeed(throttle, "bob", front);
});

t.test("names that nobody can have share one count", async (t) => {
  const throttle = createLoginThrottle(bounds);
  for (const name of ["a b", "\n", "x".repeat(1000)]) await fail(throttle, name);
  await t.rejects(throttle.begin("é", home), refused);
});

t.test("an attempt that was not judged counts neither way", async (t) => {
  const throttle = createLoginThrottle(bounds);
  for (let at = 0; at < 20; at++) {
    const attempt = await throttle.begin("alice", home);
    await attempt.settle("unjudged");
  }
  await t.resolves(fail(throttle, "alice"));
});

t.test("guesses at one moment are no more than guesses in a row", async (t) => {
  const limit = new FailureLimit(10, 60);
  let judged = 0;
  const guess = async () => {
    await limit.enter("key");
    judged++;
    await new Promise(setImmediate);
    await limit.leave("key", "failed");
  };
  const outcomes = await Promise.allSettled(Array.from({ length: 50 }, guess));
  t.equal(judged, 10);
  const reasons = outcomes.flatMap((outcome) =>
    outcome.status === "rejected" ? [outcome.reason] : [],
  );
  t.equal(reasons.length, 40);
  for (const reason of reasons) t.ok(reason instanceof Refusal);
});

t.test("good attempts at one moment all pass, a few at a time", async (t) => {
  const limit = new FailureLimit(4, 60);
  let underWay = 0;
  let most = 0;
  const attempt = async () => {
    await limit.enter("key");
    most = Math.max(most, ++underWay);
    await new Promise(setImmediate);
    underWay--;
    await limit.leave("key", "succeeded");
    await limit.forget("key");
  };
  await Promise.all(Array.from({ length: 50 }, attempt));
  t.equal(most, 4);
});

t.test("an address is an IPv4 address or the /64 of an IPv6 one", async (t) => {
  t.equal(addressKey("192.0.2.1"), "192.0.2.1");
  t.equal(addressKey("::ffff:192.0.2.1"), "192.0.2.1");
  t.equal(addressKey("2001:db8::1"), addressKey("2001:db8:0:0:ffff::2"));
  t.not(addressKey("2001:db8::1"), addressKey("2001:db8:0:1::1"));
  t.equal(addressKey(""), "", "a connection that is gone");
});
