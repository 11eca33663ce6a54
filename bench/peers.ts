/**
 * Compares Gatehouse with its peers: processor time per request, on one machine and in one run, with the same
 * tokens, queries and upstream.
 *
 * `npm run bench -- [--rounds 5] [--seconds 3] [--quick] [--only TEXT] [--systems NAME,...] [--json] [--plot FILE]`
 *
 * `--quick` runs only the first scenario, `--only` those with this text in their names, `--systems` only
 * Gatehouse and these: bare, haproxy-es256, envoy, fastify, haproxy-rs256, haproxy-hs256, haproxy-open,
 * nginx, express, vmauth, oauth2-proxy, oathkeeper.
 */

import { execFileSync } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { type Cost, measure } from "./peers/measure.ts";
import { prove } from "./peers/proof.ts";
import { costPlot, costTable, latencyTable } from "./peers/report.ts";
import { bodyFile, type Scenario, scenarios, tokenFile } from "./peers/scenarios.ts";
import { openScene } from "./peers/scene.ts";
import { LOAD_CORE, type System } from "./peers/system.ts";
import { NEAREST, selectSystems, startSystems } from "./peers/systems.ts";
import type { World } from "./peers/world.ts";
import { effortFlags } from "./rig/flags.ts";
import { describeMachine } from "./rig/machine.ts";
import { type Latency, openLoop } from "./rig/open-loop.ts";

const { values: flags } = parseArgs({
  options: {
    ...effortFlags,
    quick: { type: "boolean", default: false },
    only: { type: "string", default: "" },
    systems: { type: "string" },
    plot: { type: "string" },
  },
});
const selection = selectSystems(flags.systems);
const effort = { rounds: Number(flags.rounds), seconds: Number(flags.seconds) };
/** Requests per second for latency; the nearest peers sustain it easily. */
const OPEN_LOOP_RATE = 1500;
const OPEN_LOOP_SECONDS = 5;

async function latencies(
  scenario: Scenario,
  systems: readonly System[],
  world: World,
): Promise<Map<string, Latency>> {
  const found = new Map<string, Latency>();
  const body = await readFile(bodyFile(world, scenario), "utf8");
  for (const { name, port, algorithm = "ES256" } of systems) {
    const file = await tokenFile(world, algorithm, "repeated", 0);
    const tokens = (await readFile(file, "utf8")).split("\n");
    const load = { port, rate: OPEN_LOOP_RATE, seconds: OPEN_LOOP_SECONDS, tokens, body };
    found.set(name, await openLoop(load));
  }
  return found;
}

interface Outcome {
  readonly costs: readonly Cost[];
  readonly latency: ReadonlyMap<string, Latency> | undefined;
}

/** @param isWide true for all systems, and for latency */
async function run(
  scenario: Scenario,
  world: World,
  port: number,
  isWide: boolean,
): Promise<Outcome> {
  await using opened = new AsyncDisposableStack();
  const started = await startSystems(world, port, selection[isWide ? "all" : "nearest"], opened);
  const systems = started.filter(({ largestBody }) => scenario.body <= largestBody);
  for (const system of systems) await prove(system, world);
  const costs = await measure(scenario, systems, world, effort);
  const nearest = systems.slice(0, NEAREST);
  return { costs, latency: isWide ? await latencies(scenario, nearest, world) : undefined };
}

function print({ name }: Scenario, { costs, latency }: Outcome): void {
  console.log(`## ${name}\n\n${costTable(costs)}\n`);
  if (latency === undefined) return;
  console.log(`### Latency at ${OPEN_LOOP_RATE} requests a second, in ms\n`);
  console.log(`${latencyTable(latency)}\n`);
}

await using opened = new AsyncDisposableStack();
const { world, upstream } = await openScene(opened);
// This process sends the load at a fixed rate, so the measured system has its core to itself.
execFileSync("taskset", ["-acp", String(LOAD_CORE), String(process.pid)]);
const outcomes: Record<string, unknown> = {};
if (!flags.json) console.log(`${describeMachine().join("; ")}\n`);
for (const [at, scenario] of scenarios.entries()) {
  if ((flags.quick && at > 0) || !scenario.name.includes(flags.only)) continue;
  const port = upstream.ports.get(scenario.answer) ?? 0;
  const outcome = await run(scenario, world, port, at === 0);
  outcomes[scenario.name] = { ...outcome, latency: Object.fromEntries(outcome.latency ?? []) };
  if (!flags.json) print(scenario, outcome);
  if (at === 0 && flags.plot !== undefined) {
    await writeFile(flags.plot, costPlot(`${scenario.name}, 200 B answer`, outcome.costs));
  }
}
if (flags.json) {
  console.log(JSON.stringify({ machine: describeMachine(), effort, outcomes }, undefined, 2));
}
