/** Logins at gateways whose hashes are held back. */
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { getPriority } from "node:os";
import path from "node:path";
import t, { type Test } from "tap";
import { hashBounds } from "../../src/core/identity/hashing.ts";
import { eventually } from "../kit/eventually.ts";
import { ADMIN_PASSWORD, type Answer, temporaryHome } from "../kit/gateway.ts";
import { childrenOf, isAlive } from "../kit/process-info.ts";
import { PlainBrowser } from "../oauth/browser.ts";
import { authorizeUrl, registered } from "../oauth/kit.ts";
import { checkRefusal, type GatewaySetup, openGatewaySetup, select } from "./kit.ts";

const { atOnce, waiting } = hashBounds({ memory: 64, time: 1, parallelism: 1 });
const WAITING = waiting;
const FULL = atOnce + waiting;
const right = { username: "admin", password: ADMIN_PASSWORD };
const busy = { status: 503, code: "login_busy" };

function hashersOf({ gateway }: GatewaySetup): number[] {
  return childrenOf(gateway.service.child.pid ?? 0).filter((child) =>
    readFileSync(`/proc/${child}/cmdline`, "utf8").includes("hash-program"),
  );
}

function hasherOf(setting: GatewaySetup): number {
  const [hasher, ...others] = hashersOf(setting);
  if (hasher === undefined || others.length > 0) throw new Error("not exactly one");
  return hasher;
}

function holding(file: string): NodeJS.ProcessEnv {
  const program = `
    import { existsSync } from "node:fs";
    if (process.argv[1]?.includes("hash-program")) {
      const send = process.send.bind(process);
      process.send = function give(message) {
        const isHeld = message.kind === "answer" && existsSync(${JSON.stringify(file)});
        if (isHeld) setTimeout(give, 20, message);
        else send(message);
      };
    }
  `;
  return { NODE_OPTIONS: `--import=data:text/javascript;base64,${btoa(program)}` };
}

async function openStopped(t: Test, config: string) {
  const auth = "max_failures_per_address = 100000\n";
  const home = temporaryHome(t);
  const file = path.join(home, "hold");
  const setting = await openGatewaySetup(t, { auth, config, home, env: holding(file) });
  const token = await setting.gateway.addUser("bob", "ReadOnly");
  const hold = () => writeFileSync(file, "");
  hold();
  const goOn = () => rmSync(file, { force: true });
  t.teardown(goOn);
  return { setting, token, goOn, hold };
}

const proxies = '[server]\ntrusted_proxies = ["127.0.0.1"]\n';
const { setting, token, goOn, hold } = await openStopped(t, proxies);
t.beforeEach(hold);

function logIn(
  { gateway }: GatewaySetup,
  fields: { username: string; password: string },
  options: { forwardedFor?: string; signal?: AbortSignal } = {},
): Promise<Answer> {
  const { forwardedFor, signal } = options;
  const headers = {
    "content-type": "application/json",
    ...(forwardedFor !== undefined && { "x-forwarded-for": forwardedFor }),
  };
  const body = JSON.stringify(fields);
  return gateway.request("/login", { method: "POST", headers, body, ...(signal && { signal }) });
}

function flood(
  setting: GatewaySetup,
  count: number,
  options: Parameters<typeof logIn>[2] | ((at: number) => Parameters<typeof logIn>[2]) = {},
) {
  const statuses: number[] = [];
  const all = Array.from({ length: count }, async (_, at) => {
    const fields = { username: `user-${at}`, password: "a wrong one" };
    const answer = await logIn(
      setting,
      fields,
      typeof options === "function" ? options(at) : options,
    ).catch(() => undefined);
    statuses.push(answer?.status ?? 0);
  });
  const having = (status: number) => statuses.filter((one) => one === status).length;
  return { having, done: Promise.all(all) };
}

t.test("all endpoints that hash share one queue, and queries do not wait for it", async (t) => {
  const { gateway } = setting;
  const browser = new PlainBrowser(gateway.url);
  const client_id = await registered(gateway);
  const page = await browser.open(authorizeUrl(gateway, { client_id }));
  goOn();
  const admin = await gateway.login();
  hold();

  const storm = flood(setting, FULL + 3);
  await eventually("the queue is full", () => storm.having(503) === 3);
  const user = { username: "carol", password: "carol password", role: "ReadOnly" };
  const change = { old_password: "bob password", new_password: "another password" };
  const answers = [
    await logIn(setting, right),
    await gateway.send("POST", "/api/users", user, admin),
    await gateway.send("PUT", "/api/users/bob/password", change, token),
    await gateway.send("PUT", "/api/users/bob/password", { new_password: "a new one" }, admin),
  ];
  for (const answer of answers) {
    checkRefusal(t, answer, busy);
    t.equal(answer.headers.get("retry-after"), "1");
  }
  const shown = await browser.submit(page, { ...right, action: "login" });
  t.equal(shown.status, 503);
  t.equal(shown.headers.get("retry-after"), "1");
  t.equal((await gateway.query(select, token)).status, 200);
  goOn();
  await storm.done;
  t.equal(storm.having(401), FULL);
  t.equal((await logIn(setting, right)).status, 200);
});

