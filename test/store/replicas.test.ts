import t from "tap";
import { sharedServer } from "../engine/postgres/kit.ts";
import { decodePart } from "../identity/forge.ts";
import { eventually } from "../kit/eventually.ts";
import { ADMIN_PASSWORD } from "../kit/gateway.ts";
import { insert, makeStore, queryStatus, select } from "./kit.ts";

t.test("a change is in force at all replicas once it is answered", async (t) => {
  const store = await makeStore(t);
  const [one, two, three] = [await store.replica(), await store.replica(), await store.replica()];
  const others = [two, three];
  const admin = await one.login();
  await one.addUser("alice", "ReadOnly");
  const alice = await two.login("alice", "alice password");
  for (const replica of others) t.equal(await queryStatus(replica, alice), 200);
  for (const replica of others) t.equal((await replica.query(insert, alice)).status, 403);

  await t.test("a grant, and its end", async (t) => {
    const path = "/api/access/alice/main";
    for (let round = 0; round < 5; round++) {
      t.equal((await one.send("PUT", path, { role: "ReadWrite" }, admin)).status, 200);
      for (const replica of others) t.equal((await replica.query(insert, alice)).status, 200);
      t.equal((await two.send("PUT", path, { role: "ReadOnly" }, admin)).status, 200);
      t.equal((await one.query(insert, alice)).status, 403);
      t.equal((await three.query(insert, alice)).status, 403);
    }
  });

  await t.test("a logout", async (t) => {
    const token = await three.login("alice", "alice password");
    t.equal(await queryStatus(one, token), 200);
    t.equal((await two.send("POST", "/logout", {}, token)).status, 200);
    for (const replica of [one, two, three]) t.equal(await queryStatus(replica, token), 401);
  });

  await t.test("a revocation of all tokens", async (t) => {
    const token = await three.login("alice", "alice password");
    t.equal((await one.send("DELETE", "/api/users/alice/tokens", {}, admin)).status, 200);
    for (const replica of [one, two, three]) t.equal(await queryStatus(replica, token), 401);
    t.equal(await queryStatus(one, await two.login("alice", "alice password")), 200);
  });

  await t.test("a new password", async (t) => {
    const token = await three.login("alice", "alice password");
    const change = { old_password: "alice password", new_password: "another password" };
    t.equal((await two.send("PUT", "/api/users/alice/password", change, token)).status, 200);
    for (const replica of [one, two, three]) t.equal(await queryStatus(replica, token), 401);
    const old = { username: "alice", password: "alice password" };
    for (const replica of [one, three]) {
      t.equal((await replica.send("POST", "/login", old)).status, 401);
      t.ok(await replica.login("alice", "another password"));
    }
  });

  await t.test("key rotation and revocation", async (t) => {
    const before = await one.login("alice", "another password");
    await store.good(["key", "rotate"]);
    const kidOf = (token: string) => String(decodePart(token, 0).kid);
    const after = await three.login("alice", "another password");
    t.not(kidOf(after), kidOf(before));
    for (const replica of [one, two, three]) {
      t.equal(await queryStatus(replica, before), 200, "a token of the old key");
      t.equal(await queryStatus(replica, after), 200, "a token of the new key");
    }
    await store.good(["key", "revoke", kidOf(after)]);
    for (const replica of [one, two, three]) t.equal(await queryStatus(replica, after), 401);
  });

  await t.test("changes by the command line", async (t) => {
    const before = await two.login("alice", "another password");
    await store.good(["user", "disable", "alice"]);
    for (const replica of [one, two, three]) t.equal(await queryStatus(replica, before), 401);
    await store.good(["user", "enable", "alice"]);
    const token = await two.login("alice", "another password");
    for (const replica of [one, two, three]) {
      t.equal(await queryStatus(replica, before), 401, "a token from before the disabling");
      t.equal(await queryStatus(replica, token), 200);
    }
    await store.good(["token", "revoke", "--user", "alice"]);
    for (const replica of [one, two, three]) t.equal(await queryStatus(replica, token), 401);
    await store.good(["user", "remove", "alice"]);
    t.equal(
      (await three.send("POST", "/login", { username: "alice", password: "x".repeat(9) })).status,
      401,
    );
    t.match(await store.good(["access", "check", "admin", "Select", "main"]), "allowed");
  });

  await t.test("all replicas report the same version", async (t) => {
    const versions = await Promise.all(
      [one, two, three].map(async (replica) => (await replica.request("/readyz")).body),
    );
    const [{ access_version: version } = {}] = versions;
    for (const body of versions) {
      t.match(body, { access_version: version, store: "reached", store_lag: 0 });
    }
    const status = JSON.parse(await store.good(["store", "status", "--json"]));
    t.equal(String(status.accessVersion), version);
    t.equal(status.replicas.length, 3);
  });
  t.equal((await one.query(select, await three.login("admin", ADMIN_PASSWORD))).status, 200);
});

