import { writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { sharedServer } from "../engine/postgres/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { ADMIN_PASSWORD } from "../kit/gateway.ts";
import { insert, makeStore, queryStatus } from "./kit.ts";

t.test("groups in the store are in force at each replica, and in versions", async (t) => {
  const store = await makeStore(t, {}, await sharedServer());
  await store.addUser("alice");
  const [one, two] = await store.replicas(2);
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
