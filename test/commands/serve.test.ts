import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { ADMIN_PASSWORD, startGateway, temporaryHome } from "../kit/gateway.ts";
import { runCommand } from "../kit/process.ts";
import { queryHeaders, select } from "../kit/queries.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import { type Installation, install, installNothing, program } from "./kit.ts";
import { CTRL_C, noTerminal, Terminal } from "./terminal.ts";

t.test("a port in use is reported with the option to choose another", async (t) => {
  const other = createServer().listen(0, "127.0.0.1");
  t.teardown(() => other.close());
  await once(other, "listening");
  const address = other.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  const message = `127.0.0.1:${port} is in use by another process; choose another with --port (or server.port)`;
  const { code, stderr } = await install(t).run(`serve --port ${port}`);
  t.strictSame([code, stderr], [1, `gatehouse: ${message}\n`]);
  const unknown = "gatehouse: no.such.invalid has no address; choose another with --host";
  t.match(await install(t).run("serve --host no.such.invalid"), { code: 1, stderr: unknown });
});

const unshare = ["unshare", "--map-root-user", "--mount", "sh", "-e", "-c"];
const canMount = spawnSync("unshare", [...unshare.slice(1), "mount -t tmpfs none /mnt"]);
const skip = canMount.status === 0 ? false : "this system does not allow mounts";

t.test("serve on a read-only file system says what to make writable", { skip }, async (t) => {
  const home = temporaryHome(t);
  const directory = path.join(home, ".gatehouse");
  const mounts = `mount --bind ${home} ${home}; mount -o remount,bind,ro ${home}; exec "$0" "$@"`;
  const env = { GATEHOUSE_HOME: undefined };
  const { code, stderr } = await runCommand(home, ["serve", "--port", "0"], {
    through: [...unshare, mounts],
    env,
  });
  t.equal(code, 1);
  t.match(stderr, `cannot write ${directory}`);
  t.match(stderr, "Make it writable, or choose another service directory with $GATEHOUSE_HOME.");
  t.notMatch(stderr, /EROFS|ENOENT/, "no bare system error");
});

t.test("serve on a SQLite file says that it needs a directory", async (t) => {
  const gatehouse = install(t);
  const file = path.join(temporaryHome(t), "app.db");
  writeFileSync(file, "");
  const configuration = path.join(gatehouse.home, "gateway.toml");
  writeFileSync(configuration, `[upstream]\nurl = "sqlite:${file}"\n`);
  const { code, stderr } = await gatehouse.run("serve --port 0");
  t.equal(code, 1);
  t.match(stderr, `cannot write ${file}: ${file} is not a directory`);
  t.match(stderr, "Correct this, or name another place in the configuration.");
});

t.test("a second Ctrl-C during the shutdown stops at once with 1", async (t) => {
  const upstream = await new RecordingUpstream().listen();
  let isAsked = false;
  upstream.answer = () => {
    isAsked = true;
  };
  t.teardown(() => upstream.close());
  const config = "[server]\nshutdown_grace = 600\n";
  const gateway = await startGateway(t, { upstream: upstream.url, config });
  const wire = await Wire.open(gateway.url, t);
  wire.send(wireRequest("POST /query", queryHeaders(await gateway.login()), select));
  await eventually("the query is in flight", () => isAsked);

  const { child } = gateway.service;
  // npm forwards the signal that the terminal has already sent.
  child.kill("SIGINT");
  child.kill("SIGINT");
  await gateway.service.logged(({ msg }) => String(msg).startsWith("draining"));
  // Repeated, because a second signal counts only after a short time.
  await eventually("the gateway ends", async () => {
    child.kill("SIGINT");
    await delay(100);
    return child.exitCode !== null;
  });
  t.equal(child.exitCode, 1);
  t.ok(gateway.service.output.includes("stopped at once"));
});

t.test("serve prints a greeting, then a line per request", { skip: noTerminal }, async (t) => {
  const gatehouse = installNothing(t);
  const env = { GATEHOUSE_ADMIN_PASSWORD: ADMIN_PASSWORD };
  const terminal = new Terminal(t, gatehouse.home, ["serve", "--port", "0"], env);
  await terminal.until(/Next, in another terminal:\n\n.*\n\n/);
  const [, url = ""] = /Gatehouse \S+ listens on (\S+)/.exec(terminal.shown) ?? [];
  t.notMatch(terminal.shown, /engine listening|"level"|listening on/);

  await fetch(`${url}/query`, { method: "POST" });
  await terminal.until(/^\d\d:\d\d:\d\d - POST \/query deny unauthenticated 401 \d+ms\n/m);
  appendFileSync(gatehouse.accessFile, '[[users]]\nusername = "rita"\n');
  await terminal.until(/^[\d:]{8} access file reloaded \(version: \w+; users added: rita\)\n/m);
  appendFileSync(gatehouse.accessFile, "broken");
  await terminal.until(/^[\d:]{8} ERROR access file refused: .*; line: \d+; reason: .*\n/m);
  terminal.type(CTRL_C);
  await terminal.until(/^(?:\^C)?[\d:]{8} draining: .* \(signal: SIGINT\)\n/m);
  t.equal(await terminal.ended(), 0);
  t.equal(terminal.shown.match(/access file reloaded/g)?.length, 1, "a reload is shown once");
  t.equal(terminal.shown.match(/access file refused/g)?.length, 1, "and so is a refusal");
  t.notOk(terminal.shown.includes("\x1b"), "NO_COLOR is obeyed");
});

