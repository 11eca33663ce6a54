import { Client } from "pg";
import t from "tap";
import { sharedServer } from "../engine/postgres/kit.ts";
import { eventually, PATIENCE_MS } from "../kit/eventually.ts";
import { ADMIN_PASSWORD } from "../kit/gateway.ts";
import { Wire } from "./faults/wire.ts";
import { makeStore, queryStatus, untilDeciding } from "./kit.ts";

const maxStaleness = 2;

t.test("a replica that cannot read changed keys decides nothing by the old ones", async (t) => {
  const store = await makeStore(t, { maxStaleness }, await sharedServer());
  const replica = await store.replica();
  const token = await replica.login();
  t.equal(await queryStatus(replica, token), 200);
  // The key is revoked, and where the keys are cannot be read just then.
  await store.sql(
    `begin; delete from gatehouse.keys; alter table gatehouse.keys rename to away;
    update gatehouse.head set version = version + 1, id = gen_random_uuid();
    insert into gatehouse.log (version, id, form, author, kind, data)
      select version, id, 1, '{"kind":"cli","name":"test"}', 'keys', '{"ring":"login"}'
      from gatehouse.head; commit`,
  );
  await eventually("it stops deciding", async () => (await queryStatus(replica, token)) === 503);
  t.match((await replica.request("/readyz")).body, { keys: "stale", store: "unreachable" });
  await store.sql("alter table gatehouse.away rename to keys");
  await store.good(["key", "rotate"]);
  await untilDeciding(replica);
  t.equal(await queryStatus(replica, token), 401);
  t.equal(await queryStatus(replica, await replica.login("admin", ADMIN_PASSWORD)), 200);
});

t.test(
  "a replica that is cut off in the middle of a change does not stop the others'",
  async (t) => {
    const store = await makeStore(t, { maxStaleness }, await sharedServer());
    const wire = await Wire.to(t, store.server.port);
    const near = await store.replica();
    const far = await store.replica(store.url.replace(`:${store.server.port}`, `:${wire.port}`));
    const admin = await near.login();
    const add = (username: string, gateway = near) =>
      gateway.send(
        "POST",
        "/api/users",
        { username, password: "long enough", role: "ReadOnly" },
        admin,
      );

    // The far one has the lock of all writers, and waits for another.
    const other = new Client({ connectionString: store.url });
    await other.connect();
    t.teardown(() => other.end());
    await other.query("begin; lock table gatehouse.users in share mode");
    const cut = add("far", far);
    await eventually("it waits", async () => {
      const [row] = await store.sql("select count(*) from pg_locks where not granted");
      return Number(row?.count) > 0;
    });
    wire.cut();
    await other.query("commit");
    await eventually("another gets through", async () => (await add("near")).status === 201);
    wire.mend();
    t.match(await cut, { status: 503, body: { code: "store_unreachable" } });
    await untilDeciding(far);
    t.equal((await add("far", far)).status, 201, "nothing was changed by it");
  },
);

t.test(
  "a replica that hears nothing, but is heard, holds up changes no longer than a lease",
  async (t) => {
    const store = await makeStore(t, { maxStaleness }, await sharedServer());
    const wire = await Wire.to(t, store.server.port);
    const near = await store.replica();
    const far = await store.replica(store.url.replace(`:${store.server.port}`, `:${wire.port}`));
    const admin = await near.login();
    const token = await far.login();
    // A poll arrives in time and its answer does not: each renews the lease, and is given up.
    wire.delay = 700;
    const headers = { authorization: `Bearer ${admin}` };
    const signal = AbortSignal.timeout(PATIENCE_MS);
    const out = await near.request("/logout", { method: "POST", headers, signal });
    t.equal(out.status, 200);
    t.equal(await queryStatus(far, admin), 503);
    wire.delay = 0;
    await untilDeciding(far);
    t.equal(await queryStatus(far, admin), 401);
    t.equal(await queryStatus(far, token), 200);
  },
);
