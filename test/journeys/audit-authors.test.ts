import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { userInfo } from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { recordCommand } from "../../src/core/http/change-records.ts";
import { grant, user } from "../access/kit.ts";
import { openGatewaySetup, select } from "../gateway/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { auditOf, startGateway, type TestGateway, temporaryHome } from "../kit/gateway.ts";
import { runWarm } from "../kit/warm-command.ts";
import { connectToEach, servedBy, workersOf } from "./supervised.ts";

const self = userInfo().username;
type Line = Record<string, unknown>;

function changesIn(lines: readonly Line[]): string[] {
  return lines.flatMap(({ author, changes }) =>
    Array.isArray(changes)
      ? changes.map(
          (one) => `${Object.values(Object(author)).join(" ")}: ${Object.values(one).join(" ")}`,
        )
      : [],
  );
}

const audited = ({ service }: TestGateway) =>
  changesIn(service.log.filter(({ audit }) => audit === true));

/** Process ids grow in the order of the starts, and the first worker starts before the others. */
const workerPid = (gateway: TestGateway, number: number) =>
  workersOf(gateway).toSorted((one, other) => one - other)[number - 1] ?? 0;

const run = async (home: string, ...flags: string[]) => {
  const { code, stderr, stdout } = await runWarm(home, flags);
  if (code !== 0) throw new Error(stderr);
  return stdout;
};

// Each test changes users of its own, and the last one compares all lines of both gateways.
const { gateway: single, upstream } = await openGatewaySetup(t);
const { gateway: pair } = await openGatewaySetup(t, servedBy(2));
const expected = new Map<TestGateway, string[]>([
  [single, []],
  [pair, []],
]);
const expect = (gateway: TestGateway, ...lines: string[]) => expected.get(gateway)?.push(...lines);
const untilAudited = (gateway: TestGateway, line: string) =>
  eventually(`there is: ${line}`, () => audited(gateway).includes(line));

t.test("each change is one line with its author, also with several workers", async () => {
  const admin = await pair.login();
  const rita = { username: "rita", password: "rita password", role: "ReadWrite" };
  await pair.send("POST", "/api/users", rita, admin);
  await pair.send("PUT", "/api/access/rita/main", { role: "ReadOnly" }, admin);
  await pair.send("DELETE", "/api/users/rita/tokens", {}, admin);
  await pair.send("PUT", "/api/access/rita/main", { role: "no such" }, admin);
  await run(pair.home, "access", "grant", "rita", "other", "ReadOnly");
  await run(pair.home, "access", "grant", "rita", "other", "ReadOnly");
  await pair.send("PATCH", "/api/users/rita", { disabled: false }, admin);
  await run(pair.home, "user", "disable", "rita");
  await run(pair.home, "token", "revoke", "--user", "rita");
  await run(pair.home, "key", "rotate");
  await eventually("the commands' lines are there", () => {
    return audited(pair).filter((text) => text.startsWith("cli")).length === 4;
  });
  const team = '[[groups]]\nname = "team"\nmembers = ["mia", "staff:R D Süd"]\n';
  const external = `${grant("staff:R D Süd", "main", "ReadOnly")}expires = 2199-01-01T00:00:00Z\n`;
  await pair.edit(
    (text) => `${text}\n${user("mia")}${grant("mia", "main", "Owner")}${team}${external}`,
  );
  await eventually("the edit's line is there", () =>
    audited(pair).some((text) => text.includes("mia main Owner")),
  );
  expect(
    pair,
    "api admin: grant added rita main ReadWrite",
    "api admin: grant changed rita main ReadOnly",
    "api admin: tokens revoked rita",
    "api admin: user added rita",
    `cli ${self}: grant added rita other ReadOnly`,
    `cli ${self}: key added`,
    `cli ${self}: tokens revoked rita`,
    `cli ${self}: user changed rita disabled`,
    `file ${self}: grant added mia main Owner`,
    `file ${self}: grant added staff:R D Süd main ReadOnly`,
    `file ${self}: group added team mia,staff:R D Süd`,
    `file ${self}: user added mia`,
  );
});

for (const gateway of [single, pair]) {
  t.test(`an edit right before a change keeps its own line`, async (t) => {
    const admin = await gateway.login();
    for (const name of ["one", "two"]) {
      writeFileSync(gateway.accessFile, `${readFileSync(gateway.accessFile, "utf8")}${user(name)}`);
      const role = { role: "ReadOnly" };
      const { status } = await gateway.send("PUT", `/api/access/${name}/main`, role, admin);
      t.equal(status, 200);
      const changed = `api admin: grant added ${name} main ReadOnly`;
      expect(gateway, `file ${self}: user added ${name}`, changed);
    }
  });
}

