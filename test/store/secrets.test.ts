import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { readSecrets } from "../../src/store/secrets.ts";
import { sharedServer } from "../engine/postgres/kit.ts";
import { ADMIN_PASSWORD } from "../kit/gateway.ts";
import { makeStore, queryStatus } from "./kit.ts";
import { dump, filesOf, spellings } from "./secrets.ts";

t.test("a secret is found wherever it stands in others", async (t) => {
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

t.test("what the store's server holds opens nothing without the key file", async (t) => {
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
    t.equal(found.length, 0, `${what}: nowhere, in no spelling`);
  }

  const other = store.makeHome();
  writeFileSync(path.join(other, "store.key"), `${Buffer.alloc(32, 1).toString("base64url")}\n`);
  await t.rejects(store.replica(store.url, other), /a key that store.key_file does not hold/);
});

t.test("the key file is changed while replicas serve", async (t) => {
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
  const anew = `${Buffer.alloc(32, 7).toString("base64url")}\n`;
  const [one] = replicas;
  const token = (await one?.login()) ?? "";

  write(anew + old);
  await restart();
  await store.good(["store", "rekey"]);
  for (const replica of replicas) t.equal(await queryStatus(replica, token), 200);
  await store.good(["key", "rotate"]);
  for (const replica of replicas) {
    t.equal(await queryStatus(replica, await replica.login()), 200, "by the key of a rotation");
    t.match((await replica.request("/readyz")).body, { keys: "fresh" });
  }
  write(anew);
  await restart();
  for (const replica of replicas) t.equal(await queryStatus(replica, token), 200);
  write(old);
  t.match(await store.run(["key", "list"]), { code: 1, stderr: /does not hold/ });
});
