import type { Test } from "tap";
import { epochSeconds } from "../../src/core/base/clock.ts";
import type { StateStore } from "../../src/features/oauth/server/state-store.ts";

const record = { payload: "{}", grantId: "g", uid: undefined };
const later = () => epochSeconds() + 60;

/**
 * Tests of every implementation of the state.
 *
 * @param open opens one empty state twice, as two processes would
 */
export function testState(t: Test, open: (t: Test) => Promise<[StateStore, StateStore]>): void {
  t.test("a record of one process is found by another", async (t) => {
    const [one, other] = await open(t);
    await one.put("Grant", "a", { ...record, payload: '{"x":1}', expires: later() });
    t.match(await other.find("Grant", "a"), { payload: '{"x":1}', consumed: undefined });
    t.equal(await other.find("Session", "a"), undefined);
    await other.remove("Grant", "a");
    t.equal(await one.find("Grant", "a"), undefined);
  });

  t.test("a record can be consumed once, except within the reuse time", async (t) => {
    const [one, other] = await open(t);
    await one.put("RefreshToken", "a", { ...record, expires: later() });
    t.ok(await one.consume("RefreshToken", "a"));
    t.notOk(await other.consume("RefreshToken", "a"));
    t.ok(await other.consume("RefreshToken", "a", 10), "within the reuse time");
    t.match(await other.find("RefreshToken", "a"), { consumed: Number });
    for (let round = 0; round < 20; round++) {
      await one.put("RefreshToken", `b${round}`, { ...record, expires: later() });
      const uses = [one, other, one, other].map((by) => by.consume("RefreshToken", `b${round}`));
      t.equal((await Promise.all(uses)).filter(Boolean).length, 1, "of simultaneous uses");
    }
  });

  t.test("an id is claimed by one of many, and again once that has expired", async (t) => {
    const stores = await open(t);
    const [one] = stores;
    const claims = (id: string, expires: number) =>
      Promise.all([0, 1, 0, 1].map((at) => stores[at]?.claim("SignInCheck", id, expires)));
    for (let round = 0; round < 20; round++) {
      const claimed = await claims(`a${round}`, later());
      t.equal(claimed.filter(Boolean).length, 1);
    }
    t.notOk(await one.claim("SignInCheck", "a0", later()));
    t.ok(await one.find("SignInCheck", "a0"));
    t.ok(await one.claim("SignInCheck", "b", epochSeconds() - 1));
    t.equal(await one.find("SignInCheck", "b"), undefined);
    t.equal((await claims("b", later())).filter(Boolean).length, 1);
  });

  t.test("an expired record is not found and takes no room", async (t) => {
    const [store] = await open(t);
    await store.put("Client", "a", { ...record, expires: epochSeconds() });
    t.equal(await store.find("Client", "a"), undefined);
    await store.put("Client", "b", { ...record, expires: later() });
    await store.makeRoom({ unused: 9, used: 2 });
    t.ok(await store.find("Client", "b"), "the expired one does not count");
  });

  t.test("a client's lifetime is extended, never shortened", async (t) => {
    const [store] = await open(t);
    await store.put("Client", "a", { ...record, expires: later() });
    await store.keepClient("a", epochSeconds() - 1);
    t.ok(await store.find("Client", "a"));
  });

  t.test("of unused clients, the oldest of the busiest address is removed first", async (t) => {
    const [store] = await open(t);
    const put = (id: string, address: string | undefined, expires: number) =>
      store.put("Client", id, { payload: "{}", grantId: undefined, uid: address, expires });
    const found = async () => {
      const names = ["used", "older", "few", "old", "new"];
      const records = await Promise.all(names.map((name) => store.find("Client", name)));
      return names.filter((_, at) => records[at] !== undefined);
    };
    await put("used", undefined, later());
    await put("older", undefined, later() - 1);
    await put("few", "a", later() - 30);
    await put("old", "b", later() - 20);
    await put("new", "b", later() - 10);
    await store.makeRoom({ unused: 4, used: 3 });
    t.strictSame(await found(), ["used", "older", "few", "old", "new"], "there is room");
    await store.makeRoom({ unused: 3, used: 3 });
    t.strictSame(await found(), ["used", "older", "few", "new"]);
    await store.makeRoom({ unused: 2, used: 3 });
    t.strictSame(await found(), ["used", "older", "new"]);
    await store.keepClient("new", later());
    await store.makeRoom({ unused: 0, used: 4 });
    t.strictSame(await found(), ["used", "older", "new"], "a client in use is not removed");
    await store.makeRoom({ unused: 1, used: 3 });
    t.strictSame(await found(), ["used", "new"]);
  });

  t.test("ending a grant removes its records in every process", async (t) => {
    const [one, other] = await open(t);
    const under = { ...record, expires: later() };
    await one.put("Grant", "g", { ...under, grantId: undefined });
    for (const model of ["RefreshToken", "AuthorizationCode"]) await one.put(model, "x", under);
    t.notOk(other.isGrantEnded("g"));
    await other.endGrant("g");
    t.ok(one.isGrantEnded("g"));
    for (const model of ["RefreshToken", "AuthorizationCode"]) {
      t.equal(await one.find(model, "x"), undefined);
    }
  });

  t.test("a secret is created once", async (t) => {
    const [one, other] = await open(t);
    const made = await one.secret("forms", Buffer.from("first"));
    t.same(Buffer.from(await other.secret("forms", Buffer.from("second"))), Buffer.from(made));
  });

  t.test("a record can be found by its uid", async (t) => {
    const [one, other] = await open(t);
    await one.put("Session", "a", { ...record, payload: '{"x":1}', uid: "u", expires: later() });
    t.match(await other.findByUid("Session", "u"), { payload: '{"x":1}' });
    t.equal(await other.findByUid("Interaction", "u"), undefined);
    await other.removeByGrant("Session", "g");
    t.equal(await one.findByUid("Session", "u"), undefined);
  });

  t.test("a revoked token is revoked in every process", async (t) => {
    const [one, other] = await open(t);
    await one.revokeToken("x", later());
    t.strictSame(
      ["x", "y"].map((token) => other.isTokenRevoked(token)),
      [true, false],
    );
  });

  t.test("a user's grants are listed with their renewal and called tools", async (t) => {
    const [one, other] = await open(t);
    const put = (id: string, accountId: string) =>
      one.put("Grant", id, {
        payload: JSON.stringify({ jti: id, accountId }),
        grantId: undefined,
        uid: undefined,
        expires: later(),
      });
    await put("g1", "alice:c1");
    await put("g2", "alice:c2");
    await put("g3", "alicia:c1");
    const payload = JSON.stringify({ iat: 5 });
    await one.put("RefreshToken", "r", { ...record, payload, grantId: "g1", expires: later() });
    for (const tool of ["select", "insert", "select"]) await one.noteCall("g1", tool, later());
    const grants = [...(await other.grants("alice"))].sort((a, b) => a.id.localeCompare(b.id));
    t.match(grants, [
      { id: "g1", renewed: 5, called: ["insert", "select"] },
      { id: "g2", renewed: undefined, called: [] },
    ]);
    t.equal((await other.grants()).length, 3);
    await other.remove("Grant", "g1");
    t.strictSame(
      (await one.grants("alice")).map(({ id }) => id),
      ["g2"],
    );
    t.ok(one.isGrantEnded("g1"));
  });
}
