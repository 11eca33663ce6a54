import { chmodSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Test } from "tap";
import t from "tap";
import { readSecrets } from "../../src/features/store/secrets.ts";
import { query, send } from "../engine/kit.ts";
import { sharedServer, startOn } from "../engine/postgres/kit.ts";
import { ADMIN_PASSWORD, startGateway, temporaryHome, writeConfiguration } from "../kit/gateway.ts";
import { runCommand } from "../kit/process.ts";
import { makeStore, queryStatus, select, storeConfig, type TestStore } from "./kit.ts";
import { makeRole, storeRole } from "./role.ts";

/** The base64 characters of bytes at any offset in others, without those shared with neighbors. */
function base64Within(bytes: Buffer): string[] {
  return [0, 1, 2].map((offset) => {
    const text = Buffer.concat([Buffer.alloc(offset), bytes]).toString("base64");
    const [head, tail] = [Math.ceil((offset * 8) / 6), (offset + bytes.length) % 3 === 0 ? 0 : 4];
    return text.slice(head, text.length - tail);
  });
}

function spellings(secret: string | Buffer): string[] {
  const bytes = Buffer.from(secret);
  const base64 = base64Within(bytes);
  const hex = bytes.toString("hex");
  return [
    bytes.toString("latin1"),
    hex,
    hex.toUpperCase(),
    ...base64,
    ...base64.map((text) => text.replaceAll("+", "-").replaceAll("/", "_")),
  ];
}

/** All rows of the store as text. */
async function dump(store: TestStore): Promise<string> {
  const tables = await store.sql(
    "select tablename as name from pg_tables where schemaname = 'gatehouse'",
  );
  const parts = tables.map(async ({ name }) => {
    const rows = await store.sql(`select t::text as row from gatehouse.${name} t`);
    return `${name}\n${rows.map(({ row }) => row).join("\n")}`;
  });
  return (await Promise.all(parts)).join("\n");
}

