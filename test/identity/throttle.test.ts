import { mock } from "node:test";
import t, { type Test } from "tap";
import { Refusal } from "../../src/core/base/refusal.ts";
import { MemoryCounts } from "../../src/core/identity/counts.ts";
import { addressKey, createLoginThrottle, FailureLimit } from "../../src/core/identity/throttle.ts";

const bounds = { perUserAndAddress: 3, perAddress: 5, window: 60 };
const home = { address: "192.0.2.1", isShared: false };
const away = { address: "192.0.2.2", isShared: false };
const refused = { code: "too_many_attempts", retryAfter: Number };

type Throttle = ReturnType<typeof createLoginThrottle>;

async function fail(throttle: Throttle, username: string, origin = home): Promise<void> {
  const attempt = await throttle.begin(username, origin);
  await attempt.complete("failed");
}

async function succeed(throttle: Throttle, username: string, origin = home): Promise<void> {
  const attempt = await throttle.begin(username, origin);
  await attempt.complete("succeeded");
}

function throttled(name: string, body: (t: Test, throttle: Throttle) => Promise<unknown>): void {
  t.test(name, (t) => body(t, createLoginThrottle(bounds)));
}

t.test("unlocking a user clears failures from all addresses, and of no other user", async (t) => {
  const throttle = createLoginThrottle({ ...bounds, perAddress: 100 });
  for (let at = 0; at < 3; at++) {
    for (const name of ["alice", "malice", "bob"]) await fail(throttle, name);
    await fail(throttle, "alice", away);
  }
  await throttle.unlock("alice");
  for (const origin of [home, away]) await succeed(throttle, "alice", origin);
  for (const name of ["malice", "bob"]) await t.rejects(throttle.begin(name, home), refused, name);
});

throttled("failures are counted by user and address", async (t, throttle) => {
  for (let at = 0; at < 3; at++) await fail(throttle, "alice");
  await t.rejects(throttle.begin("alice", home), refused);
  await succeed(throttle, "alice", away);
  await succeed(throttle, "bob");
  await t.rejects(throttle.begin("alice", home), refused, "success elsewhere resets nothing here");
});

