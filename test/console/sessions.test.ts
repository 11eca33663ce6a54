import t from "tap";
import { emptySnapshot, type User } from "../../src/access/snapshot.ts";
import { IDLE_MS, LONGEST_MS, Sessions } from "../../src/console/sessions.ts";
import { RevocationIndex } from "../../src/identity/revocations.ts";

const alice: User = {
  username: "alice",
  email: undefined,
  passwordHash: undefined,
  disabled: false,
  tokensValidAfter: 0,
};
const place = { address: "127.0.0.1", userAgent: "test" };

function openSetting() {
  const clock = { now: 1000 };
  const revocations = new RevocationIndex();
  const state = { snapshot: { ...emptySnapshot, users: new Map([["alice", alice]]) } };
  const context = { snapshot: () => state.snapshot, revocations };
  const sessions = new Sessions(context, () => clock.now);
  return { clock, revocations, sessions, secret: sessions.open(alice, place) };
}

t.test("a session that is not used for half an hour ends", (t) => {
  const { clock, sessions, secret } = openSetting();
  clock.now += IDLE_MS - 1;
  t.match(sessions.use(secret), { username: "alice" });
  clock.now += IDLE_MS - 1;
  t.match(sessions.use(secret), { username: "alice" });
  clock.now += IDLE_MS;
  t.equal(sessions.use(secret), undefined);
  t.end();
});

t.test("a session that is used all the time ends after twelve hours", (t) => {
  const { clock, sessions, secret } = openSetting();
  const end = clock.now + LONGEST_MS;
  for (; clock.now < end; clock.now += IDLE_MS / 2) t.ok(sessions.use(secret));
  t.equal(sessions.use(secret), undefined);
  t.strictSame(sessions.list(), []);
  t.end();
});

t.test("to look at the list of sessions is no use of them", (t) => {
  const { clock, sessions, secret } = openSetting();
  clock.now += IDLE_MS - 1;
  t.equal(sessions.list("alice").length, 1);
  clock.now += 1;
  t.strictSame(sessions.list("alice"), []);
  t.equal(sessions.use(secret), undefined);
  t.end();
});

t.test("whoever signs in after a revocation is signed in, whoever did before is not", (t) => {
  const { revocations, sessions, secret } = openSetting();
  revocations.add({ user: "alice", before: Math.floor(Date.now() / 1000) + 2 });
  t.equal(sessions.use(secret), undefined);
  t.ok(sessions.use(sessions.open(alice, place)));
  t.end();
});

t.test("a user has twenty sessions at most: the one used least lately gives way", (t) => {
  const { clock, sessions, secret } = openSetting();
  const secrets = Array.from({ length: 20 }, () => {
    clock.now++;
    return sessions.open(alice, place);
  });
  t.equal(sessions.use(secret), undefined);
  for (const one of secrets) t.ok(sessions.use(one));
  t.end();
});
