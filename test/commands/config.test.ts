import { execFileSync } from "node:child_process";
import {
  appendFileSync,
  chmodSync,
  existsSync,
  mkdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import type { Test } from "tap";
import t from "tap";
import { directoryProblem } from "../../src/core/base/files/guarded.ts";
import { grant } from "../access/kit.ts";
import { makeCertificate } from "../kit/certificate.ts";
import { startGateway, type TestGateway, temporaryHome } from "../kit/gateway.ts";
import { runCommand } from "../kit/process.ts";
import { tlsSection, writePair } from "../kit/tls-files.ts";
import { done, failed, install, installed, installNothing, people, program } from "./kit.ts";

installed("config check lists every file with its state", async (t, gatehouse) => {
  const { version } = gatehouse.snapshot;
  t.strictSame(
    await gatehouse.run("config check"),
    done(
      `configuration  ok  ${gatehouse.home}/gateway.toml`,
      `signing keys   --  ${gatehouse.home}/keys: the next start creates one for ES256; tokens issued before will stop working`,
      `access file    ok  ${gatehouse.accessFile} (3 users, 4 grants, version ${version})`,
      `revocations    --  ${gatehouse.home}/revocations is created by the first revocation`,
    ),
  );
  const file = path.join(gatehouse.home, "revocations");
  writeFileSync(file, '{"user":"alice","before":4000000000}\n', { mode: 0o600 });
  const { stdout } = await gatehouse.run("config check");
  t.match(stdout, `\nrevocations    ok  ${file} (1)\n`);
});

installed("config check says that another algorithm ends all tokens", async (t, gatehouse) => {
  t.equal((await gatehouse.run("key rotate")).code, 0);
  t.match((await gatehouse.run("config check")).stdout, `keys   ok  ${gatehouse.home}/keys (1)`);
  const file = path.join(gatehouse.home, "gateway.toml");
  writeFileSync(file, '[auth]\nsigning_algorithm = "EdDSA"\n');
  const { code, stdout } = await gatehouse.run("config check");
  t.equal(code, 0);
  t.match(stdout, "/keys: the next start creates one for EdDSA; tokens issued before will stop");
  const { stderr } = await gatehouse.run("token issue alice");
  t.match(stderr, /no signing key for EdDSA: .* with `\S*gatehouse key rotate`/);
});

installed("config check warns of tokens that expire within 14 days", async (t, gatehouse) => {
  const issue = (flags: string) => gatehouse.run(`token issue alice --opaque ${flags}`);
  t.equal((await issue("--name ci --expires 13d")).code, 0);
  t.equal((await issue("--expires 15d")).code, 0);
  const { code, stdout, stderr } = await gatehouse.run("config check");
  t.equal(code, 0);
  t.match(stdout, `\nissued tokens  ok  ${gatehouse.home}/tokens (2)\n`);
  t.match(stderr, /^warning: the token [\da-f-]{36} \(ci\) of alice expires at \d{4}-.*Z\n$/);
  t.equal((await gatehouse.run("token revoke ci")).code, 0);
  const after = await gatehouse.run("config check");
  t.match(after, { stdout: "/tokens (1)\n", stderr: "" });

  const file = path.join(gatehouse.home, "tokens");
  writeFileSync(gatehouse.accessFile, "nonsense\n");
  t.equal((await gatehouse.run("config check")).stderr.split("access_control.toml:1").length, 2);
  writeFileSync(file, "nonsense\n");
  const broken = await gatehouse.run("config check");
  t.match(broken, { code: 1, stderr: "tokens:1: is not an issued token\n" });
});

installed("config check refuses pipes, devices and huge files", async (t, gatehouse) => {
  const pipe = path.join(gatehouse.home, "pipe");
  execFileSync("mkfifo", ["-m", "600", pipe]);
  const huge = path.join(gatehouse.home, "huge.toml");
  writeFileSync(huge, "#".repeat(1_048_577), { mode: 0o600 });
  const large = path.join(gatehouse.home, "large.toml");
  writeFileSync(large, "#".repeat(1_048_576), { mode: 0o600 });
  t.strictSame(
    await gatehouse.runAll(
      [pipe, "/dev/zero", huge].map((file) => `config check --config ${file}`),
    ),
    [
      failed(1, `${pipe}: is not a regular file`),
      failed(1, "/dev/zero: is not a regular file"),
      failed(1, `${huge}: is larger than 1 MiB`),
    ],
  );
  t.equal((await gatehouse.run(`config check --config ${large}`)).code, 0);
});

t.test("config check warns of an access file for which the store is better", async (t) => {
  const gatehouse = install(t);
  const file = path.join(gatehouse.home, "access_control.toml");
  appendFileSync(file, `\n# ${"x".repeat(4 * 1_048_576)}\n`);
  const { code, stderr } = await gatehouse.run("config check");
  t.equal(code, 0);
  t.match(stderr, "warning: the access file is larger than 4 MiB: use [store]");
});

t.test("config check creates nothing before the first start", async (t) => {
  const gatehouse = installNothing(t);
  const { code, stdout } = await gatehouse.run("config check");
  t.equal(code, 0);
  t.match(stdout, "keys is created by the first start\n");
  t.match(stdout, "access_control.toml is created by the first start");
  t.throws(() => gatehouse.text, { code: "ENOENT" });
});

installed("a file that cannot be looked up does not count as missing", async (t, gatehouse) => {
  const { home } = gatehouse;
  // A link to itself, since root may look up everything else.
  const names = ["keys", "revocations", "tokens", "approvals.sqlite", "oauth"];
  for (const name of names) symlinkSync(name, path.join(home, name));
  const lost = (name: string) => RegExp(`ELOOP.*${path.join(home, name)}`);
  const cases: Record<string, string> = {
    "key list": "keys",
    "token list": "tokens",
    "approvals list": "approvals.sqlite",
    "token revoke --client app": "oauth",
  };
  for (const [command, name] of Object.entries(cases)) {
    const wrong = { code: 1, stderr: lost(name), stdout: /^$/ };
    t.match(await gatehouse.run(command), wrong, command);
  }
  const { code, stdout, stderr } = await gatehouse.run("config check");
  t.equal(code, 1);
  t.notMatch(stdout, "is created by");
  for (const name of names.slice(0, 3)) t.match(stderr, lost(name));
  for (const name of ["keys", "oauth"]) rmSync(path.join(home, name));
  const started = await runCommand(home, ["serve", "--port", "0"]);
  t.match(started, { code: 1, stderr: lost("revocations") }, "nothing is revived");
});

t.test("config check accepts a missing service directory if it can be created", async (t) => {
  const { home, run } = installNowhere(t);
  const missing = path.join(home, "made", "service");
  t.strictSame((await run(missing)).code, 0);
  t.notOk(existsSync(path.dirname(missing)), "nothing is created");

  writeFileSync(path.join(home, "file"), "");
  const blocked = await run(path.join(home, "file", "service"));
  t.equal(blocked.code, 1);
  t.match(blocked.stderr, `cannot write ${home}/file/service: ${home}/file is not a directory`);
});

t.test("config check reports every path that a start cannot write", async (t) => {
  const gatehouse = installNothing(t);
  const { home } = gatehouse;
  const inTheWay = (name: string) => path.join(home, name);
  for (const name of ["keys", "data", "oauth"]) writeFileSync(inTheWay(name), "", { mode: 0o600 });
  mkdirSync(inTheWay("audit.log"));
  const config = `[audit]\nfile = "audit.log"\n[auth]\naccess_control_file = "gone/access.toml"\n`;
  writeFileSync(inTheWay("gateway.toml"), config, { mode: 0o600 });
  const blocked = await gatehouse.run("config check");
  t.equal(blocked.code, 1);
  rmSync(inTheWay("keys"));
  const { code, stderr } = await gatehouse.run("config check");
  const lines = [
    `cannot write ${home}/data: ${home}/data is not a directory`,
    `cannot write ${home}/oauth: ${home}/oauth is not a directory`,
    `cannot write ${home}/audit.log: ${home}/audit.log is a directory`,
    `cannot write ${home}/gone/access.toml: the directory ${home}/gone does not exist`,
  ];
  t.strictSame([code, stderr], [1, lines.map((line) => `gatehouse: ${line}\n`).join("")]);
  t.notOk(existsSync(inTheWay("gone")), "nothing is created");
  const files = ["shop.sqlite", "shop.db"].map(inTheWay);
  for (const file of files) writeFileSync(file, "");
  const advice = `write sqlite:${home}, and call the file shop.sqlite`;
  for (const [url, reason] of [
    [`${home}/no/such`, `the directory ${home}/no does not exist`],
    ...files.map((file) => [file, `${file} is not a directory; ${advice}`]),
  ]) {
    writeFileSync(inTheWay("gateway.toml"), `[upstream]\nurl = "sqlite:${url}"\n`);
    const refused = await gatehouse.run("config check");
    t.match(refused, { code: 1, stderr: `gatehouse: cannot write ${url}: ${reason}\n` });
  }
});

t.test("config check names wrong keys of the configuration with their lines", async (t) => {
  const gatehouse = install(t);
  writeFileSync(path.join(gatehouse.home, "gateway.toml"), "[server]\nport = 70000\nhots = 1\n");
  const { code, stdout, stderr } = await gatehouse.run("config check");
  t.strictSame([code, stdout], [1, ""]);
  t.match(stderr, /^gatehouse: .*gateway\.toml:2: server\.port: .*\n/);
  t.match(stderr, /\ngatehouse: .*gateway\.toml:3: server\.hots: /, "each line has the prefix");
});

installed("config check warns about a public address without TLS", async (t, gatehouse) => {
  const file = path.join(gatehouse.home, "gateway.toml");
  writeFileSync(file, '[server]\nhost = "0.0.0.0"\n', { mode: 0o600 });
  const { code, stderr } = await gatehouse.run("config check");
  t.equal(code, 0);
  t.strictSame(stderr.trimEnd().split("\n"), [
    "warning: server.host 0.0.0.0: other machines can reach this address without TLS: set [server.tls], or use a reverse proxy with TLS",
    "warning: server.host 0.0.0.0: MCP clients cannot log in at this address: set server.public_url",
  ]);
});

/** How often the gateway has logged this warning. */
function warnings({ service }: TestGateway, text: string): number {
  return service.log.filter(({ msg, level }) => msg === text && level === "warn").length;
}

t.test("config check and the start warn of routes that only a foreign upstream has", async (t) => {
  const route = '[[routes]]\npath = "/shop/:database"\naccess = "SELECT"\n';
  const warning = "[[routes]] answer 404: the engine has no paths; name a server in upstream.url";
  const gateway = await startGateway(t, { config: route });
  t.equal((await gateway.get("/shop/main", await gateway.login())).status, 404);
  t.equal(warnings(gateway, warning), 1);
  const gatehouse = install(t);
  const other = '[[upstream.databases]]\ndatabases = ["far"]\nurl = "http://127.0.0.1:1"\n';
  for (const [text, warns] of [
    [route, true],
    [`[upstream]\nurl = "sqlite:${gatehouse.home}"\n${route}`, true],
    [`[upstream]\nurl = "http://127.0.0.1:1"\n${route}`, false],
    [`${other}${route}`, false],
  ] as const) {
    writeFileSync(path.join(gatehouse.home, "gateway.toml"), text, { mode: 0o600 });
    const { code, stderr } = await gatehouse.run("config check");
    t.strictSame([code, stderr.includes(`warning: ${warning}\n`)], [0, warns], text);
  }
});

t.test("config check and the start warn about SQLite files with another suffix", async (t) => {
  const gatehouse = install(t);
  const { home } = gatehouse;
  for (const name of ["shop.db", "main.db", "main.sqlite"]) writeFileSync(`${home}/${name}`, "");
  const config = `[upstream]\nurl = "sqlite:${home}"\n`;
  writeFileSync(path.join(home, "gateway.toml"), config, { mode: 0o600 });
  const warning = `shop.db in ${home} is not used as a database: rename it to shop.sqlite`;
  t.hasStrict(await gatehouse.run("config check"), { code: 0, stderr: `warning: ${warning}\n` });
  t.equal(warnings(await startGateway(t, { config }), warning), 1);
});

t.test("config check and the start warn about a jwks_file that is not a key set", async (t) => {
  const issuer = "https://kubernetes.default.svc";
  const text = `[[issuers]]\nissuer = "${issuer}"\nprefix = "k8s"\nopens = ["query"]\naudience = "x"\njwks_file = "keys.json"\n`;
  const gateway = await startGateway(t, { config: text });
  const file = (home: string) => path.join(home, "keys.json");
  const refused = `tokens of ${issuer} are refused: `;
  t.equal(warnings(gateway, `${refused}${file(gateway.home)} does not exist`), 1);
  const gatehouse = install(t);
  writeFileSync(path.join(gatehouse.home, "gateway.toml"), text, { mode: 0o600 });
  const keys = file(gatehouse.home);
  for (const [content, problem] of [
    [undefined, "does not exist"],
    ["{", "is not JSON"],
    ["null", "is not a key set: it has no list keys"],
    ['{"keys":{}}', "is not a key set: it has no list keys"],
  ] as const) {
    if (content !== undefined) writeFileSync(keys, content);
    const { code, stderr } = await gatehouse.run("config check");
    t.strictSame([code, stderr], [0, `warning: ${refused}${keys} ${problem}\n`], problem);
  }
  writeFileSync(keys, '{"keys":[]}');
  t.match(await gatehouse.run("config check"), { code: 0, stderr: /^$/ });
  rmSync(keys);
  mkdirSync(keys);
  t.match((await gatehouse.run("config check")).stderr, `${keys} is not a regular file`);
});

installed("config check says why the certificate or key cannot be read", async (t, gatehouse) => {
  const { home } = gatehouse;
  writeFileSync(path.join(home, "gateway.toml"), tlsSection, { mode: 0o600 });
  const [certificate, key] = [path.join(home, "fullchain.pem"), path.join(home, "key.pem")];
  const missing = await gatehouse.run("config check");
  t.equal(missing.code, 1);
  t.equal(missing.stderr, `gatehouse: server.tls.certificate: ${certificate}: does not exist\n`);
  writePair(home, makeCertificate("localhost"));
  chmodSync(key, 0o644);
  t.equal(
    (await gatehouse.run("config check")).stderr,
    `gatehouse: server.tls.key: ${key}: others may read it; fix it with: chmod 600 ${key}\n`,
  );
});

t.test("config check reports errors in every file with their lines", async (t) => {
  const gatehouse = install(t, `${people}${grant("alice", "x", "No")}`);
  writeFileSync(path.join(gatehouse.home, "revocations"), "nonsense\n", { mode: 0o600 });
  const { code, stderr } = await gatehouse.run("config check");
  t.equal(code, 1);
  t.match(stderr, /access_control\.toml:\d+: `role` must be one of Owner, /);
  t.match(stderr, /\n.*revocations:1: must be JSON/);
});

installed("config check says how to fix permissions that are too wide", async (t, gatehouse) => {
  chmodSync(gatehouse.accessFile, 0o644);
  const { code, stderr } = await gatehouse.run("config check");
  t.equal(code, 1);
  t.match(stderr, `others may read it; fix it with: chmod 600 ${gatehouse.accessFile}`);
});

t.test("config check warns about grants without a user and a missing administrator", async (t) => {
  const demoted = people.replace('role = "Owner"', 'role = "ReadOnly"');
  const gatehouse = install(t, demoted + grant("alise", "main", "ReadOnly"));
  const { code, stderr } = await gatehouse.run("config check");
  t.equal(code, 0);
  t.match(stderr, /^warning: alise .*record \(did you mean alice\?\)\nwarning: no admin/);
});

t.test("config check says once that a group of an entry does not exist", async (t) => {
  const entry = '[[acl]]\ngroup = "crew"\ndatabase = "main"\nrole = "ReadOnly"\n';
  const { code, stderr } = await install(t, people + entry).run("config check");
  t.equal(code, 0);
  t.equal(
    stderr,
    "warning: the entry of group crew for main: there is no such group, so it never applies\n",
  );
});

t.test("config check warns about entries and boundaries without effect", async (t) => {
  const entry = '[[acl]]\nusername = "bob"\ndatabase = "side"\nrole = "ReadOnly"\n';
  const boundary = '[[boundaries]]\nvia = "mcp"\nusername = "gone"\nrole = "ReadOnly"\n';
  const lapsed = `${entry}expires = 2020-01-01T00:00:00Z\n`;
  const { code, stdout, stderr } = await install(t, people + lapsed + boundary).run("config check");
  t.equal(code, 0);
  t.match(stdout, /3 users, 5 grants/);
  t.equal(
    stderr,
    "warning: the entry of bob for side: has expired, and denies access until it is removed\n" +
      "warning: the boundary mcp username=gone: is for gone, who has no record\n",
  );
});

t.test("config check names users who lose a database to a name in another case", async (t) => {
  const gatehouse = install(
    t,
    people.replaceAll('"main"', '"Main"') + grant("bob", "SIDE", "Owner"),
  );
  mkdirSync(path.join(gatehouse.home, "data"), { mode: 0o700 });
  writeFileSync(path.join(gatehouse.home, "data", "side.sqlite"), "");
  const { code, stderr } = await gatehouse.run("config check");
  t.equal(code, 0);
  const warnings = stderr.trimEnd().split("\n");
  const isMissing = (line: string) => /the database \w+ does not exist/.test(line);
  t.equal(warnings.filter(isMissing).length, 3);
  t.strictSame(
    warnings.filter((line) => !isMissing(line)),
    [
      "warning: the access file names Main, but the database is called main; it is denied to everyone, also to root",
      "warning: the access file names SIDE, but the database is called side; it is denied to everyone, also to root, alice",
    ],
  );
});

t.test("without an access file, commands say what creates it", async (t) => {
  const gatehouse = installNothing(t);
  const stderr = /does not exist; the first `\S+ serve` or `.*` creates it/;
  const changes = ["access grant rita main ReadOnly", "group set crew", "user remove rita"];
  for (const command of ["user list", "user add rita --no-password", ...changes]) {
    t.match(await gatehouse.run(command), { code: 1, stderr }, command);
  }
  t.equal((await gatehouse.run("key rotate")).code, 0);
  for (const command of ["config check", "user list", ...changes]) {
    const { code, stderr } = await gatehouse.run(command);
    t.equal(code, 1);
    t.match(stderr, /access_control\.toml: is missing: restore it, or make a new one with /);
    t.match(stderr, `\`${program} user add <name> --admin\``);
  }
});

function installNowhere(t: Test) {
  const home = temporaryHome(t);
  const run = (service: string) =>
    runCommand(home, ["config", "check"], { env: { GATEHOUSE_HOME: service } });
  return { home, run };
}

const readers = [
  "user list",
  "user add carol --no-password",
  "user remove carol",
  "access list",
  "access grant alice logs ReadOnly",
  "access revoke alice logs",
  "access check alice Select main",
  "config check",
];
t.test("every command reads the file in --config, and fails if it is missing", async (t) => {
  const gatehouse = install(t);
  const elsewhere = install(t, undefined);
  const configuration = path.join(gatehouse.home, "other.toml");
  writeFileSync(configuration, `[auth]\naccess_control_file = "./access_control.toml"\n`, {
    mode: 0o600,
  });
  // In order, since some undo the changes of others.
  for (const command of readers) {
    const result = await elsewhere.run(command, ["--config", configuration]);
    t.strictSame([result.code, result.stderr], [0, ""], command);
  }
  for (const command of [...readers, "serve"]) {
    const { code, stderr } = await gatehouse.run(`${command} --config missing.toml`);
    t.match({ code, stderr }, { code: 1, stderr: /^gatehouse: .*missing\.toml/ }, command);
  }
  const password = `user password alice --password-stdin --config ${configuration}`;
  t.equal((await elsewhere.run(password, "a long password")).code, 0);
});

t.test("config check --json prints all findings, even for broken files", async (t) => {
  const gatehouse = install(t, people + grant("ghost", "main", "ReadOnly"));
  const { home } = gatehouse;
  const check = async () => {
    const { code, stdout, stderr } = await gatehouse.run("config check --json");
    return { code, stderr, ...JSON.parse(stdout) };
  };
  t.match(await check(), {
    code: 0,
    stderr: "",
    ok: true,
    errors: [],
    warnings: ["ghost has grants but no user record"],
    parts: [
      { part: "configuration", state: "ok", text: `${home}/gateway.toml` },
      { part: "signing keys", state: "absent", text: /next start creates one for ES256/ },
      { part: "access file", state: "ok", text: /3 users, 5 grants/ },
      { part: "revocations", state: "absent" },
    ],
  });
  writeFileSync(path.join(home, "revocations"), "nonsense\n", { mode: 0o600 });
  t.match(await check(), { code: 1, stderr: "", ok: false, errors: [/revocations:1: must be/] });
  writeFileSync(path.join(home, "gateway.toml"), "[server]\nport = 70000\nhots = 1\n");
  t.match(await check(), { code: 1, errors: [/toml:2: server\.port/, /toml:3: /], parts: [] });
});

t.test("config check warns of all users and groups of an unknown issuer", async (t) => {
  const ofGroup = grant("corpp:staff", "main", "ReadOnly").replace("username", "group");
  const users = ["corp:ann", ...Array.from({ length: 60 }, (_, at) => `corpp:u${at}`)];
  const entries = users.map((name) => grant(name, "main", "ReadOnly")).join("");
  const boundary = '[[boundaries]]\nvia = "mcp"\nusername = "corpp:bea"\nmax_rows = 5\n';
  const rule = 'require_approval = ["DELETE"]\napprovers = ["corpp:cal"]\n';
  const group = '[[groups]]\nname = "staff"\nmembers = ["corpp:dot"]\n';
  const other = '[[users]]\nusername = "corp:eve"\nsame_as = "corpp:eve"\n';
  const gatehouse = install(t, [people, ofGroup, boundary, rule, group, other].join("\n"));
  const issuer = 'issuer = "https://id.example.com"\nprefix = "corp"\nopens = ["mcp"]\n';
  const toml = `[[issuers]]\n${issuer}`;
  writeFileSync(path.join(gatehouse.home, "gateway.toml"), toml, { mode: 0o600 });
  const warnings = async (): Promise<string[]> =>
    JSON.parse((await gatehouse.run("config check --json")).stdout).warnings;
  const names = ["group corpp:staff", "corpp:bea", "corpp:cal", "corpp:dot", "corpp:eve"];
  const expected = names.map(
    (name) => `the access file names ${name}, but no issuer has the prefix corpp`,
  );
  t.strictSame((await warnings()).slice(0, 5), expected);
  appendFileSync(path.join(gatehouse.home, "access_control.toml"), entries);
  t.equal((await warnings()).indexOf("and 15 more"), 50);
});

installed("config check validates the URL of a database that is down", async (t, gatehouse) => {
  const withUrl = (url: string) => {
    const file = path.join(gatehouse.home, "gateway.toml");
    writeFileSync(file, `[upstream]\nurl = "${url}"\n`, { mode: 0o600 });
    return gatehouse.run("config check");
  };
  const good = await withUrl("postgres://ann:hunter2@db.example/shop?connect_timeout=3");
  t.match(good, {
    code: 0,
    stdout: "database       ok  ann on db.example:5432 (the URL is valid)\n",
  });
  const socket = await withUrl("mysql://ann@localhost?socket=/run/mysqld.sock");
  t.match(socket.stdout, "database       ok  ann on /run/mysqld.sock (the URL is valid)\n");
  const wrong: [string, RegExp][] = [
    [
      "postgres://ann:hunter2@db/shop?sslmod=x",
      /gateway\.toml:2: upstream\.url: has an unknown parameter "sslmod"; use host/,
    ],
    ["mysql://ann:hunter2@db/shop", /gateway\.toml:2: upstream\.url: names a database/],
  ];
  for (const [url, stderr] of wrong) {
    const result = await withUrl(url);
    t.match(result, { code: 1, stderr });
    t.notMatch(JSON.stringify([result, good]), /hunter2/);
  }
});

t.test("a directory is private unless other users may write to it", (t) => {
  const directory = temporaryHome(t);
  const stats = statSync(directory);
  const problemOf = (mode: number, isOwn = true) => {
    stats.mode = 0o40000 | mode;
    stats.uid = (process.geteuid?.() ?? 0) + Number(!isOwn);
    return directoryProblem(directory, stats);
  };
  for (const mode of [0o700, 0o750, 0o755, 0o2770]) t.notOk(problemOf(mode), mode.toString(8));
  const remedy = `fix it with: chmod go-w ${directory}`;
  for (const mode of [0o775, 0o702, 0o777, 0o1777]) {
    t.equal(problemOf(mode), `its group or others may put another file there; ${remedy}`);
  }
  t.equal(problemOf(0o2777), `others may put another file there; ${remedy}`);
  t.notOk(problemOf(0o2777, false), "an empty volume of Kubernetes");
  t.end();
});

t.test("config check warns about directories in which others may replace files", async (t) => {
  const gatehouse = install(t);
  const keys = path.join(gatehouse.home, "keys");
  mkdirSync(keys);
  chmodSync(keys, 0o777);
  chmodSync(gatehouse.home, 0o770);
  const { code, stderr } = await gatehouse.run("config check");
  t.equal(code, 0, "only a warning");
  t.strictSame(
    stderr.trimEnd().split("\n"),
    [gatehouse.home, keys].map(
      (directory) =>
        `warning: ${directory}: its group or others may put another file there; fix it with: chmod go-w ${directory}`,
    ),
  );
  rmSync(keys, { recursive: true });
});
