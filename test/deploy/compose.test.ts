import { existsSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { parse } from "yaml";
import { startPostgres } from "../engine/postgres/server.ts";
import { ask } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { ADMIN_PASSWORD, TestGateway, temporaryHome } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import { runCommand, Service } from "../kit/process.ts";
import { makeRole, runSqlFile } from "../store/role.ts";
import { deployed, deployedPath, fill } from "./programs.ts";

interface Composed {
  readonly image: string;
  readonly command?: string[];
  readonly build?: { context: string; dockerfile: string };
  readonly depends_on?: string[] | object;
  readonly networks: string[] | object;
  readonly volumes?: string[];
  readonly secrets?: (string | { source: string })[];
  readonly configs?: { source: string }[];
}

const namesIn = (names: string[] | object = []) =>
  Array.isArray(names) ? names : Object.keys(names);

function read(file: string) {
  const text = deployed(file);
  const compose = parse(text, { merge: true });
  const services: Record<string, Composed> = compose.services;
  return { text, compose, services };
}

const files = ["compose.yaml", "replicas/compose.yaml"];
for (const file of files) {
  t.test(`everything that ${file} refers to exists`, async (t) => {
    const { compose, services, text } = read(file);
    const place = (name: string) => deployedPath(path.join(path.dirname(file), name));
    for (const [name, service] of Object.entries(services)) {
      const { build, configs = [], image, networks, secrets = [], volumes = [] } = service;
      t.match(image, build === undefined ? /^[a-z]+:[\d.]+@sha256:[0-9a-f]{64}$/ : "gatehouse");
      for (const other of namesIn(service.depends_on)) t.ok(other in services, `${name}: ${other}`);
      for (const network of namesIn(networks)) t.ok(network in compose.networks, network);
      for (const secret of secrets) {
        const source = typeof secret === "string" ? secret : secret.source;
        t.ok(source in compose.secrets, `${name}: ${source}`);
      }
      for (const { source } of configs) t.ok(source in compose.configs, `${name}: ${source}`);
      for (const volume of volumes) {
        const [source = ""] = volume.split(":");
        const exists = source.startsWith("./")
          ? text.includes(`cp /path/to/certificate-and-key.pem ${path.basename(source)}\n`) ||
            existsSync(place(source))
          : source in compose.volumes;
        t.ok(exists, `${name}: ${source}`);
      }
      if (build !== undefined) t.ok(existsSync(path.join(place(build.context), build.dockerfile)));
    }
  });
}

const { text, compose, services } = read("compose.yaml");
const configuration: string = compose.configs.gateway.content;

t.test("the reverse proxy is trusted and finds the gateway", async (t) => {
  const { gatehouse, front, database } = compose.services;
  const [, address = ""] = /ipv4_address: (\S+)/.exec(text) ?? [];
  t.match(configuration, `trusted_proxies = ["${address}"]`);
  t.equal(front.environment.GATEHOUSE, "gatehouse:8080");
  t.match(deployed("Caddyfile"), "reverse_proxy {$GATEHOUSE:");
  t.ok(gatehouse.read_only);
  const databaseNetworks = namesIn(database.networks);
  t.notOk(namesIn(front.networks).some((name) => databaseNetworks.includes(name)));
});

for (const file of files) {
  t.test(`in ${file} no service but the database knows the superuser`, (t) => {
    const { database, ...others } = read(file).services;
    t.match(String(database?.volumes), "app.sql:/docker-entrypoint-initdb.d/");
    t.notMatch(JSON.stringify(others), /superuser|postgres:\/\/(?:postgres|gatehouse)@/);
    t.end();
  });
}

t.test("the gateway of compose.yaml works with PostgreSQL", async (t) => {
  const home = temporaryHome(t);
  const server = await startPostgres(t);
  await runSqlFile(server, "replicas/app.sql");
  const [role] = await server.sql("select * from pg_roles where rolname = 'app'");
  for (const right of ["super", "createdb", "createrole", "replication", "bypassrls"]) {
    t.equal(role?.[`rol${right}`], false, right);
  }
  const places: Record<string, string> = {
    "/etc/gatehouse/gateway.toml": path.join(home, "gateway.toml"),
  };
  const commandOf = (name: string) =>
    (services[name]?.command ?? []).map((word) => places[word] ?? word);
  const port = await freePort();
  writeFileSync(
    path.join(home, "gateway.toml"),
    fill(configuration, {
      'host = "0.0.0.0"': `host = "127.0.0.1"\nport = ${port}`,
      "postgres://app@database:5432/app": server.url("app", "app"),
    }),
  );
  const start = (name: string) => {
    const env = { GATEHOUSE_ADMIN_PASSWORD: ADMIN_PASSWORD };
    const service = new Service(home, commandOf(name), env);
    t.teardown(() => service.stop("SIGKILL"));
    return service;
  };
  const gateway = new TestGateway(home, start("gatehouse"), `http://127.0.0.1:${port}`);
  const isReady = () => ask(`${gateway.url}/readyz`).then(({ status }) => status === 200);
  await eventually("the gateway is ready", () => isReady().catch(() => false));
  const place = { database: "main", table: "notes" };
  const columns = [{ name: "id", type: "int", primary_key: true }];
  const token = await gateway.login();
  for (const change of [
    { CreateDatabase: { database: "main" } },
    { CreateTable: { ...place, columns } },
    { Insert: { ...place, values: [{ id: 1 }] } },
  ]) {
    t.equal((await gateway.query(change, token)).status, 200, JSON.stringify(change));
  }
});

t.test("replicas of replicas/compose.yaml work with PostgreSQL", nightly, async (t) => {
  const { services: replicas, text } = read("replicas/compose.yaml");
  const toml = deployed("replicas/gateway.toml");
  const balancer = deployed("replicas/haproxy.cfg");
  const [front = "", ...hosts] = text.match(/(?<=ipv4_address: )[\d.]+/g) ?? [];
  t.match(toml, `trusted_proxies = ["${front}"]`);
  t.equal(hosts.length, 3);
  for (const host of hosts) t.match(balancer, `${host}:8080`);
  for (const word of ["pgpass", "store.key", "superuser store app"]) {
    t.match(deployed("replicas/make-secrets"), word);
  }

  const server = await startPostgres(t);
  const url = await makeRole(server);
  await runSqlFile(server, "replicas/app.sql");
  const home = temporaryHome(t);
  const port = await freePort();
  const config = fill(toml, {
    'host = "0.0.0.0"': `host = "127.0.0.1"\nport = ${port}`,
    "postgres://app@database:5432/app": server.url("app", "app"),
    "postgres://gatehouse@database/gatehouse": url,
    "0.0.0.0:9464": `127.0.0.1:${await freePort()}`,
  });
  writeFileSync(path.join(home, "gateway.toml"), config);
  const places: Record<string, string> = {
    "/etc/gatehouse/gateway.toml": path.join(home, "gateway.toml"),
  };
  const commandOf = (name: string) =>
    (replicas[name]?.command ?? []).map((word) => places[word] ?? word);
  const made = await runCommand(home, commandOf("init"));
  t.equal(made.code, 0, made.stderr);
  const replica = new Service(home, commandOf("gatehouse-2"));
  t.teardown(() => replica.stop("SIGKILL"));
  await replica.logged(({ msg }) => String(msg).startsWith("listening on"));
  t.equal((await ask(`http://127.0.0.1:${port}/readyz`)).status, 200);
});
