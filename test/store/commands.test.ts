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
import path from "node:path";
import t, { type Test } from "tap";
import { grant, hashWith, user } from "../access/kit.ts";
import { sharedServer } from "../engine/postgres/kit.ts";
import { startPostgres } from "../engine/postgres/server.ts";
import { staffedHome, tokenOf } from "../journeys/staff.ts";
import { eventually } from "../kit/eventually.ts";
import { startGateway, temporaryHome, writeConfiguration } from "../kit/gateway.ts";
import { runCommand, Service } from "../kit/process.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { runWarm } from "../kit/warm-command.ts";
import { makeStore, queryStatus, select, storeConfig } from "./kit.ts";

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
async function emptyStore(t: Test, home = temporaryHome(t)) {
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
  for (const ending of ["", ...ends]) {
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
