import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { LineWriter } from "../../src/core/observe/log.ts";
import { checkRefusal } from "../gateway/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { ADMIN_PASSWORD, startGateway, type TestGateway, temporaryHome } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import { nodeCommand } from "../kit/node.ts";
import { cleanEnvironment, gatehouseCommand, runCommand } from "../kit/process.ts";
import { childrenOf } from "../kit/process-info.ts";
import { obtainTokens } from "../oauth/flow.ts";
import { register } from "../oauth/kit.ts";
import { callTool } from "./mcp.ts";

/** Sets the soft limit of file sizes, which can be raised again (setrlimit(2)). */
function limitFiles(pid: number, bytes: number | "unlimited"): void {
  execFileSync("prlimit", ["--pid", String(pid), `--fsize=${bytes}:unlimited`]);
}

const through = ["prlimit", "--fsize=0:unlimited"];

function familyOf(pid: number): number[] {
  return [pid, ...childrenOf(pid).flatMap(familyOf)];
}

function fill({ service }: TestGateway, bytes: number | "unlimited" = 0): void {
  for (const pid of familyOf(service.child.pid ?? 0)) limitFiles(pid, bytes);
}

function contents(directory: string): Record<string, string> {
  const names = fs.readdirSync(directory, { recursive: true, encoding: "utf8" });
  const files = names.filter((name) => fs.statSync(path.join(directory, name)).isFile());
  const changing = /(\.sqlite|-journal|-wal|-shm|\.lock|\.db|activity\.)/;
  const kept = files.filter((name) => !changing.test(name));
  const read = (name: string) => fs.readFileSync(path.join(directory, name), "utf8");
  return Object.fromEntries(kept.map((name) => [name, read(name)]));
}

async function scene(t: Test, config = "") {
  const gateway = await startGateway(t, { config });
  const token = await gateway.addUser("alice", "ReadWrite");
  return { gateway, token, root: await gateway.login() };
}

const shared = await scene(t);
const { gateway, token, root } = shared;

t.test("on a full disk a change of the access file is refused and has no effect", async (t) => {
  // Long enough that the lock file still fits the limit when the file does not.
  await gateway.edit((text) => `${text}# ${"x".repeat(20_000)}\n`);
  const before = contents(gateway.home);
  const refused = { status: 409, code: "access_file_read_only" };
  const bob = { username: "bob", password: "long enough", role: "ReadOnly" };
  const role = { role: "ReadOnly" };
  for (const bytes of [0, 16_384]) {
    fill(gateway, bytes);
    checkRefusal(t, await gateway.send("POST", "/api/users", bob, root), refused);
    checkRefusal(t, await gateway.send("PUT", "/api/access/alice/main", role, root), refused);
    t.strictSame(contents(gateway.home), before, "nothing was written, and nothing half");
  }
  const { file } = await gateway.service.logged(({ msg }) =>
    /^a change could not be written: .*EFBIG/.test(String(msg)),
  );
  t.equal(file, gateway.accessFile);
  t.equal((await gateway.request("/readyz")).status, 200);
  t.equal((await gateway.get("/api/me", token)).status, 200);

  fill(gateway, "unlimited");
  t.equal((await gateway.send("POST", "/api/users", bob, root)).status, 201);
});

t.test("on a full disk a change of password changes neither file", async (t) => {
  const before = contents(gateway.home);
  fill(gateway);
  const change = { old_password: "alice password", new_password: "an entirely new one" };
  const answer = await gateway.send("PUT", "/api/users/alice/password", change, token);
  t.ok([409, 503].includes(answer.status), answer.text);
  t.strictSame(contents(gateway.home), before);
  fill(gateway, "unlimited");
  t.ok(await gateway.login("alice", "alice password"), "the old one still logs in");
});

t.test("on a full disk the embedded database refuses writes and still reads", async (t) => {
  const columns = [{ name: "text", type: "text" }];
  const table = { database: "main", table: "notes" };
  t.equal((await gateway.query({ CreateTable: { ...table, columns } }, root)).status, 200);
  const insert = { Insert: { ...table, values: [{ text: "x".repeat(20_000) }] } };
  const read = { Select: { database: "main", from: "notes", columns: ["*"] } };
  t.equal((await gateway.query(insert, token)).status, 200);
  const before = (await gateway.query(read, token)).text;

  fill(gateway, 16_384);
  for (const query of [insert, { Batch: [insert, insert] }]) {
    const answer = await gateway.query(query, token);
    t.equal(answer.status, 507, answer.text);
    t.match(answer.body, { status: "error", code: "storage_failed", message: String });
    t.notMatch(answer.text, gateway.home);
  }
  t.equal((await gateway.query(read, token)).text, before, "nothing of it stays");
  fill(gateway, "unlimited");
  t.equal((await gateway.query(insert, token)).status, 200, "with room it goes on");
});

