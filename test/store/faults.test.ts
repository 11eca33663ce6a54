import { spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { text } from "node:stream/consumers";
import { Client } from "pg";
import type { Test } from "tap";
import t from "tap";
import type { StoreOperator } from "../../src/features/store/open.ts";
import { Fleet, SteadyLoad } from "../deploy/fleet.ts";
import { fill, findProgram } from "../deploy/programs.ts";
import { sharedServer } from "../engine/postgres/kit.ts";
import { startPostgres } from "../engine/postgres/server.ts";
import { eventually, PATIENCE_MS } from "../kit/eventually.ts";
import { ADMIN_PASSWORD, type TestGateway, temporaryHome } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import { nodeCommand } from "../kit/node.ts";
import { projectRoot, runCommand } from "../kit/process.ts";
import { killReplicas } from "./faults/kills.ts";
import { makeNetwork } from "./faults/network.ts";
import { FaultyReplica, MAX_STALENESS } from "./faults/replica.ts";
import { Wire } from "./faults/wire.ts";
import { insert, makeStore, queryStatus, untilDeciding } from "./kit.ts";
import { openOperator } from "./own-replica.ts";

const grant = "/api/access/alice/main";
const maxStaleness = 2;

async function insertStatus(gateway: TestGateway, token: string): Promise<number> {
  return (await gateway.query(insert, token)).status;
}

/** Two replicas, of which the far one reaches the store by a wire. Its token is that of alice. */
async function openPair(t: Test) {
  const store = await makeStore(t, { maxStaleness }, await sharedServer());
  const wire = await Wire.to(t, store.server.port);
  const [near, far] = [await store.replica(), await store.replica(store.urlBy(wire))];
  const admin = await near.login();
  await near.addUser("alice", "ReadWrite");
  const token = await far.login("alice", "alice password");
  t.equal(await insertStatus(far, token), 200);
  return { store, wire, near, far, admin, token };
}

t.test("a replica that is cut off from the store stops deciding when its lease ends", async (t) => {
  const { wire, near, far, admin, token } = await openPair(t);
  wire.cut();
  const cutAt = performance.now();
  const lowered = near.send("PUT", grant, { role: "ReadOnly" }, admin);
  const { status } = await far.query(insert, token);
  // A busy machine may have taken longer than the lease.
  if (performance.now() - cutAt < 1000) t.equal(status, 200, "it still decides for a while");
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

  wire.restore();
  await untilDeciding(far);
  t.equal(await insertStatus(far, token), 403);
});

t.test("a replica that was paused past its lease does not decide", nightly, async (t) => {
  const { wire, near, far, admin, token } = await openPair(t);
  far.service.child.kill("SIGSTOP");
  // When it continues, only its clocks show that it was paused.
  wire.cut();
  t.equal((await near.send("PUT", grant, { role: "ReadOnly" }, admin)).status, 200);
  const answer = insertStatus(far, token);
  far.service.child.kill("SIGCONT");
  t.equal(await answer, 503);
  wire.restore();
  await untilDeciding(far);
  t.equal(await insertStatus(far, token), 403);
});

t.test("without the store, only queries and logins continue for a while", nightly, async (t) => {
  const server = await startPostgres(t);
  const store = await makeStore(t, { maxStaleness: 4 }, server);
  const one = await store.replica();
  const admin = await one.login();
  const token = await one.addUser("alice", "ReadWrite");

  // On a busy machine, the replica may stop deciding too early; then try again.
  await eventually("queries and logins continue when changes are refused", async () => {
    await server.stop();
    t.match(await one.send("PUT", grant, { role: "ReadOnly" }, admin), {
      status: 503,
      body: { code: "store_unreachable" },
    });
    t.match(await one.send("POST", "/logout", {}, token), { status: 503 });
    const again = await one.login("alice", "alice password").catch(() => "");
    if ((await insertStatus(one, again)) === 200) return true;
    await server.start();
    await untilDeciding(one);
    return false;
  });
  await eventually("/readyz reports it", async () => {
    return (await one.request("/readyz")).body.store === "unreachable";
  });
  await eventually("it stops deciding", async () => (await insertStatus(one, token)) === 503);
  t.equal((await one.request("/healthz")).status, 200);
  t.equal((await one.send("POST", "/login", { username: "alice", password: "x" })).status, 503);
  const { code, stderr } = await store.run(["user", "list"]);
  t.match({ code, stderr }, { code: 1, stderr: /does not answer/ });

  await server.start();
  await untilDeciding(one);
  t.equal(await insertStatus(one, token), 200, "nothing was changed");
  t.equal((await one.send("PUT", grant, { role: "ReadOnly" }, admin)).status, 200);
  t.equal(await insertStatus(one, token), 403);
});

t.test("a replica does not decide by a store that has lost applied changes", nightly, async (t) => {
  const store = await makeStore(t, { maxStaleness }, await sharedServer());
  const one = await store.replica();
  const token = await one.addUser("alice", "ReadWrite");
  const isRefused = async () => (await insertStatus(one, token)) === 503;

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
  t.equal(await insertStatus(one, token), 200, "the lost change is there again");
  await lose();
  await eventually("it stops deciding again", isRefused);
  // Another change gets the version of the lost one.
  await store.good(["user", "disable", "admin", "--force"]);
  t.equal(await insertStatus(one, token), 503);
});

t.test("a change is refused where the store has lost an earlier one", async (t) => {
  const store = await makeStore(t, {}, await sharedServer());
  const [one, other] = [await openOperator(t, store), await openOperator(t, store)];
  const revoke = ({ revocations }: StoreOperator, tokenId: string) =>
    revocations.revoke({ jti: tokenId, until: 4_000_000_000 });
  await revoke(one, "lost");
  await store.sql(
    `begin; delete from gatehouse.log where version = (select version from gatehouse.head);
      update gatehouse.head set (version, id) =
        (select version, id from gatehouse.log order by version desc limit 1); commit`,
  );
  // The first gets the version of the lost one, so that `one` would read only the second.
  await revoke(other, "first");
  await revoke(other, "second");
  const { position } = one.state;
  for (let attempt = 0; attempt < 2; attempt++) {
    await t.rejects(revoke(one, "third"), { code: "store_unreachable", detail: /lacks version/ });
    t.equal(one.state.position, position, "nothing is applied, so that the next poll reports it");
  }
  await revoke(await openOperator(t, store), "fourth");
  await revoke(other, "fifth");
  t.ok(
    ["first", "second", "fourth", "fifth"].every((tokenId) =>
      other.state.revocations.isRevoked({ tokenId, username: "", issuedAt: 0 }),
    ),
    "others read each other's changes",
  );
});

t.test("an entry that a running replica cannot read is not written", async (t) => {
  const store = await makeStore(t, {}, await sharedServer());
  await store.sql(
    `insert into gatehouse.leases (replica, name, sent, expires, applied, form, ahead) values
      (gen_random_uuid(), 'old', clock_timestamp(), clock_timestamp() + interval '1 hour', 0, 0, 0)`,
  );
  const { code, stderr } = await store.run(["user", "add", "bob", "--no-password"]);
  t.match({ code, stderr }, { code: 1, stderr: /cannot read/ });
});

t.test("a change is answered although the store fails while it waits", async (t) => {
  const server = await startPostgres(t);
  const store = await makeStore(t, { maxStaleness }, server);
  const [near, far] = [await store.replica(), await store.replica()];
  const admin = await near.login();
  await near.addUser("alice", "ReadWrite");
  const token = await far.login("alice", "alice password");
  t.equal(await insertStatus(far, token), 200);
  const versions = async () => {
    const [row] = await store.sql("select version from gatehouse.head");
    return Number(row?.version);
  };
  const before = await versions();

  far.service.child.kill("SIGSTOP");
  const lowered = near.send("PUT", grant, { role: "ReadOnly" }, admin);
  await eventually("the change is committed", async () => (await versions()) > before);
  await server.stop();
  // By then the lease of the other replica has expired.
  t.equal((await lowered).status, 200);
  far.service.child.kill("SIGCONT");
  t.equal(await insertStatus(far, token), 503);
  t.equal(await queryStatus(near, token), 503, "the writer does not decide either");

  await server.start();
  for (const replica of [near, far]) {
    await untilDeciding(replica);
    t.equal(await insertStatus(replica, token), 403);
    t.equal(await queryStatus(replica, token), 200);
  }
});

t.test("a store that has lost changes during an outage is reported", async (t) => {
  const store = await makeStore(t, { maxStaleness }, await sharedServer());
  const wire = await Wire.to(t, store.server.port);
  const replica = await store.replica(store.urlBy(wire));
  const reasons = () => replica.service.log.map(({ reason }) => String(reason));
  wire.cut();
  await eventually("the store is unreachable", () =>
    reasons().some((reason) => /time/i.test(reason)),
  );
  await store.sql("update gatehouse.log set id = gen_random_uuid()");
  wire.restore();
  await eventually("the loss is logged", () =>
    reasons().some((reason) => /lost changes/.test(reason)),
  );
  t.match(await replica.request("/readyz"), { status: 503, body: { store: "unreachable" } });
});

t.test("a replica that cannot read changed keys stops deciding", async (t) => {
  const store = await makeStore(t, { maxStaleness }, await sharedServer());
  const replica = await store.replica();
  const token = await replica.login();
  t.equal(await queryStatus(replica, token), 200);
  // The key is revoked, and the table of keys cannot be read.
  await store.sql(
    `begin; delete from gatehouse.keys; alter table gatehouse.keys rename to away;
    update gatehouse.head set version = version + 1, id = gen_random_uuid();
    insert into gatehouse.log (version, id, form, author, kind, data)
      select version, id, 1, '{"kind":"cli","name":"test"}', 'keys', '{"ring":"login"}'
      from gatehouse.head; commit`,
  );
  await eventually("it stops deciding", async () => (await queryStatus(replica, token)) === 503);
  t.match((await replica.request("/readyz")).body, { keys: "stale", store: "unreachable" });
  await store.sql("alter table gatehouse.away rename to keys");
  await store.good(["key", "rotate"]);
  await untilDeciding(replica);
  t.equal(await queryStatus(replica, token), 401);
  t.equal(await queryStatus(replica, await replica.login("admin", ADMIN_PASSWORD)), 200);
});

t.test("a replica that is cut off during a change blocks no others", nightly, async (t) => {
  const { store, wire, near, far, admin } = await openPair(t);
  const add = (username: string, gateway = near) =>
    gateway.send(
      "POST",
      "/api/users",
      { username, password: "long enough", role: "ReadOnly" },
      admin,
    );

  // The cut replica has the lock of all writers and waits for this transaction.
  const other = new Client({ connectionString: store.url });
  await other.connect();
  t.teardown(() => other.end());
  await other.query("begin; lock table gatehouse.users in share mode");
  const cut = add("far", far);
  await eventually("it waits", async () => {
    const [row] = await store.sql("select count(*) from pg_locks where not granted");
    return Number(row?.count) > 0;
  });
  wire.cut();
  await other.query("commit");
  await eventually("another change succeeds", async () => (await add("near")).status === 201);
  wire.restore();
  t.match(await cut, { status: 503, body: { code: "store_unreachable" } });
  await untilDeciding(far);
  t.equal((await add("far", far)).status, 201, "the failed change had no effect");
});

t.test("a replica without answers delays changes by at most one lease", nightly, async (t) => {
  const { wire, near, far, admin, token } = await openPair(t);
  // Each poll renews the lease, but its answer arrives too late.
  wire.delayMs = 700;
  const headers = { authorization: `Bearer ${admin}` };
  const signal = AbortSignal.timeout(PATIENCE_MS);
  const out = await near.request("/logout", { method: "POST", headers, signal });
  t.equal(out.status, 200);
  t.equal(await queryStatus(far, admin), 503);
  wire.delayMs = 0;
  await untilDeciding(far);
  t.equal(await queryStatus(far, admin), 401);
  t.equal(await queryStatus(far, token), 200);
});

t.test("a revocation covers tokens of a clock that was set ahead", nightly, async (t) => {
  const store = await makeStore(t, { maxStaleness: MAX_STALENESS }, await sharedServer());
  const { hosts } = await makeNetwork(t, 1, store.server.port);
  const [host] = hosts;
  if (host === undefined) throw new Error("no host");
  const set = new FaultyReplica(t, "set", host, store, store.server.url());
  await set.start();
  const other = await store.replica();
  const admin = await other.login();
  await other.addUser("alice", "ReadWrite");

  // The store does not notice, and the jump is below the staleness limit.
  host.store.cut();
  set.setClock(1200);
  const tokens: string[] = [];
  await eventually("it issues no more tokens", async () => {
    const { status, body } = await set.gateway.send("POST", "/login", {
      username: "alice",
      password: "alice password",
    });
    if (status === 200) tokens.push(String(body.token));
    return status === 503;
  });
  const ended = await other.send("DELETE", "/api/users/alice/tokens", undefined, admin);
  t.equal(ended.status, 200);
  host.store.restore();
  await untilDeciding(set.gateway);
  for (const token of tokens) t.equal(await queryStatus(set.gateway, token), 401);
  const again = await set.gateway.login("alice", "alice password");
  t.equal(await queryStatus(other, again), 200, "a later token is good");
});

const KILLS = 12;

t.test("killed replicas lose no acknowledged change", nightly, async (t) => {
  const { users, lost, gaps } = await killReplicas(t, KILLS);
  t.ok(users >= KILLS, `${users} users`);
  t.strictSame(lost, []);
  t.equal(gaps, 0, "the log has no gaps");
});

async function runSchedules(flags: string[]): Promise<{ code: number | null; output: string }> {
  const [program, command] = nodeCommand(["bench/store-faults.ts", ...flags]);
  const child = spawn(program, command, { stdio: ["ignore", "pipe", "inherit"] });
  t.teardown(() => child.kill());
  const [output] = await Promise.all([text(child.stdout), once(child, "exit")]);
  return { code: child.exitCode, output };
}

t.test("answers stay linearizable under faults", nightly, async (t) => {
  const flags = ["--schedules", "3", "--seed", "16"];
  const { code, output } = await runSchedules(flags);
  t.comment(output);
  t.equal(code, 0);
  t.match(output, /3 schedules, .* 0 schedules wrong/);
});

const runtimeFiles = ["bin", "src", "package.json"];

/** A later version has another table, another column and a newer log form. */
const changes: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  "src/features/store/migrations.ts": {
    "\n];\n\nexport const MIGRATIONS": `
  \`create table gatehouse.later (name text primary key);
  alter table gatehouse.leases add column release text not null default 'later'\`,
];

export const MIGRATIONS`,
  },
  "src/features/store/log.ts": {
    "FORM: number = ": "FORM: number = 1 + ",
    '  if (change.kind === "revocation") {':
      '  if (change.kind === "revocation") {\n    return FORM;',
  },
};

