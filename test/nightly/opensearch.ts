/**
 * Runs the suite of the preset against a real OpenSearch, its Python client with each role, and
 * random requests with and without an index that the caller may not read. With
 * `GATEHOUSE_OPENSEARCH=3.8.0`, another version: OpenSearch 3 needs a `JAVA_HOME` of Java 21 or later.
 */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import t, { type Test } from "tap";
import * as z from "zod";
import { checkSuite, openPreset } from "../databases/kit/open.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { readPage } from "../kit/page.ts";

const run = promisify(execFile);
const root = path.join(import.meta.dirname, "../..");
const { GATEHOUSE_OPENSEARCH: VERSION = "2.19.6", JAVA_HOME } = process.env;
const CLIENT = "3.2.0";
const LOG4J = "2.25.4";
const cache = path.join(root, "node_modules/.cache");
const place = path.join(cache, `opensearch-${VERSION}`);
const python = path.join(place, "venv/bin/python");

/** Where the modules of the distribution are in Maven Central. */
const modules = [
  ..."analysis-common lang-painless transport-netty4-client reindex-client".split(" "),
  ..."parent-join-client percolator-client mapper-extras-client rank-eval-client geo".split(" "),
  ..."aggs-matrix-stats-client lang-mustache-client ingest-common search-pipeline-common".split(
    " ",
  ),
];

/** Of the JDK. Maven looks at `JAVA_HOME` itself. */
function jdkProgram(name: string): string {
  return JAVA_HOME === undefined ? name : path.join(JAVA_HOME, "bin", name);
}

async function missingProgram(): Promise<string | undefined> {
  const java = jdkProgram("java");
  for (const program of [java, "mvn", "python3"]) {
    const flag = program === java ? "-version" : "--version";
    const isThere = await run(program, [flag]).then(
      () => true,
      () => false,
    );
    if (!isThere) return program;
  }
  return undefined;
}

function dependency(group: string, artifact: string, version: string): string {
  return `<dependency><groupId>${group}</groupId><artifactId>${artifact}</artifactId><version>${version}</version></dependency>`;
}

async function install(): Promise<void> {
  if (existsSync(place)) return;
  mkdirSync(cache, { recursive: true });
  const partial = mkdtempSync(path.join(cache, "partial-"));
  try {
    const dependencies = [
      dependency("org.opensearch", "opensearch", VERSION),
      ...modules.map((name) => dependency("org.opensearch.plugin", name, VERSION)),
      dependency("org.apache.logging.log4j", "log4j-core", LOG4J),
    ];
    const project = `<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>test</groupId><artifactId>test</artifactId><version>1</version><dependencies>${dependencies.join("")}</dependencies></project>`;
    writeFileSync(path.join(partial, "pom.xml"), project);
    const flags = ["-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"];
    await run("mvn", flags, { cwd: partial });
    cpSync(
      path.join(import.meta.dirname, "opensearch-server.java"),
      path.join(partial, "Server.java"),
    );
    await run(jdkProgram("javac"), ["-cp", "lib/*", "-d", "classes", "Server.java"], {
      cwd: partial,
    });
    renameSync(partial, place);
    await run("python3", ["-m", "venv", path.join(place, "venv")]);
    await run(python, ["-m", "pip", "install", `opensearch-py==${CLIENT}`]);
  } finally {
    rmSync(partial, { recursive: true, force: true });
  }
}

/** @returns its URL */
async function startServer(t: Test): Promise<string> {
  const port = await freePort();
  const home = temporaryHome(t);
  mkdirSync(path.join(home, "config"));
  const classes = `${path.join(place, "classes")}:${path.join(place, "lib/*")}`;
  const flags = ["-Xms512m", "-Xmx512m", "-cp", classes, "Server", home, String(port)];
  const child = spawn(jdkProgram("java"), flags, { stdio: "ignore" });
  t.teardown(async () => {
    child.kill();
    if (child.exitCode === null) await once(child, "close");
  });
  const url = `http://127.0.0.1:${port}`;
  await eventually(
    "OpenSearch responds",
    async () => (await fetch(url).catch(() => undefined))?.ok === true,
  );
  return url;
}

const roles = new Map([
  ["any user", "una"],
  ["ReadOnly", "rita"],
  ["ReadWrite", "wanda"],
  ["DbAdmin", "dora"],
  ["none", undefined],
]);
const order = [...roles.keys()];
const report = z.object({ version: z.string(), calls: z.record(z.string(), z.string()) });

/** A generator that returns the same numbers for the same seed. */
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state * 1103515245 + 12345) % 2147483648;
    return Math.floor((state / 2147483648) * below);
  };
}

interface Asked {
  readonly method: string;
  readonly path: string;
  readonly body?: unknown;
  readonly lines?: readonly unknown[];
}

