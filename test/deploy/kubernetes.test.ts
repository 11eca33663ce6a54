import { execFileSync, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  chmodSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { Ajv } from "ajv";
import t, { type Test } from "tap";
import { parse, parseAllDocuments } from "yaml";
import { routeTable } from "../../src/app/routes.ts";
import { configurationSchema } from "../../src/core/config/schema.ts";
import { makeSecretLine } from "../../src/features/store/secrets.ts";
import { startPostgres } from "../engine/postgres/server.ts";
import { ask } from "../kit/client.ts";
import { freePort } from "../kit/free-port.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import { runCommand, Service } from "../kit/process.ts";
import { queryHeaders, select } from "../kit/queries.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { makeRole } from "../store/role.ts";
import { deployed, deployedPath, fill, findProgram } from "./programs.ts";

const manifests = parseAllDocuments(deployed("kubernetes.yaml")).map((one) => one.toJS());

function only(kind: string, name = "gatehouse") {
  return manifests.find((one) => one.kind === kind && one.metadata.name === name);
}

const { spec } = only("Deployment");
const pod = spec.template.spec;
const [gatehouse] = pod.containers;
const ports = new Map<string, number>(
  gatehouse.ports.map((one: { name: string; containerPort: number }) => [
    one.name,
    one.containerPort,
  ]),
);
const toml: string = only("ConfigMap", "gatehouse-config").data["gateway.toml"];
const page = readFileSync(new URL("../../docs/operations.md", import.meta.url), "utf8");

t.test("everything that the manifests refer to exists", async (t) => {
  const database = only("StatefulSet", "gatehouse-postgresql");
  for (const { spec } of [only("Deployment"), database]) {
    const { containers, volumes } = spec.template.spec;
    for (const { name, configMap, secret } of volumes) {
      if (configMap !== undefined) t.ok(only("ConfigMap", configMap.name), name);
      if (secret !== undefined) t.match(page, `create secret generic ${secret.secretName} `, name);
    }
    for (const { name } of containers[0].volumeMounts) {
      const isVolume = volumes.some((one: { name: string }) => one.name === name);
      t.ok(isVolume || name === "data", `${name} is mounted`);
    }
    t.strictSame(spec.selector.matchLabels, spec.template.metadata.labels);
  }
  t.strictSame(only("PodDisruptionBudget").spec.selector, spec.selector);
  t.ok(only("PodDisruptionBudget").spec.maxUnavailable < spec.replicas, "some replicas stay");
  t.strictSame(only("Service").spec.selector, spec.selector.matchLabels);
  const { selector } = only("Service", database.spec.serviceName).spec;
  t.strictSame(selector, database.spec.selector.matchLabels);
  for (const { targetPort } of only("Service").spec.ports) t.ok(ports.has(targetPort), targetPort);
  for (const { ports: allowed } of only("NetworkPolicy").spec.ingress) {
    for (const { port } of allowed) t.ok(ports.has(String(port)), `${port}`);
  }
  const [{ http }] = only("Ingress").spec.rules;
  t.match(http.paths[0].backend.service, { name: only("Service").metadata.name });
  t.match(only("Service").spec.ports, [{ name: http.paths[0].backend.service.port.name }]);
});

t.test("a rollout keeps all replicas, and containers have no needless rights", async (t) => {
  t.equal(spec.strategy.rollingUpdate.maxUnavailable, 0);
  t.equal(pod.securityContext.runAsNonRoot, true);
  for (const { securityContext } of [...pod.initContainers, gatehouse]) {
    t.match(securityContext, {
      readOnlyRootFilesystem: true,
      allowPrivilegeEscalation: false,
      capabilities: { drop: ["ALL"] },
    });
  }
});

t.test("probes use routes of the gateway", async (t) => {
  const routes = routeTable(configurationSchema.parse({}));
  const { startupProbe, livenessProbe, readinessProbe } = gatehouse;
  for (const { httpGet } of [startupProbe, livenessProbe, readinessProbe]) {
    const route = routes.find(({ pattern }) => pattern === httpGet.path);
    t.ok(route?.methods.has("GET"), httpGet.path);
    t.equal(httpGet.port, "http");
  }
  t.equal(readinessProbe.httpGet.path, "/readyz");
});

t.test("the configuration matches the container's ports and grace period", async (t) => {
  t.match(toml, `listen = "0.0.0.0:${ports.get("metrics")}"`);
  t.equal(ports.get("http"), configurationSchema.parse({}).server.port);
  const [delay, grace] = ["shutdown_delay", "shutdown_grace"].map((key) =>
    Number(new RegExp(`^${key} = (\\d+)$`, "m").exec(toml)?.[1]),
  );
  t.ok(pod.terminationGracePeriodSeconds > Number(delay) + Number(grace));
});

function project(directory: string, files: Readonly<Record<string, string>>): void {
  const version = path.join(directory, "..1");
  mkdirSync(version, { recursive: true });
  for (const [name, content] of Object.entries(files)) {
    writeFileSync(path.join(version, name), content, { mode: 0o440 });
    symlinkSync(path.join("..data", name), path.join(directory, name));
  }
  symlinkSync(path.basename(version), path.join(directory, "..data"));
}

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

t.test("a pod's commands start a working gateway", nightly, async (t) => {
  const upstream = await new RecordingUpstream().listen(t);
  const [http, metrics] = [await freePort(), await freePort()];
  const { home, place } = await layOut(t, upstream.url, http, metrics);
  const [password, init] = pod.initContainers;
  const [program = "", ...flags] = password.command.map(place);
  const { status } = spawnSync(program, flags);
  t.equal(status, 0);
  const pgpass = place(password.env[0]?.value ?? "");
  t.equal(statSync(pgpass).mode & 0o777, 0o600, "only its owner may read the password file");
  const made = await runCommand(home, init.args.map(place));
  t.match(made, { code: 0, stdout: /Created the tables/ }, made.stderr);
  const again = await runCommand(home, init.args.map(place));
  t.match(again, { code: 0, stdout: /up to date/ }, "the next pod changes nothing");
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
  t.equal(answer.status, 200, "the administrator's token is accepted");
  const queries = upstream.take().filter(({ url }) => url === "/query");
  t.equal(queries.length, 1, "one query");
});

const chart = deployedPath("helm/gatehouse");
const values = parse(deployed("helm/gatehouse/values.yaml"));
const isAllowed = new Ajv().compile(JSON.parse(deployed("helm/gatehouse/values.schema.json")));

t.test("kubernetes.yaml is rendered from the current chart (deploy/helm/render)", async (t) => {
  const files = readdirSync(chart, { recursive: true, encoding: "utf8" })
    .filter((name) => statSync(path.join(chart, name)).isFile())
    .map((name) => `./${name}`)
    .sort();
  const digest = createHash("sha256");
  for (const name of files) digest.update(readFileSync(path.join(chart, name)));
  t.match(deployed("kubernetes.yaml"), `of the chart ${digest.digest("hex")}\n`);
});

t.test("the chart's schema accepts the defaults and refuses invalid values", async (t) => {
  t.ok(isAllowed(values), JSON.stringify(isAllowed.errors));
  const { version } = JSON.parse(readFileSync(path.join(chart, "../../../package.json"), "utf8"));
  t.equal(parse(deployed("helm/gatehouse/Chart.yaml")).appVersion, version);
  const refused = [
    { ...values, replicas: 0 },
    { ...values, replica: 3 },
    { ...values, publicUrl: "http://gate.example.com" },
    { ...values, store: { ...values.store, maxStaleness: 1 } },
    { ...values, store: { ...values.store, url: "mysql://gatehouse@db/gatehouse" } },
    { ...values, store: { ...values.store, url: "postgres://user:password@db/gatehouse" } },
    { ...values, upstream: { url: "http://database:9090" } },
  ];
  for (const wrong of refused) t.notOk(isAllowed(wrong), JSON.stringify(wrong));
});

const helm = findProgram("helm");

if (helm !== undefined) {
  t.test("helm accepts the chart and renders kubernetes.yaml", async (t) => {
    const run = (...flags: string[]) =>
      execFileSync(helm, flags, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
    t.match(run("lint", "--strict", chart), "0 chart(s) failed");
    const template = ["template", "gatehouse", chart, "--namespace", "gatehouse"];
    t.ok(deployed("kubernetes.yaml").endsWith(run(...template)));
    const other = ["--set", "postgresql.enabled=false"];
    t.throws(() => run(...template, ...other), "store.url is required");
    const file = "--set-string=accessFile=[[users]]";
    const rendered = run(...template, ...other, "--set", "store.url=postgres://g@db/g", file);
    t.match(rendered, 'access = "file"');
    t.notMatch(rendered, "StatefulSet");
  });
}
