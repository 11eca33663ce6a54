import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { ask } from "../kit/client.ts";
import { freePort } from "../kit/free-port.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { Service } from "../kit/process.ts";
import { deployed, fill, findProgram } from "./programs.ts";

const root = path.join(import.meta.dirname, "../..");
const text = deployed("gatehouse.service");

/** All values of a setting, in order. */
function settings(name: string): string[] {
  return Array.from(text.matchAll(new RegExp(`^${name}=(.*)$`, "gm")), ([, value = ""]) => value);
}

t.test("the unit's command starts the gateway in its one writable place", async (t) => {
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
  t.ok(existsSync(fill(program, { "/opt/gatehouse": root })), "the program is there");
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
  // That was seen without being asked; what is told again is told for the signal.
  service.log.length = 0;
  const { pid } = service.child;
  execFileSync("/bin/sh", ["-c", `kill ${reload.split(" ").slice(1).join(" ")}`], {
    env: { MAINPID: String(pid) },
  });
  await service.logged(isRefused);
  t.equal(await service.stop("SIGTERM"), 0, "and it drains");
});

const analyze = findProgram("systemd-analyze");
if (analyze !== undefined) {
  /** The unit, with a program that every machine has. */
  const unit = path.join(temporaryHome(t), "gatehouse.service");
  writeFileSync(unit, fill(text, { "ExecStart=/usr/bin/node": "ExecStart=/bin/true" }));

  t.test("systemd finds nothing wrong with the unit", async (t) => {
    const { status, stderr } = spawnSync(analyze, ["verify", unit], { encoding: "utf8" });
    const own = stderr.split("\n").filter((line) => line.includes("gatehouse.service"));
    t.strictSame(own, []);
    t.equal(status, 0);
  });

  t.test("systemd finds little that the service is exposed to, as documented", async (t) => {
    const flags = ["security", "--offline=true", "--no-pager", unit];
    const { stdout } = spawnSync(analyze, flags, { encoding: "utf8" });
    const score = Number(/exposure level for \S+: ([\d.]+)/.exec(stdout)?.[1]);
    t.ok(score > 0 && score < 2, `${score}`);
    const page = readFileSync(path.join(root, "docs/operations.md"), "utf8");
    t.match(page, "systemd-analyze security");
  });
}
