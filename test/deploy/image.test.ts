import { type ChildProcess, execFile, execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { cpSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import * as z from "zod";
import { ask } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { nodeCommand } from "../kit/node.ts";
import { cleanEnvironment, runCommand, Service } from "../kit/process.ts";
import { deployed, fill, findProgram } from "./programs.ts";

const root = path.join(import.meta.dirname, "../..");
const lines = deployed("Dockerfile")
  .replace(/\\\n/g, "")
  .split("\n")
  .filter((line) => /^[A-Z]/.test(line));

function instructions(name: string): string[] {
  return lines
    .filter((line) => line.startsWith(`${name} `))
    .map((line) => line.slice(name.length + 1));
}

const words = z.array(z.string());

function listed(text = ""): string[] {
  return words.parse(JSON.parse(text.slice(text.indexOf("["))));
}

const copied = instructions("COPY")
  .filter((line) => !line.startsWith("--from"))
  .flatMap((line) => line.split(" ").slice(0, -1));

t.test("everything that the image copies exists and is not ignored", async (t) => {
  const through = deployed("Dockerfile.dockerignore").split("\n");
  t.equal(
    through.find((line) => !line.startsWith("#")),
    "*",
    "nothing by default",
  );
  for (const name of copied) {
    t.ok(existsSync(path.join(root, name)), name);
    t.ok(through.includes(`!${name}`), name);
  }
  t.ok(copied.includes("schemas"), "from which come the MCP tools and some commands");
  const { engines } = JSON.parse(readFileSync(path.join(root, "package.json"), "utf8"));
  const least = Number(/\d+/.exec(engines.node)?.[0]);
  for (const image of instructions("FROM")) {
    const [, major] = /^node:(\d+)\.\d+\.\d+-slim@sha256:[0-9a-f]{64}(?: |$)/.exec(image) ?? [];
    t.ok(Number(major) >= least, image);
  }
  const [user = ""] = instructions("USER");
  t.match(user, /^[1-9]\d+:[1-9]\d+$/, "a numeric user, not root");
  t.ok(instructions("RUN").some((line) => line.includes(`-o ${user.split(":")[0]} `)));
});

function layOut(t: Test): string {
  const directory = temporaryHome(t);
  for (const name of copied) {
    cpSync(path.join(root, name), path.join(directory, name), { recursive: true });
  }
  symlinkSync(path.join(root, "node_modules"), path.join(directory, "node_modules"));
  return directory;
}

async function startImage(
  t: Test,
  configuration = "",
): Promise<{ child: ChildProcess; port: string }> {
  const directory = layOut(t);
  writeFileSync(path.join(directory, "gateway.toml"), configuration, { mode: 0o600 });
  const [entry] = instructions("ENTRYPOINT");
  const [node, program = "", ...rest] = listed(entry);
  t.equal(node, "node");
  const file = program.replace("/opt/gatehouse", directory);
  const flags = [...rest, ...listed(instructions("CMD")[0])];
  const local = flags.map((flag) => flag.replace("0.0.0.0", "127.0.0.1"));
  const child = spawn(...nodeCommand([file, ...local, "--port", "0"]), {
    env: cleanEnvironment(temporaryHome(t)),
    cwd: directory,
    stdio: ["ignore", "pipe", "inherit"],
  });
  t.teardown(() => child.kill("SIGKILL"));
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text;
    const [, port] = /listening on http:\/\/127\.0\.0\.1:(\d+)/.exec(output) ?? [];
    if (port !== undefined) resolve(port);
  });
  child.once("exit", () => reject(new Error(output)));
  return { child, port: await promise };
}

/** The exit status of the image's health check. */
async function checkHealth(port: string): Promise<number> {
  const [check] = instructions("HEALTHCHECK");
  const [, ...flags] = listed(check?.slice(check.indexOf("CMD")));
  const asked = execFile(
    process.execPath,
    flags.map((flag) => flag.replace(":8080/", `:${port}/`)),
  );
  const [code] = await once(asked, "exit");
  return code;
}

t.test("the image's command serves, is healthy, and drains on its stop signal", async (t) => {
  const { child, port } = await startImage(t);
  t.equal(await checkHealth(port), 0);
  const exit = once(child, "exit");
  t.equal(instructions("STOPSIGNAL")[0], "SIGTERM");
  child.kill("SIGTERM");
  t.strictSame(await exit, [0, null]);
  t.equal(await checkHealth(port), 1, "a stopped gateway is not healthy");
});

t.test("the image's health check works below the base path of presets", async (t) => {
  const { port } = await startImage(t, '[server]\nbase_path = "/_gatehouse"\n');
  t.equal(await checkHealth(port), 0);
});

const text = deployed("gatehouse.service");

function settings(name: string): string[] {
  return Array.from(text.matchAll(new RegExp(`^${name}=(.*)$`, "gm")), ([, value = ""]) => value);
}

