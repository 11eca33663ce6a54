import { spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { configurationSchema } from "../../src/config/schema.ts";
import { routeTable } from "../../src/gateway/routes.ts";
import { makeSecretLine } from "../../src/store/secrets.ts";
import { startPostgres } from "../engine/postgres/server.ts";
import { ask } from "../kit/client.ts";
import { freePort } from "../kit/free-port.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import { runCommand, Service } from "../kit/process.ts";
import { queryHeaders, select } from "../kit/queries.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { makeRole } from "../store/role.ts";
import { manifests, only } from "./manifests.ts";
import { fill } from "./programs.ts";

const { spec } = only("Deployment");
const pod = spec.template.spec;
const [gatehouse] = pod.containers;
const ports = new Map(gatehouse.ports.map(({ name, containerPort }) => [name, containerPort]));
const toml = only("ConfigMap", "gatehouse-config").data["gateway.toml"] ?? "";
const page = readFileSync(new URL("../../docs/operations.md", import.meta.url), "utf8");

t.test("all that the manifests refer to is there", async (t) => {
  const database = only("StatefulSet", "gatehouse-postgresql");
  const maps = manifests.filter(({ kind }) => kind === "ConfigMap");
  const mapNames = maps.map(({ metadata }) => metadata.name);
  for (const { spec } of [only("Deployment"), database]) {
    const { containers, volumes } = spec.template.spec;
    for (const { name, configMap, secret } of volumes) {
      if (configMap !== undefined) t.ok(mapNames.includes(configMap.name), name);
      if (secret !== undefined) t.match(page, `create secret generic ${secret.secretName} `, name);
    }
    const held = new Set(volumes.map(({ name }) => name));
    for (const { name } of containers[0].volumeMounts) {
      t.ok(held.has(name) || name === "data", `${name} is mounted`);
    }
    t.strictSame(spec.selector.matchLabels, spec.template.metadata.labels);
  }
  t.strictSame(only("PodDisruptionBudget").spec.selector, spec.selector);
  t.ok(only("PodDisruptionBudget").spec.maxUnavailable < spec.replicas, "some go on");
  t.strictSame(only("Service").spec.selector, spec.selector.matchLabels);
  t.strictSame(
    only("Service", database.spec.serviceName).spec.selector,
    database.spec.selector.matchLabels,
  );
  for (const { targetPort } of only("Service").spec.ports) t.ok(ports.has(targetPort), targetPort);
  for (const { ports: allowed } of only("NetworkPolicy").spec.ingress) {
    for (const { port } of allowed) t.ok(ports.has(String(port)), `${port}`);
  }
  const [{ http }] = only("Ingress").spec.rules;
  t.match(http.paths[0].backend.service, { name: only("Service").metadata.name });
  t.match(only("Service").spec.ports, [{ name: http.paths[0].backend.service.port.name }]);
});

t.test("probes ask routes that the gateway has", async (t) => {
  const routes = routeTable(configurationSchema.parse({}));
  const { startupProbe, livenessProbe, readinessProbe } = gatehouse;
  for (const { httpGet } of [startupProbe, livenessProbe, readinessProbe]) {
    const route = routes.find(({ pattern }) => pattern === httpGet.path);
    t.ok(route?.methods.has("GET"), httpGet.path);
    t.equal(httpGet.port, "http");
  }
  t.equal(readinessProbe.httpGet.path, "/readyz");
});

t.test("the configuration fits the container's ports, mounts and time", async (t) => {
  t.match(toml, `listen = "0.0.0.0:${ports.get("metrics")}"`);
  t.equal(ports.get("http"), configurationSchema.parse({}).server.port);
  const [delay, grace] = ["shutdown_delay", "shutdown_grace"].map((key) =>
    Number(new RegExp(`^${key} = (\\d+)$`, "m").exec(toml)?.[1]),
  );
  t.ok(pod.terminationGracePeriodSeconds > Number(delay) + Number(grace));
});

/** Lays files out as a volume of a ConfigMap or Secret: behind links that are swapped. */
function project(directory: string, files: Readonly<Record<string, string>>): void {
  const version = path.join(directory, "..1");
  mkdirSync(version, { recursive: true });
  for (const [name, content] of Object.entries(files)) {
    writeFileSync(path.join(version, name), content, { mode: 0o440 });
    symlinkSync(path.join("..data", name), path.join(directory, name));
  }
  symlinkSync(path.basename(version), path.join(directory, "..data"));
}

/** What the containers of a pod find, on places of a test's own: the words that lead there. */
async function layOut(t: Test, upstream: string, http: number, metrics: number) {
  const root = temporaryHome(t);
  const home = path.join(root, "state");
  mkdirSync(home);
  chmodSync(home, 0o777);
  const store = path.join(root, "store");
  const pgpass = "*:*:*:*:a password\n";
  project(store, { "store.key": `${makeSecretLine()}\n`, pgpass });
  const config = path.join(root, "gateway.toml");
  const url = await makeRole(await startPostgres(t));
  writeFileSync(
    config,
    fill(toml, {
      'host = "0.0.0.0"': `host = "127.0.0.1"\nport = ${http}`,
      "0.0.0.0:9464": `127.0.0.1:${metrics}`,
      "/etc/gatehouse/store": store,
      "http://database:9090": upstream,
      "postgres://gatehouse@gatehouse-postgresql/gatehouse": url,
    }),
  );
  const places: [string, string][] = [
    ["/etc/gatehouse/gateway.toml", config],
    ["/etc/gatehouse/store", store],
    ["/var/lib/gatehouse", home],
  ];
  const place = (word: string) =>
    places.reduce((placed, [from, to]) => placed.replace(from, to), word);
  return { home, place };
}

t.test("a pod's commands serve what the manifests give them", nightly, async (t) => {
  const upstream = await new RecordingUpstream().listen();
  t.teardown(() => upstream.close());
  const [http, metrics] = [await freePort(), await freePort()];
  const { home, place } = await layOut(t, upstream.url, http, metrics);
  const [password, init] = pod.initContainers;
  const [program = "", ...flags] = password.command.map(place);
  const { status } = spawnSync(program, flags);
  t.equal(status, 0);
  const pgpass = place(password.env[0]?.value ?? "");
  t.equal(statSync(pgpass).mode & 0o777, 0o600, "a password file of its reader alone");
  const made = await runCommand(home, init.args.map(place));
  t.match(made, { code: 0, stdout: /Made the tables/ }, made.stderr);
  const again = await runCommand(home, init.args.map(place));
  t.match(again, { code: 0, stdout: /up to date/ }, "of the next pod");
  const service = new Service(home, gatehouse.args.map(place), { PGPASSFILE: pgpass });
  t.teardown(() => service.stop("SIGKILL"));
  const url = `http://127.0.0.1:${http}`;
  await service.logged((line) => line.url === url);
  for (const { httpGet } of [gatehouse.livenessProbe, gatehouse.readinessProbe]) {
    t.equal((await ask(`${url}${httpGet.path}`)).status, 200, httpGet.path);
  }
  t.equal((await ask(`http://127.0.0.1:${metrics}/metrics`)).status, 200);
  const config = place("/etc/gatehouse/gateway.toml");
  const { stdout } = await runCommand(home, ["token", "issue", "admin", "--config", config]);
  const headers = queryHeaders(stdout.trim());
  const answer = await ask(`${url}/query`, { method: "POST", headers, body: select });
  t.equal(answer.status, 200, "the administrator's token is good");
  const queries = upstream.take().filter(({ url }) => url === "/query");
  t.equal(queries.length, 1, "one beside the readiness probe's question");
});
