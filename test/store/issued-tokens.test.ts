import { existsSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { grant, user } from "../access/kit.ts";
import { sharedServer } from "../engine/postgres/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { ADMIN_PASSWORD, type TestGateway } from "../kit/gateway.ts";
import { makeStore, queryStatus } from "./kit.ts";

async function tokensOn(gateway: TestGateway, token: string) {
  const { text } = await gateway.get("/api/tokens", token);
  const tokens: { id: string; user: string; last_used?: string }[] = JSON.parse(text).tokens;
  return tokens;
}

t.test("replicas share issued tokens, their last use and their end", async (t) => {
  const store = await makeStore(t, {}, await sharedServer());
  await store.addUser("alice", "ReadOnly");
  const [one, two] = await store.replicas(2);
  const root = await one.login("admin", ADMIN_PASSWORD);
  const issue = async (...flags: string[]) =>
    (await store.good(["token", "issue", "alice", "--opaque", ...flags])).trim();

  const token = await issue("--name", "nightly");
  for (const replica of [one, two]) t.equal(await queryStatus(replica, token), 200, "at once");
  const [listed] = await tokensOn(two, root);
  t.match(listed, { user: "alice", name: "nightly", database: "*" });
  const stored = JSON.stringify(await store.sql("select * from gatehouse.log"));
  t.notMatch(stored, token);
  t.match(stored, `"kind":"token"`);
  await eventually("the command sees its last use", async () => {
    const { tokens } = JSON.parse(await store.good(["token", "list", "--json"]));
    return tokens[0].last_used !== undefined;
  });

  const id = listed?.id ?? "";
  t.equal((await one.send("DELETE", `/api/tokens/${id}`, undefined, token)).status, 200);
  t.equal(await queryStatus(two, token), 401, "before the response");
  t.strictSame(await tokensOn(two, root), []);

  const second = await issue("--name", "second");
  t.equal(await queryStatus(two, second), 200);
  t.match(await store.good(["token", "revoke", "second"]), "Revoked the token ");
  t.equal(await queryStatus(one, second), 401);

  const third = await issue();
  t.equal((await one.send("PATCH", "/api/users/alice", { disabled: true }, root)).status, 200);
  t.equal((await two.send("PATCH", "/api/users/alice", { disabled: false }, root)).status, 200);
  for (const replica of [one, two]) t.equal(await queryStatus(replica, third), 401);

  const last = await issue();
  const later = await store.replica();
  t.equal(await queryStatus(later, last), 200, "a replica that starts later reads it");
});

t.test("with an access file at each replica, issued tokens are in the store", async (t) => {
  const store = await makeStore(t, { access: "file" }, await sharedServer());
  const text = user("robot", "") + grant("robot", "main", "ReadOnly");
  const other = store.makeHome();
  for (const home of [store.home, other]) {
    writeFileSync(path.join(home, "access_control.toml"), text, { mode: 0o600 });
  }
  const one = await store.replica(store.url, store.home);
  const two = await store.replica(store.url, other);
  const token = (await store.good(["token", "issue", "robot", "--opaque", "--name", "ci"])).trim();
  for (const replica of [one, two]) t.equal(await queryStatus(replica, token), 200);
  await store.good(["token", "revoke", "ci"]);
  for (const replica of [one, two]) t.equal(await queryStatus(replica, token), 401);
  t.notOk(existsSync(path.join(store.home, "tokens")));
});
