import { once } from "node:events";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import path from "node:path";
import t from "tap";
import { freePort } from "../kit/free-port.ts";
import { type Installation, installNothing, program } from "./kit.ts";
import { CTRL_C, noTerminal, Terminal } from "./terminal.ts";

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