t.test("a gateway starts on a full disk, reads, and writes once there is room", async (t) => {
  const { gateway, root } = await scene(t);
  const columns = [{ name: "text", type: "text" }];
  await gateway.query({ CreateTable: { database: "main", table: "notes", columns } }, root);
  const alice = { username: "alice", password: "alice password" };
  const { accessToken } = await obtainTokens(gateway, alice);
  // The app's token is for this URL.
  const port = Number(new URL(gateway.url).port);
  await gateway.service.stop();

  const again = await startGateway(t, { home: gateway.home, port, limits: "-S -f 0" });
  t.equal((await again.request("/readyz")).status, 200);
  const read = { database: "main", from: "notes", columns: ["*"] };
  const answer = await again.query({ Select: read }, await again.login("alice", alice.password));
  t.equal(answer.status, 200, answer.text);
  t.match((await callTool(again, "select", read, accessToken)).body, {
    result: { content: Array },
  });
  t.equal((await register(again)).status, 503, "nothing is kept");
  const { detail } = await again.service.logged(({ code }) => code === "busy");
  t.match(detail, /state\.sqlite: /);

  fill(again, "unlimited");
  t.equal((await register(again)).status, 201);
});

t.test("on a full disk a revocation is refused and the token stays valid", async (t) => {
  t.equal((await gateway.send("POST", "/logout", {}, await gateway.login())).status, 200);
  const file = path.join(gateway.home, "revocations");
  // Long enough that the lock file still fits the limit when the file does not.
  const until = Math.ceil(Date.now() / 1000) + 1000;
  const others = Array.from({ length: 500 }, (_, at) =>
    JSON.stringify({ jti: `jti-${at}`, until }),
  );
  fs.appendFileSync(file, `${others.join("\n")}\n`);
  const before = fs.readFileSync(file, "utf8");
  for (const bytes of [0, before.length, before.length + 20]) {
    fill(gateway, bytes);
    const answer = await gateway.send("DELETE", "/api/users/alice/tokens", {}, root);
    checkRefusal(t, answer, { status: 503, code: "revocation_failed" });
    t.equal(fs.readFileSync(file, "utf8"), before, "half a line is rolled back");
    t.equal((await gateway.get("/api/me", token)).status, 200);
  }
  fill(gateway, "unlimited");
  t.equal((await gateway.send("DELETE", "/api/users/alice/tokens", {}, root)).status, 200);
});

