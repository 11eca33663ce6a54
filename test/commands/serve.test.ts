import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { ADMIN_PASSWORD, startGateway, temporaryHome } from "../kit/gateway.ts";
import { runCommand } from "../kit/process.ts";
import { queryHeaders, select } from "../kit/queries.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import { failed, type Installation, install, installNothing, program } from "./kit.ts";
import { CTRL_C, noTerminal, Terminal } from "./terminal.ts";

t.test("a port that is taken is named, with the option that chooses another", async (t) => {
  const other = createServer().listen(0, "127.0.0.1");
  t.teardown(() => other.close());
  await once(other, "listening");
  const address = other.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  const message = `127.0.0.1:${port} is taken by another process: choose another one with --port (or server.port)`;
  const { code, stderr } = await install(t).run(`serve --port ${port}`);
  t.strictSame([code, stderr], [1, `gatehouse: ${message}\n`]);
});

const unshare = ["unshare", "--map-root-user", "--mount", "sh", "-e", "-c"];
const canMount = spawnSync("unshare", [...unshare.slice(1), "mount -t tmpfs none /mnt"]);
const skip = canMount.status === 0 ? false : "this system lets nobody mount here";

t.test("a start on a read-only home names the directory to make writable", { skip }, async (t) => {
  const home = temporaryHome(t);
  const directory = path.join(home, ".gatehouse");
  const mounts = `mount --bind ${home} ${home}; mount -o remount,bind,ro ${home}; exec "$0" "$@"`;
  const env = { GATEHOUSE_HOME: undefined };
  const { code, stderr } = await runCommand(home, ["serve", "--port", "0"], {
    ...{ through: [...unshare, mounts], env },
  });
  t.equal(code, 1);
  t.match(stderr, `${directory}: cannot be written: it is on a file system that can only be read`);
  t.match(stderr, "Make it writable, or choose another service directory with $GATEHOUSE_HOME.");
  t.notMatch(stderr, /EROFS|ENOENT/, "the error of the system alone is not printed");
});

t.test("a port that is none is judged as the configuration's would be", async (t) => {
  const gatehouse = install(t);
  for (const port of ["99999", "-1", "80.5"]) {
    const message = `--port: server.port: found ${port}; allowed: a whole number from 0 to 65535`;
    t.strictSame(await gatehouse.run(`serve --port=${port}`), failed(2, message));
  }
  const { code, stderr } = await gatehouse.run("serve --port eighty");
  t.equal(code, 2);
  t.match(
    stderr,
    /^gatehouse: .*'eighty' is invalid\. Allowed: a whole number from 0 to 65535\.\n/,
  );
});

t.test("another Ctrl-C while requests are finished ends at once, with 1", async (t) => {
  const upstream = await new RecordingUpstream().listen();
  let isAsked = false;
  upstream.answer = () => {
    isAsked = true;
  };
  t.teardown(() => upstream.close());
  const config = "[server]\nshutdown_grace = 600\n";
  const gateway = await startGateway(t, { upstream: upstream.url, config });
  const wire = await Wire.open(gateway.url);
  t.teardown(() => wire.cut());
  wire.send(wireRequest("POST /query", queryHeaders(await gateway.login()), select));
  await eventually("the query is in flight", () => isAsked);

  const { child } = gateway.service;
  // As npm does: it passes on the signal that the terminal has sent already.
  child.kill("SIGINT");
  child.kill("SIGINT");
  await gateway.service.logged(({ msg }) => String(msg).startsWith("draining"));
  const exit = once(child, "exit");
  let code: unknown;
  void exit.then(([status]) => {
    code = status;
  });
  // It counts from a moment on, so it is repeated as an impatient operator would.
  await eventually("the gateway ends", async () => {
    child.kill("SIGINT");
    await delay(100);
    return code !== undefined;
  });
  t.equal(code, 1);
  t.ok(gateway.service.output.includes("ended at once"));
});

t.test(
  "a terminal shows a greeting, then one line for each request and reload",
  { skip: noTerminal },
  async (t) => {
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
  },
);

const GREETED = /Next, in another terminal:\n\n.*\n\n/;

function urlShown({ shown }: Terminal): string {
  return /Gatehouse \S+ listens on (\S+)/.exec(shown)?.[1] ?? "";
}

function passwordShown({ shown }: Terminal): string {
  return /and its password, shown only now, is (\S+)/.exec(shown)?.[1] ?? "";
}