t.test("a change is in force in each worker of a replica", async (t) => {
  const store = await makeStore(t);
  const one = await store.replica(store.url, store.makeHome(), "[server]\nworkers = 2\n");
  const two = await store.replica();
  const admin = await two.login();
  await two.addUser("alice", "ReadOnly");
  const token = await one.login("alice", "alice password");
  const authorization = `Bearer ${token}`;
  // Each on its own connection, which either worker may get.
  const headers = { authorization, connection: "close", "content-type": "application/json" };
  const ask = () =>
    one.request("/query", { method: "POST", headers, body: JSON.stringify(insert) });
  for (const [role, expected] of [
    ["ReadWrite", 200],
    ["ReadOnly", 403],
  ]) {
    t.equal((await two.send("PUT", "/api/access/alice/main", { role }, admin)).status, 200);
    const answers = await Promise.all(Array.from({ length: 16 }, ask));
    t.strictSame(new Set(answers.map(({ status }) => status)), new Set([expected]));
  }
  const { replicas } = JSON.parse(await store.good(["store", "status", "--json"]));
  t.equal(replicas.length, 3);
});

t.test("a new key signs once every replica verifies with it", async (t) => {
  const store = await makeStore(t, { maxStaleness: 20 }, await sharedServer());
  const [near, far] = await store.replicas(2);
  const before = decodePart(await near.login(), 0).kid;

  far.service.child.kill("SIGSTOP");
  const rotated = store.good(["key", "rotate"]);
  await eventually("the running replica verifies with it", async () => {
    const { body } = await near.request("/.well-known/jwks.json");
    return Array.isArray(body.keys) && body.keys.length === 2;
  });
  t.equal(
    decodePart(await near.login(), 0).kid,
    before,
    "the stopped replica does not know it yet",
  );
  far.service.child.kill("SIGCONT");

  t.match(await rotated, "Existing tokens stay valid");
  const token = await near.login();
  t.not(decodePart(token, 0).kid, before);
  t.equal(await queryStatus(far, token), 200);
});

/** Milliseconds; 0 for never. */
function moment(value: unknown): number {
  return typeof value === "string" ? Date.parse(value) : 0;
}

t.test("last login and last use cover all replicas", async (t) => {
  const store = await makeStore(t, {}, await sharedServer());
  await store.addUser("alice", "ReadOnly");
  const alice = async () => {
    const users = JSON.parse(await store.good(["user", "list", "--json"]));
    return users.find(({ username }: { username: string }) => username === "alice");
  };
  t.match(await alice(), { last_login: null, last_use: null });

  const [one, two] = await store.replicas(2);
  const token = await one.login("alice", "alice password");
  await one.service.stop();
  const first = await alice();
  t.ok(moment(first.last_login) > 0, "a login at one replica");
  t.equal(first.last_use, first.last_login);

  while (Date.now() < moment(first.last_use) + 1000) await queryStatus(two, token);
  t.equal(await queryStatus(two, token), 200);
  await two.service.stop();
  const second = await alice();
  t.equal(second.last_login, first.last_login, "no login at the other");
  t.ok(moment(second.last_use) > moment(first.last_use), "but a later use");
});
