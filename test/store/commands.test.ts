import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import path from "node:path";
import type { Test } from "tap";
import t from "tap";
import { sharedServer } from "../engine/postgres/kit.ts";
import { startPostgres } from "../engine/postgres/server.ts";
import { eventually } from "../kit/eventually.ts";
import { ADMIN_PASSWORD, startGateway, temporaryHome } from "../kit/gateway.ts";
import { runCommand, Service } from "../kit/process.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { insert, makeStore, queryStatus, select, storeConfig, type TestStore } from "./kit.ts";

const accessFile = `
[[users]]
username = "admin"
password_hash = "$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHRzb21lc2FsdA$dGhlaGFzaHRoZWhhc2h0aGVoYXNodGhlaGFzaHRoZWg"

[[users]]
username = "rita"
email = "rita@example.com"
disabled = true
tokens_valid_after = 1763700000
attributes = { tenant = "acme", regions = ["eu", "us"], number = 9007199254740993, vip = true }

[[acl]]
username = "admin"
database = "*"
role = "Owner"

[[acl]]
username = "rita"
database = "main"
role = "ReadWrite"
tables = ["tickets", "customer_*"]
columns = ["id", "tenant", "status"]
writable_columns = ["status"]
row_filter = [{ column = "tenant", cmp = "=", value = "@tenant" }, { column = "id", cmp = ">", value = 9007199254740995 }]
require_where = ["id"]
max_rows = 200
max_changes = 20
expires = 2126-12-24T18:00:00.000Z

[[acl]]
username = "staff:eve"
database = "main"
role = "None"

[[boundaries]]
via = "mcp"
client = "https://agent.example/client.json"
username = "rita"
database = "main"
role = "ReadOnly"
rate_limit = "60/min"
`;

