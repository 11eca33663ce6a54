import t from "tap";
import { sharedServer } from "../engine/postgres/kit.ts";
import { startPostgres } from "../engine/postgres/server.ts";
import { eventually } from "../kit/eventually.ts";
import { Wire } from "./faults/wire.ts";
import { insert, makeStore, queryStatus, untilDeciding } from "./kit.ts";

const maxStaleness = 2;
const bob = { username: "bob", password: "bob password", role: "ReadWrite" };

t.test("a change whose answer is waited for when the store goes away is answered", async (t) => {
  const server = await startPostgres(t);
  const store = await makeStore(t, { maxStaleness }, server);
  const [near, far] = [await store.replica(), await store.replica()];
  const admin = await near.login();
  t.equal((await near.send("POST", "/api/users", bob, admin)).status, 201);
  const token = await far.login(bob.username, bob.password);
  t.equal((await far.query(insert, token)).status, 200);
  const versions = async () => {
    const [row] = await store.sql("select version from gatehouse.head");
    return Number(row?.version);
  };
  const before = await versions();

  far.service.child.kill("SIGSTOP");
  const lowered = near.send("PUT", "/api/access/bob/main", { role: "ReadOnly" }, admin);
  await eventually("it is made", async () => (await versions()) > before);
  await server.stop();
  // The other may not decide any more, whatever it knows: its lease has run out by then.
  t.equal((await lowered).status, 200);
  far.service.child.kill("SIGCONT");
  t.equal((await far.query(insert, token)).status, 503);
  t.equal(await queryStatus(near, token), 503, "nor does the one that made it");

  await server.start();
  for (const replica of [near, far]) {
    await untilDeciding(replica);
    t.equal((await replica.query(insert, token)).status, 403);
    t.equal(await queryStatus(replica, token), 200);
  }
});

t.test("a store that has lost changes while it was away is told of", async (t) => {
  const store = await makeStore(t, { maxStaleness }, await sharedServer());
  const wire = await Wire.to(t, store.server.port);
  const replica = await store.replica(store.url.replace(`:${store.server.port}`, `:${wire.port}`));
  const reasons = () => replica.service.log.map(({ reason }) => String(reason));
  wire.cut();
  await eventually("it is away", () => reasons().some((reason) => /time/i.test(reason)));
  await store.sql("update gatehouse.log set id = gen_random_uuid()");
  wire.mend();
  await eventually("what is lost", () => reasons().some((reason) => /lost changes/.test(reason)));
  t.match(await replica.request("/readyz"), { status: 503, body: { store: "unreachable" } });
});