/** Copies the project with `changes`. @returns its directory */
function makeLaterVersion(t: Test): string {
  const root = temporaryHome(t);
  for (const part of runtimeFiles)
    cpSync(path.join(projectRoot, part), path.join(root, part), { recursive: true });
  symlinkSync(path.join(projectRoot, "node_modules"), path.join(root, "node_modules"));
  for (const [file, passages] of Object.entries(changes)) {
    const place = path.join(root, file);
    writeFileSync(place, fill(readFileSync(place, "utf8"), passages));
  }
  return root;
}

/** Adds users one after the other until it is stopped. */
class Writer {
  readonly #fleet: Fleet;
  readonly #writing: Promise<void>;
  #isStopping = false;
  readonly added: string[] = [];
  readonly refused: unknown[] = [];

  constructor(fleet: Fleet) {
    this.#fleet = fleet;
    this.#writing = this.#write();
  }

  async #write(): Promise<void> {
    for (let count = 0; !this.#isStopping; count++) {
      const username = `user-${count}`;
      const user = { username, password: `${username} password`, role: "ReadOnly" };
      const answer = await this.#fleet.client.send("POST", "/api/users", user);
      if (answer.status === 201) this.added.push(username);
      else this.refused.push(answer);
    }
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
    await this.#writing;
  }
}

