import { readdirSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { openSetting, select } from "../gateway/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import { runWarm } from "../kit/warm-command.ts";

/** What `user list` says of a user. */
async function listed(home: string, name: string): Promise<Record<string, unknown>> {
  const { stdout } = await runWarm(home, ["user", "list", "--json"]);
  const users: Record<string, unknown>[] = JSON.parse(stdout);
  return users.find(({ username }) => username === name) ?? {};
}

const isNow = (moment: unknown) => Math.abs(Date.parse(String(moment)) - Date.now()) < 60_000;

for (const workers of [1, 2]) {
  const options = workers === 1 ? nightly : {};
  t.test(`user list says who was last there, with ${workers} workers`, options, async (t) => {
    const home = temporaryHome(t);
    const options = { home, config: `[server]\nworkers = ${workers}\n` };
    const { gateway } = await openSetting(t, options);
    const token = await gateway.addUser("rita", "ReadOnly");
    await gateway.send(
      "POST",
      "/api/users",
      { username: "max", password: "max password", role: "ReadOnly" },
      await gateway.login(),
    );
    await gateway.send("POST", "/login", { username: "max", password: "wrong one" });
    await gateway.query(select, token);
    await gateway.service.stop();
    const { last_login: login, last_use: use } = await listed(home, "rita");
    t.ok(isNow(login) && isNow(use));
    t.match(
      await listed(home, "max"),
      { last_login: null, last_use: null },
      "a failure is no login",
    );
    for (const file of readdirSync(home).filter((name) => name.startsWith("activity."))) {
      t.equal(statSync(path.join(home, file)).mode & 0o777, 0o600);
    }
    const { gateway: again } = await openSetting(t, options);
    await again.login();
    await again.service.stop();
    t.match(
      await listed(home, "rita"),
      { last_login: login, last_use: use },
      "a restart forgets nothing",
    );
    const { stdout } = await runWarm(home, ["user", "list"]);
    t.match(stdout, /USERNAME +EMAIL +STATE +LAST LOGIN +LAST USE +ATTRIBUTES +ACCESS/);
  });
}

t.test(
  "what was noted is written while the gateway runs, and a file that is broken is no hindrance",
  async (t) => {
    const home = temporaryHome(t);
    writeFileSync(path.join(home, "activity.0.json"), "{broken");
    const { gateway } = await openSetting(t, { home });
    await gateway.login();
    await eventually("it is written", async () => isNow((await listed(home, "admin")).last_login));
  },
);
