import t from "tap";
import { openDatabase } from "../../src/features/store/database.ts";
import { SharedCounters } from "../../src/features/store/shared-counts.ts";
import { sharedServer } from "../engine/postgres/kit.ts";
import { eventually } from "../kit/eventually.ts";
import type { TestGateway } from "../kit/gateway.ts";
import { Wire } from "./faults/wire.ts";
import { makeStore, select, type TestStore } from "./kit.ts";

const LIMIT = 5;
const auth = `max_failures_per_user_and_address = ${LIMIT}`;
const REPLICAS = 3;

/** @returns true if the guess was judged */
async function guess(gateway: TestGateway, username: string): Promise<boolean> {
  const { status } = await gateway.send("POST", "/login", { username, password: "a wrong one" });
  if (status !== 401 && status !== 429) throw new Error(`a guess was answered by ${status}`);
  return status === 401;
}

/** The sum of all counters whose key contains a text. */
async function counted(store: TestStore, text: string): Promise<number> {
  const [row] = await store.sql(
    `select coalesce(sum(count), 0)::int as sum from gatehouse.counters where key like '%${text}%'`,
  );
  return Number(row?.sum);
}

t.test("failed logins and requests are counted over all replicas", async (t) => {
  const store = await makeStore(t, {}, await sharedServer());
  for (const name of ["alice", "bob", "carol"]) await store.addUser(name);
  await store.addUser("rita", "ReadOnly");
  await store.addAccess('[[boundaries]]\nvia = "query"\nusername = "rita"\nrate_limit = "10/hour"');
  const replicas = await store.replicas(REPLICAS, auth);
  const [one, two] = replicas;
  const workers = "[server]\nworkers = 2\n";
  const several = await store.replica(store.url, store.makeHome(), workers, { auth });

  await t.test("the rate limit of a boundary", async (t) => {
    const token = await one.login("rita", "rita password");
    const statuses: number[] = [];
    for (let round = 0; round < 10; round++) {
      for (const replica of replicas) statuses.push((await replica.query(select, token)).status);
    }
    const passed = statuses.filter((status) => status === 200).length;
    t.equal(passed, 10);
    for (const replica of [...replicas, several]) {
      const { status, headers, body } = await replica.query(select, token);
      t.match({ status, code: body.code }, { status: 429, code: "rate_limited" });
      t.ok(Number(headers.get("retry-after")) > 3500);
    }
  });

  await t.test("sequential guesses at alternating replicas", async (t) => {
    let judged = 0;
    for (let round = 0; round < 4 * LIMIT; round++) {
      for (const replica of replicas) {
        if (!(await guess(replica, "alice"))) continue;
        judged++;
        const isStored = async () => (await counted(store, " alice")) === judged;
        await eventually("the store has it", isStored);
      }
    }
    t.ok(judged >= LIMIT, `${judged} guesses were judged`);
    t.ok(judged <= LIMIT + REPLICAS - 1, `${judged} guesses were judged`);
    for (const replica of replicas) {
      const right = { username: "alice", password: "alice password" };
      const { status, headers } = await replica.send("POST", "/login", right);
      t.equal(status, 429, "the right password is refused too");
      const wait = Number(headers.get("retry-after"));
      t.ok(wait > 800 && wait <= 900, `${wait} seconds`);
    }
  });

  await t.test("simultaneous guesses", async (t) => {
    const guesses = replicas.flatMap((replica) =>
      Array.from({ length: 4 * LIMIT }, () => guess(replica, "bob")),
    );
    const judged = (await Promise.all(guesses)).filter(Boolean).length;
    t.ok(judged >= LIMIT, `${judged} guesses were judged`);
    t.ok(judged <= LIMIT + (REPLICAS - 1) * LIMIT, `${judged} guesses were judged`);
    await eventually("every replica knows", async () => {
      const answers = await Promise.all(replicas.map((replica) => guess(replica, "bob")));
      return !answers.includes(true);
    });
  });

  await t.test("a login resets the failures everywhere", async (t) => {
    for (let n = 1; n < LIMIT; n++) t.equal(await guess(one, "carol"), true);
    await eventually("the store has them", async () => (await counted(store, " carol")) === 4);
    await two.login("carol", "carol password");
    await eventually("they are reset", async () => (await counted(store, " carol")) === 0);
    for (let n = 1; n < LIMIT; n++) t.equal(await guess(two, "carol"), true);
    await two.login("carol", "carol password");
  });

  // `test/journeys/login.test.ts` has every way.
  await t.test("a command and a new password clear the failures everywhere", async () => {
    const right = { username: "carol", password: "carol password" };
    // Through one replica, for logins at all of them and at every worker of one more.
    const everywhere = async () => {
      const own = Array.from({ length: 6 }, async () => {
        const body = JSON.stringify(right);
        const headers = { "content-type": "application/json", connection: "close" };
        return (await several.request("/login", { method: "POST", headers, body })).status;
      });
      const others = replicas.map(async (one) => (await one.send("POST", "/login", right)).status);
      return new Set(await Promise.all([...others, ...own]));
    };
    const admin = await one.login();
    const ways = {
      "user unlock": () => store.good(["user", "unlock", "carol"]),
      "a new password": () => {
        right.password = "another password";
        const body = { new_password: right.password };
        return one.send("PUT", "/api/users/carol/password", body, admin);
      },
    };
    for (const [way, unlock] of Object.entries(ways)) {
      while (await guess(several, "carol"));
      await eventually("all refuse", async () => {
        const found = await everywhere();
        return found.size === 1 && found.has(429);
      });
      await unlock();
      await eventually(`all accept after ${way}`, async () => {
        const found = await everywhere();
        return found.size === 1 && found.has(200);
      });
    }
  });

  await t.test("a new replica knows the counts, and workers count together with it", async (t) => {
    const again = await store.replica(store.url, store.makeHome(), "", { auth });
    for (const replica of [again, several]) t.equal(await guess(replica, "alice"), false);
    t.equal(await guess(several, "erin"), true);
    await eventually("the store has it", async () => (await counted(store, " erin")) === 1);
  });

  await t.test("counters contain no secret and expire", async (t) => {
    const rows = await store.sql(
      "select name, key from gatehouse.counters where name <> 'requests' order by 1, 2",
    );
    const names = new Set(rows.map(({ name, key }) => `${name}: ${key}`));
    for (const name of names)
      t.match(name, /^(address: 127\.0\.0\.1|user and address: 127\.0\.0\.1 \w+)$/);
    await store.sql("update gatehouse.counters set ends = clock_timestamp() - interval '1 s'");
    t.equal(
      await guess(await store.replica(store.url, store.makeHome(), "", { auth }), "alice"),
      true,
    );
  });
});

