import t from "tap";
import { sharedServer } from "../engine/postgres/kit.ts";
import { startPostgres } from "../engine/postgres/server.ts";
import { eventually } from "../kit/eventually.ts";
import type { TestGateway } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import { Wire } from "./faults/wire.ts";
import { insert, makeStore, type TestStore, untilDeciding } from "./kit.ts";

const alice = { username: "alice", password: "alice password", role: "ReadWrite" };
const grant = "/api/access/alice/main";
const maxStaleness = 2;

t.test("a replica that is cut off from the store decides nothing by an older state", async (t) => {
  const store = await makeStore(t, { maxStaleness }, await sharedServer());
  const wire = await Wire.to(t, store.server.port);
  const [near, far] = [await store.replica(), await store.replica(behind(wire, store))];
  const admin = await near.login();
  await near.send("POST", "/api/users", alice, admin);
  const token = await far.login("alice", "alice password");
  t.equal((await far.query(insert, token)).status, 200);

  wire.cut();
  const cutAt = performance.now();
  const lowered = near.send("PUT", grant, { role: "ReadOnly" }, admin);
  const { status } = await far.query(insert, token);
  // On a busy machine that while may be over.
  if (performance.now() - cutAt < 1000) t.equal(status, 200, "it may decide for a while");
  t.equal((await lowered).status, 200);
  const refused = await far.query(insert, token);
  t.match(refused, { status: 503, body: { code: "store_unreachable" } });
  t.equal((await far.request("/healthz")).status, 200);
  t.match(await far.request("/readyz"), {
    status: 503,
    body: { code: "store_unreachable", store: "unreachable" },
  });
  for (const path of ["/.well-known/jwks.json", "/nowhere"]) {
    t.equal((await far.request(path)).status, 503, path);
  }

  wire.mend();
  await untilDeciding(far);
  t.equal((await far.query(insert, token)).status, 403);
});

t.test(
  "a replica that was paused past its lease decides nothing by an older state",
  nightly,
  async (t) => {
    const store = await makeStore(t, { maxStaleness }, await sharedServer());
    const wire = await Wire.to(t, store.server.port);
    const [one, two] = [await store.replica(), await store.replica(behind(wire, store))];
    const admin = await one.login();
    await one.send("POST", "/api/users", alice, admin);
    const token = await two.login("alice", "alice password");
    t.equal((await two.query(insert, token)).status, 200);

    two.service.child.kill("SIGSTOP");
    // When it wakes up it has nobody to ask, and no more than its clocks to tell that it slept.
    wire.cut();
    t.equal((await one.send("PUT", grant, { role: "ReadOnly" }, admin)).status, 200);
    const asked = queryInsert(two, token);
    two.service.child.kill("SIGCONT");
    t.equal(await asked, 503);
    wire.mend();
    await untilDeciding(two);
    t.equal(await queryInsert(two, token), 403);
  },
);

/** Where a replica behind a wire finds the store. */
function behind(wire: Wire, { url, server }: TestStore): string {
  return url.replace(`:${server.port}`, `:${wire.port}`);
}

async function queryInsert(gateway: TestGateway, token: string): Promise<number> {
  return (await gateway.query(insert, token)).status;
}

t.test(
  "without the store queries and logins go on for a while, changes are refused at once",
  nightly,
  async (t) => {
    const server = await startPostgres(t);
    const store = await makeStore(t, { maxStaleness: 4 }, server);
    const one = await store.replica();
    const admin = await one.login();
    await one.send("POST", "/api/users", alice, admin);
    const token = await one.login("alice", "alice password");

    // On a busy machine that while may be over before all is asked: then once more.
    await eventually("queries and logins go on when changes were refused", async () => {
      await server.stop();
      t.match(await one.send("PUT", grant, { role: "ReadOnly" }, admin), {
        status: 503,
        body: { code: "store_unreachable" },
      });
      t.match(await one.send("POST", "/logout", {}, token), { status: 503 });
      const again = await one.login("alice", "alice password").catch(() => "");
      if ((await queryInsert(one, again)) === 200) return true;
      await server.start();
      await untilDeciding(one);
      return false;
    });
    await eventually("/readyz tells", async () => {
      return (await one.request("/readyz")).body.store === "unreachable";
    });
    await eventually("it stops deciding", async () => (await queryInsert(one, token)) === 503);
    t.equal((await one.request("/healthz")).status, 200);
    t.equal((await one.send("POST", "/login", { username: "alice", password: "x" })).status, 503);
    const { code, stderr } = await store.run(["user", "list"]);
    t.match({ code, stderr }, { code: 1, stderr: /does not answer/ });

    await server.start();
    await untilDeciding(one);
    t.equal(await queryInsert(one, token), 200, "nothing was changed");
    t.equal((await one.send("PUT", grant, { role: "ReadOnly" }, admin)).status, 200);
    t.equal(await queryInsert(one, token), 403);
  },
);

t.test(
  "a store that has lost what was applied, or that is too new, counts as out of reach",
  nightly,
  async (t) => {
    const store = await makeStore(t, { maxStaleness }, await sharedServer());
    const one = await store.replica();
    const admin = await one.login();
    await one.send("POST", "/api/users", alice, admin);
    const token = await one.login("alice", "alice password");
    const isRefused = async () => (await queryInsert(one, token)) === 503;

    await t.test("a copy that lags", async () => {
      const [row] = await store.sql(
        "select version, id, form from gatehouse.log order by version desc",
      );
      await store.sql(
        "create table kept as select * from gatehouse.log; create table first as table gatehouse.head",
      );
      const lose = () =>
        store.sql(
          `begin; delete from gatehouse.log where version = ${row?.version};
          update gatehouse.head set (version, id) =
            (select version, id from gatehouse.log order by version desc limit 1); commit`,
        );
      await lose();
      await eventually("it stops deciding", isRefused);
      await store.sql(
        `begin; insert into gatehouse.log select * from kept on conflict do nothing;
        update gatehouse.head set (version, id) = (select version, id from first); commit`,
      );
      await untilDeciding(one);
      t.equal(await queryInsert(one, token), 200, "what it knows is there again");
      await lose();
      await eventually("it stops deciding again", isRefused);
      // Another change takes the number of the one that was lost.
      await store.good(["user", "disable", "admin", "--force"]);
      t.equal(await queryInsert(one, token), 503);
    });

    await t.test("a log in another form", async (t) => {
      const two = await store.replica();
      await untilDeciding(two);
      await store.sql("update gatehouse.head set form = 2");
      await eventually(
        "it stops deciding",
        async () => (await two.request("/readyz")).status === 503,
      );
      const { code, stderr } = await store.run(["user", "list"]);
      t.match({ code, stderr }, { code: 1, stderr: /form 2/ });
    });
  },
);

t.test("an entry that a running replica cannot read is not written", async (t) => {
  const store = await makeStore(t, {}, await sharedServer());
  await store.sql(
    `insert into gatehouse.leases (replica, name, sent, expires, applied, form, ahead) values
      (gen_random_uuid(), 'old', clock_timestamp(), clock_timestamp() + interval '1 hour', 0, 0, 0)`,
  );
  const { code, stderr } = await store.run(["user", "add", "bob", "--no-password"]);
  t.match({ code, stderr }, { code: 1, stderr: /cannot read/ });
});
