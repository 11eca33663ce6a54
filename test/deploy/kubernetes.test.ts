import { spawnSync } from "node:child_process";
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
import type * as z from "zod";
import { routeTable } from "../../src/app/routes.ts";
import { basePathOf, type Configuration } from "../../src/core/config/schema.ts";
import { presetNames } from "../../src/core/config/upstream.ts";
import { makeSecretLine } from "../../src/features/store/secrets.ts";
import { load } from "../config/support.ts";
import { startPostgres } from "../engine/postgres/server.ts";
import { ask } from "../kit/client.ts";
import { freePort } from "../kit/free-port.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import { runCommand, Service } from "../kit/process.ts";
import { queryHeaders } from "../kit/queries.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { makeRole, runSqlFile } from "../store/role.ts";
import { manifest } from "./kubernetes-schema.ts";
import { deployed, deployedPath, fill } from "./programs.ts";

type Manifest = z.infer<typeof manifest>;
type Kind = Manifest["kind"];

/** A rendered set-up: the chart with the values of one example. */
class Setup {
  readonly name: string;
  readonly text: string;
  readonly manifests: readonly Manifest[];

  constructor(name: string, file: string) {
    this.name = name;
    this.text = deployed(file);
    this.manifests = parseAllDocuments(this.text).map((one) => manifest.parse(one.toJS()));
  }

  find<K extends Kind>(kind: K, name = "gatehouse"): Extract<Manifest, { kind: K }> | undefined {
    return this.manifests.find(
      (one): one is Extract<Manifest, { kind: K }> =>
        one.kind === kind && one.metadata.name === name,
    );
  }

  get<K extends Kind>(kind: K, name = "gatehouse"): Extract<Manifest, { kind: K }> {
    const found = this.find(kind, name);
    if (found === undefined) throw new Error(`${this.name} has no ${kind} ${name}`);
    return found;
  }

  get pod() {
    return this.get("Deployment").spec.template.spec;
  }

  get container() {
    const [container] = this.pod.containers;
    if (container === undefined) throw new Error("no container");
    return container;
  }

  get configuration(): string {
    return this.get("ConfigMap", "gatehouse-config").data["gateway.toml"] ?? "";
  }
}

const setups = [
  new Setup("postgresql", "kubernetes.yaml"),
  ...readdirSync(deployedPath("helm/rendered")).map(
    (file) => new Setup(path.basename(file, ".yaml"), `helm/rendered/${file}`),
  ),
];
const page = readFileSync(new URL("../../docs/install.md", import.meta.url), "utf8");

function setupOf(name = ""): Setup {
  const found = setups.find((one) => one.name === name);
  if (found === undefined) throw new Error(`no set-up ${name}`);
  return found;
}

t.test("every example of the chart is rendered", async (t) => {
  const names = readdirSync(deployedPath("helm/examples")).map((file) =>
    path.basename(file, ".yaml"),
  );
  t.strictSame(setups.map(({ name }) => name).toSorted(), names.toSorted());
  t.ok(names.length >= 5, names.join());
});