t.test("an edit on a full disk revokes tokens permanently once there is room", async (t) => {
  const { gateway, token } = await scene(t);
  const before = fs.readFileSync(gateway.accessFile, "utf8");
  fill(gateway);
  const blocks = before.split(/(?=^\[\[)/m);
  await gateway.edit(() => blocks.filter((one) => !one.includes('"alice"')).join(""));
  await gateway.service.logged(({ msg }) => msg === "tokens could not be revoked permanently");
  fill(gateway, "unlimited");
  const file = path.join(gateway.home, "revocations");
  await eventually("the revocation is written", () => {
    return fs.existsSync(file) && fs.readFileSync(file, "utf8").includes('"alice"');
  });
  await gateway.edit(() => before);
  const isBack = () => gateway.login("alice", "alice password").then(Boolean, () => false);
  await eventually("alice is back", isBack);
  checkRefusal(t, await gateway.get("/api/me", token), { status: 401, code: "token_revoked" });
});

t.test("lost revocations are written back once a full disk has room", async (t) => {
  const { gateway, token } = await scene(t);
  t.equal((await gateway.send("POST", "/logout", {}, token)).status, 200);
  const file = path.join(gateway.home, "revocations");
  const written = fs.readFileSync(file, "utf8");
  const areNow = (state: string) =>
    eventually(`they are ${state}`, async () => {
      return (await gateway.request("/readyz")).body.revocations === state;
    });
  fill(gateway);
  fs.rmSync(file);
  await areNow("stale");
  fill(gateway, "unlimited");
  await areNow("fresh");
  t.equal(fs.readFileSync(file, "utf8"), written);
  const refusals = gateway.service.output.match(/revocations refused/g);
  t.equal(refusals?.length, 1, "a known reason is not repeated");
});

t.test("on a full disk audit lines go to the log", nightly, async (t) => {
  const { gateway } = await scene(t, '[audit]\nfile = "audit.log"\n');
  const file = path.join(gateway.home, "audit.log");
  const holds = (route: string) => fs.readFileSync(file, "utf8").includes(route);
  const isLogged = (route: string) => gateway.service.log.some((line) => line.path === route);
  await gateway.request("/api/users");
  await eventually("it is in the file", () => holds("/api/users"));
  t.notOk(isLogged("/api/users"));

  fill(gateway);
  t.equal((await gateway.request("/api/me")).status, 401);
  await gateway.service.logged(({ msg }) =>
    String(msg).startsWith("the audit file cannot be written"),
  );
  t.equal((await gateway.request("/api/access")).status, 401);
  await eventually("it is in the log", () => isLogged("/api/access"));
  fill(gateway, "unlimited");
  await eventually("they are in the file", () => holds("/api/me") && holds("/api/access"));
  for (const line of fs.readFileSync(file, "utf8").trim().split("\n")) JSON.parse(line);
});

t.test("audit lines of a full disk are logged, also if the gateway stops", async (t) => {
  const { gateway, root } = await scene(t, '[audit]\nfile = "audit.log"\n');
  await gateway.get("/api/tokens", root);
  await eventually("earlier lines are written", () => {
    return fs.readFileSync(path.join(gateway.home, "audit.log"), "utf8").includes("/api/tokens");
  });
  fill(gateway);
  const paths = ["/api/me", "/api/users", "/api/access"];
  const answers = await Promise.all(paths.map((each) => gateway.get(each, root)));
  t.ok(answers.every(({ status }) => status === 200));
  t.equal(await gateway.service.stop(), 0);
  const lines = gateway.service.log.filter(({ audit }) => audit === true);
  t.strictSame(lines.map((line) => line.path).sort(), paths.toSorted());
});

/** Runs a program that gets `LineWriter`, without reading its output. */
function runWriter(program: string, ...args: string[]) {
  const log = new URL("../../src/core/observe/log.ts", import.meta.url);
  const imports = `import { LineWriter } from "${log}";`;
  return spawn(...nodeCommand(["--input-type=module", "-e", imports + program, ...args]));
}

t.test("the lines of a full disk are written at the exit if there is room again", async (t) => {
  const file = path.join(temporaryHome(t), "log");
  const program = `
    import { execFileSync } from "node:child_process";
    const limit = (bytes) =>
      execFileSync("prlimit", ["--pid", process.pid, "--fsize=" + bytes + ":unlimited"]);
    const writer = new LineWriter(process.argv[1], 1024);
    limit(0);
    writer.write("first\\n");
    await new Promise((resolve) => writer.flush(resolve));
    limit("unlimited");
    writer.write("last\\n");
    process.exit();`;
  t.same(await once(runWriter(program, file), "exit"), [0, null]);
  t.equal(fs.readFileSync(file, "utf8"), "first\nlast\n");
});

t.test("lines behind a write to a full disk or a stuck pipe do not hold up the exit", async (t) => {
  const disk = `
    const writer = new LineWriter("/dev/full", 1024);
    await new Promise((resolve) => writer.file.once("ready", resolve));
    for (const line of ["first\\n", "second\\n"]) {
      writer.write(line);
      writer.flush();
    }
    process.exit();`;
  const pipe = `
    process.stdout.write("");
    const writer = new LineWriter(1, 1024 * 1024);
    for (let line = 0; line < 1000; line++) writer.write("x".repeat(999) + "\\n");
    await new Promise((resolve) => writer.flush(resolve));
    process.exit();`;
  for (const program of [disk, pipe]) {
    const child = runWriter(program);
    const late = setTimeout(() => child.kill("SIGKILL"), 10_000);
    t.same(await once(child, "exit"), [0, null]);
    clearTimeout(late);
  }
});

t.test("lines are in order at the exit, in a file of the same mode", async (t) => {
  const file = path.join(temporaryHome(t), "log");
  const writer = new LineWriter(file, 1024, 0o600);
  await once(writer.file, "ready");
  fs.renameSync(file, `${file}.1`);
  for (const line of ["first\n", "second\n", "last\n"]) {
    writer.write(line);
    writer.flush();
  }
  writer.close();
  await once(writer.file, "drain");
  const lines = [`${file}.1`, file].map((each) => fs.readFileSync(each, "utf8")).join("");
  t.equal(lines, "first\nsecond\nlast\n");
  t.equal(fs.statSync(file).mode & 0o777, 0o600);
});

t.test("a write to a full disk that has just begun does not hold up the exit", async (t) => {
  const writer = new LineWriter("/dev/full", 1024);
  await once(writer.file, "ready");
  writer.write("first\n");
  writer.flush();
  writer.write("last\n");
  writer.close();
  t.equal(writer.unwritten, "first\nlast\n");
});

t.test("a command on a full disk leaves no part of an audit line or note", async (t) => {
  const home = temporaryHome(t);
  const audits = { "audit.log": '[audit]\nfile = "audit.log"\n', audit_pending: "" };
  for (const [name, config] of Object.entries(audits)) {
    fs.writeFileSync(path.join(home, "gateway.toml"), config);
    const add = ["user", "add", name, "--admin", "--password-stdin"];
    t.equal((await runCommand(home, add, { input: "a password\n" })).code, 0);
    const file = path.join(home, name);
    fs.appendFileSync(file, `${"x".repeat(20_000)}\n`);
    const { size } = fs.statSync(file);
    const part = ["prlimit", `--fsize=${size + 40}:unlimited`];
    const grant = ["access", "grant", name, "shop", "ReadOnly"];
    const { stderr } = await runCommand(home, grant, { through: part });
    t.match(stderr, /the change was made, but could not be written to the audit: EFBIG/);
    t.equal(fs.statSync(file).size, size);
  }
});

t.test("a full disk below the audit file delays no request and no shutdown", nightly, async (t) => {
  const { gateway, token } = await scene(t, '[audit]\nfile = "/dev/full"\n');
  for (let at = 0; at < 20; at++) {
    t.equal((await gateway.get("/api/me", token)).status, 200);
  }
  t.equal(await gateway.service.stop(), 0);
});

t.test("the start fails with the reason if the audit file cannot be opened", nightly, async (t) => {
  const home = temporaryHome(t);
  const config = path.join(home, "gateway.toml");
  fs.writeFileSync(config, '[audit]\nfile = "missing/audit.log"\n');
  const flags = ["serve", "--port", "0", "--config", config];
  const { code, stderr } = await runCommand(home, flags);
  t.equal(code, 1);
  t.match(stderr, /gatehouse: the audit file cannot be written: ENOENT.*missing\/audit\.log/);
  t.notMatch(stderr, /at .*\.ts:/, "without a stack");
});

t.test("on a full disk commands report it, write nothing and exit with 1", nightly, async (t) => {
  const before = contents(gateway.home);
  const commands = [
    "access grant alice main Owner",
    "user remove alice",
    "token revoke --user alice",
    "key rotate",
    "user disable alice",
  ];
  for (const command of commands) {
    const { code, stderr } = await runCommand(gateway.home, command.split(" "), { through });
    t.equal(code, 1, command);
    t.match(stderr, /^gatehouse: .+/);
    t.notMatch(stderr, /at .*\.ts:/, "without a stack");
  }
  t.strictSame(contents(gateway.home), before);
});

t.test("a first start fails on a full disk and the second one succeeds", nightly, async (t) => {
  const base = temporaryHome(t);
  const home = path.join(base, "other");
  const env = { GATEHOUSE_HOME: home, GATEHOUSE_ADMIN_PASSWORD: ADMIN_PASSWORD };
  const { code, stderr } = await runCommand(base, ["serve", "--port", "0"], { env, through });
  t.equal(code, 1);
  t.match(stderr, /^gatehouse: .+/);
  t.notOk(fs.existsSync(path.join(home, "access_control.toml")));
  const again = await startGateway(t, { home });
  t.ok(await again.login());
});

t.test("a gateway whose log is on a full disk stops when it is asked to", async (t) => {
  const home = temporaryHome(t);
  const log = fs.openSync("/dev/full", "w");
  const command = gatehouseCommand(["serve", "--port", "0"]);
  const env = cleanEnvironment(home);
  const child = spawn(...command, { stdio: ["ignore", log, "inherit"], env });
  t.teardown(() => child.kill("SIGKILL"));
  fs.closeSync(log);
  const password = path.join(home, "initial_admin_password");
  await eventually("the gateway has started", () => fs.existsSync(password));
  child.kill("SIGTERM");
  t.same(await once(child, "exit"), [0, null]);
});