t.test("an edit keeps its own line, too, if one worker sees it after the change", async (t) => {
  const admin = await pair.login();
  const [, second] = await connectToEach(t, pair, admin, 2);
  const first = workerPid(pair, 1);
  const logged = pair.service.log.length;
  process.kill(first, "SIGSTOP");
  await pair.edit((text) => `${text}${user("late")}`);
  await pair.service.logged(
    (line) =>
      line.worker === 2 &&
      line.msg === "access file reloaded" &&
      pair.service.log.indexOf(line) >= logged,
  );
  const granted = second?.send("PUT", "/api/access/late/main", admin, '{"role": "ReadOnly"}');
  await delay(200);
  process.kill(first, "SIGCONT");
  t.match(await granted, { status: 200 });
  expect(pair, "api admin: grant added late main ReadOnly", `file ${self}: user added late`);
});

t.test("an edit that a command changes before the gateway reads it is audited", async () => {
  const pid = single.service.child.pid ?? 0;
  process.kill(pid, "SIGSTOP");
  await single.edit((text) => `${text}${user("max")}`);
  await run(single.home, "access", "grant", "max", "main", "ReadOnly");
  process.kill(pid, "SIGCONT");
  await untilAudited(single, `file ${self}: user added max`);
  await run(single.home, "access", "grant", "max", "main", "ReadWrite");
  await run(single.home, "access", "revoke", "max", "main");
  await untilAudited(single, `cli ${self}: grant removed max main ReadWrite`);
  expect(
    single,
    `file ${self}: user added max`,
    `cli ${self}: grant added max main ReadOnly`,
    `cli ${self}: grant changed max main ReadWrite`,
    `cli ${self}: grant removed max main ReadWrite`,
  );
});

t.test("edits and commands are audited after the first worker was restarted", async (t) => {
  process.kill(workerPid(pair, 1), "SIGKILL");
  await pair.service.logged(({ msg }) => msg === "a worker serves again");
  await pair.edit((text) => `${text}${user("max")}`);
  await run(pair.home, "user", "unlock", "max");
  const lines = [`file ${self}: user added max`, `cli ${self}: failed logins cleared max`];
  for (const line of lines) await untilAudited(pair, line);
  expect(pair, ...lines);
  t.notOk(existsSync(path.join(pair.home, "audit_pending")));
});

t.test("the line of a query has the version by which it was judged", async (t) => {
  const token = await single.addUser("rita", "ReadOnly");
  const version = async () => (await single.request("/readyz")).body.access_version;
  const judgedBy = await version();
  const pending: ServerResponse[] = [];
  upstream.answer = (_, response) => pending.push(response);
  const query = single.query(select, token);
  await eventually("the query is in flight", () => pending.length === 1);
  await single.edit((text) => `${text}${user("ada")}`);
  await eventually("the edit is in force", async () => (await version()) !== judgedBy);
  pending[0]?.end("{}");
  const answer = await query;
  t.equal(answer.status, 200);
  t.match(await auditOf(single, answer), { decision: "allow", accessVersion: judgedBy });
  expect(single, "api admin: user added rita", "api admin: grant added rita main ReadOnly");
  expect(single, `file ${self}: user added ada`);
});

t.test("no change has a second line", async (t) => {
  for (const [gateway, lines] of expected) {
    await gateway.service.stop();
    // A change by a command before the gateway read the edit may count as a part of it.
    const both = `file ${self}: grant added max main ReadOnly`;
    const found = audited(gateway).filter((line) => line !== both);
    const named = found.map((line) => line.replace(/key added .*/, "key added"));
    t.strictSame(named.sort(), lines.sort());
  }
});