t.test("registrations of apps are counted over all replicas", async (t) => {
  const mcp = "enabled = true\nregistrations_per_hour = 40";
  const store = await makeStore(t, { mcp }, await sharedServer());
  const replicas = await store.replicas(2);
  const app = { client_name: "an app", redirect_uris: ["http://127.0.0.1:1/back"] };
  const register = async (replica: TestGateway) =>
    (await replica.send("POST", "/oauth/register", app)).status;
  await eventually("both refuse", async () => {
    const statuses = [];
    for (const replica of replicas) statuses.push(await register(replica));
    return statuses.every((status) => status === 429);
  });
  t.ok(
    (await counted(store, "registrations 127.0.0.1")) < 2 * 40,
    "fewer than with separate counts",
  );
});

t.test("points after the end of a window begin a full new window", async (t) => {
  const store = await makeStore(t, {}, await sharedServer());
  const database = openDatabase(store.url);
  t.teardown(() => database.close());
  const row = "insert into gatehouse.counters values ('requests', 'a', 3";
  await store.sql(`${row}, clock_timestamp() + interval '1 min', clock_timestamp())`);
  const counters = new SharedCounters(database);
  t.match(await counters.add("requests", "a", 0, 3_600_000), { count: 3 });
  await store.sql("update gatehouse.counters set ends = clock_timestamp()");
  t.match(await counters.add("requests", "a", 2, 3_600_000), { count: 2 });
  await counters.close();
  const [found] = await store.sql(
    "select count, ends > clock_timestamp() + interval '50 min' as is_whole from gatehouse.counters",
  );
  t.match(found, { count: 2, is_whole: true });
});

t.test("a statement that does not reach the store says when to retry", async (t) => {
  const database = openDatabase("postgres://ann@127.0.0.1:1/gatehouse");
  t.teardown(() => database.close());
  const refusal = { code: "store_unreachable", retryAfter: 1 };
  await t.rejects(database.query("select 1"), refusal);
  await t.rejects(
    database.transaction(async () => {}),
    refusal,
  );
});

t.test("a count resolves while others keep coming", async (t) => {
  const store = await makeStore(t, {}, await sharedServer());
  const database = openDatabase(store.url);
  t.teardown(() => database.close());
  const counters = new SharedCounters(database);
  let answered = 0;
  let sent = 0;
  const steady = setInterval(() => {
    for (let more = 0; more < 4; more++) {
      void counters.add("requests", `key ${sent++ % 100}`, 1, 60_000).then(() => answered++);
    }
  }, 1);
  t.teardown(() => clearInterval(steady));
  await eventually("some are answered while more come", () => answered > 100);
  t.match(await counters.add("requests", "huge", 2_147_483_647, 60_000), { count: 1e9 });
  t.match(await counters.add("requests", "huge", 2_147_483_647, 60_000), { count: 1e9 });
  clearInterval(steady);
  await eventually("all are answered", () => answered === sent);
  await counters.close();
  const [total] = await store.sql(
    "select sum(count)::int as sum from gatehouse.counters where key <> 'huge'",
  );
  t.match(total, { sum: sent });
});

t.test("a replica without the store keeps counting and shares its counts later", async (t) => {
  const store = await makeStore(t, { maxStaleness: 60 }, await sharedServer());
  await store.addUser("alice");
  const wire = await Wire.to(t, store.server.port);
  const far = await store.replica(store.urlBy(wire), store.makeHome(), "", { auth });
  const near = await store.replica(store.url, store.makeHome(), "", { auth });
  wire.cut();
  for (let n = 0; n < LIMIT; n++) t.equal(await guess(far, "alice"), true);
  t.equal(await guess(far, "alice"), false);
  t.equal(await guess(near, "alice"), true, "the other replica does not know");
  wire.restore();
  await eventually("all know", async () => (await counted(store, " alice")) === LIMIT + 1);
  await eventually("the other refuses", async () => !(await guess(near, "alice")));
});
