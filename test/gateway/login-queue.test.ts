import { readFileSync } from "node:fs";
import { getPriority } from "node:os";
import t from "tap";
import { eventually } from "../kit/eventually.ts";
import type { Answer } from "../kit/gateway.ts";
import { isAlive } from "../kit/process-info.ts";
import { PlainBrowser } from "../oauth/browser.ts";
import { authorizeUrl, registered } from "../oauth/kit.ts";
import {
  busy,
  FULL,
  flood,
  hasherOf,
  hashersOf,
  logIn,
  openStopped,
  right,
  WAITING,
} from "./held-hashes.ts";
import { checkRefusal, openSetting, select } from "./kit.ts";

t.test("every door that hashes shares the one queue, and queries need none", async (t) => {
  const { setting, token, goOn, hold } = await openStopped(t);
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

/** One who has no place by an earlier login. */
const unknown = { username: "nobody", password: "a wrong one" };

t.test("a flood from one address leaves places to the others", async (t) => {
  const config = '[server]\ntrusted_proxies = ["127.0.0.1"]\n';
  const { setting, goOn } = await openStopped(t, config);
  const storm = flood(setting, FULL, { forwardedFor: "203.0.113.1" });
  const more = async () => (await logIn(setting, unknown, { forwardedFor: "203.0.113.1" })).status;
  const full = flood(setting, 1, { forwardedFor: "203.0.113.1" });
  await eventually("the queue is full", () => full.having(503) + storm.having(503) === 1);
  t.equal(await more(), 503);
  const other = logIn(setting, unknown, { forwardedFor: "203.0.113.2" });
  await eventually("a place was given up", () => full.having(503) + storm.having(503) === 2);
  goOn();
  t.equal((await other).status, 401);
  await storm.done;
});

t.test("clients that go while they wait leave the queue to others", async (t) => {
  const { setting, goOn } = await openStopped(t);
  const gone = new AbortController();
  const left = flood(setting, FULL + 1, { signal: gone.signal });
  await eventually("the queue is full", () => left.having(503) === 1);
  gone.abort();
  await left.done;
  // What runs already runs on; nothing else is in the way.
  let next = flood(setting, 1);
  await eventually("there are places again", async () => {
    if (next.having(503) === 0) return true;
    next = flood(setting, 1);
    return false;
  });
  const rest = flood(setting, WAITING - 1);
  goOn();
  await Promise.all([next.done, rest.done]);
  t.equal(rest.having(401), WAITING - 1);
});

t.test("hashing that dies or stands still is begun anew, and no login fails by it", async (t) => {
  const { setting, goOn } = await openStopped(t);
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
    ({ reason }) => reason === "it did not answer",
  );
  t.match(stuck, { level: "error", msg: "the process that hashes is replaced" });
});

t.test("a login that ends each process which hashes for it is refused", async (t) => {
  const { setting } = await openStopped(t);
  let answer: Answer | undefined;
  void logIn(setting, right).then((found) => {
    answer = found;
  });
  await eventually("it is answered", () => {
    for (const pid of hashersOf(setting)) process.kill(pid, "SIGKILL");
    return answer !== undefined;
  });
  t.match(answer, { status: 503, body: { code: "login_busy" } });
});

t.test(
  "the process that hashes stands back, knows no secret and ends with the gateway",
  async (t) => {
    for (const signal of ["SIGTERM", "SIGKILL"] as const) {
      const setting = await openSetting(t);
      await setting.gateway.login();
      const hasher = hasherOf(setting);
      t.equal(getPriority(hasher), 10);
      t.notMatch(readFileSync(`/proc/${hasher}/environ`, "utf8"), /GATEHOUSE_/);
      process.kill(hasher, "SIGTERM");
      t.equal((await logIn(setting, right)).status, 200, "a signal to the group is not for it");
      t.equal(hasherOf(setting), hasher);
      await setting.gateway.service.stop(signal);
      await eventually("it is gone", () => !isAlive(hasher));
    }
  },
);