const onTerminal = { skip: noTerminal };
const GREETED = /Next, in another terminal:\n\n.*\n\n/;

/** Starts a gateway on a terminal, in a new service directory by default, and waits for the greeting. */
async function greet(t: Test, { home }: Installation, ...flags: string[]) {
  const terminal = new Terminal(t, home, ["serve", ...flags]);
  await terminal.until(GREETED);
  const [, url = ""] = /Gatehouse \S+ listens on (\S+)/.exec(terminal.shown) ?? [];
  return { terminal, url };
}

async function stop(terminal: Terminal): Promise<void> {
  terminal.type(CTRL_C);
  await terminal.ended();
}

async function loginStatus(url: string, password: string): Promise<number> {
  const body = JSON.stringify({ username: "admin", password });
  const headers = { "content-type": "application/json" };
  return (await fetch(`${url}/login`, { method: "POST", headers, body })).status;
}

function passwordFile({ home }: Installation): string {
  return path.join(home, "initial_admin_password");
}

function configure({ home }: Installation, text: string): void {
  writeFileSync(path.join(home, "gateway.toml"), text);
}

for (const workers of [1, 2]) {
  t.test(
    `a first start on a port in use creates nothing, and the next one shows the password, with ${workers} workers`,
    onTerminal,
    async (t) => {
      const gatehouse = installNothing(t);
      const port = await freePort();
      const other = createServer().listen(port, "127.0.0.1");
      await once(other, "listening");
      const metrics = `[metrics]\nlisten = "127.0.0.1:${port}"\n[server]\nport = 0`;
      for (const section of [`[server]\nport = ${port}`, metrics]) {
        configure(
          gatehouse,
          `${section}\nworkers = ${workers}\n[upstream]\nurl = "http://127.0.0.1:1"\n`,
        );
        const refused = new Terminal(t, gatehouse.home, ["serve"]);
        t.equal(await refused.ended(), 1);
        t.match(refused.shown, `127.0.0.1:${port} is in use by another process`);
        t.notOk(existsSync(gatehouse.accessFile), "no administrator with a lost password");
        t.notOk(existsSync(passwordFile(gatehouse)));
      }
      const closed = once(other, "close");
      other.close();
      await closed;
      const { terminal, url } = await greet(t, gatehouse);
      const [, password = ""] = /shown only once, is (\S+)/.exec(terminal.shown) ?? [];
      t.equal(await loginStatus(url, password), 200);
      t.notOk(existsSync(passwordFile(gatehouse)), "a password that was shown is not kept");
      t.match(terminal.shown, `Password lost?  ${program} user password admin\n`);
      await stop(terminal);
    },
  );
}

t.test(
  "a first start that fails late keeps the administrator's password",
  onTerminal,
  async (t) => {
    const gatehouse = installNothing(t);
    const data = path.join(gatehouse.home, "data");
    writeFileSync(data, "not a directory");
    const failing = new Terminal(t, gatehouse.home, ["serve", "--port", "0"]);
    t.equal(await failing.ended(), 1);
    t.ok(existsSync(gatehouse.accessFile));
    rmSync(data);
    const login = `{ client_id = "a", client_secret_file = "initial_admin_password", label = "Sign in" }`;
    const issuer = `issuer = "https://id.example.com"\nprefix = "id"\nopens = ["mcp"]\nlogin = ${login}`;
    configure(gatehouse, `[auth]\npasswords = false\n[[issuers]]\n${issuer}\n`);
    const quiet = new Terminal(t, gatehouse.home, ["serve", "--port", "0"]);
    await quiet.until(/ Database .*\n\n/);
    await stop(quiet);
    t.notMatch(quiet.shown, /\/login|Password/, "a password opens nothing");
    configure(gatehouse, "");
    const { terminal, url } = await greet(t, gatehouse, "--port", "0");
    t.match(terminal.shown, `The first password of admin is in ${passwordFile(gatehouse)}\n`);
    const password = readFileSync(passwordFile(gatehouse), "utf8").trim();
    t.equal(await loginStatus(url, password), 200);
    await stop(terminal);
  },
);

t.test("with host 0.0.0.0, every printed address works", onTerminal, async (t) => {
  const { terminal, url } = await greet(t, installNothing(t), "--port", "0", "--host", "0.0.0.0");
  const [, others = ""] = /Also at +(.*)\n/.exec(terminal.shown) ?? [];
  t.match(url, /^http:\/\/127\.0\.0\.1:\d+$/);
  for (const each of [url, ...others.split(", ").filter(Boolean)]) {
    t.equal((await fetch(`${each}/healthz`)).status, 200, each);
  }
  t.match(terminal.shown, /curl -sS http:\/\/127\.0\.0\.1:\d+\/login/);
  t.match(terminal.shown, /MCP clients cannot log in at this address: set server\.public_url/);
  await stop(terminal);
});

t.test("the greeting says that the upstream does not respond", onTerminal, async (t) => {
  const gatehouse = installNothing(t);
  const url = `http://127.0.0.1:${await freePort()}`;
  configure(gatehouse, `[upstream]\nurl = "${url}"\n`);
  const { terminal } = await greet(t, gatehouse, "--port", "0");
  t.match(terminal.shown, `${url} does not respond; until it does, queries are refused`);
  await stop(terminal);
});
