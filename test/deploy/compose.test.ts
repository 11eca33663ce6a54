import { existsSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { parse } from "yaml";
import * as z from "zod";
import { startPostgres } from "../engine/postgres/server.ts";
import { ask } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import { runCommand, Service } from "../kit/process.ts";
import { makeRole, runSqlFile } from "../store/role.ts";
import { deployed, deployedPath, fill } from "./programs.ts";

const names = z.array(z.string());
const service = z.object({
  image: z.string(),
  build: z.object({ context: z.string(), dockerfile: z.string() }).optional(),
  command: names.default([]),
  depends_on: z
    .union([names, z.record(z.string(), z.unknown()).transform(Object.keys)])
    .default([]),
  volumes: names.default([]),
  networks: z.union([names, z.record(z.string(), z.unknown()).transform(Object.keys)]),
  secrets: z
    .array(z.union([z.string(), z.object({ source: z.string() }).transform((own) => own.source)]))
    .default([]),
  configs: z.array(z.object({ source: z.string(), target: z.string() })).default([]),
  environment: z.record(z.string(), z.string()).default({}),
  read_only: z.boolean().default(false),
});
const shape = z.object({
  services: z.record(z.string(), service),
  networks: z.record(z.string(), z.unknown()),
  volumes: z.record(z.string(), z.unknown()),
  configs: z.record(z.string(), z.object({ content: z.string() })).default({}),
  secrets: z.record(z.string(), z.object({ file: z.string() })),
});

function read(file: string) {
  const text = deployed(file);
  return { text, compose: shape.parse(parse(text, { merge: true })) };
}

const files = ["compose.yaml", "replicas/compose.yaml"];
for (const file of files) {
  t.test(`all that the services of ${file} refer to is there`, async (t) => {
    const { compose, text } = read(file);
    for (const [name, service] of Object.entries(compose.services)) {
      for (const other of service.depends_on) t.ok(other in compose.services, `${name}: ${other}`);
      for (const network of service.networks)
        t.ok(network in compose.networks, `${name}: ${network}`);
      for (const secret of service.secrets) t.ok(secret in compose.secrets, `${name}: ${secret}`);
      for (const { source } of service.configs)
        t.ok(source in compose.configs, `${name}: ${source}`);
      for (const volume of service.volumes) {
        const [source = ""] = volume.split(":");
        const isThere = source.startsWith("./")
          ? text.includes(`cp /path/to/certificate-and-key.pem ${path.basename(source)}\n`) ||
            existsSync(deployedPath(path.join(path.dirname(file), source)))
          : source in compose.volumes;
        t.ok(isThere, `${name}: ${source}`);
      }
      const { build } = service;
      if (build !== undefined) {
        t.ok(
          existsSync(
            path.join(deployedPath(path.join(path.dirname(file), build.context)), build.dockerfile),
          ),
          "the Dockerfile",
        );
      }
    }
  });
}

const { text, compose } = read("compose.yaml");
const gateway = compose.configs.gateway?.content ?? "";

t.test("the front is the one that is believed, and finds the gateway", async (t) => {
  const { gatehouse, front, engine, database } = compose.services;
  const [, address = ""] = /ipv4_address: (\S+)/.exec(text) ?? [];
  t.match(gateway, `trusted_proxies = ["${address}"]`);
  t.equal(front?.environment.GATEHOUSE, "gatehouse:8080");
  t.match(deployed("Caddyfile"), "reverse_proxy {$GATEHOUSE:");
  t.ok(gatehouse?.read_only && engine?.read_only);
  t.notOk(gatehouse?.networks.some((name) => database?.networks.includes(name)));
});

t.test("gateway and engine work together over PostgreSQL as they are told to", async (t) => {
  const home = temporaryHome(t);
  const server = await startPostgres(t);
  const url = server.url(await server.createDatabase());
  const socket = path.join(home, "engine.sock");
  const places: Record<string, string> = {
    "postgres://gatehouse@database:5432/gatehouse": url,
    "unix:/run/gatehouse/engine.sock": `unix:${socket}`,
    "/etc/gatehouse/gateway.toml": path.join(home, "gateway.toml"),
  };
  const commandOf = (name: string) =>
    (compose.services[name]?.command ?? []).map((word) => places[word] ?? word);
  const port = await freePort();
  writeFileSync(
    path.join(home, "gateway.toml"),
    fill(gateway, {
      'host = "0.0.0.0"': `host = "127.0.0.1"\nport = ${port}`,
      "unix:/run/gatehouse/engine.sock": `unix:${socket}`,
    }),
  );
  for (const name of ["engine", "gatehouse"]) {
    const service = new Service(home, commandOf(name));
    t.teardown(() => service.stop("SIGKILL"));
    if (name === "engine") await service.logged(({ msg }) => msg === "engine listening");
  }
  const isReady = () => ask(`http://127.0.0.1:${port}/readyz`).then(({ status }) => status === 200);
  await eventually("the gateway is ready", () => isReady().catch(() => false));
  t.pass("ready");
});

t.test("replicas work together over PostgreSQL as they are told to", nightly, async (t) => {
  const { compose: replicas, text } = read("replicas/compose.yaml");
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
  const socket = `unix:${path.join(home, "engine.sock")}`;
  const port = await freePort();
  const config = fill(toml, {
    'host = "0.0.0.0"': `host = "127.0.0.1"\nport = ${port}`,
    "unix:/run/gatehouse/engine.sock": socket,
    "postgres://gatehouse@database/gatehouse": url,
    "0.0.0.0:9464": `127.0.0.1:${await freePort()}`,
  });
  writeFileSync(path.join(home, "gateway.toml"), config);
  const places: Record<string, string> = {
    "postgres://app@database:5432/app": server.url("app", "app"),
    "unix:/run/gatehouse/engine.sock": socket,
    "/etc/gatehouse/gateway.toml": path.join(home, "gateway.toml"),
  };
  const commandOf = (name: string) =>
    (replicas.services[name]?.command ?? []).map((word) => places[word] ?? word);
  const engine = new Service(home, commandOf("engine"));
  t.teardown(() => engine.stop("SIGKILL"));
  await engine.logged(({ msg }) => msg === "engine listening");
  const made = await runCommand(home, commandOf("init"));
  t.equal(made.code, 0, made.stderr);
  const replica = new Service(home, commandOf("gatehouse-2"));
  t.teardown(() => replica.stop("SIGKILL"));
  await replica.logged(({ msg }) => String(msg).startsWith("listening on"));
  t.equal((await ask(`http://127.0.0.1:${port}/readyz`)).status, 200);
});
