import { writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { loadConfiguration } from "../../src/config/load.ts";
import { linesOf, load } from "./support.ts";

t.test("without a file every key has the default of the contract", (t) => {
  const directory = t.testdir();
  const loaded = loadConfiguration({ cwd: directory, env: { HOME: join(directory, "home") } });
  const home = join(directory, "home", ".gatehouse");
  t.strictSame(loaded, {
    file: undefined,
    serviceDirectory: home,
    warnings: [],
    configuration: {
      server: {
        host: "127.0.0.1",
        port: 8080,
        workers: 1,
        public_url: "",
        max_body_bytes: 10485760,
        max_buffered_bytes: 268435456,
        request_timeout: 30,
        shutdown_delay: 0,
        shutdown_grace: 10,
        trusted_proxies: [],
        allowed_origins: [],
        tls: {},
      },
      auth: {
        enabled: true,
        insecure_allow_remote: false,
        check_permissions: true,
        token_expiration: 86400,
        signing_algorithm: "ES256",
        argon2_memory_cost: 65536,
        argon2_time_cost: 3,
        argon2_parallelism: 4,
        refuse_common_passwords: false,
        access_control_file: join(home, "access_control.toml"),
        revocations_file: join(home, "revocations"),
        default_database: "main",
        issuer: "gatehouse",
        max_failures_per_user_and_address: 10,
        max_failures_per_address: 100,
        failure_window: 900,
      },
      upstream: {
        forward_authorization: false,
        forward_headers: [],
        connections: 64,
        connect_timeout: 5,
        response_timeout: 30,
        query_form: "keyed",
        health_path: "",
        health_interval: 5,
        databases: [],
      },
      query: { extra_fields: [], operations: {} },
      routes: [],
      metrics: {},
      audit: {},
      approvals: { keep: 30, wait: 600 },
      store: { key_file: join(home, "store.key"), access: "store", max_staleness: 10 },
      mcp: {
        enabled: true,
        max_body_bytes: 1048576,
        row_limit: 500,
        result_bytes: 1048576,
        app_schemes: ["cursor", "vscode", "vscode-insiders", "windsurf", "zed"],
        registrations_per_hour: 200,
        private_client_hosts: [],
        tools: [],
        authorization_servers: [],
        clients: [],
      },
      console: { public_url: "" },
    },
  });
  t.end();
});

t.test("a configuration cannot be changed once it is loaded", (t) => {
  const { configuration } = load(t, '[[routes]]\npath = "/a"\naccess = "public"\n');
  const parts: object[] = [configuration];
  for (const part of parts) {
    t.ok(Object.isFrozen(part));
    parts.push(...Object.values(part).filter((value) => typeof value === "object"));
  }
  t.ok(parts.length > 10);
  t.end();
});

t.test("the command line overrides host and port", (t) => {
  const text = '[server]\nhost = "192.0.2.1"\nport = 1\nrequest_timeout = 7\n';
  const { server } = load(t, text, { host: "::1", port: 0 }).configuration;
  t.match(server, { host: "::1", port: 0, request_timeout: 7 });
  t.match(load(t, "", { port: 9 }).configuration.server, { host: "127.0.0.1", port: 9 });
  t.end();
});

t.test("relative paths are relative to the file, absolute ones stay", (t) => {
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
  t.end();
});

t.test(
  "access and revocations files under their bare default names are in the service directory",
  (t) => {
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
    t.end();
  },
);

t.test("base URLs come in one spelling", (t) => {
  const text =
    '[server]\npublic_url = "HTTPS://Gate.Example.com:443/"\n[upstream]\nurl = "http://DB:9090/"\n';
  const { server, upstream } = load(t, text).configuration;
  t.equal(server.public_url, "https://gate.example.com");
  t.equal(upstream.url, "http://db:9090");
  t.end();
});

t.test("a file with a byte-order mark is read, one that is no UTF-8 is refused", (t) => {
  t.equal(load(t, "\uFEFF[server]\nport = 5\n").configuration.server.port, 5);
  const file = join(t.testdir(), "gateway.toml");
  writeFileSync(file, Buffer.from('a = "\xff"', "latin1"));
  const lines = linesOf(() => loadConfiguration({ config: file, cwd: "/", env: {} }));
  t.strictSame(lines, [`${file}: is not valid UTF-8`]);
  t.end();
});