t.test("the systemd unit starts the gateway in its only writable directory", async (t) => {
  const home = path.join(temporaryHome(t), "gatehouse");
  mkdirSync(home, { mode: 0o700 });
  const config = path.join(path.dirname(home), "gateway.toml");
  const port = await freePort();
  const deployedConfig = fill(deployed("gateway.toml"), {
    "[server]\n": `[server]\nport = ${port}\n`,
    "127.0.0.1:9464": `127.0.0.1:${await freePort()}`,
  });
  writeFileSync(config, deployedConfig);
  const [command = ""] = settings("ExecStart");
  const [node, program = "", ...flags] = command.split(" ");
  t.equal(node, "/usr/bin/node");
  t.ok(existsSync(fill(program, { "/opt/gatehouse": root })), "the program exists");
  const environment = Object.fromEntries(
    settings("Environment").map((pair) => pair.split("=") as [string, string]),
  );
  t.equal(environment.GATEHOUSE_HOME, `/var/lib/${settings("StateDirectory")[0]}`);
  t.strictSame(settings("ReadWritePaths"), [environment.GATEHOUSE_HOME]);

  const adapted = flags.map((flag) => flag.replace("/etc/gatehouse/gateway.toml", config));
  const service = new Service(home, adapted, { ...environment, GATEHOUSE_HOME: home });
  t.teardown(() => service.stop("SIGKILL"));
  await service.logged(({ url }) => url === `http://127.0.0.1:${port}`);
  t.equal((await ask(`http://127.0.0.1:${port}/readyz`)).status, 200);

  const [reload = ""] = settings("ExecReload");
  const isRefused = ({ msg }: Record<string, unknown>) =>
    String(msg).startsWith("access file refused");
  writeFileSync(path.join(home, "access_control.toml"), "broken");
  await service.logged(isRefused);
  // The watcher reported this. The next report is for the signal.
  service.log.length = 0;
  const { pid } = service.child;
  execFileSync("/bin/sh", ["-c", `kill ${reload.split(" ").slice(1).join(" ")}`], {
    env: { MAINPID: String(pid) },
  });
  await service.logged(isRefused);
  t.equal(await service.stop("SIGTERM"), 0, "it drains");
});

const analyze = findProgram("systemd-analyze");
if (analyze !== undefined) {
  // With a program that exists on every machine.
  const unit = path.join(temporaryHome(t), "gatehouse.service");
  writeFileSync(unit, fill(text, { "ExecStart=/usr/bin/node": "ExecStart=/bin/true" }));

  t.test("systemd-analyze verify accepts the unit", async (t) => {
    const { status, stderr } = spawnSync(analyze, ["verify", unit], { encoding: "utf8" });
    const own = stderr.split("\n").filter((line) => line.includes("gatehouse.service"));
    t.strictSame(own, []);
    t.equal(status, 0);
  });

  t.test("systemd-analyze security rates the exposure below 2", async (t) => {
    const flags = ["security", "--offline=true", "--no-pager", unit];
    const { stdout } = spawnSync(analyze, flags, { encoding: "utf8" });
    const score = Number(/exposure level for \S+: ([\d.]+)/.exec(stdout)?.[1]);
    t.ok(score > 0 && score < 2, `${score}`);
    const page = readFileSync(path.join(root, "docs/install.md"), "utf8");
    t.match(page, "systemd-analyze security");
  });
}

const logrotate = findProgram("logrotate");
if (logrotate !== undefined) {
  t.test("logrotate rotates the audit file of the systemd unit and loses no line", async (t) => {
    const home = temporaryHome(t);
    const port = await freePort();
    const rules = deployed("logrotate");
    const setting = rules.match(/^# {3}(\[audit\])\n# {3}(file = .*)$/m);
    const installed = "/var/lib/gatehouse/audit.log";
    const audit = path.join(home, "audit.log");
    const config = path.join(temporaryHome(t), "gateway.toml");
    const section = fill(`${setting?.[1]}\n${setting?.[2]}\n`, { [installed]: audit });
    writeFileSync(config, `[server]\nport = ${port}\n${section}`);
    const service = new Service(home, ["serve", "--config", config]);
    t.teardown(() => service.stop("SIGKILL"));
    await service.logged(({ url }) => url === `http://127.0.0.1:${port}`);

    const copy = path.join(home, "rules");
    const owner = (flag: string) => execFileSync("id", [flag], { encoding: "utf8" }).trim();
    const adapted = fill(rules, {
      [`${installed} {`]: `${audit} {`,
      "su gatehouse gatehouse": `su ${owner("-un")} ${owner("-gn")}`,
      "systemctl reload gatehouse": `kill -HUP ${service.child.pid}`,
    });
    writeFileSync(copy, adapted, { mode: 0o600 });
    const linesOf = (name: string) => readFileSync(name, "utf8").split("\n").length - 1;
    for (const isRotatedBefore of [false, true]) {
      await ask(`http://127.0.0.1:${port}/query`, { method: "POST", body: "{}" });
      await eventually(
        "the request is in the audit",
        () => existsSync(audit) && linesOf(audit) === 1,
      );
      execFileSync(logrotate, ["--force", "--state", path.join(home, "state"), copy]);
      await eventually("a new file is opened", () => existsSync(audit));
      t.equal(linesOf(`${audit}.1`), 1);
      t.equal(existsSync(`${audit}.2.gz`), isRotatedBefore);
    }
    const { stdout } = await runCommand(home, ["audit", "--config", config]);
    t.equal(stdout.match(/POST \/query/g)?.length, 2, "the command reads rotated files too");
  });
}
