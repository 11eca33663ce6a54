import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { appendFileSync } from "node:fs";
import { createServer } from "node:http";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { eventually } from "../kit/eventually.ts";
import { ADMIN_PASSWORD, startGateway, temporaryHome } from "../kit/gateway.ts";
import { runCommand } from "../kit/process.ts";
import { queryHeaders, select } from "../kit/queries.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import { failed, install, installNothing } from "./kit.ts";
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
