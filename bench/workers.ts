/**
 * Compares one and several processes: requests per second and processor time per request, without pinning.
 * Load and upstream run on the same machine and take a part of it.
 *
 * `node bench/workers.ts [--workers 2] [--rounds 3] [--seconds 3] [--json]`
 */

import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { childrenOf } from "../test/kit/process-info.ts";
import { type Gatehouse, startGatehouse } from "./peers/gatehouse.ts";
import { bodyFile, scenarios, tokenFile } from "./peers/scenarios.ts";
import { openScene } from "./peers/scene.ts";
import { effortFlags } from "./rig/flags.ts";
import { load } from "./rig/load.ts";
import { printFound } from "./rig/machine.ts";
import { cpuSecondsOf } from "./rig/program.ts";
import { rangeText, summarize } from "./rig/statistics.ts";
import { markdownTable } from "./rig/table.ts";

const { values: flags } = parseArgs({
  options: {
    ...effortFlags,
    workers: { type: "string", default: "2" },
    rounds: { type: "string", default: "3" },
  },
});
const counts = [1, Number(flags.workers)];
const seconds = Number(flags.seconds);

const [scenario] = scenarios;
if (scenario === undefined) throw new Error("there is no scenario");
await using opened = new AsyncDisposableStack();
const { world, upstream } = await openScene(opened);
const port = upstream.ports.get(scenario.answer) ?? 0;

/** The gateway's process or its workers. */
function serving({ program }: Gatehouse): number[] {
  const own = program.child.pid ?? 0;
  const workers = childrenOf(own).filter((pid) => commandOf(pid).includes("workers/program"));
  return workers.length === 0 ? [own] : workers;
}

function commandOf(pid: number): string {
  return readFileSync(`/proc/${pid}/cmdline`, "utf8");
}

const gateways: { name: string; gateway: Gatehouse; cpu: number[]; rate: number[] }[] = [];
for (const workers of counts) {
  const name = workers === 1 ? "1 process" : `${workers} processes`;
  const gateway = await startGatehouse(world, port, { workers, name, isPinned: false });
  opened.defer(() => gateway.program.end());
  gateways.push({ name, gateway, cpu: [], rate: [] });
}
const files = {
  tokenFile: await tokenFile(world, "ES256", scenario.tokens, 0),
  bodyFile: bodyFile(world, scenario),
};
const { connections } = scenario;
for (let round = 0; round <= Number(flags.rounds); round++) {
  for (const { name, gateway, cpu, rate } of gateways) {
    const pids = serving(gateway);
    const used = () => pids.reduce((sum, pid) => sum + cpuSecondsOf(pid), 0);
    const before = used();
    const sample = await load(gateway.program, {
      port: gateway.port,
      connections,
      seconds,
      ...files,
    });
    if (sample.failed + sample.refused > 0) throw new Error(`${name}: requests failed`);
    if (round === 0) continue;
    cpu.push(((used() - before) * 1e6) / sample.requests);
    rate.push(sample.rate);
  }
}

const found = gateways.map(({ name, cpu, rate }) => ({
  name,
  cpu: summarize(cpu),
  rate: summarize(rate),
}));
printFound(flags.json, { found }, () => {
  const head = ["", "requests a second", "range", "µs of CPU a request", "range"];
  const rows = found.map(({ name, cpu, rate }) => [
    name,
    rate.median.toFixed(0),
    rangeText(rate),
    cpu.median.toFixed(1),
    rangeText(cpu),
  ]);
  return markdownTable(head, rows);
});
