import { existsSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { grant, user } from "../access/kit.ts";
import { sharedServer } from "../engine/postgres/kit.ts";
import { decodePart } from "../identity/forge.ts";
import { eventually } from "../kit/eventually.ts";
import { ADMIN_PASSWORD, type TestGateway } from "../kit/gateway.ts";
import { insert, makeStore, queryStatus, select } from "./kit.ts";

const store = await makeStore(t, { maxStaleness: 20 }, await sharedServer());
const [one, two, three] = await Promise.all([store.replica(), store.replica(), store.replica()]);

t.test("a change is in force at all replicas once it is answered", async (t) => {
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
  const several = await store.replica(store.url, store.makeHome(), "[server]\nworkers = 2\n");
  const admin = await two.login();
  await two.addUser("wendy", "ReadOnly");
  const token = await several.login("wendy", "wendy password");
  const authorization = `Bearer ${token}`;
  // Each on its own connection, which either worker may get.
  const headers = { authorization, connection: "close", "content-type": "application/json" };
  const ask = () =>
    several.request("/query", { method: "POST", headers, body: JSON.stringify(insert) });
  for (const [role, expected] of [
    ["ReadWrite", 200],
    ["ReadOnly", 403],
  ]) {
    t.equal((await two.send("PUT", "/api/access/wendy/main", { role }, admin)).status, 200);
    const answers = await Promise.all(Array.from({ length: 16 }, ask));
    t.strictSame(new Set(answers.map(({ status }) => status)), new Set([expected]));
  }
  const { replicas } = JSON.parse(await store.good(["store", "status", "--json"]));
  t.equal(replicas.length, 5);
  await store.good(["user", "remove", "wendy"]);
  await several.service.stop();
});

t.test("a new key signs once every replica verifies with it", async (t) => {
  const [near, far] = [one, three];
  const before = decodePart(await near.login(), 0).kid;
  const known = async () => {
    const { body } = await near.request("/.well-known/jwks.json");
    return Array.isArray(body.keys) ? body.keys.length : 0;
  };
  const count = await known();

  far.service.child.kill("SIGSTOP");
  const rotated = store.good(["key", "rotate"]);
  await eventually("the running replica verifies with it", async () => (await known()) > count);
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

t.test("groups in the store are in force at each replica, and in versions", async (t) => {
  await store.addUser("alice");
  const root = await one.login("admin", ADMIN_PASSWORD);
  const alice = await two.login("alice", "alice password");
  t.equal(await queryStatus(two, alice), 403);

  const members = ["alice", "staff:Jürgen Ö#1"];
  t.equal((await one.send("PUT", "/api/groups/team", { members }, root)).status, 200);
  await eventually("the other replica audits it", () =>
    two.service.log.some(
      ({ msg, changes }) => msg === "change" && /alice.*Ö#1/.test(JSON.stringify(changes)),
    ),
  );
  const entry = { role: "ReadOnly" };
  t.equal((await one.send("PUT", "/api/groups/team/access/main", entry, root)).status, 200);
  t.equal(await queryStatus(two, alice), 200, "in force before the response");
  t.equal((await two.query(insert, alice)).status, 403);

  const exported = await store.good(["access", "export"]);
  t.match(exported, /\[\[groups\]\]\nname = "team"\nmembers = \[\s*"alice",\s*"staff:Jürgen Ö#1"/);
  t.match(exported, /\[\[acl\]\]\ngroup = "team"\n/);
  const file = path.join(store.home, "edited.toml");
  writeFileSync(file, exported.replace('"ReadOnly"', '"ReadWrite"'));
  t.match(await store.good(["access", "apply", file]), /group team gains INSERT, UPDATE, DELETE/);
  t.equal((await two.query(insert, alice)).status, 200);

  const history = await store.good(["access", "history", "--json"]);
  const versions: { version: number; changes: object[] }[] = JSON.parse(history);
  t.match(
    versions.slice(-3).map(({ changes }) => changes[0]),
    [
      { change: "group added", group: "team", members },
      { change: "grant added", group: "team", entry: "main" },
      { change: "grant raised", group: "team", entry: "main" },
    ],
  );
  t.equal((await one.send("DELETE", "/api/groups/team", undefined, root)).status, 200);
  t.equal(await queryStatus(two, alice), 403);
  const before = String(versions.at(-1)?.version);
  t.match(await store.good(["access", "rollback", before]), /alice joins the group team/);
  t.equal((await two.query(insert, alice)).status, 200);
});

t.test("no edit or rollback takes away the last administrator by a group", async (t) => {
  const store = await makeStore(t, {}, await sharedServer());
  await store.addUser("alice");
  await store.good(["group", "set", "admins", "--add", "alice"]);
  const earlier = /^# access version (\d+)/.exec(await store.good(["access", "export"]))?.[1] ?? "";
  await store.good(["access", "grant", "--group", "admins", "*", "Owner"]);
  t.match(await store.run(["access", "revoke", "admin", "*"]), { code: 1 });
  await store.good(["access", "revoke", "admin", "*", "--force"]);
  const refused = { code: 1, stderr: /The last administrator cannot be removed/ };
  const text = await store.good(["access", "export"]);
  const edits = {
    member: text.replace(/members = .*/, "members = []"),
    entry: text.replace(/\[\[acl\]\]\ngroup = "admins"[^[]*/, ""),
    role: text.replace('"Owner"', '"DbAdmin"'),
  };
  for (const [what, edited] of Object.entries(edits)) {
    const file = path.join(store.home, `${what}.toml`);
    writeFileSync(file, edited);
    t.match(await store.run(["access", "apply", file]), refused, what);
  }
  const back = await store.run(["access", "rollback", earlier]);
  t.equal(back.code, 0, "the own entry of admin is back");
  await store.good(["group", "remove", "admins"]);
});

t.test("an import replaces the groups of the store", async (t) => {
  const store = await makeStore(t, {}, await sharedServer());
  await store.good(["group", "set", "old", "--add", "admin"]);
  const file = path.join(store.home, "import.toml");
  const text = (await store.good(["store", "export"]))
    .replace("# access version", "# was version")
    .replace('name = "old"', 'name = "new"');
  writeFileSync(file, text, { mode: 0o600 });
  await store.good(["store", "import", file]);
  const groups = JSON.parse(await store.good(["group", "list", "--json"]));
  t.strictSame(groups, [{ name: "new", members: ["admin"], access: [] }]);
});

t.test("groups and names of issuers wait until each replica reads their form", async (t) => {
  const store = await makeStore(t, {}, await sharedServer());
  await store.addUser("alice");
  const lease = `insert into gatehouse.leases (replica, name, sent, expires, applied, form, ahead)
    values (gen_random_uuid(), 'older', now(), now() + interval '30 seconds', 1000000, 1, 0)`;
  await store.sql(lease);
  for (const command of [
    ["group", "set", "team", "--add", "alice"],
    ["access", "grant", "--group", "staff:a", "main", "ReadOnly"],
    ["access", "grant", "staff:Jürgen", "main", "ReadOnly"],
    ["token", "revoke", "--user", "staff:Jürgen"],
    ["access", "grant", "alice", "main", "ReadWrite", "--require-approval", "DELETE"].concat([
      "--approvers",
      "group:team",
    ]),
  ]) {
    t.match(await store.run(command), { code: 1, stderr: /A running replica cannot read/ });
  }
  await store.good(["access", "grant", "alice", "main", "ReadOnly"]);
  const form = async () => (await store.sql("select form from gatehouse.head"))[0]?.form;
  t.equal(await form(), 1, "the previous version still works with the store");
  await store.sql("delete from gatehouse.leases");
  await store.good(["group", "set", "team", "--add", "alice"]);
  t.equal(await form(), 2, "it does not start any more");
  await store.sql(lease.replace("1, 0)", "2, 0)"));
  const same = ["user", "set", "alice", "--same-as", "staff:alice"];
  t.match(await store.run(same), { code: 1, stderr: /A running replica cannot read/ });
  await store.sql("delete from gatehouse.leases");
  await store.good(same);
  t.equal(await form(), 3);
  await store.sql(lease.replace("1, 0)", "3, 0)"));
  const issue = ["token", "issue", "alice", "--opaque"];
  t.match(await store.run(issue), { code: 1, stdout: "", stderr: /A running replica cannot read/ });
  await store.sql("delete from gatehouse.leases");
  await store.good(issue);
  t.equal(await form(), 4);
});

async function tokensOn(gateway: TestGateway, token: string) {
  const { text } = await gateway.get("/api/tokens", token);
  const tokens: { id: string; user: string; last_used?: string }[] = JSON.parse(text).tokens;
  return tokens;
}

/** Milliseconds; 0 for never. */
function moment(value: unknown): number {
  return typeof value === "string" ? Date.parse(value) : 0;
}

t.test("replicas share issued tokens, their last use and their end", async (t) => {
  // Last uses are saved soon after a start, then once a minute.
  const store = await makeStore(t, {}, await sharedServer());
  const [one, two] = await store.replicas(2);
  await store.addUser("alice", "ReadOnly");
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

  await t.test("last login and last use cover all replicas", async (t) => {
    await store.addUser("lara", "ReadOnly");
    const lara = async () => {
      const users = JSON.parse(await store.good(["user", "list", "--json"]));
      return users.find(({ username }: { username: string }) => username === "lara");
    };
    t.match(await lara(), { last_login: null, last_use: null });

    const token = await one.login("lara", "lara password");
    await one.service.stop();
    const first = await lara();
    t.ok(moment(first.last_login) > 0, "a login at one replica");
    t.equal(first.last_use, first.last_login);

    while (Date.now() < moment(first.last_use) + 1000) await queryStatus(two, token);
    t.equal(await queryStatus(two, token), 200);
    await two.service.stop();
    const second = await lara();
    t.equal(second.last_login, first.last_login, "no login at the other");
    t.ok(moment(second.last_use) > moment(first.last_use), "but a later use");
  });
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
