import path from "node:path";
import t, { type Test } from "tap";
import { epochSeconds } from "../../src/clock.ts";
import { StateStore } from "../../src/oauth/server/store.ts";
import { temporaryDirectory } from "../access/kit.ts";

const record = { payload: "{}", grantId: "g", uid: undefined };
const later = () => epochSeconds() + 60;

function openStores(t: Test): [StateStore, StateStore] {
  const file = path.join(temporaryDirectory(t), "state.sqlite");
  const stores: [StateStore, StateStore] = [new StateStore(file), new StateStore(file)];
  t.teardown(() => stores.forEach((store) => void store.close()));
  return stores;
}

t.test("what one process keeps, another one finds", async (t) => {
  const [one, other] = openStores(t);
  one.put("Grant", "a", { ...record, payload: '{"x":1}', expires: later() });
  t.match(other.find("Grant", "a"), { payload: '{"x":1}', consumed: undefined });
  t.equal(other.find("Session", "a"), undefined);
  other.remove("Grant", "a");
  t.equal(one.find("Grant", "a"), undefined);
});

t.test("a record is used up once, whoever comes first", async (t) => {
  const [one, other] = openStores(t);
  one.put("RefreshToken", "a", { ...record, expires: later() });
  t.ok(one.consume("RefreshToken", "a"));
  t.notOk(other.consume("RefreshToken", "a"));
  t.match(other.find("RefreshToken", "a"), { consumed: Number });
});

t.test("what has expired is not found, and then gone", async (t) => {
  const [store] = openStores(t);
  store.put("Client", "a", { ...record, expires: epochSeconds() });
  t.equal(store.find("Client", "a"), undefined);
  t.strictSame(store.countClients(), { unused: 0, used: 0 });
  store.sweep();
  store.keepClient("a", later());
  t.equal(store.find("Client", "a"), undefined);
});

t.test("a client's end is put off, never brought nearer", async (t) => {
  const [store] = openStores(t);
  store.put("Client", "a", { ...record, expires: later() });
  store.keepClient("a", epochSeconds() - 1);
  t.ok(store.find("Client", "a"));
});

t.test(
  "of clients that nobody has let in, the address with the most has its oldest forgotten",
  async (t) => {
    const [store] = openStores(t);
    const put = (id: string, address: string | undefined, expires: number) =>
      store.put("Client", id, { payload: "{}", grantId: undefined, uid: address, expires });
    const found = () =>
      ["used", "older", "few", "old", "new"].filter((id) => store.find("Client", id) !== undefined);
    put("used", undefined, later());
    put("older", undefined, later() - 1);
    put("few", "a", later() - 30);
    put("old", "b", later() - 20);
    put("new", "b", later() - 10);
    t.strictSame(store.countClients(), { unused: 3, used: 2 });
    store.forgetClient("unused");
    t.strictSame(found(), ["used", "older", "few", "new"]);
    store.forgetClient("unused");
    t.strictSame(found(), ["used", "older", "new"]);
    store.keepClient("new", later());
    store.forgetClient("unused");
    t.strictSame(found(), ["used", "older", "new"], "one that was let in is not among them");
    store.forgetClient("used");
    t.strictSame(found(), ["used", "new"]);
  },
);

t.test("a revoked token is remembered until it has surely expired", async (t) => {
  const [one, other] = openStores(t);
  one.revokeToken("x", later());
  one.revokeToken("y", epochSeconds() - 1);
  one.revokeToken("z", epochSeconds() - 30 * 24 * 3600);
  other.sweep();
  t.ok(other.isTokenRevoked("z"), "the clock may have been wrong at the start");
  other.sweep(3_600_000);
  t.strictSame(
    ["x", "y", "z"].map((token) => other.isTokenRevoked(token)),
    [true, true, false],
  );
});

t.test("a secret is made once", async (t) => {
  const [one, other] = openStores(t);
  const made = one.secret("forms", Buffer.from("first"));
  t.same(Buffer.from(other.secret("forms", Buffer.from("second"))), Buffer.from(made));
});