t.test("a replica that meets a newer log form stops deciding", async (t) => {
  const store = await makeStore(t, { maxStaleness: 2 }, await sharedServer());
  const replica = await store.replica();
  const token = await replica.login();
  t.equal(await queryStatus(replica, token), 200);
  await store.sql("update gatehouse.head set form = 1000");
  await eventually("it refuses", async () => (await queryStatus(replica, token)) === 503);
  t.match(await replica.request("/readyz"), {
    status: 503,
    body: { code: "store_unreachable", store: "unreachable" },
  });
  t.ok(await replica.service.logged(({ reason }) => /form \d+.*upgrade it/.test(String(reason))));
  t.match(await store.run(["user", "list"]), { code: 1, stderr: /form \d+/ });
});

const haproxy = findProgram("haproxy");

if (haproxy !== undefined) {
  t.test("replicas of two versions serve together during an upgrade", nightly, async (t) => {
    const fleet = await Fleet.start(t, haproxy);
    const { store, client } = fleet;
    const later = makeLaterVersion(t);
    const status = async () => JSON.parse(await store.good(["store", "status", "--json"]));
    const forms = async () =>
      (await store.sql("select form from gatehouse.leases order by form")).map(({ form }) => form);
    const { form, readableForm: known, migrations } = await status();
    const load = new SteadyLoad(client);
    const writer = new Writer(fleet);

    await load.waitForMore();
    const before = await runCommand(store.home, ["store", "status"], { root: later });
    t.match(before, { code: 1, stderr: /has tables of an older version: create them with/ });
    await store.good(["store", "init"], "", later);
    const [applied] = await store.sql("select max(number) as number from gatehouse.migrations");
    t.equal(applied?.number, migrations + 1, "the tables are those of the later version");
    await load.waitForMore();

    const first = await fleet.restart(0, later);
    t.strictSame(await forms(), [known, known, known + 1]);
    const newForm = await first.send("DELETE", "/api/users/admin/tokens", {}, client.token);
    t.match(newForm, { status: 409, body: { code: "store_form_unknown" } });
    t.match(await store.good(["store", "status"]), /^REPLICA +SINCE +FORM +APPLIED/m);
    await load.waitForMore();
    // Back to this version, and forward again.
    await fleet.restart(0);
    t.strictSame(await forms(), [known, known, known]);
    for (const index of fleet.replicas.keys()) {
      await fleet.restart(index, later);
      await load.waitForMore();
    }
    await load.stop();
    await writer.stop();
    t.strictSame(load.failed, [], `none of ${load.count} queries failed`);
    t.strictSame(writer.refused, [], `none of ${writer.added.length} changes was refused`);
    t.ok(writer.added.length > 0);
    const users: { username: string; access: unknown[] }[] = JSON.parse(
      await store.good(["user", "list", "--json"]),
    );
    const granted = users.filter(({ access }) => access.length === 1);
    const names = new Set(granted.map(({ username }) => username));
    t.strictSame(
      writer.added.filter((name) => !names.has(name)),
      [],
      "every acknowledged grant exists",
    );

    const [head] = await store.sql("select form from gatehouse.head");
    t.equal(head?.form, form, "the previous version can read everything");
    const [replica] = fleet.replicas;
    const ended = await replica?.send("DELETE", "/api/users/admin/tokens", {}, client.token);
    t.equal(ended?.status, 200, "the new form is written once all replicas read it");
    await t.rejects(store.replica(), /log form \d+, and this version of Gatehouse reads up to/);
    t.match(await status(), { form: known + 1, readableForm: known });
    t.ok(await replica?.login("admin", ADMIN_PASSWORD));
  });
}
