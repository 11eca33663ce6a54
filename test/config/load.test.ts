import { execFileSync } from "node:child_process";
import {
  chmodSync,
  lchownSync,
  mkdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { exampleFile, withReference } from "../../generate/configuration.ts";
import { renderValue } from "../../src/core/base/toml.ts";
import { parseListenAddress } from "../../src/core/config/addresses.ts";
import { schemaTables } from "../../src/core/config/issues.ts";
import {
  findConfiguration,
  findServiceDirectory,
  loadConfiguration,
} from "../../src/core/config/load.ts";
import { basePathOf } from "../../src/core/config/schema.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { words } from "../kit/words.ts";
import { auth, issuers, mcp, others, query, routes, server, store, upstream } from "./broken.ts";
import { linesOf, load, problemsOf } from "./support.ts";

t.test("without a file, the service directory is in the home directory", async (t) => {
  const directory = t.testdir();
  const loaded = loadConfiguration({ cwd: directory, env: { HOME: join(directory, "home") } });
  const home = join(directory, "home", ".gatehouse");
  t.match(loaded, {
    file: undefined,
    serviceDirectory: home,
    warnings: [],
    configuration: {
      server: { host: "127.0.0.1", port: 8080 },
      auth: {
        enabled: true,
        insecure_allow_remote: false,
        check_permissions: true,
        access_control_file: join(home, "access_control.toml"),
        revocations_file: join(home, "revocations"),
      },
      upstream: { forward_authorization: false, forward_headers: [] },
      store: { key_file: join(home, "store.key") },
    },
  });
});

t.test("a loaded configuration is frozen", async (t) => {
  const { configuration } = load(t, '[[routes]]\npath = "/a"\naccess = "public"\n');
  const parts: object[] = [configuration];
  for (const part of parts) {
    t.ok(Object.isFrozen(part));
    parts.push(...Object.values(part).filter((value) => typeof value === "object"));
  }
  t.ok(parts.length > 10);
});

t.test("the command line overrides host and port", async (t) => {
  const text = '[server]\nhost = "192.0.2.1"\nport = 1\nrequest_timeout = 7\n';
  const { server } = load(t, text, { host: "::1", port: 0 }).configuration;
  t.match(server, { host: "::1", port: 0, request_timeout: 7 });
  t.match(load(t, "", { port: 9 }).configuration.server, { host: "127.0.0.1", port: 9 });
});

t.test("relative paths start at the file's directory", async (t) => {
  const text = `
[auth]
access_control_file = "etc/acl.toml"
revocations_file = "/var/revocations"
[upstream]
url = "unix:run/db.sock"
[audit]
file = "../audit.log"
`;
  const { configuration, directory } = load(t, text);
  t.equal(configuration.auth.access_control_file, join(directory, "etc/acl.toml"));
  t.equal(configuration.auth.revocations_file, "/var/revocations");
  t.equal(configuration.upstream.url, `unix:${directory}/run/db.sock`);
  t.equal(configuration.audit.file, join(directory, "../audit.log"));
  t.equal(load(t, '[upstream]\nurl = "unix:/run/x"\n').configuration.upstream.url, "unix:/run/x");
});

t.test("files with their bare default names are in the service directory", async (t) => {
  const bare = load(t, '[auth]\naccess_control_file = "access_control.toml"\n');
  t.equal(
    bare.configuration.auth.access_control_file,
    join(bare.serviceDirectory, "access_control.toml"),
  );
  t.equal(bare.configuration.auth.revocations_file, join(bare.serviceDirectory, "revocations"));
  const beside = load(t, '[auth]\naccess_control_file = "./access_control.toml"\n');
  t.equal(
    beside.configuration.auth.access_control_file,
    join(beside.directory, "access_control.toml"),
  );
});

t.test("the base path is moved by a preset, unless it is set", async (t) => {
  const preset = '[upstream]\nurl = "http://a:1"\npreset = "couchdb"\n';
  const basePath = (text: string) => basePathOf(load(t, text).configuration);
  t.equal(basePath(""), "");
  t.equal(basePath('[server]\nbase_path = "/a/b"\n'), "/a/b");
  t.equal(basePath(preset), "/_gatehouse");
  t.equal(basePath(`[server]\nbase_path = "/own"\n${preset}`), "/own");
});

t.test("base URLs are normalized", async (t) => {
  const text =
    '[server]\npublic_url = "HTTPS://Gate.Example.com:443/"\n[upstream]\nurl = "http://DB:9090/"\n';
  const { server, upstream } = load(t, text).configuration;
  t.equal(server.public_url, "https://gate.example.com");
  t.equal(upstream.url, "http://db:9090");
});

t.test("a byte-order mark is accepted, and a file that is not UTF-8 refused", async (t) => {
  t.equal(load(t, "\uFEFF[server]\nport = 5\n").configuration.server.port, 5);
  const file = join(t.testdir(), "gateway.toml");
  writeFileSync(file, Buffer.from('a = "\xff"', "latin1"));
  const lines = linesOf(() => loadConfiguration({ config: file, cwd: "/", env: {} }));
  t.strictSame(lines, [`${file}: is not valid UTF-8`]);
});

/** Changing an owner takes root. */
const isRoot = process.geteuid?.() === 0;
const somebodyElse = 12_345;

/** A directory in which every place of the search has a file; each says which one it is. */
function everywhere(t: Test) {
  const cwd = t.testdir({
    "gateway.toml": "local",
    "named.toml": "named",
    "other.toml": "other",
    home: { "gateway.toml": "service" },
  });
  chmodSync(join(cwd, "gateway.toml"), 0o644);
  return { cwd, env: { GATEHOUSE_HOME: "home", GATEHOUSE_CONFIG: "other.toml" } };
}

function contentOf({ bytes }: { bytes: Uint8Array }): string {
  return new TextDecoder().decode(bytes);
}

t.test("the configuration is searched for in the documented order", async (t) => {
  const { cwd, env } = everywhere(t);
  const { GATEHOUSE_HOME } = env;
  t.match(findConfiguration({ config: "named.toml", cwd, env }), { file: join(cwd, "named.toml") });
  t.match(findConfiguration({ cwd, env }), { file: join(cwd, "other.toml"), warnings: [] });
  t.equal(contentOf(findConfiguration({ cwd, env: { GATEHOUSE_HOME } })), "local");
  const elsewhere = join(cwd, "home");
  t.equal(contentOf(findConfiguration({ cwd: join(cwd, "home"), env: {} })), "service");
  const fromService = findConfiguration({ cwd: "/", env: { GATEHOUSE_HOME: elsewhere } });
  t.match(fromService, { file: join(elsewhere, "gateway.toml") });
  t.equal(contentOf(fromService), "service");
  t.match(findConfiguration({ cwd: "/", env: { HOME: cwd } }), { file: undefined, warnings: [] });
});

t.test("a named file that does not exist is an error", async (t) => {
  const { cwd, env } = everywhere(t);
  t.strictSame(
    linesOf(() => findConfiguration({ config: "gone.toml", cwd, env })),
    [`${cwd}/gone.toml: does not exist, but --config names it`],
  );
  t.strictSame(
    linesOf(() => findConfiguration({ cwd, env: { ...env, GATEHOUSE_CONFIG: "gone.toml" } })),
    [`${cwd}/gone.toml: does not exist, but $GATEHOUSE_CONFIG names it`],
  );
  t.strictSame(
    linesOf(() => findConfiguration({ config: "home", cwd, env })),
    [`${cwd}/home: is a directory; name a file in it, such as ${cwd}/home/gateway.toml`],
  );
  t.strictSame(
    linesOf(() => findConfiguration({ config: "", cwd, env })),
    ["--config: names no file; leave it out to use gateway.toml of this directory"],
  );
});

t.test("an empty variable counts as unset", async (t) => {
  const { cwd } = everywhere(t);
  const env = { GATEHOUSE_CONFIG: "", GATEHOUSE_HOME: "", HOME: "/nowhere" };
  t.equal(contentOf(findConfiguration({ cwd, env })), "local");
  t.equal(findServiceDirectory({ cwd, env }), "/nowhere/.gatehouse");
});

t.test("a local file that group or others may write is ignored with a warning", async (t) => {
  const { cwd } = everywhere(t);
  const file = join(cwd, "gateway.toml");
  for (const mode of [0o664, 0o646, 0o666]) {
    chmodSync(file, mode);
    const found = findConfiguration({ cwd, env: { GATEHOUSE_HOME: "home" } });
    t.equal(contentOf(found), "service");
    t.strictSame(found.warnings, [
      `${file} is ignored, since its group or others may write it; to use it: chmod go-w ${file}`,
    ]);
  }
});

t.test("a local file of another user is ignored with a warning", { skip: !isRoot }, async (t) => {
  const { cwd } = everywhere(t);
  const file = join(cwd, "gateway.toml");
  lchownSync(file, somebodyElse, somebodyElse);
  const found = findConfiguration({ cwd, env: { GATEHOUSE_HOME: "home" } });
  t.equal(contentOf(found), "service");
  t.strictSame(found.warnings, [
    `${file} is ignored, since it belongs to another user; to use it: chown -h 0 ${file}`,
  ]);
  const within = findConfiguration({ cwd, env: { GATEHOUSE_HOME: cwd } });
  t.match(within, { file, warnings: [] }, "it is used, since this is the service directory");
  t.equal(within.warnings.length, 0);
});

t.test("another user's link to an own file is ignored", { skip: !isRoot }, async (t) => {
  const cwd = t.testdir({ "own.toml": "own" });
  chmodSync(join(cwd, "own.toml"), 0o600);
  symlinkSync("own.toml", join(cwd, "gateway.toml"));
  const env = { GATEHOUSE_HOME: "home" };
  t.equal(contentOf(findConfiguration({ cwd, env })), "own");
  lchownSync(join(cwd, "gateway.toml"), somebodyElse, somebodyElse);
  const found = findConfiguration({ cwd, env });
  t.equal(found.file, undefined);
  t.match(found.warnings, [/since it belongs to another user/]);
});

t.test("a directory or a pipe of that name is ignored without waiting", async (t) => {
  const cwd = t.testdir();
  mkdirSync(join(cwd, "directory", "gateway.toml"), { recursive: true });
  mkdirSync(join(cwd, "pipe"));
  execFileSync("mkfifo", ["-m", "600", join(cwd, "pipe", "gateway.toml")]);
  for (const name of ["directory", "pipe"]) {
    const found = findConfiguration({ cwd: join(cwd, name), env: { GATEHOUSE_HOME: "home" } });
    t.equal(found.file, undefined);
    t.match(found.warnings, [/since it is not a regular file/]);
  }
});

t.test("a dangling link counts as no file", async (t) => {
  const cwd = t.testdir();
  symlinkSync("gone", join(cwd, "gateway.toml"));
  t.match(findConfiguration({ cwd, env: { GATEHOUSE_HOME: "home" } }), { warnings: [] });
  writeFileSync(join(cwd, "gone"), "here", { mode: 0o600 });
  t.equal(contentOf(findConfiguration({ cwd, env: { GATEHOUSE_HOME: "home" } })), "here");
});

t.test("a listen address is split into host and port", async (t) => {
  t.strictSame(parseListenAddress("127.0.0.1:9464"), { host: "127.0.0.1", port: 9464 });
  t.strictSame(parseListenAddress("[::1]:0"), { host: "::1", port: 0 });
  t.strictSame(parseListenAddress("metrics.local:80"), { host: "metrics.local", port: 80 });
  t.equal(parseListenAddress("::1:80"), undefined);
  t.equal(parseListenAddress("host:80:80"), undefined);
});

t.test("usual spellings of addresses, URLs and origins are accepted", async (t) => {
  const text = `
[server]
host = "gate-1.example.com"
trusted_proxies = ["10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "::1", "0.0.0.0/0"]
allowed_origins = ["https://app.example.com", "http://[::1]:3000", "http://localhost:5173", "capacitor://localhost"]
public_url = "http://[2001:db8::1]:8080"
[upstream]
url = "http://[::1]:9090"
forward_headers = ["X-Tenant", "Idempotency-Key"]
[metrics]
listen = "0.0.0.0:9464"
[query]
extra_fields = ["hint", "timeout_ms"]
operations = { Truncate = "DELETE", Explain2 = "SELECT" }
[[routes]]
path = "/db/:database/stats.json"
access = "SELECT"
[[routes]]
path = "/db/:database/stats.json"
methods = ["POST"]
access = "administrator"
[[routes]]
path = "/backup"
methods = ["HEAD", "GET"]
access = "CREATE DATABASE"
database_header = "X-Database"
`;
  const { configuration } = load(t, text);
  t.equal(configuration.upstream.url, "http://[::1]:9090");
  t.equal(configuration.routes.length, 3);
  t.strictSame(configuration.routes[0]?.methods, ["GET"]);
});

const names = words(`
  hint timeout_ms Batch op OP Select select truncate Truncate database Data_Base order_by OrderBy
  where constructor a x1
`);

t.test("configured names must not be names of the grammar", async (t) => {
  const isValid = (text: string) => problemsOf(t, `[query]\n${text}\n`).length === 0;
  const fields = names.filter((name) => isValid(`extra_fields = ["${name}"]`));
  t.strictSame(fields, ["hint", "timeout_ms", "truncate", "Truncate", "a", "x1"]);
  const operations = names.filter((name) => isValid(`operations = { ${name} = "DELETE" }`));
  const allowed = ["hint", "truncate", "Truncate", "database", "OrderBy", "where", "a", "x1"];
  t.strictSame(operations, allowed);
});

const broken = { server, auth, upstream, query, routes, mcp, issuers, store, others };

for (const [name, files] of Object.entries(broken)) {
  t.test(`${name}: errors name the place, the value found and the allowed values`, async (t) => {
    for (const { text, problem } of files) {
      t.strictSame(problemsOf(t, text), [problem], JSON.stringify(text));
    }
  });
}

t.test("every key has a case of an error", async (t) => {
  const problems = Object.values(broken).flatMap((files) => files.map(({ problem }) => problem));
  const arrays = schemaTables().filter(({ isArray }) => isArray);
  for (const { name, keys } of schemaTables()) {
    const array = arrays.find((one) => `${name}.`.startsWith(`${one.name}.`));
    const table = array ? name.replace(array.name, `${array.name}[0]`) : name;
    for (const [key] of keys) {
      const path = `${table}.${key}`;
      const isThere = problems.some((problem) =>
        [":", "[", "."].some((next) => problem.includes(`: ${path}${next}`)),
      );
      t.ok(isThere, path);
    }
  }
});

t.test("a misspelled name is suggested from any table", async (t) => {
  const text = `
[databse]
urls = "x"
[routes]
path = "/x"
[[server]]
[upstream]
ulr = "x"
host = "x"
`;
  const meant = problemsOf(t, text).map((line) => {
    const [, place, hint] = /^(\S+ \S+) .*\(did you mean (.*)\?\)$/.exec(line) ?? [];
    return `${place} ${hint}`;
  });
  t.strictSame(meant, [
    "gateway.toml:2: databse: [[upstream.databases]]",
    "gateway.toml:4: routes: [[routes]]",
    "gateway.toml:6: server: [server]",
    "gateway.toml:8: upstream.ulr: url",
    "gateway.toml:9: upstream.host: server.host",
  ]);
});

t.test("all problems are reported in the order of their lines", async (t) => {
  const text = `
[upstream]
url = "nowhere"
[server]
port = 70000
colour = "red"
[auth]
enabled = "no"
`;
  const keys = problemsOf(t, text).map((line) => line.split(": ").slice(0, 2).join(" "));
  t.strictSame(keys, [
    "gateway.toml:3 upstream.url",
    "gateway.toml:5 server.port",
    "gateway.toml:6 server.colour",
    "gateway.toml:8 auth.enabled",
  ]);
});

t.test("a value in a message is cut to 64 characters and escaped", async (t) => {
  const [long = ""] = problemsOf(t, `[server]\nhost = "${"x".repeat(30)} ${"y".repeat(100)}"\n`);
  t.match(long, /: found (.{63}…); allowed: /);
  const [odd = ""] = problemsOf(t, '[server]\nhost = "a\\u001b[2J\\u202e\\u0085"\n');
  t.match(odd, 'found "a\\u001b[2J\\u202e\\u0085"; allowed');
});

t.test("no message contains a secret", async (t) => {
  const texts = [
    '[upstream]\nauthorization = ["Bearer hunter2"]\n',
    '[upstream]\nauthorization = { value = "Bearer hunter2" }\n',
    '[upstream]\nauthorisation = "Bearer hunter2"\n',
    'upstream = ["Bearer hunter2"]\n',
    '[upstream]\nauthorization = "Bearer hunter2" "\n',
  ];
  for (const text of texts) {
    const message = problemsOf(t, text).join("\n");
    t.not(message, "");
    t.notMatch(message, "hunter2");
  }
});

t.test("an invalid option is reported by its name", async (t) => {
  t.strictSame(problemsOf(t, "", { port: 70_000, host: "a b" }), [
    '--host: server.host: found "a b"; allowed: a host name or an IP address',
    "--port: server.port: found 70000; allowed: a whole number from 0 to 65535",
  ]);
  t.match(problemsOf(t, "", { port: Number.NaN }), [/^--port: server\.port: found nan;/]);
  t.match(problemsOf(t, "[auth]\nenabled = false\n", { host: "0.0.0.0" }), [
    /^gateway\.toml:2: auth\.enabled: found false;/,
  ]);
});

t.test("a section that is not a table is reported despite options", async (t) => {
  t.strictSame(problemsOf(t, "server = 5\n", { port: 1 }), [
    "gateway.toml:1: server: found a number; allowed: a table",
  ]);
});

t.test("without authentication, only loopback hosts are accepted by default", async (t) => {
  for (const host of ["127.0.0.1", "127.8.9.1", "::1", "localhost", "LOCALHOST"]) {
    const text = `[server]\nhost = "${host}"\n[auth]\nenabled = false\n`;
    t.equal(load(t, text).configuration.auth.enabled, false, host);
  }
  for (const host of ["0.0.0.0", "::", "192.0.2.1", "localhost.example.com", "db"]) {
    const text = `[server]\nhost = "${host}"\n[auth]\nenabled = false\n`;
    t.equal(problemsOf(t, text).length, 1, host);
    t.ok(load(t, `${text}insecure_allow_remote = true\n`), host);
  }
});

function secret(t: Test, content: string, mode: number): string {
  const file = join(temporaryHome(t), "credential");
  writeFileSync(file, content);
  chmodSync(file, mode);
  return file;
}

function configured(file: string, rest = ""): string {
  return `[upstream]\nauthorization_file = ${JSON.stringify(file)}\n${rest}`;
}

t.test("a credential file is trimmed", async (t) => {
  const file = secret(t, "\nBearer hunter2 \n", 0o600);
  const { upstream } = load(t, configured(file)).configuration;
  t.equal(upstream.authorization, "Bearer hunter2");
  t.equal(upstream.authorization_file, file);
});

t.test("the MCP server has its own credential", async (t) => {
  const file = secret(t, "Bearer of-mcp\n", 0o600);
  const text = `[upstream]\nauthorization = "Bearer of-database"\n[mcp]\nauthorization_file = ${JSON.stringify(file)}\n`;
  const { upstream, mcp } = load(t, text).configuration;
  t.equal(mcp.authorization, "Bearer of-mcp");
  t.equal(upstream.authorization, "Bearer of-database");
  const [problem] = problemsOf(t, text.replace(file, secret(t, "Bearer of-mcp", 0o604)));
  t.match(problem, /mcp\.authorization_file: .*a file with safe permissions/);
});

// `test/files/files.test.ts` has every kind of file.
t.test("a credential that others may read is refused by default", async (t) => {
  const file = secret(t, "Bearer hunter2", 0o604);
  const [problem = ""] = problemsOf(t, configured(file));
  t.match(problem, `a file with safe permissions, but others may read it; run: chmod 600 ${file}`);
  t.notMatch(problem, "hunter2");
  const accepted = configured(file, "[auth]\ncheck_permissions = false\n");
  t.equal(load(t, accepted).configuration.upstream.authorization, "Bearer hunter2");
});

t.test("a credential that is not a header value is refused and not shown", async (t) => {
  for (const content of ["", " \n", "hunter2\nhunter2", "hunter2\0hunter2", "hünter2"]) {
    const [problem = ""] = problemsOf(t, configured(secret(t, content, 0o600)));
    t.match(problem, "allowed: a file of one line of visible ASCII characters");
    t.notMatch(problem, /h.nter2/);
  }
});

t.test("a configuration with a credential warns if others may read it", async (t) => {
  const directory = temporaryHome(t);
  const file = join(directory, "open.toml");
  writeFileSync(file, '[upstream]\nauthorization = "Bearer hunter2"\n');
  chmodSync(file, 0o644);
  const { warnings } = load(t, "", { config: file });
  t.strictSame(warnings, [
    `${file} holds upstream.authorization, and others may read it; run: chmod 600 ${file}`,
  ]);
  chmodSync(file, 0o600);
  t.strictSame(load(t, "", { config: file }).warnings, []);
});

const committed = {
  example: readFileSync(new URL("../../gateway.toml.example", import.meta.url), "utf8"),
  page: readFileSync(new URL("../../docs/configuration.md", import.meta.url), "utf8"),
};

/** Every section with the keys that the schema has for it. */
const sections = schemaTables().map(({ name, description, keys }) => ({
  name,
  description,
  keys: keys.map(([key, member]) => ({ key, member })),
}));

t.test("example and page match the schema (node generate/configuration.ts --write)", async (t) => {
  t.equal(committed.example, exampleFile());
  t.equal(committed.page, withReference(committed.page));
});

t.test("every section and key has a description, and a default or an example", async (t) => {
  for (const { name, description, keys } of sections) {
    t.ok(description, name);
    for (const { key, member } of keys) {
      t.ok(member.description, `${name}.${key}`);
      t.ok(member.default !== undefined || member.examples !== undefined, `${name}.${key}`);
    }
  }
  t.ok(sections.length >= 8);
});

t.test("the example lists every key, and loads to the defaults", async (t) => {
  for (const { keys } of sections) {
    for (const { key } of keys) t.match(committed.example, new RegExp(`^#?${key} = `, "m"));
  }
  const env = { GATEHOUSE_HOME: join(temporaryHome(t), "home") };
  const loaded = load(t, committed.example, { env });
  const defaults = loadConfiguration({ cwd: "/", env });
  t.strictSame(loaded.configuration, defaults.configuration);
});

t.test("the example's commented-out lines are valid, unless they exclude others", async (t) => {
  const secret = join(temporaryHome(t), "introspection");
  writeFileSync(secret, "secret", { mode: 0o600 });
  const lines = committed.example.replaceAll(/^#(?! |:|$)/gm, "").split("\n");
  const text = lines
    .filter(
      (line) =>
        !/^(?:authorization_file|database_header|database_argument|jwks_file|private_key_file|urls) = /.test(
          line,
        ) &&
        !/^(?:statement_timeout|pool_size|postgres_databases|preset|header) = /.test(line) &&
        !/^(?:\[upstream\.credential\]|file = "\/run\/secrets\/upstream")$/.test(line),
    )
    .join("\n")
    // An issuer and its prefix may be in one of the two lists.
    .replace("realms/staff", "realms/partners")
    .replace('prefix = "staff"', 'prefix = "partners"')
    .replaceAll(/"\/run\/secrets\/(?:introspection|provider|hook)"/g, JSON.stringify(secret));
  const { configuration } = load(t, text);
  t.equal(configuration.routes.length, 1);
  t.equal(configuration.upstream.authorization, "Bearer ...");
  t.match(configuration.metrics.listen, /^127/);
});

/** Keys that are refused without a file or another key. */
const needOthers = new Set(["authorization_file", "pool_size", "postgres_databases", "preset"]);

t.test("every example value is valid", async (t) => {
  for (const { name, keys } of sections.filter(
    ({ name }) => !/^(?:routes|issuers)|\./.test(name),
  )) {
    for (const { key, member } of keys) {
      for (const example of member.examples ?? []) {
        const text = `${name}.${key} = ${renderValue(example)}\n`;
        if (!needOthers.has(key)) t.ok(load(t, text), text);
      }
    }
  }
});