const OWN = "plain-a";
const OTHER = "plain-b";
const hidden = [OTHER, `${OTHER}-alias`, `${OWN},${OTHER}`, "plain-*", "*", "_all", `${OTHER}*`];

/** The index that the caller may read, or sometimes another one that exists or not. */
function arbitraryName(below: (limit: number) => number): string {
  return below(6) === 0 ? (hidden[below(hidden.length)] ?? OWN) : OWN;
}

function arbitraryQuery(below: (limit: number) => number, depth: number): object {
  const leaf = [
    { match_all: {} },
    { match: { t: `word${below(8)}` } },
    { match_phrase: { t: { query: `word${below(8)} word${below(8)}`, slop: below(3) } } },
    { term: { k: { value: `k${below(5)}` } } },
    { terms: { k: { index: arbitraryName(below), id: String(below(60)), path: "k" } } },
    { range: { n: { gte: below(60), lt: below(120) } } },
    { ids: { values: [String(below(60)), String(below(60))] } },
    { query_string: { query: `t:word${below(8)} OR n:${below(60)}` } },
    { more_like_this: { fields: ["t"], like: [{ _id: String(below(60)) }], min_term_freq: 1 } },
    { exists: { field: ["t", "k", "none"][below(3)] } },
    { prefix: { k: "k" } },
    { fuzzy: { t: { value: "wrod1", fuzziness: 2 } } },
  ];
  const inner = () => arbitraryQuery(below, depth - 1);
  const kind = depth === 0 ? 5 : below(10);
  if (kind === 0) return { bool: { must: [inner(), inner()], must_not: inner() } };
  if (kind === 1) return { bool: { should: [inner(), inner()], minimum_should_match: 1 } };
  if (kind === 2) return { constant_score: { filter: inner(), boost: 2 } };
  if (kind === 3) return { dis_max: { queries: [inner(), inner()], tie_breaker: 0.3 } };
  if (kind === 4) {
    return { function_score: { query: inner(), field_value_factor: { field: "n", missing: 1 } } };
  }
  return leaf[below(leaf.length)] ?? {};
}

function arbitrarySearch(below: (limit: number) => number): object {
  const sorts = [undefined, ["n"], [{ n: "desc" }], ["_score", "n"]];
  const aggregations = [
    undefined,
    { x: { terms: { field: "k" }, aggs: { y: { stats: { field: "n" } } } } },
    { x: { histogram: { field: "n", interval: 10 } } },
    { x: { significant_terms: { field: "k" } } },
    { x: { filters: { filters: { z: arbitraryQuery(below, 1) } } } },
    { x: { global: {}, aggs: { y: { value_count: { field: "n" } } } } },
  ];
  return {
    query: arbitraryQuery(below, 3),
    size: below(8),
    sort: sorts[below(sorts.length)],
    aggs: aggregations[below(aggregations.length)],
    highlight: below(4) === 0 ? { fields: { t: {} } } : undefined,
    suggest: below(6) === 0 ? { s: { text: "wrod1", term: { field: "t" } } } : undefined,
    explain: below(5) === 0 ? true : undefined,
    rescore:
      below(6) === 0
        ? { window_size: 5, query: { rescore_query: arbitraryQuery(below, 1) } }
        : undefined,
  };
}

/** A request of a reader of one index. */
function arbitraryRequest(below: (limit: number) => number): Asked {
  const name = arbitraryName(below);
  const get = (place: string): Asked => ({ method: "GET", path: place });
  const post = (place: string, body: unknown): Asked => ({ method: "POST", path: place, body });
  const simple = [
    get(`/${name}/_doc/${below(80)}`),
    get(`/${name}/_search?q=word${below(8)}&size=3`),
    get(`/${name}/_mapping`),
    get(`/${name}/_field_caps?fields=*`),
    get(`/${name}/_alias`),
    get("/_alias"),
    get("/_cat/indices?h=index,docs.count&format=json"),
    get("/_resolve/index/*"),
    post("/_mget", { docs: [{ _index: name, _id: String(below(80)) }] }),
    post("/_mtermvectors", { docs: [{ _index: name, _id: String(below(80)) }] }),
    post(`/${name}/_count`, { query: arbitraryQuery(below, 2) }),
    post(`/${name}/_validate/query?explain=true`, { query: arbitraryQuery(below, 1) }),
    post(`/${name}/_explain/${below(60)}`, { query: arbitraryQuery(below, 1) }),
  ];
  const kind = below(20);
  if (kind < 11) return post(`/${name}/_search`, arbitrarySearch(below));
  if (kind < 14) {
    const lines = [{ index: name }, arbitrarySearch(below), {}, arbitrarySearch(below)];
    return { method: "POST", path: `/${OWN}/_msearch`, lines };
  }
  return simple[below(simple.length)] ?? get("/");
}

/** Without what changes from one response to the next. */
function stable(text: string): string {
  return text.replace(/"took":\d+/g, '"took":0').replace(/"request_id":"[^"]*"/, "");
}