async function loginStatus(url: string, password: string): Promise<number> {
  const body = JSON.stringify({ username: "admin", password });
  const headers = { "content-type": "application/json" };
  return (await fetch(`${url}/login`, { method: "POST", headers, body })).status;
}

function passwordFile({ home }: Installation): string {
  return path.join(home, "initial_admin_password");
}

for (const workers of [1, 2]) {
  t.test(
    `a first start on a port that is taken makes nothing, and the next one shows the password, with ${workers} workers`,
    { skip: noTerminal },
    async (t) => {
      const gatehouse = installNothing(t);
      const other = createServer().listen(await freePort(), "127.0.0.1");
      await once(other, "listening");
      const address = other.address();
      const port = typeof address === "object" && address !== null ? address.port : 0;
      for (const key of [
        "[server]\nport",
        `[metrics]\nlisten = "127.0.0.1:${port}"\n[server]\nport`,
      ]) {
        const own = key.startsWith("[server]") ? port : 0;
        const file = path.join(gatehouse.home, "gateway.toml");
        writeFileSync(file, `${key} = ${own}\nworkers = ${workers}\n`);
        const refused = new Terminal(t, gatehouse.home, ["serve"]);
        t.equal(await refused.ended(), 1);
        t.match(refused.shown, `127.0.0.1:${port} is taken by another process`);
        t.notOk(existsSync(gatehouse.accessFile), "no administrator whose password nobody knows");
        t.notOk(existsSync(passwordFile(gatehouse)));
      }
      const closed = once(other, "close");
      other.close();
      await closed;
      const terminal = new Terminal(t, gatehouse.home, ["serve"]);
      await terminal.until(GREETED);
      t.equal(await loginStatus(urlShown(terminal), passwordShown(terminal)), 200);
      t.notOk(existsSync(passwordFile(gatehouse)), "what was shown is kept nowhere");
      t.match(terminal.shown, `Password lost?  ${program} user password admin\n`);
      terminal.type(CTRL_C);
      await terminal.ended();
    },
  );
}

t.test(
  "a first start that fails after it has made the administrator loses no password",
  { skip: noTerminal },
  async (t) => {
    const gatehouse = installNothing(t);
    const data = path.join(gatehouse.home, "data");
    writeFileSync(data, "in the engine's way");
    const failing = new Terminal(t, gatehouse.home, ["serve", "--port", "0"]);
    t.equal(await failing.ended(), 1);
    t.ok(existsSync(gatehouse.accessFile));
    rmSync(data);

    const terminal = new Terminal(t, gatehouse.home, ["serve", "--port", "0"]);
    await terminal.until(GREETED);
    t.match(terminal.shown, `The first password of admin is in ${passwordFile(gatehouse)}\n`);
    t.match(terminal.shown, `Password lost?  ${program} user password admin\n`);
    const password = readFileSync(passwordFile(gatehouse), "utf8").trim();
    t.equal(await loginStatus(urlShown(terminal), password), 200);
    terminal.type(CTRL_C);
    await terminal.ended();
  },
);

t.test(
  "every address that a start on all of them prints can be opened, and what cannot is said",
  { skip: noTerminal },
  async (t) => {
    const gatehouse = installNothing(t);
    const terminal = new Terminal(t, gatehouse.home, ["serve", "--port", "0", "--host", "0.0.0.0"]);
    await terminal.until(GREETED);
    const [, others = ""] = /Also at +(.*)\n/.exec(terminal.shown) ?? [];
    const urls = [urlShown(terminal), ...others.split(", ")].filter((url) => url !== "");
    t.match(urls[0], /^http:\/\/127\.0\.0\.1:\d+$/);
    for (const url of urls) t.equal((await fetch(`${url}/healthz`)).status, 200, url);
    t.match(terminal.shown, /curl -sS http:\/\/127\.0\.0\.1:\d+\/login/);
    t.match(terminal.shown, /set server\.public_url, or no MCP client can log in/);
    terminal.type(CTRL_C);
    await terminal.ended();
  },
);

t.test(
  "the greeting says at once that the upstream does not answer",
  { skip: noTerminal },
  async (t) => {
    const gatehouse = installNothing(t);
    const url = `http://127.0.0.1:${await freePort()}`;
    const file = path.join(gatehouse.home, "gateway.toml");
    writeFileSync(file, `[upstream]\nurl = "${url}"\n`);
    const terminal = new Terminal(t, gatehouse.home, ["serve", "--port", "0"]);
    await terminal.until(GREETED);
    t.match(terminal.shown, `${url} does not answer: until it does, every query is refused`);
    terminal.type(CTRL_C);
    await terminal.ended();
  },
);
