import t from "tap";
import { emptySnapshot, type User } from "../../src/access/snapshot.ts";
import { IDLE_MS, LONGEST_MS, openSessions } from "../../src/console/sessions.ts";
import { RevocationIndex } from "../../src/identity/revocations.ts";

const alice: User = {
  username: "alice",
  email: undefined,
  passwordHash: undefined,
  disabled: false,
  tokensValidAfter: 0,
};
const place = { address: "127.0.0.1", userAgent: "test" };

async function openSetting() {
  const clock = { now: 1000 };
  const revocations = new RevocationIndex();
  const state = { snapshot: { ...emptySnapshot, users: new Map([["alice", alice]]) } };
  const context = { snapshot: () => state.snapshot, revocations };
  const sessions = openSessions(context, () => clock.now);
  return { clock, revocations, sessions, secret: await sessions.open(alice, place) };
}

t.test("a session that is not used for half an hour ends", async (t) => {
  const { clock, sessions, secret } = await openSetting();
  clock.now += IDLE_MS - 1;
  t.match(await sessions.use(secret), { username: "alice" });
  clock.now += IDLE_MS - 1;
  t.match(await sessions.use(secret), { username: "alice" });
  clock.now += IDLE_MS;
  t.equal(await sessions.use(secret), undefined);
});

t.test("a session that is used all the time ends after twelve hours", async (t) => {
  const { clock, sessions, secret } = await openSetting();
  const end = clock.now + LONGEST_MS;
  for (; clock.now < end; clock.now += IDLE_MS / 2) t.ok(await sessions.use(secret));
  t.equal(await sessions.use(secret), undefined);
  t.strictSame(await sessions.list(), []);
});

t.test("a page that refreshes itself keeps no session alive", async (t) => {
  const { clock, sessions, secret } = await openSetting();
  clock.now += IDLE_MS - 1;
  t.match(await sessions.use(secret, true), { username: "alice" });
  clock.now += 1;
  t.equal(await sessions.use(secret, true), undefined);
});

t.test("to look at the list of sessions is no use of them", async (t) => {
  const { clock, sessions, secret } = await openSetting();
  clock.now += IDLE_MS - 1;
  t.equal((await sessions.list("alice")).length, 1);
  clock.now += 1;
  t.strictSame(await sessions.list("alice"), []);
  t.equal(await sessions.use(secret), undefined);
});

t.test("whoever signs in after a revocation is signed in, whoever did before is not", async (t) => {
  const { revocations, sessions, secret } = await openSetting();
  revocations.add({ user: "alice", before: Math.floor(Date.now() / 1000) + 2 });
  t.equal(await sessions.use(secret), undefined);
  t.ok(await sessions.use(await sessions.open(alice, place)));
});

t.test("a user has twenty sessions at most: the one used least lately gives way", async (t) => {
  const { clock, sessions, secret } = await openSetting();
  const secrets: string[] = [];
  while (secrets.length < 20) {
    clock.now++;
    secrets.push(await sessions.open(alice, place));
  }
  t.equal(await sessions.use(secret), undefined);
  for (const one of secrets) t.ok(await sessions.use(one));
});