const REQUESTS = 1000;
/** Longer than the gateway remembers what a name means. */
const FORGOTTEN_MS = 1200;

const missing = await missingProgram();

t.test(
  "OpenSearch behind its preset",
  { skip: missing === undefined ? false : `${missing} is not installed`, timeout: 1_800_000 },
  async (t) => {
    await install();
    const url = await startServer(t);

    await t.test("every check of the suite holds", (t) => checkSuite(t, "opensearch", url, 5000));

    await t.test("the Python client may do what docs/opensearch.md says", async (t) => {
      const grants = [
        "root * Owner",
        "una elsewhere ReadOnly",
        "rita main ReadOnly",
        "wanda main ReadWrite",
        "dora main DbAdmin",
      ];
      const { gateway, login } = await openPreset(t, "opensearch", url, { grants });
      const documented = new Map<string, string>();
      for (const [calls = "", least = ""] of readPage("opensearch.md").rows("Call", "Least role")) {
        for (const call of calls.split(", ")) documented.set(call, least);
      }
      const admin = await login("root");
      const { port } = new URL(gateway.url);
      for (const [role, user] of roles) {
        if (user === undefined) continue;
        const program = path.join(import.meta.dirname, "opensearch-client.py");
        const { stdout } = await run(python, [program, port, await login(user), admin]);
        const found = report.parse(JSON.parse(stdout));
        t.equal(found.version, VERSION);
        const called = Object.keys(found.calls).sort();
        t.same([...documented.keys()].sort(), called, "the page lists every call");
        for (const [name, outcome] of Object.entries(found.calls)) {
          const isAllowed = order.indexOf(role) >= order.indexOf(documented.get(name) ?? "");
          t.equal(outcome, isAllowed ? "allowed" : "refused", `${role}: ${name}`);
        }
      }
    });

    await t.test("an index that the caller may not read changes no byte", async (t) => {
      const direct = async (method: string, place: string, body?: unknown) => {
        const headers = { "content-type": "application/json" };
        const init =
          body === undefined ? { method } : { method, headers, body: JSON.stringify(body) };
        const answer = await fetch(`${url}${place}`, init);
        if (!answer.ok) throw new Error(`${method} ${place}: ${await answer.text()}`);
      };
      const properties = { t: { type: "text" }, k: { type: "keyword" }, n: { type: "long" } };
      const settings = { number_of_shards: 1, number_of_replicas: 0 };
      const fill = async (index: string, word: string) => {
        const aliases = { [`${index}-alias`]: {} };
        await direct("PUT", `/${index}`, { settings, mappings: { properties }, aliases });
        for (let id = 0; id < 60; id++) {
          const body = { t: `${word}${id % 8} ${word}${id % 5}`, k: `k${id % 5}`, n: id };
          await direct("PUT", `/${index}/_doc/${id}`, body);
        }
        await direct("POST", `/${index}/_refresh`);
        // Merged, so that no request comes before or after a merge.
        await direct("POST", `/${index}/_forcemerge?max_num_segments=1`);
      };
      await fill(OWN, "word");
      await fill(OTHER, "word");
      const entry = `[[acl]]\nusername = "rita"\ndatabase = "main"\ntables = ["${OWN}"]\nrole = "ReadOnly"\n`;
      const grants = ["root * Owner", "rita elsewhere ReadOnly"];
      const options = { grants, more: entry };
      const { gateway, login } = await openPreset(t, "opensearch", url, options);
      const token = await login("rita");
      const ask = async ({ method, path: place, body, lines }: Asked) => {
        const text = lines?.map((line) => `${JSON.stringify(line)}\n`).join("");
        const headers: Record<string, string> = { authorization: `Bearer ${token}` };
        if (method !== "GET") headers["content-type"] = "application/json";
        const init = method === "GET" ? {} : { body: text ?? JSON.stringify(body) };
        const answer = await gateway.request(place, { method, headers, ...init });
        return `${answer.status} ${stable(answer.text)}`;
      };
      const below = numbers(20261129);
      const asked = Array.from({ length: REQUESTS }, () => arbitraryRequest(below));
      const before: string[] = [];
      for (const one of asked) before.push(await ask(one));
      await direct("DELETE", `/${OTHER}`);
      await delay(FORGOTTEN_MS);
      const statuses = new Map<string, number>();
      for (const [at, one] of asked.entries()) {
        const after = await ask(one);
        if (after !== before[at]) t.equal(after, before[at], JSON.stringify(one));
        const status = after.slice(0, 3);
        statuses.set(status, (statuses.get(status) ?? 0) + 1);
      }
      t.notOk(before.some((one) => one.startsWith("200") && one.includes(OTHER)));
      t.comment(JSON.stringify([...statuses]));
      t.ok((statuses.get("200") ?? 0) > REQUESTS / 2, "most requests find something");
    });
  },
);