t.test("commands write their own lines into an audit file", async (t) => {
  const home = temporaryHome(t);
  const file = path.join(home, "audit.log");
  const lines = () =>
    readFileSync(file, "utf8")
      .split("\n")
      .filter(Boolean)
      .map((text): Line => JSON.parse(text));
  const first = await startGateway(t, { home, config: '[audit]\nfile = "audit.log"\n' });
  await run(home, "user", "add", "max", "--no-password");
  t.strictSame(changesIn(lines()), [`cli ${self}: user added max`], "at once");
  await first.service.stop();
  rmSync(file);
  await run(home, "user", "add", "rita", "--no-password");
  t.equal(statSync(file).mode & 0o777, 0o600);
  await run(home, "access", "grant", "rita", "main", "ReadOnly");
  const [token = ""] = (await run(home, "token", "issue", "rita")).split("\n");
  t.notOk(readFileSync(file, "utf8").includes(token.slice(-20)), "no token in it");
  const second = await startGateway(t, { home, config: '[audit]\nfile = "audit.log"\n' });
  await run(home, "access", "revoke", "rita", "main");
  await eventually("the gateway has it", () =>
    second.service.log.some(({ msg }) => msg === "access file reloaded"),
  );
  await second.service.stop();
  t.match(changesIn(lines()), [
    `cli ${self}: user added rita`,
    `cli ${self}: grant added rita main ReadOnly`,
    /^cli .*: token issued rita [\da-f-]{36}$/,
    `cli ${self}: grant removed rita main ReadOnly`,
  ]);
  t.match(
    lines().find(({ msg }) => msg === "change"),
    { at: /^\d{4}-/, level: "info" },
  );
  t.ok(lines().every(({ accessVersion }) => /^[\da-f]{12}$/.test(String(accessVersion))));
  t.match(await run(home, "audit", "--user", "rita"), /\(cli\) {2}grant added rita main ReadOnly/);
});

t.test("commands write no audit to their own output if the file is /dev/stdout", async (t) => {
  const home = temporaryHome(t);
  const gateway = await startGateway(t, { home, config: '[audit]\nfile = "/dev/stdout"\n' });
  const token = await run(home, "token", "issue", "admin", "--opaque");
  t.match(token, /^gh_[\w-]{43}\n$/);
  const issued = new RegExp(`^cli ${self}: token issued admin [\\da-f-]{36}$`);
  await eventually("the gateway audits it", () =>
    audited(gateway).some((line) => issued.test(line)),
  );
  t.match((await runWarm(home, ["audit"])).stderr, /the audit is written to the log/);

  const notes = path.join(home, "notes");
  for (const audit of ["/dev/stderr", "/proc/self/fd/2"]) {
    const change = { change: "token revoked", user: audit, token: "t" } as const;
    await recordCommand({ audit, notes }, { kind: "cli", name: "root" }, [change]);
    t.match(readFileSync(notes, "utf8"), audit, "left for the gateway");
  }
});

t.test("changes right before the shutdown and after it are audited", async (t) => {
  const { gateway } = await openGatewaySetup(t);
  const { home } = gateway;
  await gateway.edit((text) => `${text}\n${user("max")}`);
  await gateway.service.logged(({ msg }) => msg === "access file reloaded");
  await gateway.service.stop();
  t.strictSame(audited(gateway), [`file ${self}: user added max`]);
  await run(home, "user", "add", "rita", "--no-password");
  t.equal(statSync(path.join(home, "audit_pending")).mode & 0o777, 0o600);
  const { gateway: next } = await openGatewaySetup(t, { home });
  const added = `cli ${self}: user added rita`;
  await eventually("the next start audits it", () => audited(next).includes(added));
  await next.service.stop();
});

async function listed(home: string, name: string): Promise<Record<string, unknown>> {
  const { stdout } = await runWarm(home, ["user", "list", "--json"]);
  const users: Record<string, unknown>[] = JSON.parse(stdout);
  return users.find(({ username }) => username === name) ?? {};
}

const isNow = (moment: unknown) => Math.abs(Date.parse(String(moment)) - Date.now()) < 60_000;

t.test("user list shows the last login and use, also with several workers", async (t) => {
  const home = temporaryHome(t);
  const options = { home, config: `[server]\nworkers = 2\n` };
  const { gateway } = await openGatewaySetup(t, options);
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
  t.match(await listed(home, "max"), { last_login: null, last_use: null }, "a failure is no login");
  for (const file of readdirSync(home).filter((name) => name.startsWith("activity."))) {
    t.equal(statSync(path.join(home, file)).mode & 0o777, 0o600);
  }
  const { gateway: again } = await openGatewaySetup(t, options);
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

t.test("the last use is saved while the gateway runs, even over a broken file", async (t) => {
  const home = temporaryHome(t);
  writeFileSync(path.join(home, "activity.0.json"), "{broken");
  const { gateway } = await openGatewaySetup(t, { home });
  await gateway.login();
  await eventually("it is written", async () => isNow((await listed(home, "admin")).last_login));
});
