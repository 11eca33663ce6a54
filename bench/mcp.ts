/**
 * Measures calls of `/mcp` against a bare official server and a plain forward of the same bytes, and the way
 * from a login page to a token against the bare library.
 *
 * `node bench/mcp.ts [--rounds 3] [--seconds 3] [--flows 40] [--only TEXT] [--json]`
 *
 * `--only` runs the scenarios with this text in their names; the last one is `login page to token`. At most
 * 40 flows are measured, since an address may start sixty logins per minute.
 */

import { readFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { type Asked, bodyFileOf, type McpScenario, openCalls } from "./mcp/calls.ts";
import { type FlowCost, measureFlows } from "./mcp/flows.ts";
import { tokenFile } from "./peers/scenarios.ts";
import { openScene } from "./peers/scene.ts";
import { LOAD_CORE, leadInSeconds } from "./peers/system.ts";
import type { World } from "./peers/world.ts";
import { effortFlags } from "./rig/flags.ts";
import { load, type Sample } from "./rig/load.ts";
import { describeMachine } from "./rig/machine.ts";
import { type Latency, openLoop } from "./rig/open-loop.ts";
import { rangeText, type Summary, summarize } from "./rig/statistics.ts";
import { markdownTable } from "./rig/table.ts";

const { values: flags } = parseArgs({
  options: {
    ...effortFlags,
    rounds: { type: "string", default: "3" },
    flows: { type: "string", default: "40" },
    only: { type: "string", default: "" },
  },
});
const CONNECTIONS = 32;
/** Calls per second for the measurement of latency. */
const OPEN_LOOP = { rate: 100, seconds: 5 };
const FLOWS = "login page to token";

interface CallCost {
  readonly name: string;
  /** Microseconds of processor time per call. */
  readonly cpu: Summary;
  readonly rate: Summary;
  readonly latency: Latency;
}

/** @throws Error if the response is not the expected one */
async function prove({ headers, body, answer }: McpScenario, asked: Asked, token: string) {
  const url = `http://127.0.0.1:${asked.port}/mcp`;
  const all = { ...headers, authorization: `Bearer ${token}` };
  const answered = await fetch(url, { method: "POST", headers: all, body });
  const text = await answered.text();
  if (answered.ok && text.includes(answer)) return;
  throw new Error(`${asked.name}: ${answered.status} ${text.slice(0, 300)}`);
}

async function measureCalls(scenario: McpScenario, world: World): Promise<CallCost[]> {
  const files = {
    tokenFile: await tokenFile(world, "ES256", "repeated", 0),
    bodyFile: bodyFileOf(scenario, world.directory),
  };
  const { headers, body, systems } = scenario;
  const tokens = (await readFile(files.tokenFile, "utf8")).split("\n");
  const taken = systems.map((system) => ({ system, samples: [] as Sample[] }));
  for (const asked of systems) await prove(scenario, asked, tokens[0] ?? "");
  for (let round = 1; round <= Number(flags.rounds); round++) {
    for (const { system, samples } of taken) {
      const { port, program, name } = system;
      const ways = { port, path: "/mcp", headers, connections: CONNECTIONS, core: LOAD_CORE };
      const asked = { ...ways, ...files };
      await load(program, { ...asked, seconds: leadInSeconds(round) });
      const sample = await load(program, { ...asked, seconds: Number(flags.seconds) });
      if (sample.failed + sample.refused > 0) throw new Error(`${name}: ${JSON.stringify(sample)}`);
      samples.push(sample);
    }
    console.error(`${scenario.name}: round ${round} of ${flags.rounds}`);
  }
  const costs: CallCost[] = [];
  for (const { system, samples } of taken) {
    const { name, port } = system;
    const [cpu, rate] = [summarize(samples.map((one) => one.cpu)), samples.map((one) => one.rate)];
    const asked = { port, path: "/mcp", headers, tokens, body, ...OPEN_LOOP };
    costs.push({ name, cpu, rate: summarize(rate), latency: await openLoop(asked) });
  }
  return costs;
}

function callTable(costs: readonly CallCost[]): string {
  const own = costs[0]?.cpu.median ?? Number.NaN;
  const rows = costs.map(({ name, cpu, rate, latency }) => [
    name,
    cpu.median.toFixed(1),
    rangeText(cpu, 1),
    (own / cpu.median).toFixed(2),
    rate.median.toFixed(0),
    latency.p50.toFixed(2),
    latency.p99.toFixed(2),
  ]);
  const at = `ms at ${OPEN_LOOP.rate} a second`;
  const head = ["", "µs of CPU", "range", "Gatehouse takes", "a second", `p50, ${at}`, "p99"];
  return markdownTable(head, rows);
}

function flowTable(costs: readonly FlowCost[]): string {
  const rows = costs.map(({ name, cpu, hashing, p50, p99 }) => [
    name,
    ...[cpu, hashing, p50, p99].map((milliseconds) => milliseconds.toFixed(2)),
  ]);
  return markdownTable(["", "ms of CPU", "of the hashes", "p50, ms", "p99"], rows);
}

const outcomes: Record<string, readonly (CallCost | FlowCost)[]> = {};
if (!flags.json) console.log(`${describeMachine().join("; ")}\n`);
function tell<Cost extends CallCost | FlowCost>(
  name: string,
  costs: readonly Cost[],
  table: (costs: readonly Cost[]) => string,
): void {
  outcomes[name] = costs;
  if (!flags.json) console.log(`## ${name}\n\n${table(costs)}\n`);
}

await using opened = new AsyncDisposableStack();
if (flags.only !== FLOWS) {
  const scene = await openScene(opened);
  for (const scenario of await openCalls(scene, opened)) {
    if (!scenario.name.includes(flags.only)) continue;
    tell(scenario.name, await measureCalls(scenario, scene.world), callTable);
  }
}
if (FLOWS.includes(flags.only)) {
  tell(FLOWS, await measureFlows(Number(flags.flows), opened), flowTable);
}
if (flags.json) {
  console.log(JSON.stringify({ machine: describeMachine(), flags, outcomes }, undefined, 2));
}
