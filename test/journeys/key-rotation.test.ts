import { existsSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { openGatewaySetup } from "../gateway/kit.ts";
import { decodePart, readKey, readKeys } from "../identity/forge.ts";
import { eventually } from "../kit/eventually.ts";
import type { TestGateway } from "../kit/gateway.ts";
import { nightly, sampled } from "../kit/nightly.ts";
import { runCommand } from "../kit/process.ts";
import { runWarm } from "../kit/warm-command.ts";
import { reserveMetrics } from "../observe/exposition.ts";
import { insertRefusal, openStaffed, soon, tokenOf } from "./staff.ts";
import { workersOf } from "./supervised.ts";

const grants = ["root * Owner", "bob main ReadWrite"];

async function gatehouse(gateway: TestGateway, flags: string): Promise<string> {
  const { code, stdout, stderr } = await runWarm(gateway.home, flags.split(" "));
  if (code !== 0) throw new Error(`${flags}: ${stderr}`);
  return stdout.trim();
}

async function published(gateway: TestGateway): Promise<string[]> {
  const { text } = await gateway.request("/.well-known/jwks.json");
  return JSON.parse(text).keys.map((key: { kid: string }) => key.kid);
}

async function signer(gateway: TestGateway): Promise<unknown> {
  return decodePart(await tokenOf(gateway, "bob"), 0).kid;
}

function keyFileOf({ home }: TestGateway, kid: string): string {
  return path.join(home, "keys", `${kid}.json`);
}

function retire(gateway: TestGateway, kid: string, until: number): void {
  const file = keyFileOf(gateway, kid);
  const key = JSON.parse(readFileSync(file, "utf8"));
  const next = path.join(path.dirname(file), ".next");
  writeFileSync(next, JSON.stringify({ ...key, verifies_until: until }), { mode: 0o600 });
  renameSync(next, file);
}

for (const algorithm of ["ES256", "HS256"]) {
  const options = algorithm === "ES256" ? {} : nightly;
  t.test(`users stay logged in during a rotation of ${algorithm} keys`, options, async (t) => {
    const auth = `signing_algorithm = "${algorithm}"`;
    const { gateway } = await openStaffed(t, grants, { auth });
    const { kid: old } = readKey(gateway.home);
    const tokens = [await tokenOf(gateway, "bob"), await gatehouse(gateway, "token issue bob")];
    await gatehouse(gateway, "key rotate");
    const made = readKeys(gateway.home).find(({ kid }) => kid !== old)?.kid;
    await soon(t, "the new key signs", async () => (await signer(gateway)) === made);
    for (const token of tokens) t.equal(await insertRefusal(gateway, token), undefined);
    t.same(new Set(await published(gateway)), new Set(algorithm === "HS256" ? [] : [made, old]));

    tokens.push(await tokenOf(gateway, "bob"));
    await gateway.service.stop();
    const { gateway: restarted } = await openGatewaySetup(t, { home: gateway.home, auth });
    for (const token of tokens) t.equal(await insertRefusal(restarted, token), undefined);
    t.equal(await signer(restarted), made);
  });
}

const { gateway: rotating } = await openStaffed(t, grants);

t.test("a key is no longer published or used once its last token has expired", async (t) => {
  const { kid: old } = readKey(rotating.home);
  const token = await tokenOf(rotating, "bob");
  await gatehouse(rotating, "key rotate");
  const now = Math.floor(Date.now() / 1000);
  retire(rotating, old, now + 3);
  await eventually("it has left by itself", async () => !(await published(rotating)).includes(old));
  t.ok(Date.now() / 1000 >= now + 3, "not before its time");
  t.equal(await insertRefusal(rotating, token), "token_invalid");
  rmSync(keyFileOf(rotating, old));
});

t.test("revoking a key, even the signing one, revokes its tokens", async (t) => {
  const gateway = rotating;
  const { kid: first } = readKey(gateway.home);
  const tokens = [await tokenOf(gateway, "bob"), await gatehouse(gateway, "token issue bob")];
  await gatehouse(gateway, "key rotate");
  await eventually("the new key signs", async () => (await signer(gateway)) !== first);
  const survivor = await tokenOf(gateway, "bob");
  await gatehouse(gateway, `key revoke ${first}`);
  for (const token of tokens) {
    await soon(t, "a token of the old key is refused", async () => {
      return (await insertRefusal(gateway, token)) === "token_invalid";
    });
  }
  t.equal(await insertRefusal(gateway, survivor), undefined);

  const { kid: second } = readKey(gateway.home);
  await gatehouse(gateway, `key revoke ${second}`);
  await soon(t, "a token of the signer is refused", async () => {
    return (await insertRefusal(gateway, survivor)) === "token_invalid";
  });
  const { kid: third } = readKey(gateway.home);
  t.strictSame(await published(gateway), [third]);
  t.equal(await insertRefusal(gateway, await tokenOf(gateway, "bob")), undefined);
});

t.test("a deleted key is dropped although another key file is broken", async (t) => {
  const gateway = rotating;
  const { kid: old } = readKey(gateway.home);
  const leaked = await tokenOf(gateway, "bob");
  await gatehouse(gateway, "key rotate");
  await eventually("the new key signs", async () => (await signer(gateway)) !== old);
  const good = await tokenOf(gateway, "bob");

  writeFileSync(keyFileOf(gateway, "broken"), '{"d": "hunter2"', { mode: 0o600 });
  await gateway.service.logged(({ msg }) => String(msg).startsWith("signing keys refused"));
  t.equal(await insertRefusal(gateway, leaked), undefined, "users stay logged in");
  rmSync(keyFileOf(gateway, old));
  await soon(t, "the deleted key's token is refused", async () => {
    return (await insertRefusal(gateway, leaked)) === "token_invalid";
  });
  t.notOk((await published(gateway)).includes(old), "nor is the key published");
  t.equal(await insertRefusal(gateway, good), undefined);
  t.equal(await insertRefusal(gateway, await tokenOf(gateway, "bob")), undefined);
  t.notMatch(gateway.service.output, "hunter2");

  rmSync(keyFileOf(gateway, "broken"));
  await gatehouse(gateway, "key rotate");
  const made = readKeys(gateway.home).find(({ kid }) => kid !== decodePart(good, 0).kid)?.kid;
  await soon(t, "without it new keys are taken", async () => (await signer(gateway)) === made);
});

async function untilKeysAre(gateway: TestGateway, expected: "stale" | "fresh"): Promise<void> {
  await eventually(`the keys are ${expected}`, async () => {
    const { status, body } = await gateway.request("/readyz");
    return status === 200 && body.keys === expected;
  });
}

const losses: [what: string, lose: (home: string) => void, restore: (home: string) => void][] = [
  [
    "keys/ is moved away",
    (home) => renameSync(path.join(home, "keys"), path.join(home, "elsewhere")),
    (home) => renameSync(path.join(home, "elsewhere"), path.join(home, "keys")),
  ],
  [
    "the only key is moved away",
    (home) => renameSync(keyFile(home), path.join(home, "key.json")),
    (home) => renameSync(path.join(home, "key.json"), keyFile(home)),
  ],
  [
    "the service directory is moved away",
    (home) => renameSync(home, `${home}.moved`),
    (home) => renameSync(`${home}.moved`, home),
  ],
];

const names = new Map<string, string>();

function keyFile(home: string): string {
  const directory = path.join(home, "keys");
  const [name = names.get(home) ?? ""] = readdirSync(directory);
  names.set(home, name);
  return path.join(directory, name);
}

for (const [what, lose, restore] of sampled(losses)) {
  t.test(`while ${what}, the gateway keeps the last good keys and reports it`, async (t) => {
    const { section, value } = await reserveMetrics();
    const { gateway } = await openStaffed(t, grants, { config: section });
    const { home } = gateway;
    t.teardown(() => rmSync(`${home}.moved`, { recursive: true, force: true }));
    const metric = () => value("gatehouse_signing_keys_last_reload_successful");
    const { kid } = readKey(home);
    const token = await tokenOf(gateway, "bob");
    t.equal(await metric(), 1);

    lose(home);
    await untilKeysAre(gateway, "stale");
    const isRefusal = ({ msg }: Record<string, unknown>) =>
      msg === "signing keys refused: the last good ones stay in force";
    t.match((await gateway.service.logged(isRefusal)).reason, "contains no signing key");
    t.equal(await metric(), 0);
    t.equal(await insertRefusal(gateway, token), undefined, "users stay logged in");
    const another = await tokenOf(gateway, "bob");
    t.equal(await insertRefusal(gateway, another), undefined);
    await checkNothingMade(t, home);

    restore(home);
    await untilKeysAre(gateway, "fresh");
    t.equal(await metric(), 1);
    t.equal(readKey(home).kid, kid, "no other key was made");
    for (const one of [token, another]) t.equal(await insertRefusal(gateway, one), undefined);
  });
}

t.test("while the key is edited in place, the gateway keeps the last good one", async (t) => {
  const gateway = rotating;
  const file = keyFile(gateway.home);
  const text = readFileSync(file);
  writeFileSync(file, "{");
  await untilKeysAre(gateway, "stale");
  t.equal(await insertRefusal(gateway, await tokenOf(gateway, "bob")), undefined);
  writeFileSync(file, text);
  await untilKeysAre(gateway, "fresh");
});

async function checkNothingMade(t: Test, home: string): Promise<void> {
  if (existsSync(home)) {
    const { code, stderr } = await runCommand(home, ["token", "issue", "bob"]);
    t.equal(code, 1);
    t.match(stderr, "contains no signing key");
  }
  const keys = path.join(home, "keys");
  t.strictSame(existsSync(keys) ? readdirSync(keys) : [], []);
}

t.test("a restarted worker does not create keys to replace missing ones", async (t) => {
  const { gateway } = await openStaffed(t, grants, { config: "[server]\nworkers = 2\n" });
  const token = await tokenOf(gateway, "bob");
  const keys = path.join(gateway.home, "keys");
  renameSync(keys, `${keys}.moved`);
  await untilKeysAre(gateway, "stale");
  const [worker = 0] = workersOf(gateway);
  process.kill(worker, "SIGKILL");
  await gateway.service.logged(
    ({ restartInMs, reason }) =>
      restartInMs !== undefined && String(reason).includes("contains no signing key"),
  );
  t.notOk(existsSync(keys));
  renameSync(`${keys}.moved`, keys);
  await gateway.service.logged(({ msg }) => msg === "a worker serves again");
  await untilKeysAre(gateway, "fresh");
  t.equal(await insertRefusal(gateway, token), undefined);
});

t.test("missing keys are created at the start with a warning", async (t) => {
  const gateway = rotating;
  const isWarning = ({ msg }: Record<string, unknown>) => String(msg).startsWith("no signing keys");
  const token = await tokenOf(gateway, "bob");
  await gateway.service.stop();
  t.notOk(gateway.service.log.some(isWarning), "a first start is not worth one");
  rmSync(path.join(gateway.home, "keys"), { recursive: true });
  const { gateway: restarted } = await openGatewaySetup(t, { home: gateway.home });
  await restarted.service.logged(isWarning);
  t.equal(await insertRefusal(restarted, token), "token_invalid");
  t.equal(await insertRefusal(restarted, await tokenOf(restarted, "bob")), undefined);
});
