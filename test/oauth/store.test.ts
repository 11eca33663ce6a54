import path from "node:path";
import t, { type Test } from "tap";
import { epochSeconds } from "../../src/clock.ts";
import { StateFile } from "../../src/oauth/server/state-file.ts";
import { temporaryDirectory } from "../access/kit.ts";

const record = { payload: "{}", grantId: "g", uid: undefined };
const later = () => epochSeconds() + 60;

function openStores(t: Test): [StateFile, StateFile] {
  const file = path.join(temporaryDirectory(t), "state.sqlite");
  const stores: [StateFile, StateFile] = [new StateFile(file), new StateFile(file)];
  t.teardown(() => stores.forEach((store) => void store.close()));
  return stores;
}

t.test("what one process keeps, another one finds", async (t) => {
  const [one, other] = openStores(t);
  await one.put("Grant", "a", { ...record, payload: '{"x":1}', expires: later() });
  t.match(await other.find("Grant", "a"), { payload: '{"x":1}', consumed: undefined });
  t.equal(await other.find("Session", "a"), undefined);
  await other.remove("Grant", "a");
  t.equal(await one.find("Grant", "a"), undefined);
});

t.test("a record is used up once, whoever comes first", async (t) => {
  const [one, other] = openStores(t);
  await one.put("RefreshToken", "a", { ...record, expires: later() });
  t.ok(await one.consume("RefreshToken", "a"));
  t.notOk(await other.consume("RefreshToken", "a"));
  t.match(await other.find("RefreshToken", "a"), { consumed: Number });
});

t.test("what has expired is not found, and then gone", async (t) => {
  const [store] = openStores(t);
  await store.put("Client", "a", { ...record, expires: epochSeconds() });
  t.equal(await store.find("Client", "a"), undefined);
  await store.put("Client", "b", { ...record, expires: later() });
  await store.makeRoom({ unused: 9, used: 2 });
  t.ok(await store.find("Client", "b"), "it takes no place");
  store.sweep();
  await store.keepClient("a", later());
  t.equal(await store.find("Client", "a"), undefined);
});

t.test("a client's end is put off, never brought nearer", async (t) => {
  const [store] = openStores(t);
  await store.put("Client", "a", { ...record, expires: later() });
  await store.keepClient("a", epochSeconds() - 1);
  t.ok(await store.find("Client", "a"));
});

t.test(
  "of clients that nobody has let in, the address with the most has its oldest forgotten",
  async (t) => {
    const [store] = openStores(t);
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
    t.strictSame(await found(), ["used", "older", "new"], "one that was let in is not among them");
    await store.makeRoom({ unused: 1, used: 3 });
    t.strictSame(await found(), ["used", "new"]);
  },
);

t.test("a revoked token is remembered until it has surely expired", async (t) => {
  const [one, other] = openStores(t);
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

t.test("an ended grant takes all with it that was made under it, in every process", async (t) => {
  const [one, other] = openStores(t);
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

t.test("a secret is made once", async (t) => {
  const [one, other] = openStores(t);
  const made = await one.secret("forms", Buffer.from("first"));
  t.same(Buffer.from(await other.secret("forms", Buffer.from("second"))), Buffer.from(made));
});