const unknown = { username: "stranger", password: "a wrong one" };

t.test("a flood from one address leaves room for others", async (t) => {
  const storm = flood(setting, FULL, { forwardedFor: "203.0.113.1" });
  const more = async () => (await logIn(setting, unknown, { forwardedFor: "203.0.113.1" })).status;
  const full = flood(setting, 1, { forwardedFor: "203.0.113.1" });
  await eventually("the queue is full", () => full.having(503) + storm.having(503) === 1);
  t.equal(await more(), 503);
  const other = logIn(setting, unknown, { forwardedFor: "203.0.113.2" });
  await eventually("the flood lost a place", () => full.having(503) + storm.having(503) === 2);
  goOn();
  t.equal((await other).status, 401);
  await storm.done;
});

t.test("clients that leave while they wait free their places", async (t) => {
  const gone = new AbortController();
  const left = flood(setting, FULL + 1, { signal: gone.signal });
  await eventually("the queue is full", () => left.having(503) === 1);
  gone.abort();
  await left.done;
  // Only hashes that already run still hold places.
  let next = flood(setting, 1);
  await eventually("there is room again", async () => {
    if (next.having(503) === 0) return true;
    next = flood(setting, 1);
    return false;
  });
  const rest = flood(setting, WAITING - 1);
  goOn();
  await Promise.all([next.done, rest.done]);
  t.equal(rest.having(401), WAITING - 1);
});

t.test("a hashing process that dies or hangs is replaced, and no login fails", async (t) => {
  goOn();
  for (const signal of ["SIGKILL", "SIGSTOP"] as const) {
    const hasher = hasherOf(setting);
    process.kill(hasher, signal);
    const answers = await Promise.all([1, 2, 3].map(() => logIn(setting, right)));
    t.strictSame(
      answers.map(({ status }) => status),
      [200, 200, 200],
      signal,
    );
    t.notOk(isAlive(hasher));
    t.not(hasherOf(setting), hasher);
  }
  const stuck = await setting.gateway.service.logged(
    ({ reason }) => reason === "it did not respond",
  );
  t.match(stuck, { level: "error", msg: "the password hashing process is replaced" });
});

t.test("a login whose hashing process dies every time gets 503", async (t) => {
  let answer: Answer | undefined;
  void logIn(setting, right).then((found) => {
    answer = found;
  });
  await eventually("the login is answered", () => {
    for (const pid of hashersOf(setting)) process.kill(pid, "SIGKILL");
    return answer !== undefined;
  });
  t.match(answer, { status: 503, body: { code: "login_busy" } });
});

t.test("the hashing process has no secrets and ends with the gateway", async (t) => {
  for (const signal of ["SIGTERM", "SIGKILL"] as const) {
    const setting = await openGatewaySetup(t);
    await setting.gateway.login();
    const hasher = hasherOf(setting);
    t.equal(getPriority(hasher), 10);
    t.notMatch(readFileSync(`/proc/${hasher}/environ`, "utf8"), /GATEHOUSE_/);
    process.kill(hasher, "SIGTERM");
    t.equal((await logIn(setting, right)).status, 200, "it ignores a signal to the group");
    t.equal(hasherOf(setting), hasher);
    await setting.gateway.service.stop(signal);
    await eventually("it has ended", () => !isAlive(hasher));
  }
});

const strangers = (at: number) => ({ forwardedFor: `198.51.${at >> 8}.${at & 255}` });
const home = { forwardedFor: "203.0.113.7" };
const bob = { username: "bob", password: "bob password" };

t.test("known users can log in during a storm, also with several workers", async (t) => {
  const { setting, goOn, hold } = await openStopped(t, `${proxies}workers = 2\n`);
  goOn();
  t.equal((await logIn(setting, right, home)).status, 200);
  hold();
  const storm = flood(setting, FULL + 50, strangers);
  await eventually("the queue is full", () => storm.having(503) === 50);
  const known = [
    logIn(setting, right, home),
    logIn(setting, { ...bob, password: "a wrong one" }, home),
    logIn(setting, right, { forwardedFor: "192.0.2.1" }),
    logIn(setting, bob, { forwardedFor: "192.0.2.2" }),
  ];
  t.equal((await logIn(setting, unknown, { forwardedFor: "192.0.2.3" })).status, 503);
  const turns: string[] = [];
  void storm.done.then(() => turns.push("storm"));
  void Promise.all(known).then(() => turns.push("known"));
  goOn();
  const statuses = (await Promise.all(known)).map(({ status }) => status);
  t.strictSame(statuses, [200, 401, 200, 200], "known by their address or by their name");
  await storm.done;
  t.strictSame(turns, ["known", "storm"], "known users do not wait for the whole storm");
  t.equal(storm.having(401), FULL, "the storm keeps its places");
});
