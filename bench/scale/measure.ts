/** Measures requests at one size of a gateway, and at several replicas. */
import { appendFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { childrenOf, residentBytes } from "../../test/kit/process-info.ts";
import { type Gatehouse, startGatehouse } from "../peers/gatehouse.ts";
import type { Effort } from "../peers/measure.ts";
import { bodyFile, scenarios } from "../peers/scenarios.ts";
import { openScene, type Scene } from "../peers/scene.ts";
import { LOAD_CORE, leadInSeconds } from "../peers/system.ts";
import { writers } from "../peers/world.ts";
import { type Load, load, type Sample } from "../rig/load.ts";
import { cpuSecondsOf, type Program } from "../rig/program.ts";
import { summarize } from "../rig/statistics.ts";
import { openSetting, tokenOf } from "../store/setting.ts";
import type { Size } from "./sizes.ts";

/** Results by name and unit. */
type Values = Record<string, number>;
type Note = (row: { name: string; at: number; values: Values }) => void;

type Measured = Pick<Program, "cpuSeconds">;

function smallQuery() {
  const [first] = scenarios;
  if (first === undefined) throw new Error("there is no scenario");
  return first;
}

/** The processes of a gateway, including workers. */
function processesOf({ program }: Gatehouse): number[] {
  const own = program.child.pid ?? 0;
  return [own, ...childrenOf(own)];
}

function sumOf(gateway: Gatehouse, of: (pid: number) => number): number {
  return processesOf(gateway).reduce((sum, pid) => sum + of(pid), 0);
}

interface Subject {
  readonly measured: Measured;
  readonly asked: Omit<Load, "seconds">;
  /** Seconds of warm-up before the first sample. */
  readonly leadIn: number;
}

/** @throws Error if a request was refused or failed */
async function goodSample(measured: Measured, asked: Load): Promise<Sample> {
  const sample = await load(measured, asked);
  if (sample.failed + sample.refused === 0 && sample.requests > 0) return sample;
  throw new Error(`not all requests were served: ${JSON.stringify(sample)}`);
}

function medians(samples: readonly Sample[]): Values {
  const of = (key: "cpu" | "rate" | "p50" | "p99") =>
    summarize(samples.map((one) => one[key])).median;
  return {
    "µs of CPU": of("cpu"),
    "a second": of("rate"),
    "p50, ms": of("p50") / 1000,
    "p99, ms": of("p99") / 1000,
  };
}

/** Runs all rounds. All gateways take turns, so that other load on the machine affects all alike. */
async function measureInTurn(subjects: readonly Subject[], effort: Effort): Promise<Values[]> {
  const taken = subjects.map((subject) => ({ ...subject, samples: [] as Sample[] }));
  for (let round = 1; round <= effort.rounds; round++) {
    for (const { measured, asked, leadIn, samples } of taken) {
      // Opening many connections takes a part of the sample.
      const opening = Math.floor(asked.connections / 1000);
      await load(measured, { ...asked, seconds: (round === 1 ? leadIn : 1) + opening });
      const seconds = effort.seconds + opening;
      samples.push(await goodSample(measured, { ...asked, seconds }));
    }
    console.error(`round ${round} of ${effort.rounds}`);
  }
  return taken.map(({ samples }) => medians(samples));
}

/** Since the last call, in milliseconds. */
async function stallOf({ metricsPort }: Gatehouse): Promise<number> {
  const metrics = await (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text();
  return Number(/^nodejs_eventloop_lag_max_seconds (\S+)/m.exec(metrics)?.[1]) * 1000;
}

/** Measures a manual change of the file. */
async function edit(gateway: Gatehouse, token: string): Promise<Values> {
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

interface Prepared extends Subject {
  readonly gateway: Gatehouse;
  readonly token: string;
  readonly atStart: Values;
}

async function prepare(
  { world, upstream }: Scene,
  size: Size,
  opened: AsyncDisposableStack,
): Promise<Prepared> {
  const scenario = smallQuery();
  const { connections = 32, tokens: count = 50 } = size;
  const start = performance.now();
  const upstreamPort = upstream.ports.get(scenario.answer) ?? 0;
  const gateway = await startGatehouse(world, upstreamPort, size.gateway);
  opened.defer(() => gateway.program.stop());
  await fetch(`http://127.0.0.1:${gateway.port}/healthz`);
  const atStart = {
    "start, s": (performance.now() - start) / 1000,
    "MB after it": sumOf(gateway, residentBytes) / 1e6,
  };
  const tokens: string[] = [];
  while (tokens.length < count) {
    tokens.push(await world.token(writers[tokens.length % writers.length] ?? ""));
  }
  const tokenFile = path.join(gateway.home, "tokens");
  await writeFile(tokenFile, tokens.join("\n"));
  const core = size.gateway?.isPinned === false ? {} : { core: LOAD_CORE };
  const files = { tokenFile, bodyFile: bodyFile(world, scenario) };
  return {
    gateway,
    token: tokens[0] ?? "",
    atStart,
    measured: { cpuSeconds: () => sumOf(gateway, cpuSecondsOf) },
    asked: { port: gateway.port, connections, ...files, ...core },
    // Warm-up with every token, since the first use verifies its signature.
    leadIn: leadInSeconds(1) + Math.ceil(count / 5000),
  };
}

/** Measures the sizes of one section, each with its own gateway. */
export async function measureSizes(
  sizes: readonly Size[],
  effort: Effort,
  note: Note,
): Promise<void> {
  await using opened = new AsyncDisposableStack();
  const scene = await openScene(opened);
  const prepared: Prepared[] = [];
  for (const size of sizes) prepared.push(await prepare(scene, size, opened));
  const costs = await measureInTurn(prepared, effort);
  for (const [index, { name, at, section }] of sizes.entries()) {
    const one = prepared[index];
    if (one === undefined) continue;
    const { gateway, token, atStart } = one;
    const loaded = { "MB loaded": sumOf(gateway, residentBytes) / 1e6 };
    const edited = section === "users" ? await edit(gateway, token) : {};
    note({ name, at, values: { ...costs[index], ...atStart, ...loaded, ...edited } });
  }
}

/** Compares a gateway with files and three replicas with a store. */
export async function measureReplicas(effort: Effort, note: Note): Promise<void> {
  await using opened = new AsyncDisposableStack();
  const { world } = await openScene(opened);
  const { single, replicas } = await openSetting(opened, { users: 10_000, count: 3 });
  const names = writers.slice(0, 10);
  const tokens = await Promise.all(names.map((name) => tokenOf(single, name)));
  const tokenFile = path.join(world.directory, "scale-tokens");
  await writeFile(tokenFile, tokens.join("\n"));
  const files = { tokenFile, bodyFile: bodyFile(world, smallQuery()) };
  const subjects = [single, ...replicas].map((gateway) => ({
    measured: gateway,
    asked: { port: gateway.port, connections: 32, ...files, core: LOAD_CORE },
    leadIn: leadInSeconds(1),
  }));
  for (const [at, values] of (await measureInTurn(subjects, effort)).entries()) {
    note({ name: at === 0 ? "over a file" : `replica ${at} of 3`, at: at + 1, values });
  }
}
