import t from "tap";
import { sharedServer } from "../engine/postgres/kit.ts";
import { makeStore, queryStatus } from "./kit.ts";

/** A moment that a list shows, in milliseconds; 0 for none. */
function moment(value: unknown): number {
  return typeof value === "string" ? Date.parse(value) : 0;
}

t.test("last login and last use are those at any replica", async (t) => {
  const store = await makeStore(t, {}, await sharedServer());
  await store.good(["user", "add", "alice", "--password-stdin"], "alice password\n");
  await store.good(["access", "grant", "alice", "main", "ReadOnly"]);
  const alice = async () => {
    const users = JSON.parse(await store.good(["user", "list", "--json"]));
    return users.find(({ username }: { username: string }) => username === "alice");
  };
  t.match(await alice(), { last_login: null, last_use: null });

  const [one, two] = await store.replicas(2);
  if (one === undefined || two === undefined) throw new Error("no replicas");
  const token = await one.login("alice", "alice password");
  await one.service.stop();
  const first = await alice();
  t.ok(moment(first.last_login) > 0, "what the one has noted, on another host");
  t.equal(first.last_use, first.last_login);

  while (Date.now() < moment(first.last_use) + 1000) await queryStatus(two, token);
  t.equal(await queryStatus(two, token), 200);
  await two.service.stop();
  const second = await alice();
  t.equal(second.last_login, first.last_login, "the other knows of no login");
  t.ok(moment(second.last_use) > moment(first.last_use), "and of a later use");
});
