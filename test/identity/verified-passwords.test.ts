import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { parseAccessFile } from "../../src/core/access/parse.ts";
import { deriveHere } from "../../src/core/identity/hash.ts";
import type { LoginContext } from "../../src/core/identity/login.ts";
import { hashPassword } from "../../src/core/identity/password.ts";
import { createLoginThrottle } from "../../src/core/identity/throttle.ts";
import { VerifiedPasswords } from "../../src/core/identity/verified-passwords.ts";
import { refusedBy, user } from "../access/kit.ts";

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

async function open(failures = 3) {
  let snapshot = await snapshotWith();
  const counted = { hashes: 0 };
  const login: LoginContext = {
    snapshot: () => snapshot,
    revocations: { earliestIssue: unused },
    change: unused,
    tokens: { issue: unused },
    throttle: createLoginThrottle({ perUserAndAddress: failures, perAddress: 50, window: 60 }),
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
  const { verify, isRecalled, counted } = await open();
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
  const { verify, isRecalled } = await open();
  const at = (address: string) => ({ address, isShared: false });
  await verify(PASSWORD, at("2001:db8::1"));
  t.ok(isRecalled(PASSWORD, at("2001:db8::2")));
  t.notOk(isRecalled(PASSWORD, at("2001:db8:0:1::1")));
  t.notOk(isRecalled());
});

t.test("a wrong password makes it forget, and is no guess against the memory", async (t) => {
  const { verify, isRecalled, counted } = await open();
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
  const { verify, isRecalled, setAccess } = await open();
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
  const { verify, counted } = await open();
  await Promise.all(Array.from({ length: 20 }, () => verify()));
  t.equal(counted.hashes, 1);
  const wrong = Array.from({ length: 20 }, () => refusedBy(verify("wrong horse")));
  const codes = (await Promise.all(wrong)).map(({ code }) => code);
  t.strictSame([...new Set(codes)], ["credentials_invalid"]);
  t.equal(counted.hashes, 2);
});
