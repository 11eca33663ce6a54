import {
  chmodSync,
  chownSync,
  existsSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import t from "tap";
import { readKey, readKeys } from "../identity/forge.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { done, type Installation, install } from "./kit.ts";

function secretsOf({ home }: Installation): string[] {
  return readKeys(home).flatMap(({ jwk }) =>
    [jwk.d, jwk.k, jwk.p, jwk.q].flatMap((secret) =>
      secret === undefined ? [] : [String(secret)],
    ),
  );
}

function use(gatehouse: Installation, algorithm: string): void {
  const file = path.join(gatehouse.home, "gateway.toml");
  writeFileSync(file, `[auth]\nsigning_algorithm = "${algorithm}"\n`);
}

t.test("before the first start, key list prints nothing and key revoke fails", async (t) => {
  const gatehouse = install(t);
  t.strictSame(await gatehouse.run("key list --json"), done("[]"));
  const result = await gatehouse.run("key revoke unknown");
  t.match(result, { code: 1, stderr: /signing key \(`\S+gatehouse key list` lists all\)/ });
});

t.test("key rotate creates a new key each time", async (t) => {
  const gatehouse = install(t);
  const first = await gatehouse.run("key rotate");
  const { kid } = readKey(gatehouse.home);
  t.strictSame(first, done(`New tokens are signed with key ${kid}. Existing tokens stay valid.`));
  const file = path.join(gatehouse.home, "keys", `${kid}.json`);
  t.equal(statSync(file).mode & 0o777, 0o600);
  t.equal((await gatehouse.run("key rotate")).code, 0);
  t.equal(readKeys(gatehouse.home).length, 2);
});

t.test("key list shows the state of each key, and never the key itself", async (t) => {
  const gatehouse = install(t);
  for (const algorithm of ["RS256", "EdDSA", "HS256", "ES256"]) {
    use(gatehouse, algorithm);
    t.equal((await gatehouse.run("key rotate")).code, 0);
  }
  t.equal((await gatehouse.run("key rotate")).code, 0);
  const secrets = secretsOf(gatehouse);
  t.equal(secrets.length, 7, "RSA keys have three of the members that are looked for");

  const { code, stdout: table } = await gatehouse.run("key list");
  t.equal(code, 0);
  const [head = "", ...rows] = table.trimEnd().split("\n");
  t.match(head, /^KID +ALG +STATE +CREATED +VERIFIES UNTIL$/);
  t.equal(rows.length, 5);
  t.equal(rows.filter((row) => / signs .* -$/.test(row)).length, 4);
  t.equal(rows.filter((row) => / ES256 +verifies +\S+Z +\S+Z$/.test(row)).length, 1);

  const { stdout: json } = await gatehouse.run("key list --json");
  const keys = JSON.parse(json);
  t.strictSame(
    keys.map((key: { kid: string }) => key.kid).sort(),
    readKeys(gatehouse.home)
      .map(({ kid }) => kid)
      .sort(),
  );
  for (const key of keys) {
    t.strictSame(Object.keys(key), ["kid", "alg", "state", "created", "verifies_until"]);
  }
  for (const secret of secrets) t.notOk(`${table}${json}`.includes(secret));
});

const skip = process.getuid?.() === 0 ? false : "only root can create files for other users";

t.test("files made by root belong to the owner of the service directory", { skip }, async (t) => {
  const gatehouse = install(t);
  const service = 65_534;
  chownSync(gatehouse.home, service, service);
  t.equal((await gatehouse.run("key rotate")).code, 0);
  t.equal((await gatehouse.run("token revoke --user alice")).code, 0);
  const { kid } = readKey(gatehouse.home);
  for (const name of ["keys", `keys/${kid}.json`, "revocations"]) {
    t.equal(statSync(path.join(gatehouse.home, name)).uid, service, name);
  }
  rmSync(gatehouse.accessFile);
  const added = await gatehouse.run("user add root --admin --password-stdin", "a password\n");
  t.equal(added.code, 0);
  t.equal((await gatehouse.run("token issue root --opaque")).code, 0);
  for (const file of [gatehouse.accessFile, path.join(gatehouse.home, "tokens")]) {
    t.match(statSync(file), { uid: service, gid: service }, file);
  }
});

t.test("root neither writes nor gives away the target of a link", { skip }, async (t) => {
  const gatehouse = install(t);
  const elsewhere = temporaryHome(t);
  const service = 65_534;
  chownSync(gatehouse.home, service, service);
  const names = [
    "audit_pending",
    ".audit_pending.lock",
    ".access_control.toml.lock",
    ".keys.lock",
    "revocations",
  ];
  for (const name of names) {
    writeFileSync(path.join(elsewhere, name), "", { mode: 0o600 });
    rmSync(path.join(gatehouse.home, name), { force: true });
    symlinkSync(path.join(elsewhere, name), path.join(gatehouse.home, name));
  }
  const missing = path.join(elsewhere, "missing");
  symlinkSync(missing, path.join(gatehouse.home, ".revocations.lock"));
  const database = path.join(elsewhere, "approvals.sqlite");
  writeFileSync(database, "", { mode: 0o644 });
  symlinkSync(database, path.join(gatehouse.home, "approvals.sqlite"));
  await gatehouse.run("key rotate");
  t.equal((await gatehouse.run("token revoke --user alice")).code, 1);
  rmSync(path.join(gatehouse.home, ".revocations.lock"));
  const refused = await gatehouse.run("token revoke --user alice");
  t.match(refused, { code: 1, stderr: /ELOOP/ });
  const added = await gatehouse.run("user add rita --no-password");
  t.match(added, { code: 0, stderr: /could not be written to the audit: .*audit_pending/ });
  await gatehouse.run("approvals list");
  for (const name of names) {
    t.match(statSync(path.join(elsewhere, name)), { uid: 0, size: 0 }, name);
  }
  t.equal(statSync(database).mode & 0o777, 0o644);
  t.notOk(existsSync(missing));
});

t.test("key revoke deletes a key, and creates a new one if it was the signer", async (t) => {
  const gatehouse = install(t);
  await gatehouse.run("key rotate");
  const { kid } = readKey(gatehouse.home);
  const result = await gatehouse.run(`key revoke ${kid}`);
  t.strictSame(result, done(`Deleted key ${kid}. Every token that it signed stops working.`));
  t.not(readKey(gatehouse.home).kid, kid);
});

t.test("key revoke of an unknown key changes nothing", async (t) => {
  const gatehouse = install(t);
  await gatehouse.run("key rotate");
  const before = readKeys(gatehouse.home);
  for (const kid of ["unknown", "../access_control", `${before[0]?.kid}.json`]) {
    const result = await gatehouse.run(`key revoke ${kid}`);
    t.match(result, { code: 1, stderr: /signing key \(`\S+ key list` lists all\)/ });
  }
  t.strictSame(readKeys(gatehouse.home), before);
});

t.test("a key file with unsafe permissions is refused by name, without its content", async (t) => {
  const gatehouse = install(t);
  await gatehouse.run("key rotate");
  const directory = path.join(gatehouse.home, "keys");
  const [name = ""] = readdirSync(directory).filter((entry) => entry.endsWith(".json"));
  const file = path.join(directory, name);
  chmodSync(file, 0o666);
  for (const command of ["key list", "key rotate"]) {
    const { code, stdout, stderr } = await gatehouse.run(command);
    t.strictSame([code, stdout], [1, ""], command);
    t.match(stderr, `chmod 600 ${file}`);
    for (const secret of secretsOf(gatehouse)) t.notOk(stderr.includes(secret));
  }
});