for (const one of setups) {
  t.test(`${one.name}: everything that the manifests refer to exists`, async (t) => {
    const workloads = one.manifests.filter(
      (each) => each.kind === "Deployment" || each.kind === "StatefulSet",
    );
    for (const { spec } of workloads) {
      const { containers, initContainers, volumes } = spec.template.spec;
      for (const { name, configMap, secret, persistentVolumeClaim } of volumes) {
        if (configMap !== undefined) t.ok(one.find("ConfigMap", configMap.name), name);
        if (secret !== undefined) {
          t.match(
            page,
            `create secret generic ${secret.secretName} `,
            `${secret.secretName} is documented`,
          );
        }
        if (persistentVolumeClaim !== undefined) {
          t.ok(one.find("PersistentVolumeClaim", persistentVolumeClaim.claimName), name);
        }
      }
      const places = volumes.map(({ name }) => name);
      for (const { volumeMounts } of [...initContainers, ...containers]) {
        for (const { name } of volumeMounts) t.ok([...places, "data"].includes(name), name);
      }
      t.strictSame(spec.selector.matchLabels, spec.template.metadata.labels);
    }

    const labels = one.get("Deployment").spec.selector;
    const ports = one.container.ports.map(({ name }) => name);
    const routed = one.manifests.filter((each) => each.kind === "Ingress");
    for (const { spec } of routed) {
      for (const { http } of spec.rules) {
        for (const { backend } of http.paths) {
          const service = one.get("Service", backend.service.name);
          t.ok(service.spec.ports.some(({ name }) => name === backend.service.port.name));
          t.strictSame(service.spec.selector, labels.matchLabels);
        }
      }
    }
    for (const { port } of one.get("NetworkPolicy").spec.ingress.flatMap((rule) => rule.ports)) {
      t.ok(ports.includes(String(port)), `${port}`);
    }
    for (const { targetPort } of one.get("Service").spec.ports)
      t.ok(ports.includes(String(targetPort)));
  });

  t.test(`${one.name}: the configuration loads, and the containers match it`, async (t) => {
    const { pod, container } = one;
    const configuration = loadRendered(t, one);
    const routes = routeTable(configuration);
    const probed = [container.startupProbe, container.livenessProbe, container.readinessProbe];
    const paths = probed.map((probe) => {
      if (probe === undefined || !("httpGet" in probe)) throw new Error("no HTTP probe");
      t.equal(probe.httpGet.port, "http");
      return probe.httpGet.path;
    });
    const base = basePathOf(configuration);
    t.strictSame(paths, [`${base}/healthz`, `${base}/healthz`, `${base}/readyz`]);
    for (const each of paths) {
      t.ok(routes.find(({ pattern }) => pattern === each)?.methods.has("GET"), each);
    }
    const ports = new Map(container.ports.map(({ name, containerPort }) => [name, containerPort]));
    const { server, metrics, console: pages } = configuration;
    t.equal(ports.get("http"), server.port);
    t.equal(metrics.listen, `0.0.0.0:${ports.get("metrics")}`);
    t.equal(pages.listen, ports.has("console") ? `0.0.0.0:${ports.get("console")}` : undefined);
    const drain = server.shutdown_delay + server.shutdown_grace;
    t.ok((pod.terminationGracePeriodSeconds ?? 0) > drain);
    for (const { securityContext } of [...pod.initContainers, container]) {
      t.match(securityContext, {
        readOnlyRootFilesystem: true,
        allowPrivilegeEscalation: false,
        capabilities: { drop: ["ALL"] },
      });
    }
  });

  t.test(`${one.name}: an update keeps all replicas, or runs one per directory`, async (t) => {
    const { spec } = one.get("Deployment");
    const state = one.pod.volumes.find(({ name }) => name === "state");
    if (state?.persistentVolumeClaim === undefined) {
      t.equal(spec.strategy.rollingUpdate?.maxUnavailable, 0);
      t.match(one.configuration, "[store]");
      t.strictSame(one.get("PodDisruptionBudget").spec.selector, spec.selector);
      t.ok(one.get("PodDisruptionBudget").spec.maxUnavailable < spec.replicas);
    } else {
      t.match(spec, { replicas: 1, strategy: { type: "Recreate" } });
      t.notMatch(one.configuration, "[store]");
    }
  });
}

