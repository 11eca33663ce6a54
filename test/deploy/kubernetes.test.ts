import { mkdirSync, readdirSync, renameSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { parseAllDocuments } from "yaml";
import * as z from "zod";
import { configurationSchema } from "../../src/config/schema.ts";
import { routeTable } from "../../src/gateway/routes.ts";
import { ask } from "../kit/client.ts";
import { freePort } from "../kit/free-port.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { runCommand, Service } from "../kit/process.ts";
import { queryHeaders, select } from "../kit/queries.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { deployed, fill } from "./programs.ts";

const named = z.object({ name: z.string() });
const labels = z.record(z.string(), z.string());
const port = z.union([z.string(), z.number()]);
const probe = z.object({ httpGet: z.object({ path: z.string(), port: z.string() }) });
const selector = z.object({ matchLabels: labels });

const configMap = z.object({
  kind: z.literal("ConfigMap"),
  metadata: named,
  data: z.record(z.string(), z.string()),
});
const container = z.object({
  image: z.string(),
  args: z.array(z.string()),
  ports: z.array(z.object({ name: z.string(), containerPort: z.number() })),
  startupProbe: probe,
  livenessProbe: probe,
  readinessProbe: probe,
  securityContext: z.object({
    readOnlyRootFilesystem: z.literal(true),
    allowPrivilegeEscalation: z.literal(false),
    capabilities: z.object({ drop: z.tuple([z.literal("ALL")]) }),
  }),
  volumeMounts: z.array(
    z.object({ name: z.string(), mountPath: z.string(), subPath: z.string().optional() }),
  ),
});
const volume = z.object({
  name: z.string(),
  configMap: named.optional(),
  secret: z.object({ secretName: z.string() }).optional(),
  emptyDir: z.object({}).optional(),
});
const deployment = z.object({
  kind: z.literal("Deployment"),
  metadata: named,
  spec: z.object({
    replicas: z.number(),
    selector,
    template: z.object({
      metadata: z.object({ labels }),
      spec: z.object({
        terminationGracePeriodSeconds: z.number(),
        securityContext: z.object({ runAsNonRoot: z.literal(true), runAsUser: z.number() }),
        containers: z.tuple([container]),
        volumes: z.array(volume),
      }),
    }),
  }),
});
const service = z.object({
  kind: z.literal("Service"),
  metadata: named,
  spec: z.object({ selector: labels, ports: z.array(z.object({ targetPort: z.string() })) }),
});
const budget = z.object({
  kind: z.literal("PodDisruptionBudget"),
  metadata: named,
  spec: z.object({ minAvailable: z.number(), selector }),
});
const traffic = z.array(z.object({ ports: z.array(z.object({ port })) }));
const policy = z.object({
  kind: z.literal("NetworkPolicy"),
  metadata: named,
  spec: z.object({ podSelector: selector, ingress: traffic, egress: traffic.optional() }),
});
const manifest = z.discriminatedUnion("kind", [configMap, deployment, service, budget, policy]);

const text = deployed("kubernetes.yaml");
const manifests = parseAllDocuments(text).map((document) => manifest.parse(document.toJS()));

/** The one manifest of its kind and name. */
function only<Kind extends z.infer<typeof manifest>["kind"]>(kind: Kind, name = "gatehouse") {
  const found = manifests.find((each) => each.kind === kind && each.metadata.name === name);
  type Found = Extract<z.infer<typeof manifest>, { kind: Kind }>;
  const isIt = (each: typeof found): each is Found => each?.kind === kind;
  if (!isIt(found)) throw new Error(`no ${kind} ${name}`);
  return found;
}

const { spec } = only("Deployment");
const pod = spec.template.spec;
const [gatehouse] = pod.containers;
const ports = new Map(gatehouse.ports.map(({ name, containerPort }) => [name, containerPort]));

t.test("all that the manifests refer to is there", async (t) => {
  const maps = manifests.filter(({ kind }) => kind === "ConfigMap");
  const mapNames = maps.map(({ metadata }) => metadata.name);
  for (const { name, configMap, secret } of pod.volumes) {
    if (configMap !== undefined) t.ok(mapNames.includes(configMap.name), name);
    if (secret !== undefined) t.match(text, `create secret generic ${secret.secretName} `, name);
  }
  const volumes = new Set(pod.volumes.map(({ name }) => name));
  const mounts = new Set(gatehouse.volumeMounts.map(({ name }) => name));
  t.strictSame([...mounts].sort(), [...volumes].sort(), "what is there is mounted");
  const own = { app: "gatehouse" };
  t.strictSame(spec.template.metadata.labels, own);
  for (const each of [spec.selector, only("PodDisruptionBudget").spec.selector]) {
    t.strictSame(each.matchLabels, own);
  }
  t.strictSame(only("Service").spec.selector, own);
  t.strictSame(only("NetworkPolicy").spec.podSelector.matchLabels, own);
  t.ok(only("PodDisruptionBudget").spec.minAvailable < spec.replicas, "a pod may be moved");
  for (const { targetPort } of only("Service").spec.ports) t.ok(ports.has(targetPort), targetPort);
  for (const { ports: allowed } of only("NetworkPolicy").spec.ingress) {
    for (const { port } of allowed) t.ok(ports.has(String(port)), `${port}`);
  }
});

t.test("probes ask routes that the gateway has", async (t) => {
  const routes = routeTable(configurationSchema.parse({}));
  const { startupProbe, livenessProbe, readinessProbe } = gatehouse;
  for (const { httpGet } of [startupProbe, livenessProbe, readinessProbe]) {
    const route = routes.find(({ pattern }) => pattern === httpGet.path);
    t.ok(route?.methods.has("GET"), httpGet.path);
    t.equal(httpGet.port, "http");
  }
});

t.test("the configuration fits the container's ports, mounts and time", async (t) => {
  const toml = only("ConfigMap", "gatehouse-config").data["gateway.toml"] ?? "";
  t.match(toml, `listen = "0.0.0.0:${ports.get("metrics")}"`);
  const { server } = configurationSchema.parse({});
  t.equal(ports.get("http"), server.port);
  t.ok(pod.terminationGracePeriodSeconds > server.shutdown_grace + 5);
  const access = gatehouse.volumeMounts.find(({ name }) => name === "access");
  t.equal(access?.subPath, undefined, "a change of the ConfigMap reaches the pod");
  t.match(toml, `access_control_file = "${access?.mountPath}/access_control.toml"`);
});

/** Lays files out as a volume of a ConfigMap or Secret: behind links that are swapped. */
function project(directory: string, files: Readonly<Record<string, string>>): void {
  const version = path.join(directory, `..${Object.keys(files).length}`);
  mkdirSync(version, { recursive: true });
  for (const [name, content] of Object.entries(files)) {
    writeFileSync(path.join(version, name), content, { mode: 0o440 });
    symlinkSync(path.join("..data", name), path.join(directory, name));
  }
  symlinkSync(path.basename(version), path.join(directory, "..data"));
}

/** What the containers of the deployment find, on places of a test's own. */
async function layOut(t: Test, upstream: string, places: { http: number; metrics: number }) {
  const root = temporaryHome(t);
  const home = path.join(root, "state");
  mkdirSync(home, { mode: 0o777 });
  await runCommand(home, ["key", "rotate"]);
  renameSync(path.join(home, "keys"), path.join(root, "made"));
  const keys = readdirSync(path.join(root, "made"));
  mkdirSync(path.join(home, "keys"));
  for (const name of keys) {
    renameSync(path.join(root, "made", name), path.join(home, "keys", `.${name}`));
    symlinkSync(`.${name}`, path.join(home, "keys", name));
  }
  const access = path.join(root, "access");
  project(access, only("ConfigMap", "gatehouse-access").data);
  const config = path.join(root, "gateway.toml");
  const toml = only("ConfigMap", "gatehouse-config").data["gateway.toml"] ?? "";
  writeFileSync(
    config,
    fill(toml, {
      'host = "0.0.0.0"': `host = "127.0.0.1"\nport = ${places.http}`,
      "0.0.0.0:9464": `127.0.0.1:${places.metrics}`,
      "/etc/gatehouse/access": access,
      "http://database:9090": upstream,
    }),
  );
  return { home, config };
}

t.test("a container's command serves what the manifests give it", async (t) => {
  const upstream = await new RecordingUpstream().listen();
  t.teardown(() => upstream.close());
  const places = { http: await freePort(), metrics: await freePort() };
  const { home, config } = await layOut(t, upstream.url, places);
  const flags = gatehouse.args.map((word) => word.replace("/etc/gatehouse/gateway.toml", config));
  const service = new Service(home, flags);
  t.teardown(() => service.stop("SIGKILL"));
  const url = `http://127.0.0.1:${places.http}`;
  await service.logged((line) => line.url === url);
  for (const { httpGet } of [gatehouse.livenessProbe, gatehouse.readinessProbe]) {
    t.equal((await ask(`${url}${httpGet.path}`)).status, 200, httpGet.path);
  }
  t.equal((await ask(`http://127.0.0.1:${places.metrics}/metrics`)).status, 200);
  const { stdout } = await runCommand(home, ["token", "issue", "admin", "--config", config]);
  const headers = queryHeaders(stdout.trim());
  const answer = await ask(`${url}/query`, { method: "POST", headers, body: select });
  t.equal(answer.status, 200, "the administrator's token is good");
  const queries = upstream.take().filter(({ url }) => url === "/query");
  t.equal(queries.length, 1, "one beside the readiness probe's question");
});
