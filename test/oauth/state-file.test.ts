import path from "node:path";
import t, { type Test } from "tap";
import { epochSeconds } from "../../src/core/base/clock.ts";
import { openStateFile } from "../../src/features/oauth/server/state-file.ts";
import { temporaryDirectory } from "../access/kit.ts";
import { testState } from "./state-contract.ts";

const later = () => epochSeconds() + 60;

type StateFiles = [ReturnType<typeof openStateFile>, ReturnType<typeof openStateFile>];

async function openFiles(t: Test): Promise<StateFiles> {
  const file = path.join(temporaryDirectory(t), "state.sqlite");
  const stores: StateFiles = [openStateFile(file), openStateFile(file)];
  t.teardown(() => stores.forEach((store) => void store.close()));
  return stores;
}

testState(t, openFiles);

t.test("expired records are removed", async (t) => {
  const [store] = await openFiles(t);
  const expires = epochSeconds();
  await store.put("Client", "a", { payload: "{}", grantId: undefined, uid: undefined, expires });
  store.sweep();
  await store.keepClient("a", later());
  t.equal(await store.find("Client", "a"), undefined);
});

t.test("a revocation is kept until the token has certainly expired", async (t) => {
  const [one, other] = await openFiles(t);
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