function loadRendered(t: Test, { configuration }: Setup): Configuration {
  const directory = temporaryHome(t);
  const write = (name: string, content: string) => {
    const file = path.join(directory, name);
    writeFileSync(file, content, { mode: 0o600 });
    return file;
  };
  const text = configuration
    .replace("/etc/gatehouse/store/store.key", write("store.key", `${makeSecretLine()}\n`))
    .replace(
      /\/etc\/gatehouse\/(?:credential|secrets\/[^/"]+)\/\w+/g,
      write("secret", "a secret\n"),
    );
  return load(t, text).configuration;
}

interface Opening {
  readonly setup: string;
  readonly name: string;
  /** Where a policy lets the gateway connect to, besides the cluster's names. */
  readonly targets: string[];
}

const database = "pods app=database:5432";
const openings: Opening[] = [
  { setup: "sqlite", name: "nothing", targets: [] },
  {
    setup: "postgresql",
    name: "the pods of the databases",
    targets: [database, "pods app=gatehouse-postgresql:5432"],
  },
  { setup: "mysql", name: "the network of a managed database", targets: ["10.20.0.0/24:3306"] },
  { setup: "chroma", name: "the pods of Chroma", targets: ["pods app=chroma:8000"] },
  {
    setup: "keycloak",
    name: "a managed database and providers",
    targets: ["10.20.0.0/24:5432", "10.20.0.0/24:5432", "any:443"],
  },
];
for (const { setup, name, targets } of openings) {
  t.test(`${setup}: the network policy lets the gateway reach ${name}`, async (t) => {
    const { egress = [] } = setupOf(setup).get("NetworkPolicy").spec;
    const [names, ...others] = egress;
    t.strictSame(names?.ports, [
      { port: 53, protocol: "UDP" },
      { port: 53, protocol: "TCP" },
    ]);
    const found = others.flatMap(({ to, ports }) => {
      const peers = to?.map(({ ipBlock, podSelector }) => {
        if (ipBlock !== undefined) return ipBlock.cidr;
        const labels = Object.entries(podSelector?.matchLabels ?? {});
        return `pods ${labels.map((pair) => pair.join("="))}`;
      });
      return (peers ?? ["any"]).map((peer) => `${peer}:${ports.map(({ port }) => port)}`);
    });
    t.strictSame(found, targets);
  });
}

t.test("only the gateway reaches a database that runs as pods", async (t) => {
  for (const [name, pods] of [
    ["postgresql", "database"],
    ["chroma", "chroma"],
  ]) {
    const { spec } = setupOf(name).get("NetworkPolicy", "gatehouse-upstream");
    t.strictSame(spec.podSelector.matchLabels, { app: pods });
    t.match(spec.ingress, [{ from: [{ podSelector: { matchLabels: { app: "gatehouse" } } }] }]);
  }
  for (const name of ["sqlite", "mysql", "keycloak"]) {
    t.equal(setupOf(name).find("NetworkPolicy", "gatehouse-upstream"), undefined);
  }
});

t.test("passwords come from Secrets and are in no manifest", async (t) => {
  const variables = (name: string) =>
    setupOf(name).container.env.map((each) => ("value" in each ? each.name : each));
  t.strictSame(variables("mysql"), [
    "GATEHOUSE_CONFIG",
    "GATEHOUSE_HOME",
    {
      name: "MYSQL_PWD",
      valueFrom: { secretKeyRef: { name: "gatehouse-upstream", key: "password" } },
    },
  ]);
  t.strictSame(variables("sqlite"), ["GATEHOUSE_CONFIG", "GATEHOUSE_HOME"]);
  const [init] = setupOf("keycloak").pod.initContainers;
  t.match(init?.command?.at(-1), "/etc/gatehouse/store/pgpass /etc/gatehouse/upstream/pgpass");
  for (const one of setups) {
    t.notMatch(one.text, /kind: Secret|:\/\/[^@\s"]+:[^@\s"]+@/, one.name);
  }
});

t.test("the console has a service and a host of its own", async (t) => {
  const console = setupOf("sqlite").get("Service", "gatehouse-console");
  t.strictSame(console.spec.ports, [{ name: "console", port: 80, targetPort: "console" }]);
  const hosts = ["gatehouse", "gatehouse-console"].map(
    (name) => setupOf("sqlite").get("Ingress", name).spec.rules[0]?.host,
  );
  t.strictSame(hosts, ["gate.example.com", "console.example.com"]);
  t.equal(setupOf("chroma").find("Service", "gatehouse-console"), undefined);
});

t.test("images of others are pinned by digest", async (t) => {
  const { spec } = setupOf("postgresql").get("StatefulSet", "gatehouse-postgresql");
  t.match(spec.template.spec.containers[0]?.image, /^postgres:[\d.]+@sha256:[0-9a-f]{64}$/);
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

class RunningPod {
  readonly home: string;
  readonly url: string;
  readonly #root: string;
  readonly #setup: Setup;

  private constructor(t: Test, setup: Setup, port: number) {
    this.#root = temporaryHome(t);
    this.#setup = setup;
    this.url = `http://127.0.0.1:${port}`;
    this.home = path.join(this.#root, "state");
    mkdirSync(this.home);
    // As an emptyDir, and as a volume with an fsGroup.
    chmodSync(this.home, 0o777);
  }

  /** Lays out the files of a pod, with free ports of this machine. */
  static async layOut(
    t: Test,
    setup: Setup,
    secrets: Readonly<Record<string, Readonly<Record<string, string>>>>,
    passages: Readonly<Record<string, string>>,
  ): Promise<RunningPod> {
    const port = await freePort();
    const pod = new RunningPod(t, setup, port);
    for (const [name, files] of Object.entries(secrets)) {
      project(path.join(pod.#root, name), files);
    }
    const text = fill(setup.configuration, {
      'host = "0.0.0.0"': `host = "127.0.0.1"\nport = ${port}`,
      "0.0.0.0:9464": `127.0.0.1:${await freePort()}`,
      ...passages,
    });
    writeFileSync(path.join(pod.#root, "gateway.toml"), pod.place(text));
    return pod;
  }

  place(text: string): string {
    return text
      .replaceAll("0.0.0.0:8081", "127.0.0.1:0")
      .replaceAll("/etc/gatehouse", this.#root)
      .replaceAll("/var/lib/gatehouse", this.home);
  }

  /** The variables of the container, except those from Secrets. */
  get #environment(): NodeJS.ProcessEnv {
    const variables = this.#setup.container.env.flatMap((each) =>
      "value" in each ? [[each.name, this.place(each.value)]] : [],
    );
    return Object.fromEntries(variables);
  }

  async run(args: readonly string[]) {
    const flags = args.map((flag) => this.place(flag));
    return runCommand(this.home, flags, { env: this.#environment });
  }

  async start(t: Test): Promise<void> {
    const flags = (this.#setup.container.args ?? []).map((flag) => this.place(flag));
    const service = new Service(this.home, flags, this.#environment);
    t.teardown(() => service.stop("SIGKILL"));
    await service.logged((line) => line.url === this.url);
    const { livenessProbe, readinessProbe } = this.#setup.container;
    for (const probe of [livenessProbe, readinessProbe]) {
      const probed = probe !== undefined && "httpGet" in probe ? probe.httpGet.path : "";
      t.equal((await ask(`${this.url}${probed}`)).status, 200, probed);
    }
  }

  async administrator(): Promise<Record<string, string>> {
    const { stdout } = await this.run(["token", "issue", "admin"]);
    return queryHeaders(stdout.trim());
  }
}

t.test("a pod with SQLite serves queries", async (t) => {
  const pod = await RunningPod.layOut(t, setupOf("sqlite"), {}, {});
  await pod.start(t);
  const body = JSON.stringify({
    CreateTable: {
      database: "main",
      table: "notes",
      columns: [{ name: "id", type: "int", primary_key: true }],
    },
  });
  const headers = await pod.administrator();
  t.equal((await ask(`${pod.url}/query`, { method: "POST", headers, body })).status, 200);
});

t.test("a pod with a preset passes its probes below the base path", async (t) => {
  const upstream = await new RecordingUpstream().listen(t);
  const secrets = { credential: { value: "the gateway's own token\n" } };
  const passages = { "http://chroma:8000": upstream.url };
  const pod = await RunningPod.layOut(t, setupOf("chroma"), secrets, passages);
  await pod.start(t);
});

t.test("the commands of a pod with a store start a working gateway", nightly, async (t) => {
  const server = await startPostgres(t);
  const store = await makeRole(server);
  await runSqlFile(server, "replicas/app.sql");
  const pgpass = (user: string) => ({ pgpass: `*:*:*:${user}:a password` });
  const secrets = {
    store: { "store.key": `${makeSecretLine()}\n`, ...pgpass("gatehouse") },
    upstream: pgpass("app"),
  };
  const setup = setupOf("postgresql");
  const pod = await RunningPod.layOut(t, setup, secrets, {
    "postgres://app@database/app": server.url("app", "app"),
    "postgres://gatehouse@gatehouse-postgresql/gatehouse": store,
  });
  const [password, init] = setup.pod.initContainers;
  const [program = "", ...flags] = (password?.command ?? []).map((word) => pod.place(word));
  t.match(spawnSync(program, flags, { encoding: "utf8" }), { status: 0, stderr: "" });
  const file = path.join(pod.home, "pgpass");
  t.equal(statSync(file).mode & 0o777, 0o600, "only its owner may read the password file");
  t.equal(readFileSync(file, "utf8"), "*:*:*:gatehouse:a password\n*:*:*:app:a password\n");
  const args = init?.args ?? [];
  const made = await pod.run(args);
  t.match(made, { code: 0, stdout: /Created the tables/ }, made.stderr);
  const again = await pod.run(args);
  t.match(again, { code: 0, stdout: /up to date/ }, "the next pod changes nothing");
  await pod.start(t);
  const headers = await pod.administrator();
  const body = JSON.stringify({ CreateDatabase: { database: "main" } });
  const answer = await ask(`${pod.url}/query`, { method: "POST", headers, body });
  t.equal(answer.status, 200, "the administrator's token is accepted");
});

const chart = deployedPath("helm/gatehouse");
const values = parse(deployed("helm/gatehouse/values.yaml"));
const isAllowed = new Ajv().compile(JSON.parse(deployed("helm/gatehouse/values.schema.json")));

t.test("all set-ups are rendered from the current chart (deploy/helm/render)", async (t) => {
  const digest = createHash("sha256");
  const files = ["gatehouse", "examples"].flatMap((directory) =>
    readdirSync(deployedPath(`helm/${directory}`), { recursive: true, encoding: "utf8" }).map(
      (name) => `helm/${directory}/${name}`,
    ),
  );
  for (const name of files.toSorted()) {
    if (statSync(deployedPath(name)).isFile()) digest.update(deployed(name));
  }
  const line = `rendered by helm/render of the chart ${digest.digest("hex")}\n`;
  for (const { name, text } of setups) t.match(text, line, name);
});

t.test("the chart's schema accepts its examples, and refuses invalid values", async (t) => {
  t.ok(isAllowed(values), JSON.stringify(isAllowed.errors));
  for (const file of readdirSync(deployedPath("helm/examples"))) {
    t.ok(isAllowed(parse(deployed(`helm/examples/${file}`))), JSON.stringify(isAllowed.errors));
  }
  for (const preset of presetNames) t.ok(isAllowed({ upstream: { preset } }), preset);
  const { version } = JSON.parse(readFileSync(path.join(chart, "../../../package.json"), "utf8"));
  t.match(parse(deployed("helm/gatehouse/Chart.yaml")), { version, appVersion: version });
  const refused = [
    { replicas: 0 },
    { replica: 3 },
    { publicUrl: "http://gate.example.com" },
    { store: { enabled: true, maxStaleness: 1 } },
    { store: { enabled: true, url: "mysql://gatehouse@db/gatehouse" } },
    { store: { enabled: true, url: "postgres://user:password@db/gatehouse" } },
    { upstream: { url: "postgres://user:password@db/app" } },
    { upstream: { url: "http://user@db:9090" } },
    { upstream: { preset: "mongodb" } },
    { upstream: { cidrs: ["10.0.0.1"] } },
    { console: { enabled: true } },
    { egress: [{ cidrs: ["10.0.0.0/8"] }] },
    { image: { repository: "gatehouse", digest: "latest" } },
  ];
  for (const wrong of refused) t.notOk(isAllowed(wrong), JSON.stringify(wrong));
});
