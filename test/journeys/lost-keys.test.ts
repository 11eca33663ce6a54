import { existsSync, readdirSync, renameSync, rmSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { openSetting } from "../gateway/kit.ts";
import { readKey } from "../identity/forge.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import type { TestGateway } from "../kit/gateway.ts";
import { runCommand } from "../kit/process.ts";
import { insertRefusal, openStaffed, tokenOf } from "./staff.ts";
import { workersOf } from "./supervised.ts";

const grants = ["root * Owner", "bob main ReadWrite"];

async function untilKeysAre(gateway: TestGateway, expected: "stale" | "fresh"): Promise<void> {
  await eventually(`the keys are ${expected}`, async () => {
    const { status, body } = await gateway.request("/readyz");
    return status === 200 && body.keys === expected;
  });
}

/** Each with what takes the keys away and what brings them back. */
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

/** The file of the only key, also while it is away. */
function keyFile(home: string): string {
  const directory = path.join(home, "keys");
  const [name = names.get(home) ?? ""] = readdirSync(directory);
  names.set(home, name);
  return path.join(directory, name);
}

for (const [what, lose, restore] of losses) {
  t.test(`while ${what}, the last good keys stay in force, and that is said`, async (t) => {
    const metrics = `127.0.0.1:${await freePort()}`;
    const { gateway } = await openStaffed(t, grants, {
      config: `[metrics]\nlisten = "${metrics}"\n`,
    });
    const { home } = gateway;
    t.teardown(() => rmSync(`${home}.moved`, { recursive: true, force: true }));
    const metric = async () => {
      const text = await (await fetch(`http://${metrics}/metrics`)).text();
      return /^gatehouse_signing_keys_last_reload_successful (\d)$/m.exec(text)?.[1];
    };
    const { kid } = readKey(home);
    const token = await tokenOf(gateway, "bob");
    t.equal(await metric(), "1");

    lose(home);
    await untilKeysAre(gateway, "stale");
    const isRefusal = ({ msg }: Record<string, unknown>) =>
      msg === "signing keys refused: the last good ones stay in force";
    t.match((await gateway.service.logged(isRefusal)).reason, "holds no key that signs");
    t.equal(await metric(), "0");
    t.equal(await insertRefusal(gateway, token), undefined, "nobody is logged out");
    const another = await tokenOf(gateway, "bob");
    t.equal(await insertRefusal(gateway, another), undefined);
    await checkNothingMade(t, home);

    restore(home);
    await untilKeysAre(gateway, "fresh");
    t.equal(await metric(), "1");
    t.equal(readKey(home).kid, kid, "no other key was made");
    for (const one of [token, another]) t.equal(await insertRefusal(gateway, one), undefined);
  });
}

/** Neither a running gateway nor a command makes a key in the place of those that are away. */
async function checkNothingMade(t: Test, home: string): Promise<void> {
  if (existsSync(home)) {
    const { code, stderr } = await runCommand(home, ["token", "issue", "bob"]);
    t.equal(code, 1);
    t.match(stderr, "holds no key that signs");
  }
  const keys = path.join(home, "keys");
  t.strictSame(existsSync(keys) ? readdirSync(keys) : [], []);
}

t.test("a worker that is started again makes no keys in the place of lost ones", async (t) => {
  const { gateway } = await openStaffed(t, grants, { config: "[server]\nworkers = 2\n" });
  const token = await tokenOf(gateway, "bob");
  const keys = path.join(gateway.home, "keys");
  renameSync(keys, `${keys}.moved`);
  await untilKeysAre(gateway, "stale");
  const [worker = 0] = workersOf(gateway);
  process.kill(worker, "SIGKILL");
  await gateway.service.logged(
    ({ restartInMs, reason }) =>
      restartInMs !== undefined && String(reason).includes("holds no key that signs"),
  );
  t.notOk(existsSync(keys));
  renameSync(`${keys}.moved`, keys);
  await gateway.service.logged(({ msg }) => msg === "a worker serves again");
  await untilKeysAre(gateway, "fresh");
  t.equal(await insertRefusal(gateway, token), undefined);
});

t.test("keys that are missing at a start are made anew, with a warning", async (t) => {
  const { gateway } = await openStaffed(t, grants);
  const isWarning = ({ msg }: Record<string, unknown>) => String(msg).startsWith("no signing keys");
  const token = await tokenOf(gateway, "bob");
  await gateway.service.stop();
  t.notOk(gateway.service.log.some(isWarning), "a first start is not worth one");
  rmSync(path.join(gateway.home, "keys"), { recursive: true });
  const { gateway: restarted } = await openSetting(t, { home: gateway.home });
  await restarted.service.logged(isWarning);
  t.equal(await insertRefusal(restarted, token), "token_invalid");
  t.equal(await insertRefusal(restarted, await tokenOf(restarted, "bob")), undefined);
});
