import { execFileSync } from "node:child_process";
import {
  chmodSync,
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { eventually } from "../kit/eventually.ts";
import { startGateway, type TestGateway } from "../kit/gateway.ts";
import { runCommand } from "../kit/process.ts";

const upstream = "http://127.0.0.1:9";

async function prepared(): Promise<{ home: string; files: string[]; gateway: TestGateway }> {
  const gateway = await startGateway(t, { upstream });
  await gateway.send("POST", "/logout", {}, await gateway.login());
  await gateway.service.stop();
  const { home } = gateway;
  const [key = ""] = readdirSync(path.join(home, "keys")).filter((name) => name.endsWith(".json"));
  const names = ["access_control.toml", "revocations", path.join("keys", key)];
  return { home, files: names.map((name) => path.join(home, name)), gateway };
}

const { home, files } = await prepared();

t.test("secret files must be private, and the error names the fix", async (t) => {
  const [accessFile = ""] = files;
  const cases = files.map((file) => [file, 0o644, "others may read it"] as const);
  for (const [file, mode, reason] of [
    [accessFile, 0o620, "its group or others may write it"] as const,
    ...cases,
  ]) {
    chmodSync(file, mode);
    const { code, stderr } = await runCommand(home, ["serve", "--port", "0"]);
    t.equal(code, 1, mode.toString(8));
    t.match(stderr, `${file}: ${reason}; fix it with: chmod 600 ${file}`);
    const remedy = /fix it with: (.+)$/m.exec(stderr)?.[1] ?? "";
    execFileSync("sh", ["-c", remedy]);
    t.equal(statSync(file).mode & 0o777, 0o600);
  }
});

t.test("an audit pipe without a reader stops no gateway and no command", async (t) => {
  const config = '[audit]\nfile = "audit.log"\n';
  const gateway = await startGateway(t, { upstream, config });
  const file = path.join(gateway.home, "audit.log");
  renameSync(file, `${file}.1`);
  execFileSync("mkfifo", ["-m", "600", file]);
  gateway.service.child.kill("SIGHUP");
  t.match(await gateway.service.logged(({ msg }) => /cannot be reopened/.test(String(msg))), {
    reason: /^ENXIO/,
  });
  t.equal((await gateway.get("/api/me", await gateway.login())).status, 200);
  await gateway.service.stop();
  t.match(readFileSync(`${file}.1`, "utf8"), /"path":"\/api\/me"/);
  const { code, stderr } = await runCommand(gateway.home, ["user", "unlock", "admin"]);
  t.match([code, stderr], [0, /could not be written to the audit: ENXIO/]);
  t.match((await runCommand(gateway.home, ["serve"])).stderr, /cannot be written: ENXIO/);
});

t.test("nothing is changed in a file that a gateway would not load", async (t) => {
  const gateway = await startGateway(t, { upstream });
  const token = await gateway.login();
  const rita = { username: "rita", password: "rita password", role: "ReadOnly" };
  t.equal((await gateway.send("POST", "/api/users", rita, token)).status, 201);
  const before = readFileSync(gateway.accessFile, "utf8");
  chmodSync(gateway.accessFile, 0o644);
  const invalid = { status: 409, body: { code: "access_file_invalid" } };
  for (const [method, route, body] of [
    ["PUT", "/api/access/rita/main", { role: "ReadWrite" }],
    ["PUT", "/api/users/rita/password", { new_password: "a new password" }],
    ["DELETE", "/api/users/rita", undefined],
  ] as const) {
    t.match(await gateway.send(method, route, body, token), invalid, method);
  }
  t.equal(readFileSync(gateway.accessFile, "utf8"), before);
  chmodSync(gateway.accessFile, 0o600);
  const raised = await gateway.send("PUT", "/api/access/rita/main", { role: "ReadWrite" }, token);
  t.equal(raised.status, 200);

  const file = path.join(gateway.home, "revocations");
  t.equal((await gateway.send("POST", "/logout", {}, await gateway.login())).status, 200);
  const revoked = readFileSync(file, "utf8");
  chmodSync(file, 0o644);
  const failed = { status: 503, body: { code: "revocation_failed" } };
  t.match(await gateway.send("POST", "/logout", {}, token), failed);
  t.match(await gateway.send("PATCH", "/api/users/rita", { disabled: true }, token), failed);
  const command = await runCommand(gateway.home, ["token", "revoke", "--user", "rita"]);
  t.equal(command.code, 1);
  t.match(command.stderr, `fix it with: chmod 600 ${file}`);
  t.equal(readFileSync(file, "utf8"), revoked);
  t.equal((await gateway.get("/api/me", token)).status, 200);
  chmodSync(file, 0o600);
  t.equal((await gateway.send("POST", "/logout", {}, token)).status, 200);
  t.equal((await gateway.get("/api/me", token)).status, 401);
});

t.test("a file that could not be read for a moment is in force soon after", async (t) => {
  const gateway = await startGateway(t, { upstream });
  const token = await gateway.addUser("rita", "ReadOnly");
  const { pid } = gateway.service.child;
  const limitFiles = (soft: string) =>
    execFileSync("prlimit", ["--pid", String(pid), `--nofile=${soft}:`]);
  const shown = ["--pid", String(pid), "--nofile", "--output", "SOFT", "--noheadings"];
  const before = execFileSync("prlimit", shown, { encoding: "utf8" }).trim();
  limitFiles("5");
  await gateway.edit((text) => text.replace('username = "rita"\n', "$&disabled = true\n"));
  await runCommand(gateway.home, ["token", "revoke", "--user", "admin"]);
  const configuration = path.join(gateway.home, "gateway.toml");
  const route = '[[routes]]\npath = "/new"\naccess = "public"\n';
  writeFileSync(configuration, `${readFileSync(configuration, "utf8")}${route}`);
  const refused = (text: string) =>
    gateway.service.logged(
      ({ reason, msg }) => `${reason} ${msg}`.includes("EMFILE") && String(msg).includes(text),
    );
  await Promise.all(["access file", "revocations", "configuration"].map(refused));
  await delay(1700);
  const failures = gateway.service.log.filter(({ msg }) =>
    String(msg).startsWith("access file refused"),
  );
  t.ok(failures.length <= 2, "a known reason is not repeated");
  limitFiles(before);
  await eventually("the edit is in force", async () => {
    return (await gateway.get("/api/me", token)).status === 401;
  });
  await eventually("the route is there", async () => {
    return (await gateway.request("/new")).status === 502;
  });
  await eventually("all files are fresh", async () => {
    const { access_file: access, revocations } = (await gateway.request("/readyz")).body;
    return access === "fresh" && revocations === "fresh";
  });
});

t.test("files of a mounted ConfigMap or Secret are accepted through their links", async (t) => {
  // The layout of kubelet: each file is a link through another link into a dated directory.
  const mounted = path.join(home, "mounted");
  mkdirSync(path.join(mounted, "..2026_01"), { recursive: true });
  renameSync(
    path.join(home, "access_control.toml"),
    path.join(mounted, "..2026_01", "access.toml"),
  );
  symlinkSync("..2026_01", path.join(mounted, "..data"));
  symlinkSync(path.join("..data", "access.toml"), path.join(mounted, "access.toml"));
  const auth = 'access_control_file = "mounted/access.toml"';
  for (const [mode, more] of [
    [0o440, ""],
    [0o444, "check_permissions = false"],
  ] as const) {
    chmodSync(path.join(mounted, "..2026_01", "access.toml"), mode);
    const gateway = await startGateway(t, { home, upstream, auth: `${auth}\n${more}` });
    t.equal((await gateway.request("/readyz")).body.access_file, "fresh", mode.toString(8));
    await gateway.service.stop();
  }
  chmodSync(path.join(mounted, "..2026_01", "access.toml"), 0o444);
  await t.rejects(
    startGateway(t, { home, upstream, auth }),
    /others may read it/,
    "a disk is no mount",
  );

  cpSync(path.join(mounted, "..2026_01"), path.join(mounted, "..2026_02"), { recursive: true });
  rmSync(path.join(mounted, "..data"));
  symlinkSync("..2026_02", path.join(mounted, "..data"));
  chmodSync(path.join(mounted, "..2026_02", "access.toml"), 0o440);
  const gateway = await startGateway(t, { home, upstream, auth });
  t.ok(await gateway.login());
});
