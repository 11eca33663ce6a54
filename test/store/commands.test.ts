import {
  chownSync,
  copyFileSync,
  existsSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import type { ServerResponse } from "node:http";
import { createServer, type Socket } from "node:net";
import path from "node:path";
import t, { type Test } from "tap";
import { grant, hashWith, user } from "../access/kit.ts";
import { sharedServer } from "../engine/postgres/kit.ts";
import { startPostgres } from "../engine/postgres/server.ts";
import { staffedHome, tokenOf } from "../journeys/staff.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { ADMIN_PASSWORD, startGateway, temporaryHome, writeConfiguration } from "../kit/gateway.ts";
import { runCommand, Service } from "../kit/process.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { runWarm } from "../kit/warm-command.ts";
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

/** A service directory whose store is a new database without tables. */
async function emptyStore(t: Test) {
  const home = temporaryHome(t);
  const server = await sharedServer();
  const config = storeConfig(server.url(await server.createDatabase()), {});
  writeConfiguration(home, { config });
  return { home, config, run: (...flags: string[]) => runWarm(home, flags) };
}

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

t.test("tokens that an import ends stay dead", async (t) => {
  const store = await makeStore(t, {}, await sharedServer());
  const file = path.join(store.home, "imported.toml");
  const put = async (robot: string) => {
    const admin = user("root", `password_hash = "${hashWith()}"`) + grant("root", "*", "Owner");
    writeFileSync(file, `${admin}${robot}`, { mode: 0o600 });
    await store.good(["store", "import", file]);
  };
  const rights = grant("robot", "main", "ReadOnly");
  const robot = user("robot", `password_hash = "${hashWith()}"`) + rights;
  await put(robot);
  const replica = await store.replica();
  const ends = ["disabled = true", ""].map((line) => {
    return user("robot", line) + rights;
  });
  const later = `password_hash = "${hashWith()}"\ntokens_valid_after = ${Math.floor(Date.now() / 1000) + 60}`;
  for (const ending of ["", ...ends, user("robot", later) + rights]) {
    const token = (await store.good(["token", "issue", "robot", "--opaque"])).trim();
    t.equal(await queryStatus(replica, token), 200);
    await put(robot);
    t.equal(await queryStatus(replica, token), 200, "the same again ends nothing");
    for (const text of [ending, robot]) {
      await put(text);
      t.equal(await queryStatus(replica, token), 401);
    }
  }
});

t.test("an import takes over a host's tokens and revocations", async (t) => {
  const single = await startGateway(t, { config: "[mcp]\nenabled = false\n" });
  const [kept, revoked] = [await single.login(), await single.login()];
  await single.send("POST", "/logout", {}, revoked);
  const issue = ["token", "issue", "admin", "--name", "ci", "--opaque"];
  const machine = (await runWarm(single.home, issue)).stdout.trim();
  await single.service.stop();

  const store = await makeStore(t, {}, await sharedServer());
  const config = path.join(single.home, "gateway.toml");
  writeFileSync(config, readFileSync(path.join(store.home, "gateway.toml")));
  writeFileSync(
    path.join(single.home, "store.key"),
    readFileSync(path.join(store.home, "store.key")),
    { mode: 0o600 },
  );
  const imported = await runWarm(single.home, ["store", "import", single.accessFile]);
  t.match(imported, {
    code: 0,
    stdout: /contains 1 user, .*\nImported 1 revocation, 1 issued token and 1 signing key\./,
  });
  t.notOk(existsSync(single.accessFile));
  t.ok(existsSync(`${single.accessFile}.imported`), "the access file is renamed");
  const replica = await store.replica();
  t.equal(await queryStatus(replica, kept), 200);
  t.equal(await queryStatus(replica, revoked), 401);
  t.equal(await queryStatus(replica, machine), 200);
});

t.test("an ignored access file is reported at the start and at each edit", async (t) => {
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

t.test("an import deletes the initial password of a replaced administrator", async (t) => {
  const { home, run } = await emptyStore(t);
  t.match(await run("store", "init"), { code: 0 });
  const exported = await run("store", "export");
  const [same, other] = [path.join(home, "same.toml"), path.join(home, "other.toml")];
  writeFileSync(same, exported.stdout, { mode: 0o600 });
  writeFileSync(other, accessFile, { mode: 0o600 });
  const passwordFile = path.join(home, "initial_admin_password");
  t.match(await run("store", "import", same), { code: 0 });
  t.ok(existsSync(passwordFile), "the administrator still has it");
  t.match(await run("store", "import", other), { code: 0, stdout: /^Removed /m });
  t.notOk(existsSync(passwordFile));
  t.ok(existsSync(other), "only the gateway's own access file is renamed");
});

t.test("store init creates the first administrator once, with the chosen name", async (t) => {
  const { home, config, run } = await emptyStore(t);
  if (process.getuid?.() === 0) chownSync(home, 65_534, 65_534);
  const made = await run("store", "init", "--admin", "root");
  const owner = statSync(home).uid;
  for (const name of ["store.key", "initial_admin_password"]) {
    t.equal(statSync(path.join(home, name)).uid, owner, name);
  }
  t.match(made, { code: 0, stdout: /Created the tables.*Added root/s });
  const password = readFileSync(path.join(home, "initial_admin_password"), "utf8").trim();
  t.notMatch(made.stdout, password);
  const again = await run("store", "init");
  t.match(again, { code: 0, stdout: /are up to date/ });
  t.notMatch(again.stdout, "Added");
  const gateway = await startGateway(t, { home, config });
  t.ok(await gateway.login("root", password));
});

t.test("of replicas that run store init together, one adds the administrator", async (t) => {
  const server = await sharedServer();
  const url = server.url(await server.createDatabase());
  const homes = [temporaryHome(t), temporaryHome(t), temporaryHome(t)];
  for (const home of homes) {
    writeConfiguration(home, { config: storeConfig(url, {}) });
    const key = `${Buffer.alloc(32, 7).toString("base64url")}\n`;
    writeFileSync(path.join(home, "store.key"), key, { mode: 0o600 });
  }
  const made = await Promise.all(homes.map((home) => runCommand(home, ["store", "init"])));
  for (const { code, stderr } of made) t.strictSame([code, stderr], [0, ""]);
  const added = made.map(({ stdout }) => /Added admin/.test(stdout));
  t.equal(added.filter(Boolean).length, 1);
  const isKept = (home: string) => existsSync(path.join(home, "initial_admin_password"));
  t.strictSame(homes.map(isKept), added, "no other has a password that opens nothing");
});

t.test("store init and import complete without a reader of what they print", async (t) => {
  const { home, run } = await emptyStore(t);
  const unread = (...flags: string[]) =>
    runCommand(home, flags, { through: ["bash", "-c", 'set -o pipefail; "$0" "$@" | true'] });
  t.match(await unread("store", "init"), { code: 0, stderr: "" });
  const users = async () => (await run("user", "list")).stdout;
  t.match(await users(), /^admin /m);
  const file = path.join(home, "access_control.toml");
  writeFileSync(file, accessFile, { mode: 0o600 });
  t.match(await unread("store", "import", file), { code: 0, stderr: "" });
  t.match(await users(), /^rita /m);
  t.notOk(existsSync(file), "it is renamed at the end");
});

t.test("store init creates a service directory that is missing", async (t) => {
  const { home: place, config: section } = await emptyStore(t);
  const config = path.join(place, "gateway.toml");
  // The key has a directory of its own, so that nothing else makes the service directory.
  writeConfiguration(place, { config: `${section}key_file = "keys/store.key"\n` });
  const home = path.join(place, "var", "gatehouse");
  const flags = ["store", "init", "--config", config];
  const made = await runWarm(place, flags, "", { GATEHOUSE_HOME: home });
  t.match(made, { code: 0, stderr: "", stdout: /Added admin/ });
  const modeOf = (file: string) => statSync(file).mode & 0o777;
  t.equal(modeOf(home), 0o700);
  t.equal(modeOf(path.join(home, "initial_admin_password")), 0o600);
});

t.test("connections for which there is no password are closed at once", async (t) => {
  const open = new Set<Socket>();
  let count = 0;
  const server = createServer((socket) => {
    count += 1;
    open.add(socket);
    socket.once("close", () => open.delete(socket));
    socket.on("error", () => {});
    // AuthenticationCleartextPassword
    socket.once("data", () => socket.write(Buffer.from("520000000800000003", "hex")));
  });
  const port = await freePort();
  server.listen(port, "127.0.0.1");
  t.teardown(() => server.close());
  const home = temporaryHome(t);
  const url = `postgres://gatehouse@127.0.0.1:${port}/gatehouse`;
  writeFileSync(path.join(home, "gateway.toml"), storeConfig(url, {}));
  const status = runCommand(home, ["store", "status"]);
  await eventually("the command closes its connection", () => count === 1 && open.size === 0);
  t.match(await status, { code: 1, stderr: /requires a password/ });
  const waiting = new Service(home, ["serve", "--port", "0", "--wait"]);
  t.teardown(() => waiting.stop("SIGKILL"));
  await eventually("it tries again", () => count >= 4);
  t.ok(open.size <= 1, "attempts leave no connection");
});

t.test("a start without the store fails, or waits with --wait", async (t) => {
  const server = await startPostgres(t);
  const store = await makeStore(t, {}, server);
  const home = store.makeHome();
  writeFileSync(path.join(home, "gateway.toml"), storeConfig(store.url, {}));
  const serve = ["serve", "--port", "0"];
  rmSync(path.join(home, "store.key"));
  const keyless = await runCommand(home, serve);
  t.match(keyless, { code: 1, stderr: /store\.key is missing.* copy it/ });
  writeFileSync(path.join(home, "store.key"), readFileSync(path.join(store.home, "store.key")), {
    mode: 0o600,
  });
  const empty = temporaryHome(t);
  const url = server.url(await server.createDatabase());
  writeFileSync(path.join(empty, "gateway.toml"), storeConfig(url, {}));
  t.match(await runCommand(empty, serve), { code: 1, stderr: /has no tables yet.*store init/ });

  await server.stop();
  t.match(await runCommand(home, serve), { code: 1, stderr: /does not answer/ });
  const checked = await runWarm(home, ["config", "check", "--json"]);
  t.match(JSON.parse(checked.stdout), { errors: [/does not answer/] });
  t.equal(JSON.parse(checked.stdout).errors.length, 1, "the store is reported once");
  const waiting = new Service(home, [...serve, "--wait"]);
  t.teardown(() => waiting.stop("SIGKILL"));
  await waiting.logged(({ msg }) => msg === "waiting for the store");
  const ended = new Service(home, [...serve, "--wait"]);
  await ended.logged(({ msg }) => msg === "waiting for the store");
  t.equal(await ended.stop("SIGTERM"), 0);
  await server.start();
  t.ok(await waiting.logged(({ msg }) => String(msg).startsWith("listening on")));
});

t.test("a rolling restart loses no request", async (t) => {
  const store = await makeStore(t, {}, await sharedServer());
  const upstream = await new RecordingUpstream().listen(t);
  const pending: ServerResponse[] = [];
  upstream.answer = (_, response) => pending.push(response);
  const replica = () =>
    store.replica(store.url, store.makeHome(), "[server]\nshutdown_delay = 1\n", {
      upstream: upstream.url,
      flags: ["--wait"],
    });
  const [old, other] = await Promise.all([replica(), replica()]);
  const token = await old.login();
  const query = old.query(select, token);
  await eventually("the query is in flight", () => pending.length === 1);
  const code = old.service.stop("SIGTERM");
  await eventually("/readyz reports the shutdown", async () => {
    const { status, body } = await old.request("/readyz");
    return status === 503 && body.code === "shutting_down";
  });
  await old.service.logged(({ msg }) => String(msg).startsWith("draining"));
  pending[0]?.end('{"late":true}');
  t.match(await query, { status: 200, body: { late: true } });
  t.equal(await code, 0);
  const leases = await store.sql("select name from gatehouse.leases");
  t.equal(leases.length, 1, "its lease is released");
  const user = { username: "rita", password: "rita password", role: "ReadOnly", database: "main" };
  t.equal((await other.send("POST", "/api/users", user, token)).status, 201);
});

t.test("with access files of their own, replicas share revocations and keys", async (t) => {
  const store = await makeStore(t, { access: "file" }, await sharedServer());
  const staffed = await staffedHome(t, ["admin * Owner", "alice main ReadOnly"]);
  const imported = await store.good(["store", "import", path.join(staffed, "access_control.toml")]);
  t.match(imported, /^Users and grants stay in .*\nImported 0 revocations, 0 issued tokens and /);
  t.strictSame(await store.sql("select username from gatehouse.users"), []);
  const withFile = () => {
    const home = store.makeHome();
    copyFileSync(path.join(staffed, "access_control.toml"), path.join(home, "access_control.toml"));
    return store.replica(store.url, home);
  };
  const [one, two] = [await withFile(), await withFile()];
  const token = await tokenOf(one, "alice");
  t.equal(await queryStatus(two, token), 200);
  const admin = await tokenOf(two, "admin");
  const lowered = await two.send("PUT", "/api/access/alice/main", { role: "ReadWrite" }, admin);
  t.match(lowered, { status: 409, body: { code: "access_file_read_only" } });
  t.equal((await two.send("DELETE", "/api/users/alice/tokens", {}, admin)).status, 200);
  for (const replica of [one, two]) t.equal(await queryStatus(replica, token), 401);
});

t.test("a command reports which replica it waits for, and until when", async (t) => {
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
    /waiting for replica (\S+) until .* (\S+Z)$/m.exec(stderr) ?? [];
  t.equal(waited, name);
  const rest = Date.parse(until) - killed;
  t.ok(rest > 0 && rest <= 7500, `its lease of 7 s ends ${rest} ms after its death`);
});

/** A store with alice, who reads `main`, and dora, who is disabled. */
async function withUsers(t: Test): Promise<TestStore> {
  const store = await makeStore(t, {}, await sharedServer());
  await store.addUser("alice", "ReadOnly");
  await store.addUser("dora");
  await store.good(["user", "disable", "dora"]);
  return store;
}

async function exportTo(store: TestStore, edit: (text: string) => string): Promise<string> {
  const file = path.join(store.home, "edited.toml");
  writeFileSync(file, edit(await store.good(["access", "export"])));
  return file;
}

const raised = (text: string) => text.replace('"ReadOnly"', '"ReadWrite"');

/** The parts of users that an edit cannot change. */
function accounts(store: TestStore): Promise<Record<string, unknown>[]> {
  return store.sql(
    `select username, record->'user'->>'password_hash' as hash, record->'user'->>'disabled' as disabled,
      record->'user'->>'tokens_valid_after' as after from gatehouse.users order by username`,
  );
}

t.test("an edited export takes effect at every replica", async (t) => {
  const store = await withUsers(t);
  const replica = await store.replica();
  const token = await replica.login("alice", "alice password");
  const before = await accounts(store);
  const exported = await store.good(["access", "export"]);
  t.match(exported, /^# access version \d+\n/);
  t.notMatch(exported, /password_hash|disabled|tokens_valid_after/);

  const file = await exportTo(store, (text) =>
    raised(text)
      .replace(
        'username = "alice"\n',
        'username = "alice"\nattributes = { tenant = "acme" }\nsame_as = "staff:alice"\n',
      )
      .concat(
        '\n[[users]]\nusername = "staff:eve"\nattributes = { tenant = "b" }\n',
        '\n[[acl]]\nusername = "staff:eve"\ndatabase = "main"\nrole = "ReadOnly"\n',
        '\n[[boundaries]]\nvia = "mcp"\ndatabase = "main"\nrole = "ReadOnly"\n',
      ),
  );
  const lines = [
    "alice gains INSERT, UPDATE, DELETE on main (ReadOnly to ReadWrite)",
    "staff:eve gains SELECT on main (None to ReadOnly)",
    "alice: attributes changed, which may affect row filters",
    "alice is now the same person as staff:alice",
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
  t.match(
    await store.good(["access", "export"]),
    /username = "alice".*\nsame_as = "staff:alice"\n/s,
  );
  const after = await accounts(store);
  t.match(after, [...before, { username: "staff:eve", hash: null }]);

  const again = await exportTo(store, (text) => text);
  t.match(await store.good(["access", "apply", again]), /^no user gains.*\nStill version/);
});

const shared = await withUsers(t);

t.test("an export is outdated by another change, but not by a revocation", async (t) => {
  const store = shared;
  const file = await exportTo(store, raised);
  await store.good(["token", "revoke", "--user", "dora"]);
  await store.good(["access", "apply", file, "--dry-run"]);
  await store.good(["access", "grant", "alice", "other", "ReadOnly"]);
  const now = await store.good(["access", "export"]);
  for (const flags of [[], ["--dry-run"]]) {
    const refused = await store.run(["access", "apply", file, ...flags]);
    t.match(refused, {
      code: 1,
      stderr: /changed since the export: .* \(version_conflict: exported at version/,
    });
  }
  t.equal(await store.good(["access", "export"]), now);
});

t.test("of two edits of one version, one is applied", async (t) => {
  const store = shared;
  const file = await exportTo(store, raised);
  const both = await Promise.all([1, 2].map(() => store.run(["access", "apply", file])));
  t.strictSame(both.map(({ code }) => code).sort(), [0, 1]);
  t.match(both.map(({ stderr }) => stderr).join(""), /changed since the export/);
});

t.test("an edit of anything but grants, boundaries and attributes is refused", async (t) => {
  const store = shared;
  const before = await store.good(["access", "export"]);
  const refusals: [edit: (text: string) => string, stderr: RegExp][] = [
    [(text) => text.replace(/^.*\n/, ""), /does not begin with a version.*access export/],
    [(text) => text.replace('[[users]]\nusername = "dora"\n', ""), /dora is missing.*user remove/],
    [(text) => `${text}\n[[users]]\nusername = "bob"\n`, /bob has no record.*user add/],
    ...["disabled = true", 'email = "a@b.example"', "tokens_valid_after = 5"].map(
      (line): [(text: string) => string, RegExp] => [
        (text) => text.replace('username = "alice"\n', `username = "alice"\n${line}\n`),
        /alice: only attributes/,
      ],
    ),
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

t.test("access edit exports, runs $EDITOR and applies", async (t) => {
  const store = await withUsers(t);
  const edit = (editor: string) => {
    const env = { EDITOR: editor, TMPDIR: store.home };
    return runWarm(store.home, ["access", "edit"], "", env);
  };
  t.match(await edit(""), { code: 2, stderr: /\$EDITOR is not set/ });
  t.match(await edit("true"), { code: 0, stdout: "Nothing was changed.\n" });
  t.match(await edit('sed -i "s/ReadOnly/ReadWrite/"'), {
    code: 0,
    stdout: /alice gains INSERT, UPDATE, DELETE on main/,
  });
  const broken = await edit('sed -i "s/ReadWrite/Reader/"');
  t.match(broken, { code: 1, stderr: /`role` must be/ });
  const kept = /your edits are in (\S+)/.exec(broken.stderr)?.[1] ?? "";
  t.match(readFileSync(kept, "utf8"), /Reader/);
  const failed = await edit("false");
  t.match(failed, { code: 1, stderr: /the editor exited with/ });
  t.ok(existsSync(/are in (\S+)/.exec(failed.stderr)?.[1] ?? ""));
});

t.test("access history lists the versions, and rollback restores an earlier one", async (t) => {
  const store = await withUsers(t);
  const replica = await store.replica();
  const admin = await replica.login("admin", ADMIN_PASSWORD);
  const alice = await replica.login("alice", "alice password");
  const eve = '\n[[users]]\nusername = "staff:eve"\n';
  const grant = '\n[[acl]]\nusername = "staff:eve"\ndatabase = "main"\nrole = "ReadOnly"\n';
  const team = '\n[[groups]]\nname = "team"\nmembers = ["alice", "staff:eve"]\n';
  const rule = 'database = "side"\nrequire_approval = ["DELETE"]\napprovers = ["alice", "admin"]\n';
  const bound = `\n[[boundaries]]\nvia = "mcp"\n${rule.replace('"admin"', '"staff:eve"')}`;
  const rules = `\n[[acl]]\nusername = "dora"\nrole = "ReadWrite"\n${rule}${bound}`;
  const more = eve + team + grant + rules;
  await store.good(["access", "apply", await exportTo(store, (text) => text + more)]);
  await store.good(["user", "set", "dora", "--same-as", "alice"]);
  const old = await store.good(["access", "export"]);
  const [, version = ""] = /^# access version (\d+)/.exec(old) ?? [];
  const role = { role: "ReadWrite" };
  t.equal((await replica.send("PUT", "/api/access/alice/main", role, admin)).status, 200);
  await store.addUser("carl", "ReadOnly");
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
  t.strictSame(last, listed.slice(-2), "in order");
  await store.sql(`delete from gatehouse.log where version = 1`);
  const back3 = ["access", "history", "--last", "3", "--json"];
  t.strictSame(JSON.parse(await store.good(back3)), listed.slice(-3), "no more of the log is read");
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
  t.match(rolled, /removed since: alice, staff:eve/);
  const without = await store.good(["access", "export"]);
  t.notMatch(without, /alice|staff:eve/, "nor their groups");
  t.match(without.match(/^approvers.*/gm), ['approvers = ["admin"]'], "nor do they approve");
  await store.addUser("alice", "ReadOnly");
  t.match(await store.good(["access", "rollback", version]), /removed since: alice, staff:eve/);
  const [record, ...others] = (await store.good(["access", "export"])).match(/.*alice.*/g) ?? [];
  t.strictSame([record, others], ['username = "alice"', []], "another alice gets nothing back");
  t.match(await store.run(["access", "rollback", "999"]), {
    code: 1,
    stderr: /version 999 does not exist/,
  });
  t.match(await store.run(["access", "rollback", "0"]), { code: 1, stderr: /--force allows it/ });
  t.match(await store.run(["access", "rollback", "now"]), { code: 2, stderr: /allowed: a number/ });
});

t.test("without users and grants in the store, each command names the access file", async (t) => {
  const home = temporaryHome(t);
  const store = await makeStore(t, { access: "file" }, await sharedServer());
  const commands = ["export", "apply f", "edit", "history", "rollback 1"].map(
    (rest) => `access ${rest}`,
  );
  for (const command of [...commands, "store export"]) {
    for (const where of [home, store.home]) {
      const refused = await runWarm(where, command.split(" "));
      t.match(refused, { code: 1, stderr: /access_control\.toml, not in a store; edit that file/ });
    }
  }
  for (const [command, stderr] of [
    ["access grant ann main Owner", /written \(store\.access is "file": edit .* at its source\)/],
    ["user add ann --no-password", /access_control\.toml: is missing: copy it here from its/],
  ] as const) {
    t.match(await runWarm(store.home, command.split(" ")), { code: 1, stderr }, command);
  }
});
