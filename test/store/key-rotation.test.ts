import t from "tap";
import { sharedServer } from "../engine/postgres/kit.ts";
import { decodePart } from "../identity/forge.ts";
import { eventually } from "../kit/eventually.ts";
import { makeStore, queryStatus } from "./kit.ts";

t.test("a new key signs once every replica verifies by it", async (t) => {
  const store = await makeStore(t, { maxStaleness: 20 }, await sharedServer());
  const [near, far] = await store.replicas(2);
  if (near === undefined || far === undefined) throw new Error("no replicas");
  const before = decodePart(await near.login(), 0).kid;

  far.service.child.kill("SIGSTOP");
  const rotated = store.good(["key", "rotate"]);
  await eventually("the replica that goes on verifies by it", async () => {
    const { body } = await near.request("/.well-known/jwks.json");
    return Array.isArray(body.keys) && body.keys.length === 2;
  });
  t.equal(decodePart(await near.login(), 0).kid, before, "the other does not know it yet");
  far.service.child.kill("SIGCONT");

  t.match(await rotated, "nobody is logged out");
  const token = await near.login();
  t.not(decodePart(token, 0).kid, before);
  t.equal(await queryStatus(far, token), 200);
});
