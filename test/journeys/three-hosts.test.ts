import { spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { fill } from "../deploy/programs.ts";
import { startPostgres } from "../engine/postgres/server.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { ADMIN_PASSWORD, temporaryHome, writeConfiguration } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import { cleanEnvironment, gatehouseCommand, projectRoot } from "../kit/process.ts";
import { isAlive } from "../kit/process-info.ts";
import { queryHeaders, select } from "../kit/queries.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { makeRole } from "../store/role.ts";

const page = readFileSync(path.join(projectRoot, "docs/replicas.md"), "utf8");
const [, section = ""] = page.split("\n### Go from one host to three\n");
const commands = (/```sh\n([\s\S]*?)```/.exec(section)?.[1] ?? "").trim().split("\n");

const quoted = ([program, flags]: [string, string[]]) =>
  [program, ...flags].map((word) => `'${word}'`).join(" ");

/** Replacements for the commands' programs: each host is a directory of this machine. */
const programs = {
  gatehouse: `exec ${quoted(gatehouseCommand([]))} "$@"`,
  ssh: `host=$1; shift; HOME=$HOSTS/$host GATEHOUSE_HOME=$HOSTS/$host/.gatehouse; export HOME GATEHOUSE_HOME
cd; exec sh -c "$*"`,
  scp: `[ "$1" = -p ] && shift; for last; do :; done; to=$HOSTS/\${last%%:*}/\${last#*:}
while [ $# -gt 1 ]; do cp -p "$1" "$to"; shift; done`,
  systemctl: `cd; case $1 in
start) gatehouse serve --wait --port "$(cat port)" >log 2>&1 & echo $! >pid ;;
stop) kill "$(cat pid)"; while kill -0 "$(cat pid)" 2>/dev/null; do sleep 0.05; done ;;
esac`,
};

t.test("the ten documented commands turn one host into three", nightly, async (t) => {
  t.equal(commands.length, 10);
  const root = temporaryHome(t);
  const upstream = await new RecordingUpstream().listen(t);
  const clone = path.join(root, "clone");
  mkdirSync(clone);
  symlinkSync(path.join(projectRoot, "deploy"), path.join(clone, "deploy"));
  const bin = path.join(root, "bin");
  mkdirSync(bin);
  for (const [name, script] of Object.entries(programs)) {
    writeFileSync(path.join(bin, name), `#!/bin/sh\n${script}\n`);
    chmodSync(path.join(bin, name), 0o755);
  }
  const ports = new Map<string, number>();
  for (const name of ["host1", "host2", "host3"]) {
    const port = await freePort();
    ports.set(name, port);
    mkdirSync(path.join(root, name));
    writeFileSync(path.join(root, name, "port"), String(port));
  }
  const home = path.join(root, "host1");
  const service = path.join(home, ".gatehouse");
  mkdirSync(service, { mode: 0o700 });
  writeConfiguration(service, { upstream: upstream.url });
  const env = {
    HOME: home,
    HOSTS: root,
    PATH: `${bin}:${process.env.PATH}`,
    GATEHOUSE_ADMIN_PASSWORD: ADMIN_PASSWORD,
  };
  const run = (command: string) => {
    const { status, stdout, stderr } = spawnSync("bash", ["-euc", command], {
      cwd: clone,
      encoding: "utf8",
      env: cleanEnvironment(service, env),
    });
    t.equal(status, 0, `${command}\n${stderr}`);
    return stdout;
  };
  const pidOf = (name: string) => Number(readFileSync(path.join(root, name, "pid"), "utf8"));
  t.teardown(() => {
    for (const name of ports.keys()) {
      if (!t.passing()) process.stderr.write(readFileSync(path.join(root, name, "log")));
      if (isAlive(pidOf(name))) process.kill(pidOf(name), "SIGKILL");
    }
  });
  const ask = (name: string, route: string, content?: unknown, token = "") =>
    fetch(`http://127.0.0.1:${ports.get(name)}${route}`, {
      method: content === undefined ? "GET" : "POST",
      headers: queryHeaders(token),
      ...(content === undefined ? {} : { body: JSON.stringify(content) }),
    });
  const untilReady = (name: string) =>
    eventually(`${name} is ready`, async () =>
      ask(name, "/readyz").then(
        ({ ok }) => ok,
        () => false,
      ),
    );
  const login = async () => {
    const user = { username: "admin", password: ADMIN_PASSWORD };
    const { token }: { token?: string } = JSON.parse(
      await (await ask("host1", "/login", user)).text(),
    );
    return token;
  };

  run("systemctl start gatehouse");
  await untilReady("host1");
  const [token, ended] = [await login(), await login()];
  t.equal((await ask("host1", "/logout", {}, ended)).status, 200);

  const url = await makeRole(await startPostgres(t));
  const documented = "postgres://gatehouse@db.example.com/gatehouse?sslmode=verify-full";
  let last = "";
  for (const command of commands) {
    // makeRole has run the file without psql, which a machine may lack.
    if (command === "psql -h db.example.com -U postgres -f deploy/replicas/store.sql") continue;
    last = run(fill(command, command.includes(documented) ? { [documented]: url } : {}));
  }
  for (const name of ports.keys()) {
    await untilReady(name);
    const query = (own?: string) => ask(name, "/query", JSON.parse(select), own);
    t.equal((await query(token)).status, 200, `a token of before holds at ${name}`);
    t.equal((await query(ended)).status, 401, "and one that was revoked does not");
    for (const file of [".pgpass", ".gatehouse/store.key"]) {
      t.equal(statSync(path.join(root, name, file)).mode & 0o777, 0o600, file);
    }
  }
  for (const name of ports.keys()) {
    const log = readFileSync(path.join(root, name, "log"), "utf8").slice(-2000);
    t.ok(isAlive(pidOf(name)), `${name} goes on`, { log });
  }
  t.match(last, /^REPLICA/m);
  t.equal(JSON.parse(run("gatehouse store status --json")).replicas.length, 3);
});