/** The server's files of the store's database, and its write-ahead log. */
async function filesOf(store: TestStore): Promise<Buffer[]> {
  await store.sql("checkpoint");
  const [place] = await store.sql(
    "select current_setting('data_directory') as directory, oid from pg_database where datname = current_database()",
  );
  const root = String(place?.directory);
  return [path.join(root, "base", String(place?.oid)), path.join(root, "pg_wal")].flatMap((part) =>
    readdirSync(part, { withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map(({ name }) => readFileSync(path.join(part, name))),
  );
}

const server = await sharedServer();
await server.sql("create role app login");

t.test("the search finds a secret at any position in any encoding", async (t) => {
  for (const before of ["", "b", "be", "bef"]) {
    for (const after of ["", "a", "af", "aft"]) {
      const bytes = Buffer.from(`${before}the secret${after}`);
      for (const encoding of ["utf8", "hex", "base64", "base64url"] as const) {
        const text = bytes.toString(encoding);
        t.ok(spellings("the secret").some((spelling) => text.includes(spelling)));
      }
    }
  }
});

t.test("the store's rows and files contain no usable secret", async (t) => {
  const store = await makeStore(t, {}, await sharedServer());
  const replica = await store.replica();
  const admin = await replica.login();
  const user = { username: "alice", password: "a secret of alice", role: "ReadOnly" };
  t.equal((await replica.send("POST", "/api/users", user, admin)).status, 201);
  const tokens = [admin, await replica.login("alice", user.password)];
  tokens.push((await store.good(["token", "issue", "alice"])).trim());
  const wrong = { username: "alice", password: "a wrong one" };
  t.equal((await replica.send("POST", "/login", wrong)).status, 401);
  t.equal((await replica.send("POST", "/logout", {}, tokens[1])).status, 200);
  await store.good(["key", "rotate"]);

  const keyFile = path.join(store.home, "store.key");
  const secrets = await readSecrets(keyFile, { checkRead: true });
  const keys = await store.sql("select ring, kid, sealed from gatehouse.keys");
  t.equal(keys.length, 2);
  const privateKeys = keys.map(({ ring, kid, sealed }) => {
    const key = secrets.decrypt(String(sealed), `the signing key ${kid} of ${ring}`);
    return Buffer.from(String(JSON.parse(key).jwk.d), "base64url");
  });
  const [line = ""] = readFileSync(keyFile, "utf8").split("\n");
  const wanted = {
    "the key file": [Buffer.from(line, "base64url")],
    "private keys": privateKeys,
    passwords: [ADMIN_PASSWORD, user.password, wrong.password],
    tokens: tokens.map((token) => Buffer.from(token.split(".")[2] ?? "", "base64url")),
  };
  const [rows, files] = [await dump(store), await filesOf(store)];
  t.match(rows, /\$argon2id\$v=19\$/, "hashes are there");
  t.ok(files.some((bytes) => bytes.includes("$argon2id$v=19$")));
  for (const [what, some] of Object.entries(wanted)) {
    t.ok(some.length > 0 && some.every((secret) => secret.length > 8), what);
    const found = some.flatMap(spellings).filter((text) => {
      return rows.includes(text) || files.some((bytes) => bytes.includes(text, 0, "latin1"));
    });
    t.equal(found.length, 0, `${what}: not found in any encoding`);
  }

  const other = store.makeHome();
  writeFileSync(path.join(other, "store.key"), `${Buffer.alloc(32, 1).toString("base64url")}\n`);
  await t.rejects(store.replica(store.url, other), /a key that is not in store.key_file/);
});

t.test("the key file can be changed while replicas serve", async (t) => {
  const store = await makeStore(t, {}, await sharedServer());
  const homes = [store.makeHome(), store.makeHome()];
  const replicas = await Promise.all(homes.map((home) => store.replica(store.url, home)));
  const files = [store.home, ...homes].map((home) => path.join(home, "store.key"));
  const write = (lines: string) => {
    for (const file of files) writeFileSync(file, lines);
  };
  const restart = async () => {
    for (const [index, home] of homes.entries()) {
      t.equal(await replicas[index]?.service.stop(), 0);
      replicas[index] = await store.replica(store.url, home);
    }
  };
  const old = readFileSync(path.join(store.home, "store.key"), "utf8");
  const renewed = `${Buffer.alloc(32, 7).toString("base64url")}\n`;
  const [one] = replicas;
  const token = (await one?.login()) ?? "";

  write(renewed + old);
  await restart();
  await store.good(["store", "rekey"]);
  for (const replica of replicas) t.equal(await queryStatus(replica, token), 200);
  await store.good(["key", "rotate"]);
  for (const replica of replicas) {
    t.equal(await queryStatus(replica, await replica.login()), 200, "with the rotated key");
    t.match((await replica.request("/readyz")).body, { keys: "fresh" });
  }
  write(renewed);
  await restart();
  for (const replica of replicas) t.equal(await queryStatus(replica, token), 200);
  const list = () => store.run(["key", "list", "--json"]);
  t.equal(JSON.parse((await list()).stdout)[0].state, "signs");
  write(old);
  t.match(await list(), { code: 1, stderr: /not in store\.key_file/ });
  write(renewed);
  await store.sql("update gatehouse.keys set kid = 'x' || kid");
  t.match(await list(), { code: 1, stderr: /cannot be decrypted/ }, "moved");
  const [keyFile = ""] = files;
  chmodSync(keyFile, 0o644);
  t.match(await list(), { code: 1, stderr: /chmod/ });
  chmodSync(keyFile, 0o600);
  write("short\n");
  t.match(await list(), { code: 1, stderr: /32 random bytes/ });
});

const INSUFFICIENT_PRIVILEGE = "42501";

t.test("the store's role is enough for replicas and reaches only its own tables", async (t) => {
  const url = await makeRole(server);
  const home = temporaryHome(t);
  writeConfiguration(home, { config: storeConfig(url, {}) });
  const env = { GATEHOUSE_ADMIN_PASSWORD: ADMIN_PASSWORD };
  const made = await runCommand(home, ["store", "init"], { env });
  t.match(made, { code: 0, stdout: /Created the tables/ }, made.stderr);
  const replica = await startGateway(t, { home, config: storeConfig(url, {}) });
  await replica.addUser("alice", "ReadWrite");

  await server.sql(
    "create schema app; create table app.secrets (secret text); create table public.others ()",
    "gatehouse",
  );
  const forbidden = [
    "select * from app.secrets",
    "insert into public.others default values",
    "create table public.mine ()",
    "create table app.mine ()",
    "create temporary table mine ()",
    "create schema mine",
    "create database mine",
    "create role mine",
    "drop role app",
    "set role gatehouse",
    "alter role replicas superuser",
    "select * from pg_catalog.pg_authid",
    "select pg_catalog.pg_read_file('postgresql.conf')",
    "copy gatehouse.users to program 'cat'",
    "create extension postgres_fdw schema gatehouse",
  ];
  for (const statement of forbidden) {
    const running = server.sql(statement, "gatehouse", storeRole);
    await t.rejects(running, { code: INSUFFICIENT_PRIVILEGE }, statement);
  }
  const [{ can_drop: owns } = {}] = await server.sql(
    `select pg_get_userbyid(datdba) = '${storeRole}' as can_drop from pg_database
      where datname = 'gatehouse'`,
  );
  t.equal(owns, false, "it cannot drop its database");
  await t.rejects(server.sql("select * from gatehouse.users", "gatehouse", "app"), {
    code: INSUFFICIENT_PRIVILEGE,
  });
});

/** Sends queries of an administrator that might reach the store. */
async function checkUnreachable(t: Test, database: string, engineUrl: string): Promise<void> {
  const engine = await startOn(t, engineUrl);
  const store = await makeStore(t, {}, server, database);
  const gateway = await startGateway(t, {
    home: store.makeHome(),
    upstream: engine.address,
    config: storeConfig(store.url, {}),
  });
  const admin = await gateway.login();
  const listed = await send(engine.address, { path: "/schema" });
  t.same(listed.body.data, { databases: ["public"] });
  for (const database of ["gatehouse", "Gatehouse", "GATEHOUSE"]) {
    for (const table of ["users", "keys", "log"]) {
      const from = { Select: { ...select.Select, database, from: table } };
      t.match(await gateway.query(from, admin), { status: 404 }, `${database}.${table}`);
    }
    const dropped = await gateway.query({ DropDatabase: { database } }, admin);
    t.equal(dropped.status, 404, `no ${database} to drop`);
    const made = await gateway.query({ CreateDatabase: { database } }, admin);
    t.equal(made.status, 400, `no ${database} to make`);
  }
  t.match(await query(engine.address, { Select: { ...select.Select, database: "gatehouse" } }), {
    status: 404,
    body: { code: "database_not_found" },
  });
  const [{ count } = {}] = await store.sql("select count(*)::int from gatehouse.users");
  t.equal(count, 1, "the store is in this database");
}

t.test("no query reaches a store in the database that the engine serves", async (t) => {
  const database = await server.createDatabase();
  await server.sql(`grant create on database ${database} to app`);
  await checkUnreachable(t, database, server.url(database, "app"));
});

t.test("no query reaches a store that shares a superuser with the engine", async (t) => {
  const database = await server.createDatabase();
  await checkUnreachable(t, database, server.url(database));
});