t.test("failures are forgotten after the window, also if the clock is set back", async (t) => {
  let passed = 0;
  mock.method(performance, "now", () => passed);
  t.teardown(() => mock.restoreAll());
  const throttle = createLoginThrottle(bounds);
  for (let at = 0; at < 3; at++) await fail(throttle, "alice");
  mock.method(Date, "now", () => 0);
  passed = 59_000;
  await t.rejects(throttle.begin("alice", home), { ...refused, retryAfter: 1 });
  passed = 61_000;
  await succeed(throttle, "alice");
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

throttled("changed limits apply at once, also to earlier failures", async (t, throttle) => {
  for (let at = 0; at < 3; at++) await fail(throttle, "alice");
  throttle.change({ ...bounds, perUserAndAddress: 4 });
  await fail(throttle, "alice");
  await t.rejects(throttle.begin("alice", home), refused);
  throttle.change({ ...bounds, perUserAndAddress: 4, perAddress: 2 });
  await t.rejects(throttle.begin("bob", home), refused);
});

throttled("failures of many users from one address are counted together", async (t, throttle) => {
  for (const username of ["a", "b", "c", "d", "e"]) await fail(throttle, username);
  await t.rejects(throttle.begin("f", home), refused);
  await fail(throttle, "f", away);
});

t.test("a login with one's own account does not reset failures at other accounts", async (t) => {
  const throttle = createLoginThrottle(bounds);
  for (const username of ["a", "b", "c", "d", "e"]) {
    await fail(throttle, username);
    if (username !== "e") await succeed(throttle, "mallory");
  }
  await t.rejects(throttle.begin("mallory", home), refused);
});

t.test("a reverse proxy that all clients share is not blocked as one address", async (t) => {
  const throttle = createLoginThrottle(bounds);
  const front = { address: "127.0.0.1", isShared: true };
  for (const username of ["a", "b", "c", "d", "e", "f"]) await fail(throttle, username, front);
  for (let at = 0; at < 3; at++) await fail(throttle, "alice", front);
  await t.rejects(throttle.begin("alice", front), refused, "its users are still limited");
  await succeed(throttle, "bob", front);
});

throttled("impossible usernames share one count", async (t, throttle) => {
  for (const name of ["a b", "\n", "x".repeat(1000)]) await fail(throttle, name);
  await t.rejects(throttle.begin("é", home), refused);
});

throttled("an unjudged attempt is not counted", async (t, throttle) => {
  for (let at = 0; at < 20; at++) {
    const attempt = await throttle.begin("alice", home);
    await attempt.complete("unjudged");
  }
  await t.resolves(fail(throttle, "alice"));
});

t.test("simultaneous guesses get no more tries than sequential ones", async (t) => {
  const limit = new FailureLimit(10, 60, new MemoryCounts());
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

t.test("simultaneous good logins all pass, a few at a time", async (t) => {
  const limit = new FailureLimit(4, 60, new MemoryCounts());
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

throttled("failures from other addresses lock no user out", async (t, throttle) => {
  for (let host = 2; host < 100; host++) {
    const stranger = { address: `192.0.2.${host}`, isShared: false };
    for (let at = 0; at < 3; at++) await fail(throttle, "alice", stranger);
    await t.rejects(throttle.begin("alice", stranger), refused);
  }
  await succeed(throttle, "alice");
});

throttled("other spellings of a username give no further tries", async (t, throttle) => {
  const spellings = ["alice\n", " alice", "\uff41lice", "al\u0131ce", "alice\u0000", "a\u0301lice"];
  let judged = 0;
  for (const name of spellings) {
    await fail(throttle, name).then(
      () => judged++,
      () => undefined,
    );
  }
  t.equal(judged, 3, "they share one count");
  await succeed(throttle, "alice");
});

t.test("a good login that outlasts the window frees its place", async (t) => {
  let passed = 0;
  mock.method(performance, "now", () => passed);
  t.teardown(() => mock.restoreAll());
  const limit = new FailureLimit(2, 1, new MemoryCounts());
  await limit.enter("key");
  await limit.leave("key", "failed");
  await limit.enter("key");
  passed = 1100;
  await limit.leave("key", "succeeded");
  for (let at = 0; at < 2; at++) {
    await limit.enter("key");
    await limit.leave("key", "failed");
  }
  await t.rejects(limit.enter("key"), refused);
});

t.test("invented names and addresses use bounded memory", async (t) => {
  const counts = new MemoryCounts(1000);
  const limit = new FailureLimit(3, 60, counts);
  for (let at = 0; at < 5000; at++) {
    await limit.enter(`unjudged ${at}`);
    await limit.leave(`unjudged ${at}`, "unjudged");
  }
  t.equal(limit.size + counts.size, 0, "unjudged attempts are not stored");
  const failAs = async (key: string) => {
    await limit.enter(key);
    await limit.leave(key, "failed");
  };
  for (let at = 0; at < 5000; at++) await failAs(`failed ${at}`);
  t.equal(limit.size + counts.size, 1000);
  for (let at = 0; at < 3; at++) await failAs("the latest");
  await t.rejects(limit.enter("the latest"), refused, "the latest are remembered");
});

t.test("one address cannot take every place in the queue", async (t) => {
  const throttle = createLoginThrottle({ perUserAndAddress: 1, perAddress: 1000, window: 60 });
  const first = await throttle.begin("alice", home);
  const waiting = Array.from({ length: 70 }, () => throttle.begin("alice", home));
  const outcomes = Promise.allSettled(waiting);
  await t.rejects(throttle.begin("bob", home), { code: "login_busy", retryAfter: 1 });
  await succeed(throttle, "alice", away);
  await first.complete("failed");
  const codes = (await outcomes).map((outcome) =>
    outcome.status === "rejected" && outcome.reason instanceof Refusal ? outcome.reason.code : "",
  );
  t.equal(codes.filter((code) => code === "too_many_attempts").length, 64);
  t.equal(codes.filter((code) => code === "login_busy").length, 6);
});

t.test("a failure that cannot be counted frees its place", async (t) => {
  class OutOfReach extends MemoryCounts {
    override async add(key: string, points: number, windowMs: number) {
      if (points > 0) throw new Error("out of reach");
      return super.add(key, points, windowMs);
    }
  }
  const limit = new FailureLimit(1, 60, new OutOfReach());
  await limit.enter("key");
  const waiting = limit.enter("key");
  await t.rejects(limit.leave("key", "failed"), { message: "out of reach" });
  await t.resolves(waiting, "the next attempt has its turn");
});

t.test("a client that has disconnected takes no place", async (t) => {
  const limit = new FailureLimit(1, 60, new MemoryCounts());
  const gone = new AbortController();
  await limit.enter("key");
  const waiting = t.rejects(limit.enter("key", gone.signal), { code: "login_busy" });
  gone.abort();
  await limit.leave("key", "succeeded");
  await waiting;
  await t.resolves(limit.enter("key"));
});
