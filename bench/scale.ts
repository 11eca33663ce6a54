/**
 * What a request costs as users, tokens, connections, rules, processes and replicas grow; with the users also memory,
 * the time of a start and of a change. Each section can be run by itself, in a few minutes.
 *
 * `node bench/scale.ts [--only users,tokens,connections,rules,workers,replicas] [--rounds 3] [--seconds 2] [--json FILE]
 * [--plot FILE]`; with `--json` the results are added to those in the file, and drawn with them.
 */

import { existsSync, readFileSync } from "node:fs";
import { appendFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { parseArgs } from "node:util";
import * as z from "zod";
import { childrenOf } from "../test/kit/process-info.ts";
import { type Gatehouse, type GatehouseOptions, startGatehouse } from "./peers/gatehouse.ts";
import { bodyFile, scenarios } from "./peers/scenarios.ts";
import { openScene } from "./peers/scene.ts";
import { LOAD_CORE, leadInSeconds } from "./peers/system.ts";
import { writers } from "./peers/world.ts";
import { load, type Sample } from "./rig/load.ts";
import { describeMachine } from "./rig/machine.ts";
import { curvePlot } from "./rig/plot.ts";
import { cpuSecondsOf } from "./rig/program.ts";
import { summarize } from "./rig/statistics.ts";
import { markdownTable } from "./rig/table.ts";
import { openSetting, tokenOf } from "./store/setting.ts";

const { values: flags } = parseArgs({
  options: {
    only: { type: "string" },
    rounds: { type: "string", default: "3" },
    seconds: { type: "string", default: "2" },
    json: { type: "string" },
    plot: { type: "string" },
  },
});
const rounds = Number(flags.rounds);
const seconds = Number(flags.seconds);

/** What is measured at one size; the rest is as usual: 50 users and tokens, 32 connections. */
interface Size {
  readonly section: string;
  /** Where it stands on the curve. */
  readonly at: number;
  readonly name: string;
  readonly gateway?: GatehouseOptions;
  readonly tokens?: number;
  readonly connections?: number;
}

const text = (count: number) => count.toLocaleString("en");
const column = (name: string) => `columns = ["id", "${name}", "status"]\n`;
const filter = 'row_filter = [{ column = "tenant", cmp = "=", value = "@username" }]\n';
/** Ends each entry of the file by further lines. */
const narrowed = (lines: string) => (file: string) =>
  file.replaceAll('role = "ReadWrite"\n', `role = "ReadWrite"\n${lines}`);
const bounded = (file: string) =>
  file +
  Array.from(
    { length: 100 },
    (_, index) => `[[boundaries]]\nvia = "query"\ndatabase = "other${index}"\nmax_rows = 100\n\n`,
  ).join("");
/** Connections to the upstream that take a busy connection each, or have 16 wait for one. */
const MANY_UP = 640;

const sizes: readonly Size[] = [
  ...[50, 1000, 10_000, 100_000, 1_000_000].map((users) => ({
    ...{ section: "users", at: users, name: `${text(users)} users`, gateway: { users } },
  })),
  ...[1, 50, 1000, 10_000, 100_000].map((tokens) => ({
    ...{ section: "tokens", at: tokens, name: `${text(tokens)} tokens`, tokens },
  })),
  // With as many to the upstream, and some, the last fits the usual limit of 20,000 open files.
  ...[1, 10, 32, 100, 320, 1000, 3200, 9000].map((connections) => ({
    ...{ section: "connections", at: connections, name: `${text(connections)} connections` },
    ...{ connections, gateway: { connections: MANY_UP } },
  })),
  ...[
    { name: "roles alone" },
    { name: "columns in each entry", editAccess: narrowed(column("tenant")) },
    { name: "columns and a row filter", editAccess: narrowed(column("tenant") + filter) },
    { name: "100 boundaries", editAccess: bounded },
  ].map(({ name, ...gateway }, at) => ({
    ...{ section: "rules", at: at + 1, name: `10,000 users, ${name}` },
    gateway: { users: 10_000, ...gateway },
  })),
  ...[1, 2, 4].map((workers) => ({
    ...{ section: "workers", at: workers, name: `${workers} processes` },
    gateway: { workers, isPinned: false },
  })),
];

const found = z.record(
  z.string(),
  z.array(z.object({ name: z.string(), at: z.number(), values: z.record(z.string(), z.number()) })),
);
type Found = z.infer<typeof found>;
const results: Found =
  flags.json !== undefined && existsSync(flags.json)
    ? found.parse(JSON.parse(readFileSync(flags.json, "utf8")))
    : {};

const scenario = smallQuery();

function smallQuery() {
  const [first] = scenarios;
  if (first === undefined) throw new Error("there is no scenario");
  return first;
}

/** Processor seconds of a gateway, with those of its workers. */
function cpuOf({ program }: Gatehouse): { cpuSeconds(): number } {
  const own = program.child.pid ?? 0;
  const all = [own, ...childrenOf(own)];
  return { cpuSeconds: () => all.reduce((sum, pid) => sum + cpuSecondsOf(pid), 0) };
}

/** The longest stall of the event loop since it was last asked, in milliseconds. */
async function stallOf({ metricsPort }: Gatehouse): Promise<number> {
  const metrics = await (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text();
  return Number(/^nodejs_eventloop_lag_max_seconds (\S+)/m.exec(metrics)?.[1]) * 1000;
}

/** What a change of the file by hand comes to. */
async function edit(gateway: Gatehouse, token: string): Promise<Record<string, number>> {
  const file = path.join(gateway.home, "access_control.toml");
  const times: number[] = [];
  await stallOf(gateway);
  for (let round = 0; round < 3; round++) {
    const database = `edited${round}`;
    const body = JSON.stringify({ Select: { database, from: "t", columns: ["*"] } });
    const headers = { "content-type": "application/json", authorization: `Bearer ${token}` };
    const status = async () => {
      const url = `http://127.0.0.1:${gateway.port}/query`;
      const answer = await fetch(url, { method: "POST", headers, body });
      await answer.arrayBuffer();
      return answer.status;
    };
    const start = performance.now();
    const entry = `\n[[acl]]\nusername = "${writers[0]}"\ndatabase = "${database}"\nrole = "ReadOnly"\n`;
    await appendFile(file, entry);
    while ((await status()) === 403) await pause(5);
    times.push(performance.now() - start);
  }
  return {
    "edit in force, ms": summarize(times).median,
    "longest stall, ms": await stallOf(gateway),
  };
}

async function measureSizes(section: string): Promise<void> {
  await using opened = new AsyncDisposableStack();
  const { world, upstream } = await openScene(opened);
  const port = upstream.ports.get(scenario.answer) ?? 0;
  const body = bodyFile(world, scenario);
  for (const size of sizes.filter((one) => one.section === section)) {
    const { name, at, connections = 32, tokens: count = 50 } = size;
    const start = performance.now();
    const gateway = await startGatehouse(world, port, size.gateway);
    await fetch(`http://127.0.0.1:${gateway.port}/healthz`);
    const startSeconds = (performance.now() - start) / 1000;
    const megabytes = gateway.program.residentMegabytes();
    const tokens: string[] = [];
    for (let made = 0; made < count; made++) {
      tokens.push(await world.token(writers[made % writers.length] ?? ""));
    }
    const tokenFile = path.join(world.directory, "scale-tokens");
    await writeFile(tokenFile, tokens.join("\n"));
    const measured = cpuOf(gateway);
    const core = size.gateway?.isPinned === false ? {} : { core: LOAD_CORE };
    const options = { port: gateway.port, connections, tokenFile, bodyFile: body, ...core };
    // A fresh token costs its signature: all are shown once before what counts.
    await load(measured, { ...options, seconds: leadInSeconds(1) + Math.ceil(count / 8000) });
    const samples: Sample[] = [];
    for (let round = 0; round < rounds; round++) {
      const sample = await load(measured, { ...options, seconds });
      if (sample.failed + sample.refused > 0 || sample.requests === 0) {
        throw new Error(`${name}: ${sample.failed} failed, ${sample.refused} were refused`);
      }
      samples.push(sample);
    }
    const median = (of: "cpu" | "rate" | "p50" | "p99") =>
      summarize(samples.map((sample) => sample[of])).median;
    const values: Record<string, number> = {
      "µs of CPU": median("cpu"),
      "a second": median("rate"),
      "p50, ms": median("p50") / 1000,
      "p99, ms": median("p99") / 1000,
      "start, s": startSeconds,
      "MB after it": megabytes,
      "MB loaded": gateway.program.residentMegabytes(),
    };
    if (section === "users") Object.assign(values, await edit(gateway, tokens[0] ?? ""));
    note(section, { name, at, values });
    await gateway.program.stop();
  }
}

/** A gateway over files beside three over one store, each asked by itself. */
async function measureReplicas(): Promise<void> {
  await using opened = new AsyncDisposableStack();
  const { world } = await openScene(opened);
  const { single, replicas } = await openSetting(opened, { users: 10_000, count: 3 });
  const names = writers.slice(0, 10);
  const tokens = await Promise.all(names.map((name) => tokenOf(replicas[0] ?? single, name)));
  const tokenFile = path.join(world.directory, "scale-tokens");
  await writeFile(tokenFile, tokens.join("\n"));
  const files = { tokenFile, bodyFile: bodyFile(world, scenario) };
  const gateways = [single, ...replicas];
  for (const [at, gateway] of gateways.entries()) {
    const name = at === 0 ? "over a file" : `replica ${at} of 3`;
    const options = { port: gateway.port, connections: 32, ...files, core: LOAD_CORE };
    await load(gateway, { ...options, seconds: 3 });
    const samples: Sample[] = [];
    for (let round = 0; round < rounds; round++) {
      samples.push(await load(gateway, { ...options, seconds }));
    }
    const refused = samples.reduce((sum, sample) => sum + sample.refused + sample.failed, 0);
    if (refused > 0) throw new Error(`${name}: ${refused} were refused`);
    const of = (key: "cpu" | "rate" | "p99") => summarize(samples.map((one) => one[key])).median;
    const values = { "µs of CPU": of("cpu"), "a second": of("rate"), "p99, ms": of("p99") / 1000 };
    note("replicas", { name, at: at + 1, values });
  }
}

function note(section: string, row: Found[string][number]): void {
  const rows = (results[section] ?? []).filter(({ name }) => name !== row.name);
  results[section] = [...rows, row].sort((one, other) => one.at - other.at);
  console.error(row.name, JSON.stringify(row.values));
}

const sections = [...new Set(sizes.map(({ section }) => section)), "replicas"];
console.log(`${describeMachine().join("; ")}\n`);
for (const section of flags.only?.split(",") ?? sections) {
  if (!sections.includes(section)) throw new Error(`--only takes ${sections.join(", ")}`);
  await (section === "replicas" ? measureReplicas() : measureSizes(section));
  const rows = results[section] ?? [];
  const head = Object.keys(rows[0]?.values ?? {});
  const cells = rows.map(({ name, values }) => [
    name,
    ...head.map((key) => (values[key] ?? 0).toFixed(1)),
  ]);
  console.log(`${markdownTable([section, ...head], cells)}\n`);
}
if (flags.json !== undefined) await writeFile(flags.json, JSON.stringify(results, undefined, 2));
if (flags.plot !== undefined) {
  const curves = ["users", "tokens", "connections"].flatMap((name) => {
    const points = (results[name] ?? []).map(({ at, values }): [number, number] => {
      return [at, values["µs of CPU"] ?? 0];
    });
    return points.length === 0 ? [] : [{ name, points }];
  });
  const unit =
    "µs of user and system time a request, over how many there are: medians of the rounds";
  await writeFile(flags.plot, curvePlot("Cost of a request as things grow", unit, curves));
}
