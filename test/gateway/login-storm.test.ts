import t from "tap";
import { eventually } from "../kit/eventually.ts";
import { FULL, flood, logIn, openStopped, right } from "./held-hashes.ts";

const strangers = (at: number) => ({ forwardedFor: `198.51.${at >> 8}.${at & 255}` });
const home = { forwardedFor: "203.0.113.7" };
const bob = { username: "bob", password: "bob password" };

for (const workers of [1, 2]) {
  t.test(`a storm from many addresses keeps out nobody known, ${workers} at work`, async (t) => {
    const config = `[server]\ntrusted_proxies = ["127.0.0.1"]\nworkers = ${workers}\n`;
    const { setting, goOn, hold } = await openStopped(t, config);
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
    const stranger = { username: "nobody", password: "a wrong one" };
    t.equal((await logIn(setting, stranger, { forwardedFor: "192.0.2.3" })).status, 503);
    const turns: string[] = [];
    void storm.done.then(() => turns.push("storm"));
    void Promise.all(known).then(() => turns.push("known"));
    goOn();
    const statuses = (await Promise.all(known)).map(({ status }) => status);
    t.strictSame(statuses, [200, 401, 200, 200], "by address, and by name from elsewhere");
    await storm.done;
    t.strictSame(turns, ["known", "storm"], "and they need not wait for all of it");
    t.equal(storm.having(401), FULL, "nor took their places");
  });
}