t.test("an import and an export of an access file lose nothing", async (t) => {
  const store = await makeStore(t, {}, await sharedServer());
  const file = path.join(store.home, "old.toml");
  writeFileSync(file, accessFile, { mode: 0o600 });
  await store.good(["store", "import", file]);
  const exported = await store.good(["store", "export"]);
  t.match(exported, /^# access version \d+\n/);
  const lines = (text: string) => text.split("\n").filter((line) => /^[^#]/.test(line));
  t.strictSame(lines(exported), lines(accessFile));

  const again = path.join(store.home, "again.toml");
  writeFileSync(again, exported, { mode: 0o600 });
  await store.good(["store", "import", again]);
  t.equal(await store.good(["store", "export"]), exported, "nothing changed, so no new version");
  t.match(JSON.parse(await store.good(["user", "list", "--json"])), [
    { username: "admin" },
    { username: "rita", email: "rita@example.com", disabled: true },
  ]);
});

t.test("a host's files are taken over with its tokens and revocations", async (t) => {
  const single = await startGateway(t, { config: "[mcp]\nenabled = false\n" });
  const [kept, revoked] = [await single.login(), await single.login()];
  await single.send("POST", "/logout", {}, revoked);
  await single.service.stop();

  const store = await makeStore(t, {}, await sharedServer());
  const config = path.join(single.home, "gateway.toml");
  writeFileSync(config, readFileSync(path.join(store.home, "gateway.toml")));
  writeFileSync(
    path.join(single.home, "store.key"),
    readFileSync(path.join(store.home, "store.key")),
    { mode: 0o600 },
  );
  const imported = await runCommand(single.home, ["store", "import", single.accessFile]);
  t.match(imported, {
    code: 0,
    stdout: /holds 1 user, .*\nImported 1 revocation and 1 signing key\./,
  });
  t.notOk(existsSync(single.accessFile));
  t.ok(existsSync(`${single.accessFile}.imported`), "nobody edits it in vain");
  const replica = await store.replica();
  t.equal(await queryStatus(replica, kept), 200);
  t.equal(await queryStatus(replica, revoked), 401);
});

t.test("an access file beside a store is said to be ignored, and so is each edit", async (t) => {
  const store = await makeStore(t, {}, await sharedServer());
  const file = path.join(store.home, "access_control.toml");
  writeFileSync(file, accessFile, { mode: 0o600 });
  t.match(await store.run(["config", "check"]), { stderr: `${file} is ignored` });
  const { service } = await store.replica(store.url, store.home);
  const isAboutFile = ({ msg }: Record<string, unknown>) => /ignored/.test(String(msg));
  await service.logged(isAboutFile);
  for (const edits of [1, 2]) {
    writeFileSync(file, `${accessFile}# ${edits}\n`);
    await eventually(
      "the edit is in the log",
      () => service.log.filter(isAboutFile).length > edits,
    );
  }
  await service.stop();
  t.equal(service.log.filter(isAboutFile).length, 3, "each edit once");
});

t.test("an import removes the password of an administrator whom it replaces", async (t) => {
  const server = await sharedServer();
  const home = temporaryHome(t);
  const config = storeConfig(server.url(await server.createDatabase()), {});
  writeFileSync(path.join(home, "gateway.toml"), config);
  t.match(await runCommand(home, ["store", "init"]), { code: 0 });
  const exported = await runCommand(home, ["store", "export"]);
  const [same, other] = [path.join(home, "same.toml"), path.join(home, "other.toml")];
  writeFileSync(same, exported.stdout, { mode: 0o600 });
  writeFileSync(other, accessFile, { mode: 0o600 });
  const passwordFile = path.join(home, "initial_admin_password");
  t.match(await runCommand(home, ["store", "import", same]), { code: 0 });
  t.ok(existsSync(passwordFile), "the administrator still has it");
  t.match(await runCommand(home, ["store", "import", other]), { code: 0, stdout: /^Removed /m });
  t.notOk(existsSync(passwordFile));
  t.ok(existsSync(other), "only the gateway's own access file is renamed");
});

t.test(
  "the first administrator is made once, under the name and password that were chosen",
  async (t) => {
    const server = await sharedServer();
    const home = temporaryHome(t);
    const url = server.url(await server.createDatabase());
    writeFileSync(path.join(home, "gateway.toml"), storeConfig(url, {}));
    const made = await runCommand(home, ["store", "init", "--admin", "root"]);
    t.match(made, { code: 0, stdout: /Made the tables.*Added root/s });
    const password = readFileSync(path.join(home, "initial_admin_password"), "utf8").trim();
    t.notMatch(made.stdout, password);
    const again = await runCommand(home, ["store", "init"]);
    t.match(again, { code: 0, stdout: /are up to date/ });
    t.notMatch(again.stdout, "Added");
    const gateway = await startGateway(t, { home, config: storeConfig(url, {}) });
    t.ok(await gateway.login("root", password));
  },
);

t.test("a start without the store is refused, or waits", async (t) => {
  const server = await startPostgres(t);
  const store = await makeStore(t, {}, server);
  const home = store.makeHome();
  writeFileSync(path.join(home, "gateway.toml"), storeConfig(store.url, {}));
  const serve = ["serve", "--port", "0"];
  rmSync(path.join(home, "store.key"));
  const keyless = await runCommand(home, serve);
  t.match(keyless, { code: 1, stderr: /store\.key is missing: copy it/ });
  writeFileSync(path.join(home, "store.key"), readFileSync(path.join(store.home, "store.key")), {
    mode: 0o600,
  });
  const empty = temporaryHome(t);
  const url = server.url(await server.createDatabase());
  writeFileSync(path.join(empty, "gateway.toml"), storeConfig(url, {}));
  t.match(await runCommand(empty, serve), { code: 1, stderr: /has no tables yet.*store init/ });

  await server.stop();
  t.match(await runCommand(home, serve), { code: 1, stderr: /does not answer/ });
  const waiting = new Service(home, [...serve, "--wait"]);
  t.teardown(() => waiting.stop("SIGKILL"));
  await waiting.logged(({ msg }) => msg === "waiting for the store");
  const ended = new Service(home, [...serve, "--wait"]);
  await ended.logged(({ msg }) => msg === "waiting for the store");
  t.equal(await ended.stop("SIGTERM"), 0);
  await server.start();
  t.ok(await waiting.logged(({ msg }) => String(msg).startsWith("listening on")));
});

t.test("a rolling restart of replicas that may wait for the store loses nothing", async (t) => {
  const store = await makeStore(t, {}, await sharedServer());
  const upstream = await new RecordingUpstream().listen();
  t.teardown(() => upstream.close());
  const held: ServerResponse[] = [];
  upstream.answer = (_, response) => held.push(response);
  const replica = () =>
    store.replica(store.url, store.makeHome(), "[server]\nshutdown_delay = 1\n", {
      upstream: upstream.url,
      flags: ["--wait"],
    });
  const [old, other] = await Promise.all([replica(), replica()]);
  const token = await old.login();
  const query = old.query(select, token);
  await eventually("the query is in flight", () => held.length === 1);
  const code = old.service.stop("SIGTERM");
  await eventually("readyz says that it ends", async () => {
    const { status, body } = await old.request("/readyz");
    return status === 503 && body.code === "shutting_down";
  });
  await old.service.logged(({ msg }) => String(msg).startsWith("draining"));
  held[0]?.end('{"late":true}');
  t.match(await query, { status: 200, body: { late: true } });
  t.equal(await code, 0);
  const leases = await store.sql("select name from gatehouse.leases");
  t.equal(leases.length, 1, "its lease is released, so nobody waits for it");
  const user = { username: "rita", password: "rita password", role: "ReadOnly", database: "main" };
  t.equal((await other.send("POST", "/api/users", user, token)).status, 201);
});

t.test("with access files of their own, replicas share revocations and keys", async (t) => {
  const store = await makeStore(t, { access: "file" }, await sharedServer());
  const single = await startGateway(t, { config: "[mcp]\nenabled = false\n" });
  await single.addUser("alice", "ReadOnly");
  await single.service.stop();
  const withFile = () => {
    const home = store.makeHome();
    writeFileSync(path.join(home, "access_control.toml"), readFileSync(single.accessFile), {
      mode: 0o600,
    });
    return store.replica(store.url, home);
  };
  const [one, two] = [await withFile(), await withFile()];
  const token = await one.login("alice", "alice password");
  t.equal(await queryStatus(two, token), 200);
  const admin = await two.login("admin", ADMIN_PASSWORD);
  const lowered = await two.send("PUT", "/api/access/alice/main", { role: "ReadWrite" }, admin);
  t.match(lowered, { status: 409, body: { code: "access_file_read_only" } });
  t.equal((await two.send("DELETE", "/api/users/alice/tokens", {}, admin)).status, 200);
  for (const replica of [one, two]) t.equal(await queryStatus(replica, token), 401);
});

t.test("a command says which killed replica it waits for, and until when", async (t) => {
  const store = await makeStore(t, { maxStaleness: 2 }, await sharedServer());
  const replica = await store.replica();
  const grant = (role: string) => store.run(["access", "grant", "admin", "main", role]);
  t.equal((await grant("ReadOnly")).stderr, "", "a running replica applies it at once");
  const { replicas } = JSON.parse(await store.good(["store", "status", "--json"]));
  const [{ name }] = replicas;
  await replica.service.stop("SIGKILL");
  const killed = Date.now();
  const { code, stderr } = await grant("Owner");
  t.equal(code, 0);
  const [, waited = "", until = ""] =
    /waiting for replica (\S+) .* until .* (\S+Z)$/m.exec(stderr) ?? [];
  t.equal(waited, name);
  const rest = Date.parse(until) - killed;
  t.ok(rest > 0 && rest <= 7500, `its lease of 7 s ends ${rest} ms after its death`);
});

/** `access export | apply | edit | history | rollback`, over real PostgreSQL. */

/** A store with alice, who reads `main`, and dora, who is disabled. */
async function withUsers(t: Test): Promise<TestStore> {
  const store = await makeStore(t, {}, await sharedServer());
  for (const name of ["alice", "dora"]) {
    await store.good(["user", "add", name, "--password-stdin"], `${name} password\n`);
  }
  await store.good(["access", "grant", "alice", "main", "ReadOnly"]);
  await store.good(["user", "disable", "dora"]);
  return store;
}

async function exportTo(store: TestStore, edit: (text: string) => string): Promise<string> {
  const file = path.join(store.home, "edited.toml");
  writeFileSync(file, edit(await store.good(["access", "export"])));
  return file;
}

const raised = (text: string) => text.replace('"ReadOnly"', '"ReadWrite"');

/** What is kept of users beside their attributes. */
function accounts(store: TestStore): Promise<Record<string, unknown>[]> {
  return store.sql(
    `select username, record->'user'->>'password_hash' as hash, record->'user'->>'disabled' as disabled,
      record->'user'->>'tokens_valid_after' as after from gatehouse.users order by username`,
  );
}

t.test("an edited export is put in force at every replica, and nothing else", async (t) => {
  const store = await withUsers(t);
  const replica = await store.replica();
  const token = await replica.login("alice", "alice password");
  const before = await accounts(store);
  const exported = await store.good(["access", "export"]);
  t.match(exported, /^# access version \d+\n/);
  t.notMatch(exported, /password_hash|disabled|tokens_valid_after/);

  const file = await exportTo(store, (text) =>
    raised(text)
      .replace('username = "alice"\n', 'username = "alice"\nattributes = { tenant = "acme" }\n')
      .concat(
        '\n[[users]]\nusername = "staff:eve"\nattributes = { tenant = "b" }\n',
        '\n[[acl]]\nusername = "staff:eve"\ndatabase = "main"\nrole = "ReadOnly"\n',
        '\n[[boundaries]]\nvia = "mcp"\ndatabase = "main"\nrole = "ReadOnly"\n',
      ),
  );
  const lines = [
    "alice gains INSERT, UPDATE, DELETE on main (ReadOnly to ReadWrite)",
    "staff:eve gains SELECT on main (None to ReadOnly)",
    "alice: other attributes, which row filters may refer to",
    "boundary added: ",
  ];
  const dry = await store.good(["access", "apply", file, "--dry-run"]);
  for (const line of lines) t.ok(dry.includes(line), `${line} in ${dry}`);
  t.equal(await store.good(["access", "export"]), exported, "a dry run changes nothing");
  t.equal((await replica.query(insert, token)).status, 403);

  const applied = await store.good(["access", "apply", file]);
  for (const line of lines) t.ok(applied.includes(line), `${line} in ${applied}`);
  t.match(applied, /Now version \d+\.\n$/);
  t.equal((await replica.query(insert, token)).status, 200);
  const after = await accounts(store);
  t.match(after, [...before, { username: "staff:eve", hash: null }]);

  const again = await exportTo(store, (text) => text);
  t.match(await store.good(["access", "apply", again]), /^nobody gains.*\nStill version/);
});

t.test("an export of an earlier version is refused, a revocation does not count", async (t) => {
  const store = await withUsers(t);
  const file = await exportTo(store, raised);
  await store.good(["token", "revoke", "--user", "dora"]);
  await store.good(["access", "apply", file, "--dry-run"]);
  await store.good(["access", "grant", "alice", "other", "ReadOnly"]);
  const now = await store.good(["access", "export"]);
  for (const flags of [[], ["--dry-run"]]) {
    const refused = await store.run(["access", "apply", file, ...flags]);
    t.match(refused, { code: 1, stderr: /changed meanwhile: export them again \(made of version/ });
  }
  t.equal(await store.good(["access", "export"]), now);
});

t.test("of two edits of one version one is put in force", async (t) => {
  const store = await withUsers(t);
  const file = await exportTo(store, raised);
  const both = await Promise.all([1, 2].map(() => store.run(["access", "apply", file])));
  t.strictSame(both.map(({ code }) => code).sort(), [0, 1]);
  t.match(both.map(({ stderr }) => stderr).join(""), /changed meanwhile/);
});

t.test("what a text may not say is refused, by name, and nothing is changed", async (t) => {
  const store = await withUsers(t);
  const before = await store.good(["access", "export"]);
  const refusals: [edit: (text: string) => string, stderr: RegExp][] = [
    [(text) => text.replace(/^.*\n/, ""), /does not begin with the version.*access export/],
    [(text) => text.replace('[[users]]\nusername = "dora"\n', ""), /dora is missing.*user remove/],
    [(text) => `${text}\n[[users]]\nusername = "bob"\n`, /bob has no record.*user add/],
    [
      (text) => text.replace('username = "alice"\n', 'username = "alice"\ndisabled = true\n'),
      /alice: of a record only attributes/,
    ],
    [
      (text) => text.replace('username = "alice"\n', 'username = "alice"\nemail = "a@b.example"\n'),
      /alice: of a record only attributes/,
    ],
    [
      (text) =>
        text.replace('username = "alice"\n', 'username = "alice"\ntokens_valid_after = 5\n'),
      /alice: of a record only attributes/,
    ],
    [(text) => text.replace('"Owner"', '"ReadOnly"'), /last administrator/],
    [(text) => text.replace('"ReadOnly"', '"Reader"'), /edited\.toml:\d+: `role` must be/],
  ];
  for (const [edit, stderr] of refusals) {
    const file = await exportTo(store, edit);
    t.match(await store.run(["access", "apply", file]), { code: 1, stderr }, String(stderr));
  }
  t.equal(await store.good(["access", "export"]), before);
  const file = await exportTo(store, (text) => text.replace('"Owner"', '"ReadOnly"'));
  t.match(await store.good(["access", "apply", file, "--force"]), /admin loses/);
});

t.test("the editor stands between export and apply", async (t) => {
  const store = await withUsers(t);
  const edit = (editor: string) => {
    const env = { EDITOR: editor, TMPDIR: store.home };
    return runCommand(store.home, ["access", "edit"], { env });
  };
  t.match(await edit(""), { code: 2, stderr: /\$EDITOR is not set/ });
  t.match(await edit("true"), { code: 0, stdout: "Nothing was changed.\n" });
  t.match(await edit('sed -i "s/ReadOnly/ReadWrite/"'), {
    code: 0,
    stdout: /alice gains INSERT, UPDATE, DELETE on main/,
  });
  const broken = await edit('sed -i "s/ReadWrite/Reader/"');
  t.match(broken, { code: 1, stderr: /`role` must be/ });
  const kept = /what was edited is in (\S+)/.exec(broken.stderr)?.[1] ?? "";
  t.match(readFileSync(kept, "utf8"), /Reader/);
  const failed = await edit("false");
  t.match(failed, { code: 1, stderr: /the editor failed/ });
  t.ok(existsSync(/is in (\S+)/.exec(failed.stderr)?.[1] ?? ""));
});

t.test("the history names each version, and an earlier one can be put in force", async (t) => {
  const store = await withUsers(t);
  const replica = await store.replica();
  const admin = await replica.login("admin", ADMIN_PASSWORD);
  const alice = await replica.login("alice", "alice password");
  const eve = '\n[[users]]\nusername = "staff:eve"\n';
  const grant = '\n[[acl]]\nusername = "staff:eve"\ndatabase = "main"\nrole = "ReadOnly"\n';
  await store.good(["access", "apply", await exportTo(store, (text) => text + eve + grant)]);
  const old = await store.good(["access", "export"]);
  const [, version = ""] = /^# access version (\d+)/.exec(old) ?? [];
  const role = { role: "ReadWrite" };
  t.equal((await replica.send("PUT", "/api/access/alice/main", role, admin)).status, 200);
  await store.good(["user", "add", "carl", "--password-stdin"], "carl password\n");
  await store.good(["access", "grant", "carl", "main", "ReadOnly"]);
  await store.good(["user", "enable", "dora"]);

  const listed = JSON.parse(await store.good(["access", "history", "--json"]));
  const byApi = listed.find(({ author }: { author: { kind: string } }) => author.kind === "api");
  t.match(byApi, {
    version: Number(version) + 1,
    at: /^\d{4}-.*Z$/,
    author: { kind: "api", name: "admin" },
    changes: [{ change: "grant raised", user: "alice", entry: "main", role: "ReadWrite" }],
  });
  const last = JSON.parse(await store.good(["access", "history", "--last", "2", "--json"]));
  t.strictSame(last, listed.slice(-2), "in their order");
  // A release that does not tell what was before: its versions are worked out from the first on.
  const untold = "update gatehouse.log set before = null where version";
  await store.sql(`${untold} = ${version}`);
  t.strictSame(JSON.parse(await store.good(["access", "history", "--json"])), listed);
  await store.sql(`delete from gatehouse.log where version = 1`);
  const back3 = ["access", "history", "--last", "3", "--json"];
  t.strictSame(JSON.parse(await store.good(back3)), listed.slice(-3), "no more is read");
  const table = await store.good(["access", "history"]);
  t.match(table, /api admin +grant raised alice main ReadWrite/);
  t.match(table, /cli \S+ +user changed dora/);
  t.notMatch(table, /argon2/);

  const before = await accounts(store);
  t.match(await store.good(["access", "rollback", version, "--dry-run"]), /carl loses SELECT/);
  t.equal((await replica.query(insert, alice)).status, 200);
  const back = await store.good(["access", "rollback", version]);
  t.match(back, /alice loses INSERT, UPDATE, DELETE on main.*Now version/s);
  t.equal((await replica.query(insert, alice)).status, 403);
  t.equal(await queryStatus(replica, alice), 200);
  t.strictSame(await accounts(store), before, "dora stays enabled, carl stays");
  const grants = (text: string) => text.slice(text.indexOf("[[acl]]"));
  t.equal(grants(await store.good(["access", "export"])), grants(old));

  await store.good(["user", "remove", "alice"]);
  await store.good(["user", "remove", "staff:eve"]);
  const rolled = await store.good(["access", "rollback", version]);
  t.match(rolled, /no record any more: alice, staff:eve/);
  t.notMatch(await store.good(["access", "export"]), /alice|staff:eve/);
  t.match(await store.run(["access", "rollback", "999"]), { code: 1, stderr: /no version 999/ });
  t.match(await store.run(["access", "rollback", "0"]), { code: 1, stderr: /last administrator/ });
  t.match(await store.run(["access", "rollback", "now"]), { code: 2, stderr: /is a number/ });
});

t.test("without users and grants in a store, each command says where they are", async (t) => {
  const home = temporaryHome(t);
  const store = await makeStore(t, { access: "file" }, await sharedServer());
  for (const rest of ["export", "apply f", "edit", "history", "rollback 1"]) {
    for (const where of [home, store.home]) {
      const refused = await runCommand(where, ["access", ...rest.split(" ")]);
      t.match(refused, { code: 1, stderr: /access_control\.toml, not in a store: edit that file/ });
    }
  }
});
